"""Who reached which element: two threads that meet at one, and nothing keeps them apart, are a race.

Threads of one block are kept apart by barriers: what was done before one, and what after it, have an order.
Blocks of a launch have none.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.loop.ir import Statement


@dataclass(frozen=True, slots=True)
class Access:
    """One access to an element.

    Attributes:
        block: number of the block that did it, -1 for what each of them does before its own work.
        thread: number of the thread in the block.
        barriers: how many it had passed.
        statement: which did it.
    """

    block: int
    thread: int
    barriers: int
    statement: Statement

    def is_apart(self, other: Access) -> bool:
        """Whether the order of two accesses is known, so that a write among them does no harm."""
        if self.block != other.block:
            return False
        return self.thread == other.thread or self.barriers != other.barriers


class Races:
    """The accesses of one launch, by the block whose memory it is (-1 for that of all), and the address.

    The last write says enough, for one before it would have been a race with it. Of reads, the last of each
    thread does.

    >>> from weft.loop.ir import Leave
    >>> from weft.loop.races import Access, Races
    >>> races = Races()
    >>> races.add((-1, 64), Access(0, 0, 0, Leave()), write=True)
    >>> races.add((-1, 64), Access(0, 1, 1, Leave()), write=False)
    >>> races.add((-1, 64), Access(0, 0, 1, Leave()), write=True).thread
    1
    """

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], Access] = {}
        self._read: dict[tuple[int, int], dict[tuple[int, int], Access]] = {}

    def add(self, address: tuple[int, int], access: Access, *, write: bool) -> Access | None:
        """Note an access to an element; gives another one that it races with, if there is one."""
        last = self._written.get(address)
        if last is not None and not access.is_apart(last):
            return last
        readers = self._read.setdefault(address, {})
        if write:
            self._written[address] = access
            return next((r for r in readers.values() if not access.is_apart(r)), None)
        readers[access.block, access.thread] = access
        return None
