"""Powers whose exponents are surely not positive: what a softmax is made of.

An exponent that is not larger than 0 needs less code: nothing overflows. A single element does not show that
``x - max(x)`` is such a one, so it is said: it is the opposite of its size, which changes nothing, and costs
nothing either where operands of instructions have signs.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.arithmetic import neg, sub
from weft.ops.complex import absolute
from weft.ops.exponential import exp, log
from weft.ops.reduce import reduce_max, reduce_sum
from weft.passes.base import graph_pass


@graph_pass(regions=True, once=True)
def falling_powers(graph: Graph) -> Graph:
    """Write ``exp(x - max(x))`` as ``exp(-abs(x - max(x)))``, and so the exponential of a log-softmax.

    >>> import weft
    >>> from weft.passes.lowering.falling_powers import falling_powers
    >>> graph = weft.make_graph(weft.softmax)(weft.ones(3)).optimize(passes=["decompose"])
    >>> [node.op.name for node in falling_powers(graph).nodes]
    ['max', 'sub', 'abs', 'neg', 'exp', 'sum', 'div', 'mul']
    """
    return sweep(graph, {exp: [_bounded]}, again=False)


def _bounded(draft: Draft, node: Node) -> Sequence[Value] | None:
    (x,) = node.inputs
    if not _is_falling(draft, x):
        return None
    return draft.emit(exp, draft.emit(neg, draft.emit(absolute, [x])))


def _is_falling(draft: Draft, x: Value) -> bool:
    """Whether a value is some others less their maximum, perhaps less the logarithm of a sum from 1 on."""
    node = draft.producer(x, sub)
    if node is None:
        return False
    whole, part = node.inputs
    most = draft.producer(part, reduce_max)
    if most is not None:
        return most.inputs[0] is whole and most.outputs[0].type.ndim == whole.type.ndim
    logarithm = draft.producer(part, log)
    total = None if logarithm is None else draft.producer(logarithm.inputs[0], reduce_sum)
    power = None if total is None else draft.producer(total.inputs[0], exp)
    if power is None or not _is_falling(draft, whole):
        return False
    # One of what is summed up is exp(0), so the sum is at least 1.
    opposite = draft.producer(power.inputs[0], neg)
    size = None if opposite is None else draft.producer(opposite.inputs[0], absolute)
    return whole is (power if size is None else size).inputs[0]
