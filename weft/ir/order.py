"""Kahn's algorithm: an order in which nodes can run, or an error that names a cycle.

Some sizes only a run tells: how often a loop went round. A loop that collects values names the size of their
first axis in its attribute ``trips``. A node with that size in another attribute, or in one of its regions,
runs after a loop that tells it, though it may use no value of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from weft.base.sizes import Size, named_size, size_names
from weft.errors import GraphError
from weft.ir.graph import Graph, Node, Value, substitute_sizes

_SHOWN = 8  # nodes of a cycle that are named


def kahn_order(nodes: Sequence[Node]) -> list[Node]:
    """Nodes in an order in which each comes after those it uses; as given where they are in order."""
    producer = {out: i for i, node in enumerate(nodes) for out in node.outputs}
    tellers = first_definitions(nodes)
    waits: list[int] = []
    users: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        needed = {producer[v] for v in node.inputs if v in producer}
        if tellers:
            needed.update(tellers[name] for name in sizes_used(node) if name in tellers)
        waits.append(len(needed))
        for j in needed:
            users[j].append(i)
    ready = [i for i, count in enumerate(waits) if count == 0]
    heapify(ready)
    order = []
    while ready:
        i = heappop(ready)
        order.append(nodes[i])
        for j in users[i]:
            waits[j] -= 1
            if waits[j] == 0:
                heappush(ready, j)
    if len(order) < len(nodes):
        raise GraphError("graph", f"nodes must not form a cycle, got {_cycle(nodes, producer, waits)}")
    return order


def _cycle(nodes: Sequence[Node], producer: dict[Value, int], waits: list[int]) -> str:
    """The nodes on one cycle, in words."""
    i = next(i for i, count in enumerate(waits) if count)
    path: dict[int, None] = {}
    while i not in path:
        path[i] = None
        i = next(producer[v] for v in nodes[i].inputs if v in producer and waits[producer[v]])
    ring = list(path)[list(path).index(i) :]
    shown = [f"{nodes[k].op.name} (node {k})" for k in (*ring[:_SHOWN], i)]
    if len(ring) > _SHOWN:
        shown.insert(_SHOWN, f"... and {len(ring) - _SHOWN} more ...")
    return " <- ".join(shown)


def needed_nodes(nodes: Sequence[Node], results: Sequence[Value], *, effects: bool = True) -> list[Node]:
    """The nodes that results need, in the same order; those with effects too, unless said otherwise."""
    wanted = set(results)
    tellers = first_definitions(nodes)
    while True:
        kept = _leading_to(nodes, set(wanted), effects)
        if not tellers:
            return kept
        told = {name for node in kept for name in sizes_defined(node)}
        asked = {name for node in kept for name in sizes_used(node)} - told
        missing = [nodes[tellers[name]] for name in asked if name in tellers]
        if not missing:
            return kept
        wanted.update(v for node in missing for v in node.outputs)


def _leading_to(nodes: Sequence[Node], wanted: set[Value], effects: bool) -> list[Node]:
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs) or (effects and not node.is_pure):
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]


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
