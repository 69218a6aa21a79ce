"""Kahn's algorithm: an order in which nodes can run, or an error that names a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from weft.errors import GraphError
from weft.ir.graph import Node, Value


def kahn_order(nodes: Sequence[Node]) -> list[Node]:
    """Nodes in an order in which each comes after those it uses; as given where they are in order."""
    producer = {out: i for i, node in enumerate(nodes) for out in node.outputs}
    waits: list[int] = []
    users: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        needed = {producer[v] for v in node.inputs if v in producer}
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
    path: list[int] = []
    while i not in path:
        path.append(i)
        i = next(producer[v] for v in nodes[i].inputs if v in producer and waits[producer[v]])
    ring = [*path[path.index(i) :], i]
    return " <- ".join(f"{nodes[k].op.name} (node {k})" for k in ring)


def needed_nodes(nodes: Sequence[Node], results: Sequence[Value], *, effects: bool = True) -> list[Node]:
    """The nodes that results need, in the same order; those with effects too, unless said otherwise."""
    wanted = set(results)
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs) or (effects and not node.is_pure):
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]
