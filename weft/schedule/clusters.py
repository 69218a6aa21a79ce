"""Clusters of nodes in an order in which they can run, kept while they are merged.

Two clusters can be one if no third one lies between them. Only the stretch of the order between the two has
to be looked at: what needs the first moves behind the merged cluster, the rest stays before it.
"""

from __future__ import annotations

from weft.schedule.use_def import UseDef, is_view


class Clusters:
    """Each node is in a cluster of its own at first.

    Attributes:
        of: by number of a node, that of its cluster.
        members: by number of a cluster, its nodes in order.
    """

    def __init__(self, use_def: UseDef) -> None:
        self._use_def = use_def
        self._order = [i for i, node in enumerate(use_def.nodes) if not is_view(node)]
        self._place = {i: place for place, i in enumerate(self._order)}
        self.of = {i: i for i in self._order}
        self.members = {i: [i] for i in self._order}

    def merge(self, a: int, b: int) -> bool:
        """Make two clusters one, under the number of the first, if nothing lies between them."""
        if self._place[a] > self._place[b]:
            a, b = b, a
        first, last = self._place[a], self._place[b]
        behind = self._reached(a, last)
        if b in behind:
            return False
        # What needs a must come after both, the rest of the stretch may come before.
        stretch = self._order[first : last + 1]
        before = [c for c in stretch if c not in behind and c not in (a, b)]
        after = [c for c in stretch if c in behind]
        self.members[a] = sorted([*self.members[a], *self.members.pop(b)])
        for i in self.members[a]:
            self.of[i] = a
        self._order[first : last + 1] = [*before, a, *after, -1]  # the place of b stays empty
        for place, c in enumerate(self._order[first : last + 1], first):
            if c >= 0:
                self._place[c] = place
        del self._place[b]
        return True

    def _reached(self, a: int, last: int) -> set[int]:
        """The clusters up to a place in the order that need a; b only if it needs one of the others."""
        b = self._order[last]
        found: set[int] = set()
        stack = [a]
        while stack:
            c = stack.pop()
            for i in self.members[c]:
                for user in self._use_def.users[i]:
                    other = self.of[user]
                    if other in found or other == a or self._place[other] > last or (c == a and other == b):
                        continue
                    found.add(other)
                    if other != b:
                        stack.append(other)
        return found

    def in_order(self) -> list[int]:
        """The numbers of the clusters, each after those it needs."""
        return [c for c in self._order if c >= 0]
