"""Copies that need not be: a value is made where it is copied to.

A copy ``A <- T`` of a whole temporary goes away if T can be a name for the memory of A: T is not used after
the copy, and from T's first use to the copy nobody else looks at A. So a loop changes its carries in place.
Where a branch begins T as a copy of A, that copy goes away too: one side then changes A, and the other does
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from weft.loop import ir
from weft.loop.index import Index
from weft.loop.ir import Block, Buffer, Copy, If, Launch, Loop, Place, Statement
from weft.loop.walk import accesses, blocks_of
from weft.schedule.bodies import reads_first


def elide_copies(block: Block, temporaries: list[Buffer]) -> None:
    """Remove the copies of a block, and of those inside, that need not be, and what was copied."""
    _Elision(block, temporaries).visit(block)


class _Elision:
    def __init__(self, block: Block, temporaries: list[Buffer]) -> None:
        self.temporaries = temporaries
        self.known = set(temporaries)
        self.uses: Counter[Buffer] = Counter(a.buffer for s in block.statements for a in accesses(s))

    def visit(self, block: Block) -> None:
        # Inner blocks first: what goes away there are uses that would keep a copy out here.
        for statement in block.statements:
            for inner in blocks_of(statement):
                self.visit(inner)
        # With a copy statements move and uses change, so the search begins anew after each.
        changed = True
        while changed:
            changed = False
            for j, statement in enumerate(block.statements):
                if isinstance(statement, Copy) and self._remove(block.statements, j, statement):
                    changed = True
                    break

    def _remove(self, statements: list[Any], j: int, copy: Copy) -> bool:
        old, new = copy.source, copy.target
        if old is new or old not in self.known or not _is_whole(copy):
            return False
        touched = [sum(a.buffer is old for a in accesses(s)) for s in statements]
        first = next(i for i, count in enumerate(touched) if count)
        # All uses must lie before the copy and in this block, and the place must be known before the first:
        # else some code would still mean the temporary, or an address that does not exist yet.
        if sum(touched[: j + 1]) != self.uses[old] or not _is_known_at(copy.target_index, statements, first):
            return False
        entries = _begin_in_place(statements, j, copy)
        if entries is None:
            return False
        for s in statements[first:j]:
            _redirect(s, old, new, copy.target_index)
        _delete(statements, copy)
        for block, entry in entries:
            _delete(block, entry)
        # Each copy that went away had named both buffers, one of them under its old name.
        self.uses[new] += self.uses.pop(old) - 2 - 2 * len(entries)
        self.known.discard(old)
        self.temporaries.remove(old)
        return True


def _delete(statements: list[Any], statement: Statement) -> None:
    del statements[next(i for i, s in enumerate(statements) if s is statement)]


def _begin_in_place(statements: list[Any], end: int, copy: Copy) -> list[tuple[list[Any], Copy]] | None:
    """The copies, each with the list it stands in, by which the source of a copy begins as its target.

    None where statements before ``end`` look at the target once the source has begun.
    """
    old, new = copy.source, copy.target
    first = next((i for i in range(end) if _touches(statements[i], old)), None)
    if first is None or any(_touches(s, new) for s in statements[first + 1 : end]):
        return None
    begin = statements[first]
    entries: list[tuple[list[Any], Copy]] = []
    if _is_inverse(begin, copy):
        entries.append((statements, begin))
    elif isinstance(begin, If):
        # Each side may begin in its own way, but none may look at the target in another.
        for block in blocks_of(begin):
            found = _begin_in_place(block.statements, len(block.statements), copy)
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


def _is_known_at(index: Index, statements: Sequence[Any], position: int) -> bool:
    """Whether the scalars in an index are computed before a position, or outside the block."""
    later = {id(s) for s in statements[position:]}
    return all(v.value is None or id(v.value) not in later for v in index.terms)


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
