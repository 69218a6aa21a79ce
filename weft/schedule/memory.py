"""The memory plan: where each buffer in between lies in the arena, and which inputs may be overwritten.

Buffers whose lives do not overlap share memory. A buffer lives from its first to its last use; if one of
them is in a loop and another outside, all through the loop.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from weft.base.records import dataclass
from weft.base.sizes import Size
from weft.loop import ir
from weft.loop.index import Extent
from weft.loop.ir import Block, Buffer, Function, Statement
from weft.loop.spans import Span, find_spans, span_owner
from weft.loop.walk import accesses, blocks_of, own_accesses, statements
from weft.schedule.stops import drop_stops, is_stop

ALIGNMENT = 64
ZONE = 64  # bytes before and after each buffer of a program that is checked


@dataclass
class Life:
    """From which to which place in the main function a buffer is needed."""

    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """Where buffers lie, and how much memory that takes.

    Attributes:
        offsets: by buffer, its first byte.
        size: of the arena, in bytes.
        lives: by buffer, from which to which statement it is needed.
        spans: by buffer with zones around it, the statements between which these must stay as they are.
    """

    offsets: dict[Buffer, Extent]
    size: Extent
    lives: dict[Buffer, Life]
    spans: dict[Buffer, Span]


class _Walk:
    """Numbers the statements of a main function, and finds the lives of buffers."""

    def __init__(self) -> None:
        self.count = 0
        self.lives: dict[Buffer, Life] = {}
        self.paths: dict[Buffer, dict[tuple[int, ...], None]] = {}
        self.loops: dict[int, tuple[int, int]] = {}

    def visit(self, block: Block, path: tuple[int, ...]) -> None:
        for statement in block.statements:
            self.count += 1
            here = self.count
            for access in own_accesses(statement):
                self._touch(access.buffer, here, path)
            is_loop = isinstance(statement, ir.Loop | ir.While)
            for inner in blocks_of(statement):
                self.visit(inner, (*path, here) if is_loop else path)
            if is_loop:
                self.count += 1
                self.loops[here] = (here, self.count)

    def _touch(self, buffer: Buffer, here: int, path: tuple[int, ...]) -> None:
        life = self.lives.get(buffer)
        if life is None:
            self.lives[buffer] = Life(here, here)
            self.paths[buffer] = {path: None}
            return
        life.last = here
        self.paths[buffer][path] = None

    def extend(self) -> None:
        """Let what is used in a loop and outside of it live all through the loop."""
        for buffer, paths in self.paths.items():
            shared = _common(list(paths))
            for path in paths:
                if len(path) > len(shared):
                    first, last = self.loops[path[len(shared)]]
                    life = self.lives[buffer]
                    life.first, life.last = min(life.first, first), max(life.last, last)


def _common(paths: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    first = paths[0]
    for i in range(len(first)):
        if any(path[: i + 1] != first[: i + 1] for path in paths):
            return first[:i]
    return first


def find_lives(block: Block) -> dict[Buffer, Life]:
    """By buffer, from which to which statement it is needed."""
    walk = _Walk()
    walk.visit(block, ())
    walk.extend()
    return walk.lives


def plan_arena(
    block: Block, temporaries: Sequence[Buffer], *, share: bool = True, zones: bool = False
) -> Plan:
    """Places in the arena for temporaries; unless they are to share memory, each has its own.

    With zones there is memory before and after each that nobody may write to. A buffer then lives from the
    beginning of its span to the end, since the zones do.
    """
    spans = find_spans(block) if zones else {}
    lives = _spanned_lives(block, spans) if zones else find_lives(block)
    used = [b for b in temporaries if b in lives]
    if not share and used:
        always = Life(0, max(life.last for life in lives.values()))
        lives = dict.fromkeys(lives, always)
    shared = _in_place(block, set(used), lives) if share else {}
    owners = {buffer: span_owner(buffer, shared) for buffer in shared}
    if zones:
        spans = find_spans(block, owners)
        lives |= _spanned_lives(block, spans) if share else {}
    fixed = [b for b in used if not isinstance(b.size, Size) and b not in shared]
    offsets: dict[Buffer, Extent] = {}
    zone = ZONE if zones else 0
    size: Extent = _place_fixed(fixed, lives, offsets, zone)
    size = _place_sized([b for b in used if isinstance(b.size, Size)], lives, offsets, size, zone)
    for buffer, owner in owners.items():
        offsets[buffer] = offsets[owner]
    return Plan(offsets, size, lives, {b: spans[b] for b in used if b in spans and b not in shared})


def _spanned_lives(block: Block, spans: Mapping[Buffer, Span]) -> dict[Buffer, Life]:
    """By buffer, the places of its span."""
    begins: dict[int, int] = {}
    number_statements(block, begins, [0])
    return {
        buffer: Life(begins[id(first)], _end(last, begins[id(last)]))
        for buffer, (first, last) in spans.items()
    }


def _end(statement: Statement, begin: int) -> int:
    """The last number that a statement takes."""
    count = [begin - 1]
    number_statements(Block([statement]), {}, count)
    return count[0]


def _in_place(block: Block, candidates: set[Buffer], lives: dict[Buffer, Life]) -> dict[Buffer, Buffer]:
    """By buffer, the one whose memory it takes over: a launch reads that last as it writes this."""
    found: dict[Buffer, Buffer] = {}
    taken: set[Buffer] = set()
    position: dict[int, int] = {}
    number_statements(block, position, [0])
    for statement in statements(block):
        for launch in statement.launches if isinstance(statement, ir.Wave) else (statement,):
            if not isinstance(launch, ir.Launch):
                continue
            here = position[id(statement)]
            for i, j in launch.function.reuses:
                (old, start), (new, begin) = launch.buffers[i], launch.buffers[j]
                if old not in candidates or new not in candidates or old is new:
                    continue
                if new in found or old in taken or isinstance(old.size, Size) or isinstance(new.size, Size):
                    continue
                # The kernel says for each element that it is read before it is written, so old and new must
                # begin at the same place, and no other argument may look at old from somewhere else.
                same = start.key == 0 and begin.key == 0 and _bytes(old) == _bytes(new)
                alone = sum(a.buffer is old for a in own_accesses(statement)) == 1
                if same and alone and lives[old].last == here and lives[new].first == here:
                    found[new] = old
                    taken.add(old)
    # A chain of buffers is one memory, which is needed until the last of them is read.
    for new in found:
        root = span_owner(new, found)
        lives[root].last = max(lives[root].last, lives[new].last)
    return found


def number_statements(block: Block, position: dict[int, int], count: list[int]) -> None:
    """Note the positions of statements, by their id; a loop takes one more at its end."""
    for statement in block.statements:
        count[0] += 1
        position[id(statement)] = count[0]
        for inner in blocks_of(statement):
            number_statements(inner, position, count)
        if isinstance(statement, ir.Loop | ir.While):
            count[0] += 1


def _bytes(buffer: Buffer) -> Any:
    return buffer.size * buffer.dtype.itemsize


def _place_fixed(
    buffers: Sequence[Buffer], lives: dict[Buffer, Life], offsets: dict[Buffer, Extent], zone: int
) -> int:
    """In order of their first use, each into the smallest hole that holds it."""
    holes = _Holes()
    ends: list[tuple[int, int, int]] = []  # (last use, start, size) of what is live, a heap
    for buffer in sorted(buffers, key=lambda b: lives[b].first):
        while ends and ends[0][0] < lives[buffer].first:
            _, start, size = heappop(ends)
            holes.release(start, size)
        need = max(ALIGNMENT, _aligned(_bytes(buffer) + zone) + zone)
        start = holes.take(need)
        offsets[buffer] = start + zone
        heappush(ends, (lives[buffer].last, start, need))
    return holes.top


class _Holes:
    """Memory below the top that is free, in pieces that do not touch."""

    def __init__(self) -> None:
        self.top = 0
        self._size: dict[int, int] = {}  # by start
        self._start: dict[int, int] = {}  # by end
        self._sorted: list[tuple[int, int]] = []  # (size, start)

    def take(self, need: int) -> int:
        """The start of so many bytes."""
        # The tightest hole leaves the wide ones for what is large.
        place = bisect_left(self._sorted, (need, 0))
        if place < len(self._sorted):
            size, start = self._sorted[place]
            self._forget(start, size)
            if size > need:
                self._note(start + need, size - need)
            return start
        start = self.top
        if start in self._start:  # a hole at the very end grows instead of being left behind
            start = self._start[start]
            self._forget(start, self.top - start)
        self.top = start + need
        return start

    def release(self, start: int, size: int) -> None:
        if start in self._start:
            before = self._start[start]
            self._forget(before, start - before)
            start, size = before, size + start - before
        if start + size in self._size:
            after = self._size[start + size]
            self._forget(start + size, after)
            size += after
        self._note(start, size)

    def _note(self, start: int, size: int) -> None:
        self._size[start], self._start[start + size] = size, start
        insort(self._sorted, (size, start))

    def _forget(self, start: int, size: int) -> None:
        del self._size[start], self._start[start + size]
        del self._sorted[bisect_left(self._sorted, (size, start))]


def _place_sized(
    buffers: Sequence[Buffer],
    lives: dict[Buffer, Life],
    offsets: dict[Buffer, Extent],
    top: Extent,
    zone: int,
) -> Extent:
    """Buffers of named sizes: those of equal size share memory where their lives allow."""
    # Nobody knows before the run which of two different sizes is the larger one: holes are not cut up.
    free: dict[Any, list[tuple[int, Extent]]] = {}
    for buffer in sorted(buffers, key=lambda b: lives[b].first):
        need = _aligned(_bytes(buffer) + zone) + zone
        slots = free.setdefault(need, [])
        slot = next((s for s in slots if s[0] < lives[buffer].first), None)
        if slot is None:
            offsets[buffer] = top + zone
            top = top + need
        else:
            slots.remove(slot)
            offsets[buffer] = slot[1]
        slots.append((lives[buffer].last, offsets[buffer]))
    return top


def _aligned(size: Extent) -> Any:
    if isinstance(size, Size):
        return (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
    return -(-size // ALIGNMENT) * ALIGNMENT


# Inputs that may be overwritten


def find_donated(
    main: Function, pairs: Sequence[tuple[int, int]], inputs: int, results: Collection[int] = ()
) -> tuple[list[tuple[int, int]], list[int]]:
    """Of pairs (input, output), those where the output may lie in the memory of the input.

    The input must not be read once the output is being written, and nothing may fail after that: a run that
    fails changes nothing. A loop that counts ends anyway: where it comes after, nobody can stop it.

    Where there are such pairs, also which of other ``results`` are written when nothing can fail any more, or
    has failed: they may lie in memory that somebody still reads if the run fails.
    """
    # A loop counts as one statement: if it may fail anywhere, then until its last iteration.
    statements = main.body.statements
    failing: dict[Block, bool] = {}
    last_failure = max((i for i, s in enumerate(statements) if _can_fail(s, failing)), default=-1)
    touches: dict[Buffer, list[int]] = {}
    for i, s in enumerate(statements):
        for buffer in {a.buffer for a in accesses(s)}:
            touches.setdefault(buffer, []).append(i)
    found = []
    touching = _touching(statements)
    for i, j in pairs:
        old, new = main.buffers[i], main.buffers[inputs + j]
        if new in touches and _is_safe(touching, old, new, touches, last_failure):
            found.append((i, j))
    first = _first_write(statements, {main.buffers[inputs + j] for _, j in found})
    sure = first if last_failure >= 0 else 0  # a run that has failed does not get there
    others = [j for j in results if found and j not in {j for _, j in pairs}]
    late = [j for j in others if touches.get(main.buffers[inputs + j], [-1])[0] >= sure]
    drop_stops(statements[first:])
    if found and last_failure >= 0:
        statements.insert(first, ir.Leave())  # a run that has failed ends before it overwrites anything
    return found, late


def _can_fail(statement: Statement, known: dict[Block, bool]) -> bool:
    """Whether a statement, or one inside, may note a failure; what is known of bodies is kept."""
    if isinstance(statement, ir.Launch):
        body = statement.function.body  # which copies of a kernel share
        if body not in known:
            known[body] = any(isinstance(s, ir.Fail) for s in statements(body))
        return known[body]
    if isinstance(statement, ir.Wave):
        return any(_can_fail(launch, known) for launch in statement.launches)
    if isinstance(statement, ir.While) and any(map(is_stop, statement.body.statements)):
        return True
    inside = any(_can_fail(s, known) for block in blocks_of(statement) for s in block.statements)
    calls = isinstance(statement, ir.Host) and not statement.strides  # a library notes no failures
    return inside or calls or isinstance(statement, ir.Fail)


Touching = Sequence[dict[Buffer, list[ir.Launch]]]


def _touching(statements: Sequence[Statement]) -> Touching:
    """For each statement, by buffer the launches of it that touch it."""
    out: list[dict[Buffer, list[ir.Launch]]] = []
    for s in statements:
        launches = s.launches if isinstance(s, ir.Wave) else (s,) if isinstance(s, ir.Launch) else ()
        found: dict[Buffer, list[ir.Launch]] = {}
        for launch in launches:
            for buffer in dict.fromkeys(b for b, _ in launch.buffers):
                found.setdefault(buffer, []).append(launch)
        out.append(found)
    return out


def _is_safe(
    touching: Touching, old: Buffer, new: Buffer, touches: dict[Buffer, list[int]], failing: int
) -> bool:
    first = touches[new][0]
    if first <= failing or old.size != new.size or old.dtype != new.dtype:
        return False
    late = [i for i in touches.get(old, ()) if i >= first]
    if not late:
        return True
    # One kernel may do both, element by element, as ``w - rate * g`` does.
    return late == [first] and _reads_before_writing(touching[first], old, new)


def _reads_before_writing(found: dict[Buffer, list[ir.Launch]], old: Buffer, new: Buffer) -> bool:
    launches = dict.fromkeys([*found.get(old, ()), *found.get(new, ())])
    if len(launches) != 1:
        return False
    (launch,) = launches
    reads = [n for n, (b, _) in enumerate(launch.buffers) if b is old]
    writes = [n for n, (b, _) in enumerate(launch.buffers) if b is new]
    starts = [launch.buffers[n][1].key for n in (*reads, *writes)]
    pairs = launch.function.reuses
    return all(s == 0 for s in starts) and all((r, w) in pairs for r in reads for w in writes)


def _first_write(found: Sequence[Statement], outputs: Collection[Buffer]) -> int:
    """The number of the first statement that writes to an output; past the end where there is none."""
    writes = (i for i, s in enumerate(found) if any(a.written and a.buffer in outputs for a in accesses(s)))
    return next(writes, len(found)) if outputs else len(found)
