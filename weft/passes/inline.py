"""Calls replaced by what they call: composites, and captured functions that call others."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.call import call
from weft.passes.base import graph_pass


def _expand(draft: Draft, node: Node) -> Sequence[Value]:
    return draft.expand(node.attrs["body"], node.inputs)


@graph_pass
def inline(graph: Graph) -> Graph:
    """Put the body of each call in its place, in regions too.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.silu(x) * 2.0)(weft.ones(3))
    >>> [node.op.name for node in weft.passes.inline(graph).nodes]
    ['sigmoid', 'mul', 'mul']
    """
    return sweep(graph, {call: [_expand]})
