"""Common sub-expressions: what is computed twice is computed once."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import giving, map_regions, reading
from weft.passes.base import graph_pass
from weft.passes.loops import BRANCHES, as_loop
from weft.passes.numbering import Numbering


@graph_pass(regions=True)
def cse(graph: Graph) -> Graph:
    """Merge nodes with equal op, inputs and attributes, equal constants, and equal outputs of loops and
    branches.

    Regions are compared by what they compute. A node with an effect is never merged.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.exp(x) + weft.exp(x))(weft.ones(3))
    >>> [node.op.name for node in weft.passes.cse(graph).nodes]
    ['exp', 'add']
    """
    return _Merger(graph).run()


class _Merger:
    """One run over a graph.

    Attributes:
        first: by number, the first value that has it.
        now: values that are merged, by the value that stands for them.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.numbering = Numbering()
        self.numbers = {v: self.numbering.number(("input", i)) for i, v in enumerate(graph.inputs)}
        self.first = {n: v for v, n in self.numbers.items()}
        self.now: dict[Value, Value] = {}
        self.used = {v for node in graph.nodes for v in node.inputs}.union(graph.results)

    def run(self) -> Graph:
        graph = self.graph
        constants = {v: a for v, a in graph.constants.items() if self.keep([v], [self.numbering.constant(a)])}
        nodes = [new for node in graph.nodes if (new := self.visit(node)) is not None]
        if not self.now and all(a is b for a, b in zip(nodes, graph.nodes, strict=False)):
            return graph
        return giving(graph, self.now, nodes=nodes, constants=constants)

    def visit(self, node: Node) -> Node | None:
        """A node with its inputs as they are now; None if all it gives is there already."""
        node = reading(node, self.now) if self.now else node
        if node.attrs:
            node = _merge_operands(node)
        return node if self.keep(node.outputs, self.numbering.of_node(node, self.numbers)) else None

    def keep(self, values: Sequence[Value], numbers: Sequence[int]) -> bool:
        """Whether one of some values is new; those that are not get the values that stand for them."""
        self.numbers.update(zip(values, numbers, strict=True))
        same = [self.first.setdefault(n, v) for n, v in zip(numbers, values, strict=True)]
        # Sizes that only a run tells have other names elsewhere, so types may differ.
        merged = [(v, s) for v, s in zip(values, same, strict=True) if s is not v and s.type == v.type]
        alive = len(merged) < len(values) or not values
        self.now.update((v, s) for v, s in merged if not alive or v in self.used)
        return alive


def _merge_operands(node: Node) -> Node:
    """A loop or branch whose regions take what is given twice from one place; the other is then dead."""
    loop = as_loop(node)
    if node.op in BRANCHES:
        start = 1
    elif loop is not None:
        start = len(node.inputs) - len(loop.fixed)
    else:
        return node
    operands = node.inputs[start:]
    if len(set(operands)) == len(operands):
        return node
    places = [operands.index(v) for v in operands]
    return map_regions(node, lambda region: _take_from(region, places))


def _take_from(region: Graph, places: Sequence[int]) -> Graph:
    """A region whose last inputs are read from other ones of them."""
    given = region.inputs[len(region.inputs) - len(places) :]
    now = {v: given[place] for v, place in zip(given, places, strict=True) if given[place] is not v}
    used = {v for node in region.nodes for v in node.inputs}.union(region.outputs)
    if now.keys().isdisjoint(used):
        return region
    return giving(region, now, nodes=[reading(n, now) for n in region.nodes])
