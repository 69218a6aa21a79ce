"""Sizes that only a run tells: how often a loop went round. Which nodes tell them, and which need to know.

A loop that collects values names the size of their first axis in its attribute ``trips``. A node with that
size in another attribute, or in one of its regions, runs after a loop that tells it, though it may use no
value of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.base.sizes import Size, named_size, size_names
from weft.ir.graph import Graph, Node, Value, substitute_sizes

TRIPS = "trips"


def sizes_of(values: Iterable[Value]) -> set[str]:
    """The names of the sizes of values."""
    return size_names(s for v in values for s in v.type.shape)


def sizes_defined(node: Node) -> set[str]:
    """The names of sizes that a run of a node tells."""
    return _names_in(node.attrs.get(TRIPS))


def sizes_used(node: Node) -> set[str]:
    """The names of sizes that a node needs to know, besides those of its inputs."""
    return set[str]().union(*[_names_in(a) for name, a in node.attrs.items() if name != TRIPS])


def sizes_needed(graph: Graph) -> set[str]:
    """The names of sizes that a graph needs to know from outside: of its inputs, and of attributes."""
    told = set[str]().union(*map(sizes_defined, graph.nodes))
    asked = set[str]().union(*map(sizes_used, graph.nodes))
    return sizes_of(graph.inputs) | (asked - told)


def with_own_sizes(graph: Graph, suffix: str) -> Graph:
    """The graph with a suffix to the names of sizes that are told inside, for a second copy of it."""
    told = {name for node in graph.walk() for name in sizes_defined(node)}
    return substitute_sizes(graph, {name: named_size(name + suffix) for name in told}) if told else graph


def first_definitions(nodes: Sequence[Node]) -> dict[str, int]:
    """By name of a size, the place of the first node that tells it."""
    found: dict[str, int] = {}
    for i, node in enumerate(nodes):
        if node.attrs.get(TRIPS) is not None:
            for name in sizes_defined(node):
                found.setdefault(name, i)
    return found


def _names_in(attr: object) -> set[str]:
    if type(attr) is Graph:
        return sizes_needed(attr)
    if type(attr) is tuple:
        return set[str]().union(*map(_names_in, attr))
    return attr.names() if isinstance(attr, Size) else set()
