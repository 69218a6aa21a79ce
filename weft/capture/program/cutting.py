"""Cutting out of a graph what some results need, with other values given instead of computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.base.sizes import size_names
from weft.ir.graph import Graph, Node, Value
from weft.ir.order import first_definitions, sizes_defined, sizes_of, sizes_used


def cut_out(
    graph: Graph, results: Sequence[Value], given: frozenset[Value] = frozenset(), *, effects: bool = False
) -> tuple[Graph, tuple[Value, ...]]:
    """The part of a graph that gives results from its inputs, and from values given instead of computed.

    Nodes with effects are in it if results need them, or all of them if so asked.

    Returns:
        The part, and the values of the whole graph that its inputs stand for.
    """
    stand_in = {v: Value(v.type, v.name) for v in given}
    wanted, kept = _needed(graph, {v for v in results if v not in given}, given, effects)
    used = wanted.union(v for node in kept for v in node.inputs).union(results)
    used |= _telling_sizes([*graph.inputs, *given], kept, used)
    inputs = (*[v for v in graph.inputs if v in used], *[v for v in given if v in used])
    nodes = [
        Node(n.op, [stand_in.get(v, v) for v in n.inputs], n.attrs, n.outputs, n.location)
        if not given.isdisjoint(n.inputs)
        else n
        for n in kept
    ]
    part = Graph(
        graph.name,
        [stand_in.get(v, v) for v in inputs],
        nodes,
        [stand_in.get(v, v) for v in results],
        constants={v: a for v, a in graph.constants.items() if v in used},
    )
    return part, inputs


def _needed(
    graph: Graph, wanted: set[Value], given: frozenset[Value], effects: bool
) -> tuple[set[Value], list[Node]]:
    """The values that are wanted, and all that these need, and the nodes that make them.

    A node that alone tells a size is needed by those that have this size in an attribute.
    """
    tellers = first_definitions(graph.nodes)
    while True:
        kept: list[Node] = []
        for node in reversed(graph.nodes):
            if not wanted.isdisjoint(node.outputs) or (effects and not node.is_pure):
                wanted.update(v for v in node.inputs if v not in given)
                kept.append(node)
        missing = _tellers_of(kept, tellers, sizes_of(given)) if tellers else ()
        if not missing:
            return wanted, kept[::-1]
        wanted.update(v for i in missing for v in graph.nodes[i].outputs)


def _tellers_of(nodes: Sequence[Node], tellers: Mapping[str, int], known: set[str]) -> list[int]:
    """The places of nodes that tell sizes which others ask for, where they are not known, and none tells."""
    told = known.union(*map(sizes_defined, nodes))
    asked = set[str]().union(*map(sizes_used, nodes)) - told
    return [tellers[name] for name in asked if name in tellers]


def _telling_sizes(inputs: Sequence[Value], nodes: Sequence[Node], used: set[Value]) -> set[Value]:
    """The inputs that nodes need for their sizes alone."""
    known = {name for v in inputs if v in used for name in size_names(v.type.shape)}
    missing = set[str]().union(*map(_names_in, nodes)) - known
    out: set[Value] = set()
    for value in inputs:
        names = size_names(value.type.shape)
        if names & missing:
            missing -= names
            out.add(value)
    return out


def _names_in(node: Node) -> set[str]:
    """The names of sizes in the attributes and types of a node, regions included."""
    names = size_names(_literals(tuple(node.attrs.values())))
    names |= size_names(size for v in node.outputs for size in v.type.shape)
    return names.union(*[_names_in(inner) for region in node.regions for inner in region.nodes])


def _literals(x: Any) -> Iterator[Any]:
    if isinstance(x, tuple):
        for item in x:
            yield from _literals(item)
    else:
        yield x
