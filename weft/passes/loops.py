"""Control flow as passes see it: which operand of a node is which input of its regions, and which output.

``Loop`` shows a ``while_loop`` or a ``scan`` in one form, and makes a node of changed parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.records import NamedTuple
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.arithmetic import add
from weft.ops.compare import less
from weft.ops.control import cond, scan, switch, while_loop

BRANCHES = (cond, switch)
LOOPS = (while_loop, scan)
CONTROL = (*BRANCHES, *LOOPS)


class Loop(NamedTuple):
    """A loop taken apart.

    Attributes:
        node: the ``while_loop`` or ``scan``.
        steps: the operand that tells the number of iterations, in a tuple, or nothing.
        inits: operands that are carries at first.
        rows: operands of which each iteration sees one row.
        fixed: operands that stay the same.
        body: gives the next carries, then what is collected.
        test: whether to go on, of a ``while_loop``; else None.
    """

    node: Node
    steps: tuple[Value, ...]
    inits: tuple[Value, ...]
    rows: tuple[Value, ...]
    fixed: tuple[Value, ...]
    body: Graph
    test: Graph | None

    @property
    def regions(self) -> tuple[Graph, ...]:
        """The body and, if there is one, the test."""
        return (self.body,) if self.test is None else (self.body, self.test)

    def carried(self, region: Graph) -> tuple[Value, ...]:
        """The inputs of a region that are carries."""
        return region.inputs[: len(self.inits)]

    def same(self, region: Graph) -> tuple[Value, ...]:
        """The inputs of a region that stay the same in every iteration."""
        start = len(self.inits) + len(self.rows)
        return region.inputs[start:]

    @property
    def collected(self) -> tuple[Value, ...]:
        """The outputs of the body that come out stacked."""
        return self.body.outputs[len(self.inits) :]

    @property
    def outs(self) -> tuple[Value, ...]:
        """The outputs of the node that are carries at the end."""
        return self.node.outputs[: len(self.inits)]

    @property
    def stacks(self) -> tuple[Value, ...]:
        """The outputs of the node that are stacked, without the number of iterations after them."""
        start = len(self.inits)
        return self.node.outputs[start : start + len(self.collected)]

    @property
    def trips(self) -> tuple[Value, ...]:
        """The output of the node that is the number of iterations, in a tuple, or nothing."""
        return self.node.outputs[len(self.body.outputs) :]


def as_loop(node: Node) -> Loop | None:
    """A node as a loop, if it is one."""
    attrs = node.attrs
    if node.op is while_loop:
        n = attrs["carries"]
        return Loop(node, (), node.inputs[:n], (), node.inputs[n:], attrs["body"], attrs["test"])
    if node.op is scan:
        head = 1 if attrs["counted"] else 0
        n = head + attrs["carries"]
        m = n + attrs["mapped"]
        xs = node.inputs
        return Loop(node, xs[:head], xs[head:n], xs[n:m], xs[m:], attrs["body"], None)
    return None


def remade(loop: Loop, outputs: Sequence[Value], **parts: Any) -> Loop:
    """A loop with other parts and outputs; one that collects nothing tells no number of trips."""
    changed: dict[str, Any] = {name: tuple(p) if type(p) is list else p for name, p in parts.items()}
    new = loop._replace(**changed)
    attrs: dict[str, Any] = {**loop.node.attrs, "body": new.body, "carries": len(new.inits)}
    if loop.node.op is scan:
        attrs["mapped"] = len(new.rows)
    else:
        attrs["test"] = new.test
        if len(outputs) == len(new.inits):
            attrs["trips"] = None
    inputs = [*new.steps, *new.inits, *new.rows, *new.fixed]
    return new._replace(node=Node(loop.node.op, inputs, attrs, outputs, loop.node.location))


def with_inputs(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    """A region with other inputs and outputs; constants that nothing uses are left out."""
    used = {v for node in graph.nodes for v in node.inputs}.union(outputs)
    constants = {v: a for v, a in graph.constants.items() if v in used}
    return Graph(graph.name, inputs, graph.nodes, outputs, constants=constants)


def new_value(value: Value) -> Value:
    """A value of the same type and name."""
    return Value(TensorType(value.type.shape, value.type.dtype), value.name)


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
    >>> from weft.passes.loops import find_counter
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
