"""Functions of elements that a loop looks up: computed once for the whole array, before the loop.

In ``for i: for c: ... exp(logs[c])`` the exponential is the same in every iteration of the outer loop, but
not in that of the inner one, so it cannot simply move out. ``exp(logs)[c]`` can: where loops look elements up
more often than there are elements, the function and the look-up change places.
"""

from __future__ import annotations

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import map_regions
from weft.ops.index import gather_nd
from weft.passes.base import graph_pass
from weft.passes.cse import cse
from weft.passes.licm import licm
from weft.passes.loops import as_loop

HEAVY = 4  # instructions from which on a function is worth a table
_UNKNOWN = 16  # iterations of a loop whose length is not known


@graph_pass(once=True)
def hoist_lookups(graph: Graph) -> Graph:
    """Compute functions of looked-up elements before loops, if that saves work.

    >>> import weft
    >>> def f(x, i):
    ...     return weft.fori_loop(0, 100, lambda k, s: s + weft.exp(x[i[k]]), 0.0)
    >>> graph = weft.make_graph(f)(weft.ones(3), weft.zeros(100, dtype=weft.int64)).optimize()
    >>> [node.op.name for node in weft.passes.hoist_lookups(graph).nodes]
    ['exp', 'scan']
    """
    swapped = _swap(graph, dict.fromkeys(graph.inputs, 1.0))
    return graph if swapped is graph else cse(licm(swapped))


def _swap(graph: Graph, runs: dict[Value, float]) -> Graph:
    """A graph with functions before look-ups; it runs ``runs[v]`` times while its input v stays the same."""
    nodes: list[Node] = []
    makers: dict[Value, Node] = {}
    for node in graph.nodes:
        new = [_swap_loop(node, runs)]
        source = makers.get(node.inputs[0]) if _is_heavy(node) else None
        if source is not None and source.op is gather_nd and _pays(source.inputs[0], runs):
            new = _before_lookup(node, source)
        nodes += new
        makers.update((v, n) for n in new for v in n.outputs)
    if all(a is b for a, b in zip(nodes, graph.nodes, strict=False)):
        return graph
    return graph.replace(nodes=nodes)


def _is_heavy(node: Node) -> bool:
    """Whether a node is a function of single elements that takes long."""
    return node.op.scalar is not None and node.op.cost >= HEAVY and len(node.inputs) == 1


def _pays(table: Value, runs: dict[Value, float]) -> bool:
    size = size_of(table.type.shape)
    return not isinstance(size, Size) and size <= runs.get(table, 0)


def _before_lookup(node: Node, lookup: Node) -> list[Node]:
    """``f(x[i])`` as ``f(x)[i]``."""
    table, *indices = lookup.inputs
    (out,) = node.outputs
    whole = Value(node.op.type_rule(table.type, **node.attrs))
    return [
        Node(node.op, [table], node.attrs, [whole], node.location),
        Node(gather_nd, [whole, *indices], lookup.attrs, [out], lookup.location),
    ]


def _swap_loop(node: Node, runs: dict[Value, float]) -> Node:
    """A node whose regions, if it is a loop, run so many times."""
    loop = as_loop(node)
    if loop is None:
        return node
    length = loop.node.attrs.get("length")
    steps = float(length) if isinstance(length, int) else _UNKNOWN

    def swapped(region: Graph) -> Graph:
        pairs = zip(loop.same(region), loop.fixed, strict=True)
        return _swap(region, {inner: steps * runs.get(outer, 1.0) for inner, outer in pairs})

    return map_regions(node, swapped)
