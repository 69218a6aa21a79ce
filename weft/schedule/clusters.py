"""Clusters of nodes that grow by merging, with nothing between them that would close a circle.

Two clusters may be one where no way leads from one to the other through a third. The search for such a way
goes from both ends at once, and ends with the shorter side: a merge looks at few nodes of a large graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from weft.schedule.use_def import UseDef, is_view

_GAP = 1 << 60  # between the labels of neighbours


class Clusters:
    """Each node is in a cluster of its own at first.

    Attributes:
        of: by number of a node, that of its cluster.
        members: by number of a cluster, its nodes in order.
    """

    def __init__(self, use_def: UseDef) -> None:
        self._use_def = use_def
        order = [i for i, node in enumerate(use_def.nodes) if not is_view(node)]
        self.of = {i: i for i in order}
        self.members = {i: [i] for i in order}
        self._order = _Order(order)

    def merge(self, a: int, b: int) -> bool:
        """Make two clusters one, under the number of the first, if nothing lies between them."""
        label = self._order.label
        if label[a] > label[b]:
            a, b = b, a
        found = self._apart(a, b)
        if found is None:
            return False
        needs_a, moved = found
        inside = sorted(moved, key=label.__getitem__)
        if needs_a:  # what needs the first must come after both
            self._order.move_after(b, inside)
            self._order.replace(b, a)
        else:  # what the second needs must come before both
            self._order.move_before(a, inside)
            self._order.remove(b)
        self.members[a] = sorted([*self.members[a], *self.members[b]])
        for i in self.members.pop(b):
            self.of[i] = a
        return True

    def _apart(self, a: int, b: int) -> tuple[bool, set[int]] | None:
        """The clusters between two that need the first, or (and then False) that the second needs.

        None where one of them is both.
        """
        down = _Search(self, self._use_def.users, a, b)
        up = _Search(self, self._use_def.needs, b, a)
        while True:
            for search, other in ((down, up), (up, down)):
                met = search.step()
                if met is None:
                    return search is down, search.found
                if met in other.found or search.is_at_goal:
                    return None

    def neighbours(self, c: int, edges: Sequence[Iterable[int]]) -> Iterator[int]:
        """The clusters that the nodes of one have edges to."""
        of = self.of
        for i in self.members[c]:
            for j in edges[i]:
                yield of[j]

    def is_between(self, c: int, a: int, b: int) -> bool:
        """Whether a cluster stands between two others, whichever of them is the first."""
        label = self._order.label
        return label[a] < label[c] < label[b] or label[b] < label[c] < label[a]

    def in_order(self) -> list[int]:
        """The numbers of the clusters, each after those it needs."""
        return sorted(self.members, key=self._order.label.__getitem__)


class _Search:
    """A way through the clusters between two, edge by edge.

    Attributes:
        found: what was met.
        is_at_goal: whether a way through another cluster has led to the goal.
    """

    def __init__(self, clusters: Clusters, edges: Sequence[Iterable[int]], start: int, goal: int) -> None:
        self._clusters = clusters
        self._edges = edges
        self._start = start
        self._goal = goal
        self._queue: deque[int] = deque()
        self._here = start
        self._ways = clusters.neighbours(start, edges)
        self.found: set[int] = set()
        self.is_at_goal = False

    def step(self) -> int | None:
        """Look at the next edge: the cluster that it leads to; None where there is no edge left."""
        for c in self._ways:
            if c == self._goal:
                self.is_at_goal = self._here != self._start
            elif c not in self.found and self._clusters.is_between(c, self._start, self._goal):
                self.found.add(c)
                self._queue.append(c)
            return c
        if not self._queue:
            return None
        self._here = self._queue.popleft()
        self._ways = self._clusters.neighbours(self._here, self._edges)
        return self._here


class _Order:
    """A list in which any two are compared at once: each has a label, and there is room between labels."""

    def __init__(self, items: Sequence[int]) -> None:
        self.label = {c: (i + 1) * _GAP for i, c in enumerate(items)}
        self._next: dict[int, int] = dict(pairwise([-1, *items, -1]))  # -1 is both ends
        self._before: dict[int, int] = {c: before for before, c in self._next.items()}

    def remove(self, c: int) -> None:
        before, after = self._before.pop(c), self._next.pop(c)
        self._next[before], self._before[after] = after, before
        del self.label[c]

    def replace(self, old: int, new: int) -> None:
        """Put one in the place of another, which goes."""
        self.remove(new)
        label = self.label[old]
        before = self._before[old]
        self.remove(old)
        self._link(before, new)
        self.label[new] = label

    def move_before(self, place: int, items: Sequence[int]) -> None:
        for c in items:
            self.remove(c)
        self._insert(self._before[place], items)

    def move_after(self, place: int, items: Sequence[int]) -> None:
        for c in items:
            self.remove(c)
        self._insert(place, items)

    def _link(self, before: int, c: int) -> None:
        after = self._next[before]
        self._next[before], self._before[c] = c, before
        self._next[c], self._before[after] = after, c

    def _insert(self, before: int, items: Sequence[int]) -> None:
        low = 0 if before == -1 else self.label[before]
        after = self._next[before]
        high = low + (len(items) + 1) * _GAP if after == -1 else self.label[after]
        step = (high - low) // (len(items) + 1)
        for c in items:
            self._link(before, c)
            before, low = c, low + step
            self.label[c] = low
        if not step:
            self._label_anew()

    def _label_anew(self) -> None:
        c, label = self._next[-1], _GAP
        while c != -1:
            self.label[c] = label
            c, label = self._next[c], label + _GAP
