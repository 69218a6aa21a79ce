"""Copies that need not be: a value is made where it is copied to.

A copy ``A <- T`` of a whole temporary goes away if T can be a name for the memory of A: T is not used after
the copy, and from T's first use to the copy nobody else looks at A. So a loop changes its carries in place.
Where a branch begins T as a copy of A, that copy goes away too: one side then changes A, and the other does
nothing. Likewise a branch may end T, if all of its ways copy T to A.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from weft.loop import ir
from weft.loop.index import Index
from weft.loop.ir import Block, Buffer, Copy, If, Launch, Loop, Place, Statement
from weft.loop.walk import accesses, blocks_of
from weft.schedule.bodies import reads_first


def elide_copies(block: Block, temporaries: list[Buffer]) -> None:
    """Remove the copies of a block, and of those inside, that need not be, and what was copied."""
    _Elision(block, temporaries).run(block)


class _Uses:
    """Which statements of a block use each buffer, by place, and how often; a statement that goes is None."""

    def __init__(self, statements: list[Any]) -> None:
        self.statements = statements
        self.counts: dict[Buffer, dict[int, int]] = {}
        self._places: dict[Buffer, list[int]] = {}  # in order
        self._place_of = {id(s): i for i, s in enumerate(statements)}
        for i, s in enumerate(statements):
            for access in accesses(s):
                self._add(access.buffer, i, 1)

    def _add(self, buffer: Buffer, place: int, count: int) -> None:
        counts = self.counts.setdefault(buffer, {})
        if place not in counts:
            insort(self._places.setdefault(buffer, []), place)
        counts[place] = counts.get(place, 0) + count

    def between(self, buffer: Buffer, first: int, last: int) -> list[int]:
        """The places of statements that use a buffer, from the first on, up to before the last."""
        places = self._places.get(buffer, [])
        return places[bisect_left(places, first) : bisect_left(places, last)]

    def is_known_at(self, index: Index, place: int) -> bool:
        """Whether the scalars in an index are computed before a place, or outside the block."""
        values = [v.value for v in index.terms if v.value is not None]
        return all(self._place_of.get(id(value), -1) < place for value in values)

    def look_again(self, places: Sequence[int], buffers: Sequence[Buffer]) -> None:
        """Take down again what statements at places use of buffers."""
        for buffer in buffers:
            counts, held = self.counts.setdefault(buffer, {}), self._places.setdefault(buffer, [])
            for i in places:
                if counts.pop(i, None) is not None:
                    del held[bisect_left(held, i)]
        for i in places:
            for access in accesses(self.statements[i]) if self.statements[i] is not None else ():
                if access.buffer in buffers:
                    self._add(access.buffer, i, 1)


class _Waits:
    """The copies to look at: all, from the last to the first, then those for which something has changed.

    A round after another: what a copy that goes has changed for later ones is looked at in the next round.
    """

    def __init__(self, copies: list[int]) -> None:
        self._round = [-j for j in copies]  # a heap
        heapify(self._round)
        self._later: set[int] = set()
        self._waiting: dict[Buffer | int, set[int]] = {}

    def next(self) -> int | None:
        if not self._round:
            self._round, self._later = sorted(-j for j in self._later), set()
        return -heappop(self._round) if self._round else None

    def for_any(self, copy: int, reasons: Iterable[Buffer | int]) -> None:
        """Let a copy wait until another use of a buffer, or the statement at a place, is changed."""
        for reason in reasons:
            self._waiting.setdefault(reason, set()).add(copy)

    def changed(self, copy: int, reasons: Iterable[Buffer | int], named: Iterable[int]) -> None:
        """Look again at what waits for buffers and places, and at what was renamed, once a copy has gone."""
        for j in set(named).union(*[self._waiting.pop(reason, ()) for reason in reasons]):
            if j < copy:
                heappush(self._round, -j)
            else:
                self._later.add(j)


class _Elision:
    def __init__(self, block: Block, temporaries: list[Buffer]) -> None:
        self.temporaries = temporaries
        self.known = set(temporaries)
        self.uses: Counter[Buffer] = Counter(a.buffer for s in block.statements for a in accesses(s))

    def run(self, block: Block) -> None:
        """Visit a block; what it needs no more is no temporary any more."""
        self.visit(block)
        if len(self.known) < len(self.temporaries):
            self.temporaries[:] = [t for t in self.temporaries if t in self.known]

    def visit(self, block: Block) -> None:
        # Inner blocks first: what goes away there are uses that would keep a copy out here.
        for statement in block.statements:
            for inner in blocks_of(statement):
                self.visit(inner)
        if not any(_last_copies(s) for s in block.statements):
            return
        # A copy that goes changes uses, so that others may go, too: those that waited for it. From the last
        # to the first: in a row of copies, each from the target of the one before, statements then get a new
        # name once.
        uses = _Uses(block.statements)
        waits = _Waits([j for j, s in enumerate(block.statements) if _last_copies(s)])
        while (j := waits.next()) is not None:
            for copy in _last_copies(block.statements[j]):
                self._remove(uses, j, copy, waits)
        block.statements[:] = [s for s in block.statements if s is not None]

    def _remove(self, uses: _Uses, j: int, copy: Copy, waits: _Waits) -> None:
        """Remove a copy that a statement is, or that each of its ways has, if that can be."""
        statements = uses.statements
        old, new = copy.source, copy.target
        if old is new or old not in self.known or not _is_whole(copy):
            return waits.for_any(j, (old,))
        exits = _exits(statements, j, copy)
        if exits is None:
            return waits.for_any(j, (old, j))
        places = uses.between(old, 0, j + 1)
        first = places[0]
        # All uses must lie before the copy and in this block, and the place must be known before the first:
        # else some code would still mean the temporary, or an address that does not exist yet.
        here = sum([uses.counts[old][i] for i in places])
        if here != self.uses[old] or first == j or not uses.is_known_at(copy.target_index, first):
            return waits.for_any(j, (old,))
        if others := uses.between(new, first + 1, j):
            return waits.for_any(j, (old, others[-1]))
        entries = _begun_by(statements, first, copy)
        if entries is None:
            return waits.for_any(j, (old, new, first))
        gone = [*exits, *entries]
        for block, at in gone:
            block[at] = None
        for block, _ in gone:
            if block is not statements:
                block[:] = [s for s in block if s is not None]
        for i in places:
            if statements[i] is not None:
                _redirect(statements[i], old, new, copy.target_index)
        uses.look_again(places, (old, new))
        # Each copy that went away had named both buffers, one of them under its old name.
        self.uses[new] += self.uses.pop(old) - 2 * len(gone)
        self.known.discard(old)
        waits.changed(j, (old, new, *places), [i for i in places if _last_copies(statements[i])])


Entry = tuple[list[Any], int]  # a copy: the list it stands in, and where


def _last_copies(statement: Statement | None) -> list[Copy]:
    """The copies that a statement is, or that the first way of a branch has."""
    if isinstance(statement, Copy):
        return [statement]
    if not isinstance(statement, If):
        return []
    first, second = statement.then.statements, statement.otherwise.statements
    if not first or not second:
        return []
    return [copy for s in first for copy in _last_copies(s)]


def _exits(statements: list[Any], j: int, copy: Copy) -> list[Entry] | None:
    """Where a statement copies as another one does, on all of its ways; None if one does not.

    Before that the target is not looked at, and after it the source is not.
    """
    statement = statements[j]
    if isinstance(statement, Copy):
        return [(statements, j)] if _is_same(statement, copy) else None
    if not isinstance(statement, If) or any(v.value is not None for v in copy.target_index.terms):
        return None  # what an index is made of may be computed in the branch alone
    found: list[Entry] = []
    for block in blocks_of(statement):
        inner = block.statements
        at = next((i for i in range(len(inner) - 1, -1, -1) if _touches(inner[i], copy.source)), None)
        exits = None if at is None else _exits(inner, at, copy)
        if exits is None or any(_touches(s, copy.target) for s in inner[:at]):
            return None
        found += exits
    return found


def _is_same(a: Copy, b: Copy) -> bool:
    same_ends = a.source is b.source and a.target is b.target
    keys = [(c.source_index.key, c.target_index.key, c.count.key) for c in (a, b)]
    return same_ends and keys[0] == keys[1]


def _begin_in_place(statements: list[Any], copy: Copy) -> list[Entry] | None:
    """The copies by which the source of a copy begins as its target, in a block before that copy.

    None where a statement looks at the target once the source has begun.
    """
    first = next((i for i, s in enumerate(statements) if _touches(s, copy.source)), None)
    if first is None or any(_touches(s, copy.target) for s in statements[first + 1 :]):
        return None
    return _begun_by(statements, first, copy)


def _begun_by(statements: list[Any], first: int, copy: Copy) -> list[Entry] | None:
    """The same, where it is known which statement is the first that uses the source."""
    old, new = copy.source, copy.target
    begin = statements[first]
    entries: list[Entry] = []
    if _is_inverse(begin, copy):
        entries.append((statements, first))
    elif isinstance(begin, If):
        # Each side may begin in its own way, but none may look at the target in another.
        for block in blocks_of(begin):
            found = _begin_in_place(block.statements, copy)
            if found is None:
                return None
            entries += found
    elif _touches(begin, new) and not _in_place(begin, new, copy.target_index, old):
        return None
    return entries


def _touches(statement: Statement, buffer: Buffer) -> bool:
    return any(a.buffer is buffer for a in accesses(statement))


def _is_whole(copy: Copy) -> bool:
    whole = copy.count.is_fixed and copy.count.offset == copy.source.size
    return whole and copy.source_index.key == 0


def _is_inverse(statement: Statement, copy: Copy) -> bool:
    """Whether a statement is the copy from the place that another one copies back to."""
    return (
        isinstance(statement, Copy)
        and statement.source is copy.target
        and statement.target is copy.source
        and statement.source_index.key == copy.target_index.key
        and statement.target_index.key == copy.source_index.key
    )


def _in_place(statement: Statement, new: Buffer, start: Index, old: Buffer) -> bool:
    """Whether a launch or a loop that makes old may write to the memory of new, which it reads."""
    if isinstance(statement, Loop):
        return start.key == 0 and reads_first(statement, new, old)
    if not isinstance(statement, Launch):
        return False
    places = statement.buffers
    mentions = [n for n, (b, _) in enumerate(places) if b is new]
    target = [n for n, (b, _) in enumerate(places) if b is old]
    if len(target) != 1:
        return False
    reuses = statement.function.reuses
    return all(places[n][1].key == start.key and (n, target[0]) in reuses for n in mentions)


_FIELDS = {
    ir.Load: (("buffer", "index"),),
    ir.Store: (("buffer", "index"),),
    Copy: (("target", "target_index"), ("source", "source_index")),
}
_set = object.__setattr__  # statements are frozen for all but the redirection of a buffer that is no more


def _redirect(statement: Statement, old: Buffer, new: Buffer, start: Index) -> None:
    """Let a statement, and all in it, use another buffer, from an index on, instead of one that goes away."""
    for block in blocks_of(statement):
        for inner in block.statements:
            _redirect(inner, old, new, start)

    def moved(place: Place) -> Place:
        return (new, place[1] + start) if place[0] is old else place

    for buffer, index in _FIELDS.get(type(statement), ()):
        if getattr(statement, buffer) is old:
            _set(statement, buffer, new)
            _set(statement, index, getattr(statement, index) + start)
    if isinstance(statement, Launch):
        _set(statement, "buffers", tuple(map(moved, statement.buffers)))
    elif isinstance(statement, ir.Wave):
        for launch in statement.launches:
            _redirect(launch, old, new, start)
    elif isinstance(statement, ir.Host):
        _set(statement, "inputs", tuple(map(moved, statement.inputs)))
        _set(statement, "outputs", tuple(map(moved, statement.outputs)))
    elif isinstance(statement, ir.Matmul):
        for name in ("a", "b", "c"):
            _set(statement, name, moved(getattr(statement, name)))
        if statement.bias is not None:
            _set(statement, "bias", moved(statement.bias))
