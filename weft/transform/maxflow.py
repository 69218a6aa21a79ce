"""Maximum flow by Dinic's algorithm, and the minimum cut that lies closest to the sink.

Dinitz, "Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970.
"""

from __future__ import annotations

from collections import deque


class Network:
    """Vertices, and edges with capacities, which are whole numbers or infinite.

    >>> network = Network()
    >>> source, a, sink = network.vertex(), network.vertex(), network.vertex()
    >>> network.edge(source, a, 5)
    >>> network.edge(a, sink, 3)
    >>> network.push(source, sink)
    3
    >>> network.leading_to(sink) == {sink}
    True
    """

    __slots__ = ("_capacity", "_edges", "_target")

    def __init__(self) -> None:
        self._edges: list[
            list[int]
        ] = []  # by vertex; the edge with an even number n has its reverse at n + 1
        self._target: list[int] = []
        self._capacity: list[float] = []

    def vertex(self) -> int:
        """A new vertex."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, start: int, stop: int, capacity: float) -> None:
        """A new edge."""
        for at, to, room in ((start, stop, capacity), (stop, start, 0)):
            self._edges[at].append(len(self._target))
            self._target.append(to)
            self._capacity.append(room)

    def push(self, source: int, sink: int) -> float:
        """Send as much flow as fits; gives how much that is."""
        total: float = 0
        while (level := self._levels(source, sink)) is not None:
            total += self._block(source, sink, level)
        return total

    def _levels(self, source: int, sink: int) -> list[int] | None:
        """The distance of each vertex from the source along edges with room; None if the sink has none."""
        edges, target, capacity = self._edges, self._target, self._capacity
        level = [-1] * len(edges)
        level[source] = 0
        waiting = deque([source])
        while waiting:
            u = waiting.popleft()
            for e in edges[u]:
                v = target[e]
                if capacity[e] and level[v] < 0:
                    level[v] = level[u] + 1
                    waiting.append(v)
        return level if level[sink] >= 0 else None

    def _block(self, source: int, sink: int, level: list[int]) -> float:
        """Send flow along shortest ways until each has an edge without room."""
        edges, target, capacity = self._edges, self._target, self._capacity
        rest = [iter(out) for out in edges]
        path: list[int] = []
        total: float = 0
        at = source
        while True:
            if at == sink:
                sent = min(capacity[e] for e in path)
                total += sent
                first = 0  # the first edge on the path that is now full
                for i in range(len(path) - 1, -1, -1):
                    capacity[path[i]] -= sent
                    capacity[path[i] ^ 1] += sent
                    if not capacity[path[i]]:
                        first = i
                at = target[path[first] ^ 1]
                del path[first:]
            for e in rest[at]:
                if capacity[e] and level[target[e]] == level[at] + 1:
                    path.append(e)
                    at = target[e]
                    break
            else:
                if not path:
                    return total
                level[at] = -1
                at = target[path.pop() ^ 1]

    def leading_to(self, sink: int) -> set[int]:
        """The vertices with a way to the sink that has room: its side of the minimum cut next to it."""
        found = {sink}
        waiting = [sink]
        while waiting:
            u = waiting.pop()
            for e in self._edges[u]:
                v = self._target[e]
                if v not in found and self._capacity[e ^ 1]:
                    found.add(v)
                    waiting.append(v)
        return found
