"""Independent launches of one kernel as one: a wave, whose blocks find out which of the launches is theirs.

A launch waits for others of its kernel for as long as nothing needs what it writes, or changes what it reads.
What it reads lives longer then. So only launches wait that write what is wanted in the end anyway, such as
new values of parameters, or that read little. When they wait no longer, those to come that read nothing but
what was there at first go along, such as weights in half precision; what they write lives longer, so that it
must be little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from weft.base.sizes import Size, bind
from weft.loop.ir import Block, Buffer, Launch, Statement, Wave
from weft.loop.walk import accesses, blocks_of

WORDS = 4000  # of 8 bytes, that a launch can be given, about
_END = 1 << 62
_LITTLE = 1 << 22  # bytes that a launch may keep alive while it waits
_EARLY = 1 << 23  # bytes that one may write earlier than needed: more takes longer than a launch anyway


def form_batches(block: Block, temporaries: Collection[Buffer]) -> None:
    """Make waves of the launches of a block that have one kernel, and of those in blocks inside."""
    for s in block.statements:
        for inner in blocks_of(s):
            form_batches(inner, temporaries)
    batches = _Batches(block, temporaries)
    for i, s in enumerate(block.statements):
        batches.add(i, s)
    batches.flush(list(batches.waiting))
    block.statements[:] = batches.out


class _Reach:
    """Parts of buffers: of each, pieces from one element to another."""

    def __init__(self) -> None:
        self._pieces: dict[Buffer, list[tuple[int, int]]] = {}

    def add(self, buffer: Buffer, first: int, stop: int) -> None:
        """One more piece."""
        self._pieces.setdefault(buffer, []).append((first, stop))

    def add_all(self, other: _Reach) -> None:
        """All pieces of another."""
        for buffer, pieces in other._pieces.items():
            self._pieces.setdefault(buffer, []).extend(pieces)

    def buffers(self) -> Iterable[Buffer]:
        """Those that it has pieces of."""
        return self._pieces.keys()

    def meets(self, other: _Reach) -> bool:
        """Whether an element is in both."""
        for buffer in self._pieces.keys() & other._pieces.keys():
            pieces = other._pieces[buffer]
            if any(a < d and c < b for a, b in self._pieces[buffer] for c, d in pieces):
                return True
        return False


def _reach_of(s: Statement) -> tuple[_Reach, _Reach]:
    """What a statement reads, and what it writes."""
    reads, writes = _Reach(), _Reach()
    if not isinstance(s, Launch):
        for access in accesses(s):
            (writes if access.written else reads).add(access.buffer, 0, _END)
        return reads, writes
    told = dict(s.numbers)
    for (buffer, at), parameter in zip(s.buffers, s.function.buffers, strict=True):
        size = bind(parameter.size, told)
        known = at.is_fixed and isinstance(at.offset, int) and isinstance(size, int)
        piece = (at.offset, at.offset + size) if known else (0, _END)
        (writes if parameter in s.function.written else reads).add(buffer, *piece)
    return reads, writes


class _Waiting:
    """Launches of one kernel that wait, what they read and write, and the kernels that come before."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.reads, self.writes = _Reach(), _Reach()
        self.after: set[int] = set()
        self.last = 0  # the number of the last one

    def is_needed(self, reads: _Reach, writes: _Reach) -> bool:
        """Whether something that reads and writes must come after it."""
        return self.writes.meets(reads) or self.writes.meets(writes) or self.reads.meets(writes)


