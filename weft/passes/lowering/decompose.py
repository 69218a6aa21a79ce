"""Ops that are several loops, written as the ops that are one each, so that fusion sees through them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ir.types import TensorType
from weft.ops.function import function
from weft.ops.op import Op
from weft.ops.rows import rows
from weft.passes.base import graph_pass
from weft.passes.unroll import take_row
from weft.tensor.autocast import not_casting
from weft.transform.building import Capture
from weft.transform.captured import not_capturing
from weft.transform.tracing import trace_graph


@graph_pass(once=True)
def decompose(graph: Graph) -> Graph:
    """Write ops of several loops by their decompositions, user's functions by their bodies.

    >>> import weft
    >>> graph = weft.make_graph(weft.softmax)(weft.ones(3))
    >>> [node.op.name for node in weft.passes.decompose(graph).nodes]
    ['max', 'sub', 'exp', 'sum', 'div', 'mul']
    """
    found = {node.op for node in graph.walk() if node.op.decomposition is not None}
    return sweep(graph, {function: [_function], rows: [_rows], **{op: [decomposed] for op in found}})


def decomposed(draft: Draft, node: Node) -> Sequence[Value]:
    """What stands for a node whose op has a decomposition."""
    types = tuple(v.type for v in node.inputs)
    return draft.expand(_traced(node.op, types, tuple(node.attrs.items())), node.inputs)


class _Nowhere(Capture):
    """A capture of what has no line of its own: that of the node is taken."""

    def location(self) -> None:
        """Nothing."""
        return None


@lru_cache(maxsize=256)
def _traced(op: Op, types: tuple[TensorType, ...], attrs: tuple[tuple[str, Any], ...]) -> Graph:
    """The decomposition of an op as a graph."""
    assert op.decomposition is not None
    decomposition, named = op.decomposition, dict(attrs)
    with not_capturing(), not_casting():
        graph, others = trace_graph(
            lambda *xs: decomposition(*xs, **named), types, op.name, closed=True, make=_Nowhere
        )
    assert not others, f"the decomposition of {op.name} uses tensors from outside"
    return graph


def _rows(draft: Draft, node: Node) -> Sequence[Value]:
    return [take_row(draft, node.inputs[0], i) for i in range(node.attrs["count"])]


def _function(draft: Draft, node: Node) -> Sequence[Value]:
    return draft.expand(node.attrs["body"], node.inputs[: node.attrs["used"]])
