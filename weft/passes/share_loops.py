"""Sharing of control flow: a loop or branch whose results another one computes too is left out.

The gradient of a loop runs the loop again, to collect what the way back needs; with this pass the first run
collects it, and nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value, substitute_sizes
from weft.ir.order import sizes_defined, sizes_of, sizes_used
from weft.ir.rewrite import giving, reading
from weft.ops.op import Op
from weft.passes.base import graph_pass
from weft.passes.loops import CONTROL
from weft.passes.numbering import Numbering


@graph_pass(regions=True)
def share_loops(graph: Graph) -> Graph:
    """Leave out a loop, ``cond`` or ``switch`` if another one gives all of its results that are used, and
    perhaps more.

    Which operands and regions the two have does not matter, as long as what they compute is the same.

    >>> import weft
    >>> def slope(x):
    ...     y = weft.fori_loop(0, 9, lambda i, y: weft.sin(y), x)
    ...     return y, *weft.autograd.grad(y, [x])
    >>> graph = weft.make_graph(slope)(weft.tensor(1.0, requires_grad=True))
    >>> sum(node.op.name == "scan" for node in graph.nodes)
    3
    >>> sum(node.op.name == "scan" for node in weft.passes.share_loops(graph).nodes)
    2
    """
    if sum(node.op in CONTROL for node in graph.nodes) < 2:
        return graph
    while (merged := _merge_one(graph)) is not graph:
        graph = merged
    return graph


def _merge_one(graph: Graph) -> Graph:
    """The graph without one of the nodes that can go; as it is if there is none."""
    for twin, kept, now in _pairs(graph):
        merged = _merge(graph, twin, kept, now)
        if merged is not graph:
            return merged
    return graph


def _pairs(graph: Graph) -> list[tuple[Node, Node, dict[Value, Value]]]:
    """Nodes that can go, each with a node that stays and the values that stand for its outputs."""
    numbering = Numbering()
    numbers = numbering.of_graph(graph, [numbering.number(("input", i)) for i in range(len(graph.inputs))])
    used = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
    nodes = [node for node in graph.nodes if node.op in CONTROL and node.is_pure]
    given = {node: {numbers[v]: v for v in reversed(node.outputs)} for node in nodes}
    holders: dict[tuple[Op, int], list[Node]] = {}
    for node in nodes:
        for number in given[node]:
            holders.setdefault((node.op, number), []).append(node)
    pairs, gone = [], set()
    for node in nodes:
        needed = [v for v in node.outputs if v in used]
        for other in holders[node.op, numbers[needed[0]]] if needed else ():
            if other is node or other in gone:
                continue
            has = given[other]
            if all(numbers[v] in has for v in needed):
                pairs.append((node, other, {v: has[numbers[v]] for v in needed}))
                gone.add(node)
                break
    return pairs


def _merge(graph: Graph, twin: Node, kept: Node, now: dict[Value, Value]) -> Graph:
    """The graph without a node, with the one that stays before all users; as it is if that cannot be."""
    nodes = list(graph.nodes)
    place, last = nodes.index(twin), nodes.index(kept)
    if place < last:
        before = _ancestors(nodes[place : last + 1], kept)
        if twin in before or not all(n.is_pure for n in before):
            return graph
        rest = [n for n in nodes[place : last + 1] if n not in before]
        nodes[place : last + 1] = [*[n for n in nodes[place : last + 1] if n in before], *rest]
        first = twin.location  # the line that is shown
        shown = Node(kept.op, kept.inputs, kept.attrs, kept.outputs, first)
        nodes = [shown if n is kept else n for n in nodes]
    sizes = _sizes(twin, kept, now)
    left = [n for n in nodes if n is not twin]
    untold = sizes_defined(twin) - sizes.keys() - sizes_of(now.values())
    if untold and any(untold & sizes_used(n) for n in left):
        return graph
    merged = giving(graph, now, nodes=[reading(n, now) for n in left])
    return substitute_sizes(merged, sizes) if sizes else merged


def _ancestors(nodes: Sequence[Node], node: Node) -> set[Node]:
    """A node, and those of some nodes in order that it needs."""
    wanted = set(node.inputs)
    found = {node}
    for other in reversed(nodes):
        if not wanted.isdisjoint(other.outputs):
            wanted.update(other.inputs)
            found.add(other)
    return found


def _sizes(twin: Node, kept: Node, now: dict[Value, Value]) -> dict[str, Any]:
    """Sizes that the node which is gone would have told, by those that the other one tells."""
    out: dict[str, Any] = {}
    trips, others = twin.attrs.get("trips"), kept.attrs.get("trips")
    if trips is not None and others is not None and now.get(twin.outputs[-1]) is kept.outputs[-1]:
        out.update(dict.fromkeys(trips.names(), others))  # as often: nobody may read what it stacks
    for old, new in now.items():
        for a, b in zip(old.type.shape, new.type.shape, strict=True):
            if isinstance(a, Size) and a != b and len(a.names()) == 1:
                out[next(iter(a.names()))] = b
    return out