class _Batches:
    """The statements of a block, while they are put into another order."""

    def __init__(self, block: Block, temporaries: Collection[Buffer]) -> None:
        self._counts = Counter(id(s.function.body) for s in block.statements if isinstance(s, Launch))
        self._last: dict[Buffer, int] = {}  # which statement uses a buffer last
        self._own = set(temporaries)
        self._early: dict[int, list[tuple[int, Launch]]] = {}  # by kernel, those that could come at first
        used: set[Buffer] = set()
        written: set[Buffer] = set()
        for i, s in enumerate(block.statements):
            found = [*accesses(s)]
            if isinstance(s, Launch) and self._may_come_early(s, used, written):
                self._early.setdefault(id(s.function.body), []).append((i, s))
            self._last |= dict.fromkeys([a.buffer for a in found], i)
            used |= {a.buffer for a in found}
            written |= {a.buffer for a in found if a.written}
        self._done: set[int] = set()  # statements that have come early
        self.waiting: dict[int, _Waiting] = {}
        self.out: list[Statement] = []

    def add(self, number: int, s: Statement) -> None:
        """The next statement: it waits, or comes after those that wait and that it needs."""
        if number in self._done:
            return
        reads, writes = _reach_of(s)
        needed = {k for k, w in self.waiting.items() if w.is_needed(reads, writes)}
        if not isinstance(s, Launch) or not self._may_wait(number, s, reads, writes):
            self.flush(needed)
            self.out.append(s)
            return
        key = id(s.function.body)
        if any(k == key or key in self._before(k) for k in needed):
            self.flush(needed)  # with all of its own kernel, which they need
            needed = set()
        waiting = self.waiting.setdefault(key, _Waiting())
        waiting.launches.append(s)
        waiting.reads.add_all(reads)
        waiting.writes.add_all(writes)
        waiting.after |= needed
        waiting.last = number
        if (len(waiting.launches) + 1) * words_of(s) > WORDS:
            self.flush([key])

    def _before(self, key: int) -> set[int]:
        """The kernels that wait and come before one."""
        found: set[int] = set()
        rest = [key]
        while rest:
            for other in self.waiting[rest.pop()].after:
                if other in self.waiting and other not in found:
                    found.add(other)
                    rest.append(other)
        return found

    def _may_wait(self, number: int, s: Launch, reads: _Reach, writes: _Reach) -> bool:
        if not self._is_told(s):
            return False
        if self._own.isdisjoint(writes.buffers()):
            return True
        ending = [b for b in reads.buffers() if b in self._own and self._last[b] == number]
        return bool(sum(map(_bytes, ending)) <= _LITTLE)

    def _is_told(self, s: Launch) -> bool:
        """Whether others have its kernel, and all that it is given is known before the program runs."""
        told = {name for name, _ in s.numbers}
        if self._counts[id(s.function.body)] < 2 or not told.issuperset(s.function.sizes):
            return False
        return all(at.is_fixed and not isinstance(at.offset, Size) for _, at in s.buffers)

    def _may_come_early(self, s: Launch, used: set[Buffer], written: set[Buffer]) -> bool:
        """Whether a launch needs nothing computed before it, and writes little that nobody has yet."""
        made = [b for (b, _), p in zip(s.buffers, s.function.buffers, strict=True) if p in s.function.written]
        if not self._is_told(s) or not self._own.issuperset(made) or not used.isdisjoint(made):
            return False
        return written.isdisjoint(b for b, _ in s.buffers) and sum(map(_bytes, made)) <= _EARLY

    def _come_early(self, key: int, after: int, room: int) -> list[Launch]:
        """Launches of a kernel after a number that can be done now, as many as there is room for."""
        found = [(i, s) for i, s in self._early.get(key, ()) if i > after and i not in self._done]
        found = found[: max(room, 0)]
        self._done.update(i for i, _ in found)
        return [s for _, s in found]

    def flush(self, keys: Iterable[int]) -> None:
        """Those that have waited, as one launch for each kernel."""
        for key in keys:
            if key not in self.waiting:
                continue
            self.flush(self.waiting[key].after)
            ended = self.waiting.pop(key)
            found = ended.launches
            room = WORDS // words_of(found[0]) - len(found) - 1
            found += self._come_early(key, ended.last, room)
            self.out.append(found[0] if len(found) == 1 else Wave(tuple(found)))


def words_of(launch: Launch) -> int:
    """What a launch in a wave is given: where its blocks begin, its buffers and its numbers."""
    return 1 + len(launch.buffers) + len(launch.numbers)


def _bytes(buffer: Buffer) -> Any:
    return _LITTLE + 1 if isinstance(buffer.size, Size) else buffer.size * buffer.dtype.itemsize
