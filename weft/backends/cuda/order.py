"""Which entries of a list must come after which: those that touch the same memory, one of them writing it.

All others may run side by side. An entry that does not say how much it touches touches all of a piece of
memory; branches and loops do.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft.base.records import NamedTuple

_MOST = 5000  # entries that are compared with each other; longer lists stay in a row
_END = 1 << 62
# stand for what calls of libraries share, for the notes of failures, and for the order of collectives
LIBRARY, CONTEXT, RANKS = -1, -2, -3


class Access(NamedTuple):
    """Bytes of a slot that an entry touches."""

    slot: int
    start: int
    stop: int
    writes: bool


def accesses_of(entry: Any) -> list[Access]:
    """What an entry touches."""
    ask = getattr(entry, "accesses", None)
    told: Sequence[Access] | None = None if ask is None else ask()
    if told is not None:
        return list(told)
    shared = [Access(LIBRARY, 0, 1, True), Access(CONTEXT, 0, 1, True)]
    return [*[Access(slot, 0, _END, True) for slot in entry.slots()], *shared]


def dependencies(entries: Sequence[Any], alias: Mapping[int, int]) -> list[list[int]]:
    """For each entry, those that it must wait for, without those that they wait for themselves.

    Args:
        entries: in an order in which they can run.
        alias: by slot, another one that is the same memory.
    """
    if len(entries) > _MOST:
        return [[i - 1] if i else [] for i in range(len(entries))]
    touched: dict[int, _Touched] = {}
    before: list[int] = []  # by entry, a bit for each one that comes before it
    found: list[list[int]] = []
    for number, entry in enumerate(entries):
        own = [a._replace(slot=alias.get(a.slot, a.slot)) for a in accesses_of(entry)]
        memories = [touched.setdefault(a.slot, _Touched()) for a in own]
        needed = {n for a, memory in zip(own, memories, strict=True) for n in memory.met(a)}
        found.append(_reduced(needed, before))
        before.append(_all_before(found[-1], before))
        for access, memory in zip(own, memories, strict=True):
            memory.note(access, number)
    return found


class _Touched:
    """Who touched a piece of memory: (start, stop, entry, whether it wrote), by start."""

    __slots__ = ("_known", "_longest")

    def __init__(self) -> None:
        self._known: list[tuple[int, int, int, bool]] = []
        self._longest = 0

    def _near(self, access: Access) -> tuple[int, int]:
        """Between which places those are that an access may meet."""
        first = bisect_left(self._known, (access.start - self._longest,))
        return first, bisect_left(self._known, (access.stop,))

    def met(self, access: Access) -> Iterator[int]:
        """The entries that an access must wait for."""
        first, last = self._near(access)
        for _, stop, number, writes in self._known[first:last]:
            if stop > access.start and (writes or access.writes):
                yield number

    def note(self, access: Access, number: int) -> None:
        """Remember an access; what a write covers need not be waited for any more."""
        start, stop = access.start, access.stop
        if access.writes:
            first, last = self._near(access)
            kept = [k for k in self._known[first:last] if k[0] < start or k[1] > stop or k[2] == number]
            self._known[first:last] = kept
        self._longest = max(self._longest, stop - start)
        insort(self._known, (start, stop, number, access.writes))


def _reduced(needed: Iterable[int], before: Sequence[int]) -> list[int]:
    """Entries to wait for, without those that come before another one of them."""
    out: list[int] = []
    reached = 0
    for number in sorted(needed, reverse=True):
        if not reached >> number & 1:
            out.append(number)
            reached |= before[number]
    return out


def _all_before(direct: Sequence[int], before: Sequence[int]) -> int:
    bits = 0
    for number in direct:
        bits |= before[number] | 1 << number
    return bits
