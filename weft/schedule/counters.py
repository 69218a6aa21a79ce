"""Loops that count: the test compares a carry with something that is fixed, and the body adds 1 to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.base.dtypes import int64
from weft.ir.graph import Array, Graph, Node, Value
from weft.ops.arithmetic import add
from weft.ops.compare import less
from weft.passes.loops import Loop, as_loop


class Counter(NamedTuple):
    """How a loop counts.

    Attributes:
        carry: the number of the carry that grows by one.
        stop: the loop goes on while it is below this: a value around the loop, or the array of a constant.
    """

    carry: int
    stop: Value | Array


def find_counter(node: Node) -> Counter | None:
    """How a ``while_loop`` counts, if it does.

    >>> import weft
    >>> from weft.schedule.counters import find_counter
    >>> def power(n, x):
    ...     return weft.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2.0), (0, x))
    >>> graph = weft.make_graph(power)(weft.tensor(3), weft.tensor(1.0))
    >>> find_counter(graph.nodes[-1]).carry
    0
    """
    loop = as_loop(node)
    if loop is None or loop.test is None or len(loop.test.nodes) != 1:
        return None
    (test,) = loop.test.nodes
    carried = loop.carried(loop.test)
    if test.op is not less or test.outputs != loop.test.outputs or test.inputs[0] not in carried:
        return None
    carry, stop = carried.index(test.inputs[0]), _outside(loop, loop.test, test.inputs[1])
    if stop is None or test.inputs[0].type.dtype != int64 or not _grows_by_one(loop.body, carry):
        return None
    return Counter(carry, stop)


def _outside(loop: Loop, region: Graph, value: Value) -> Value | Array | None:
    """What a value that stays the same in a region is outside."""
    fixed = dict(zip(loop.same(region), loop.fixed, strict=True))
    return fixed.get(value, region.constants.get(value))


def _grows_by_one(body: Graph, carry: int) -> bool:
    before, after = body.inputs[carry], body.outputs[carry]
    node = next((n for n in body.nodes if after in n.outputs), None)
    if node is None or node.op is not add:
        return False
    steps = [body.constants.get(v) for v in node.inputs if v is not before]
    return len(steps) == 1 and steps[0] is not None and np.array_equal(steps[0], 1)
