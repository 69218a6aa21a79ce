"""A program of launches, copies, fills and products for sizes that are known: only pointers are missing.

The steps of a ``CudaProgram`` become *entries* (``weft.backends.cuda.entries``): kernels with their argument
blocks, of which a call fills in the pointers that it does not share with the last one. A call is then a walk
over a list. Loops that count are written out turn by turn. Branches and loops that ask the device have
entries inside; only a graph runs those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from threading import Lock
from typing import Any

from weft.backends.cuda import program as steps
from weft.backends.cuda.card import Card
from weft.backends.cuda.emit.kernel import WAIT
from weft.backends.cuda.entries import (
    BranchEntry,
    CallEntry,
    CopyEntry,
    Entry,
    FillEntry,
    KernelEntry,
    LoopEntry,
    ProductEntry,
    Slots,
    Table,
)
from weft.backends.cuda.launches import Launch
from weft.backends.cuda.libraries import call_of, collectives_of, commit_of, is_collective
from weft.backends.cuda.modules import Module
from weft.backends.cuda.nccl import COMMIT
from weft.backends.cuda.order import CONTEXT, LIBRARY, RANKS, Access
from weft.backends.cuda.products import Product
from weft.backends.cuda.program import (
    ARENA_ALIGNMENT,
    COMMITTED,
    CudaProgram,
    Place,
    all_steps,
    evaluate,
    inner_steps,
)
from weft.backends.cuda.rooms import find_rooms, sides_of
from weft.backends.cuda.streams import Stream
from weft.backends.cuda.users import kernel_of, prepare_users, types_of
from weft.errors import GraphError

_LISTED = (steps.Launch, steps.CopyBytes, steps.FillBytes, steps.MatrixProduct, steps.LibraryCall)
_IN_GRAPHS = (*_LISTED, steps.Check, steps.SetNumber, steps.Repeat, steps.Choose, steps.Again)
COUNTER = 256  # bytes at most of what a library only counts in, and from one such place to the next
GIVEN_UP = -1  # what a run that gives up notes instead of the number of a failure
_MOST_ENTRIES = 20_000  # of loops that are written out


def is_list(program: CudaProgram) -> bool:
    """Whether a program is a list of launches and the like, without control flow or a look at values."""
    return not program.heap and all(
        isinstance(step, _LISTED) or kernel_of(program, step) is not None for step in program.steps
    )


def can_be_graph(program: CudaProgram) -> bool:
    """Whether nothing in a program waits for the host, nor asks for memory that only a run knows of.

    One side of a branch may: such as that where an assertion does not hold. A run that comes there gives up.
    """
    loops = [step for step in all_steps(program.steps) if isinstance(step, steps.Again)]
    inside = [s for loop in loops for s in all_steps((*loop.test, *loop.body))]
    if program.heap or any(isinstance(s, steps.SetNumber) for s in inside):  # another one in each turn
        return False
    return _fits(program, program.steps) and (not collectives_of(program.steps) or _meets_once(program))


def _meets_once(program: CudaProgram) -> bool:
    """Whether each collective of a program is done once in a graph, whatever the device decides.

    None is in a branch, nor in a loop that asks the device: those have no events inside. And no run gives up
    and begins anew, which other ranks would not know of.
    """
    every = list(all_steps(program.steps))
    if any(not _fits(program, side) for step in every for side in inner_steps(step)):
        return False
    checks = [i for i, s in enumerate(program.steps) if isinstance(s, steps.Check) and s.stop is None]
    if checks and collectives_of(program.steps[checks[-1] :]):
        return False
    asking = [s for s in every if isinstance(s, steps.Choose | steps.Again)]
    return not any(collectives_of(inner) for s in asking for inner in inner_steps(s))


def _fits(program: CudaProgram, listed: Sequence[Any]) -> bool:
    """Whether steps can be in a graph."""
    for step in listed:
        sides = [_fits(program, inner) for inner in inner_steps(step)]
        if not isinstance(step, _IN_GRAPHS) and kernel_of(program, step) is None:
            return False
        if sides and not (any(sides) if isinstance(step, steps.Choose) else all(sides)):
            return False
    return True


def can_fail(program: CudaProgram) -> bool:
    """Whether a run may note a failure, or give up; no loop is stopped from outside in a graph."""
    every = list(all_steps(program.steps))
    places = [a for step in every if isinstance(step, steps.Launch) for a in step.arguments]
    notes = any(isinstance(a, Place) and a.memory == "context" for a in places)
    return notes or any(not _fits(program, side) for step in every for side in inner_steps(step))


class TooLongError(Exception):
    """Of loops that would be written out for too long."""


_PRODUCT = (
    "c", "a", "b", "dtype", "m", "n", "k", "rows", "transposed", "add", "batch", "strides", "bias", "result",
)  # fmt: skip


def _extents(step: steps.MatrixProduct) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    return step.rows, step.strides, (step.batch,)


class Bound:
    """The entries of a program for sizes that are known.

    Attributes:
        card: the device.
        entries: in their order.
        slots: of the table of pointers that a call gives.
        arena: bytes for what lies between.
        numbers: the sizes.
        rooms: by id of a step that calls a library, where in the arena that works, if not behind it.
        counters: slot, offset and bytes of what libraries count in, see ``_with_counters``.
    """

    def __init__(
        self, card: Card, program: CudaProgram, module: Module | None, numbers: Mapping[str, int]
    ) -> None:
        self.card = card
        self.slots = Slots(program)
        self.numbers = dict(numbers)
        self._before = -(-evaluate(program.arena, numbers) // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
        self._behind_arena = (self.slots.arena, self._before)  # where libraries work, if nowhere else
        self._program, self._module = program, module
        self._steps: dict[int, int] = {}  # by id of a call's entry, that of its step
        self._waits = WAIT in program.ptx
        self._left = _MOST_ENTRIES
        self.entries: list[Entry] = self._guarded(program.steps)
        self.rooms = self._work_in_arena(evaluate(program.arena, numbers))
        self._counters = self._before + -(-self._behind(self.entries) // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
        self.arena = self._counters
        self.entries = self._with_counters(self.entries)
        self.counters = (self.slots.arena, self._counters, self.arena - self._counters)
        self._lock = Lock()

    def run(self, table: Table, stream: Stream) -> None:
        """Do all of it on a stream."""
        with self._lock:  # argument blocks are filled by one thread at a time
            for entry in self.entries:
                entry.run(table, stream, self.card)  # type: ignore[union-attr]

    def _at(self, place: Place) -> tuple[int, int]:
        return self.slots.of(place), evaluate(place.offset, self.numbers)

    def _guarded(self, listed: Sequence[Any]) -> list[Entry]:
        """The entries of the main list: what comes after the last check runs only if nothing has failed.

        That check stands before the first write to memory that was given away. What follows other checks is
        safe to run, and nobody sees it.
        """
        checks = [i for i, step in enumerate(listed) if isinstance(step, steps.Check) and step.stop is None]
        if not checks:
            return self._entries(listed)
        first, rest = self._entries(listed[: checks[-1]]), self._entries(listed[checks[-1] + 1 :])
        committed = commit_of(listed) is not None
        return [*first, BranchEntry(None, tuple(rest), committed=committed)] if rest else first

    def _entries(self, listed: Sequence[Any]) -> list[Entry]:
        """The entries of steps; loops that count turn by turn."""
        out: list[Entry] = []
        for step in listed:
            if isinstance(step, steps.Repeat):
                for turn in range(*[evaluate(x, self.numbers) for x in (step.start, step.stop)]):
                    self.numbers[step.variable] = turn
                    out += self._entries(step.body)
            elif isinstance(step, steps.SetNumber):
                self.numbers[step.name] = evaluate(step.value, self.numbers)
            elif not isinstance(step, steps.Check):
                entry = self._entry(step)
                out += [] if entry is None else [entry]
                self._left -= 1
                if self._left < 0:
                    raise TooLongError
        return out

    def _side(self, listed: Sequence[Any]) -> tuple[Entry, ...]:
        """The entries of a side of a branch; one that cannot be in a graph notes that the run gives up."""
        if _fits(self._program, listed):
            return tuple(self._entries(listed))
        return (FillEntry((self.slots.context, 0), GIVEN_UP & 0xFF, 8),)

    def _entry(self, step: Any) -> Entry | None:
        match step:
            case steps.Choose(condition, then, otherwise):
                parts = self._side(then), self._side(otherwise)
                return BranchEntry(self._at(condition), *parts) if any(parts) else None
            case steps.Again(test, condition, body):
                return LoopEntry(tuple(self._entries(test)), self._at(condition), tuple(self._entries(body)))
            case steps.Launch():
                return self._kernel(step)
            case steps.CopyBytes(target, source, count):
                size = evaluate(count, self.numbers)
                return CopyEntry(self._at(target), self._at(source), size) if size else None
            case steps.FillBytes(target, value, count):
                size = evaluate(count, self.numbers)
                return FillEntry(self._at(target), value, size) if size else None
            case steps.MatrixProduct():
                return self._product(step)
            case steps.LibraryCall():
                return self._call(step)
            case steps.HostCall():
                return self._users(step)
        raise GraphError("cuda", f"a list of launches must have no {type(step).__name__}")

    def _users(self, step: steps.HostCall) -> KernelEntry | None:
        """A kernel of the user's: it reads its inputs and writes its outputs."""

        def number(extent: Any) -> int:
            return evaluate(extent, self.numbers)

        prepared = prepare_users(self.card, self._program, step, number)
        if prepared is None:
            return None
        places = [self._at(place) for place in (*step.inputs, *step.outputs)]
        inputs, outputs = types_of(self._program, step, number)
        touched = [
            Access(slot, start, start + prod(kind.shape) * kind.dtype.itemsize, i >= len(inputs))
            for i, ((slot, start), kind) in enumerate(zip(places, (*inputs, *outputs), strict=True))
        ]
        launch, grid, block, shared, pointers = prepared
        launch.shape(grid, block, shared)
        patches = tuple((w, *places[n]) for w, n in pointers)
        return KernelEntry(launch, grid, block, shared, patches, tuple(touched))

    def _product(self, step: steps.MatrixProduct) -> Entry | None:
        m, n, k, batch = (evaluate(x, self.numbers) for x in (step.m, step.n, step.k, step.batch))
        if 0 in (m, n, batch) or (k == 0 and step.add):
            return None
        if k == 0:  # a sum of nothing
            return FillEntry(self._at(step.c), 0, m * n * batch * step.result_bytes)
        places = tuple([self._at(place) for place in (step.c, step.a, step.b)])
        touched = self._touched_by_product(step, places, (m, n, k))
        product = Product.of(self.card, step, self.numbers)
        bias = () if step.bias is None else (self._at(step.bias),)
        return ProductEntry(product, (*places, *bias, self._behind_arena), touched)

    def _touched_by_product(
        self, step: steps.MatrixProduct, places: Sequence[tuple[int, int]], shape: tuple[int, int, int]
    ) -> tuple[Access, ...] | None:
        """What a product touches, if it has no other operands than these."""
        if steps.MatrixProduct.__match_args__ != _PRODUCT:
            return None
        m, n, k = shape
        turned_a, turned_b = step.transposed
        sides = (m, n), ((k, m) if turned_a else (m, k)), ((n, k) if turned_b else (k, n))
        rows, strides, batch = ([evaluate(x, self.numbers) for x in xs] for xs in _extents(step))
        out = [Access(LIBRARY, 0, 1, True)]  # they share memory to work in
        for i, ((slot, start), (high, wide)) in enumerate(zip(places, sides, strict=True)):
            row, stride = rows[(i + 2) % 3], strides[(i + 2) % 3]  # those of a, b and c
            count = row * (high - 1) + wide + abs(stride) * (batch[0] - 1)
            each = step.dtype.itemsize if i else step.result_bytes
            out.append(Access(slot, start, start + count * each, i == 0))
        if step.bias is not None:
            slot, start = self._at(step.bias)
            out.append(Access(slot, start, start + n * step.result_bytes, False))
        return tuple(out)

    def _call(self, step: steps.LibraryCall) -> Entry:
        call = call_of(self.card, step, self.numbers)
        if step.name == COMMIT:  # after all that may note a failure
            words = (self.slots.context, 0), (self.slots.context, 8 * COMMITTED), (self.slots.arena, 0)
            return CallEntry(call, words, (Access(RANKS, 0, 1, True), Access(CONTEXT, 0, 1, True)))
        places = [self._at(place) for place in (*step.inputs, *step.outputs)]
        # Collectives come in the order that all ranks have them in, beside kernels and calls of others.
        out = [Access(RANKS if is_collective(step) else LIBRARY, 0, 1, True)]
        sizes = [operand.nbytes() for operand in call.operands]
        for i, ((slot, start), size) in enumerate(zip(places, sizes, strict=True)):
            out.append(Access(slot, start, start + size, i >= len(step.inputs)))
        entry = CallEntry(call, (*places, self._behind_arena), tuple(out))
        self._steps[id(entry)] = id(step)
        return entry

    def _work_in_arena(self, size: int) -> dict[int, int]:
        """Let libraries that need much memory work where nothing lies any more; gives the places by step."""
        rooms = {}
        for number, room in find_rooms(self.entries, self.slots.arena, size).items():
            entry: Any = self.entries[number]
            places = (*entry.places[:-1], (room.slot, room.start))
            self.entries[number] = entry._replace(places=places, touched=(*entry.touched, room))
            if isinstance(entry, CallEntry):
                rooms[self._steps[id(entry)]] = room.start
        return rooms

    def _with_counters(self, entries: Sequence[Any]) -> list[Any]:
        """Entries whose libraries work in a few bytes, each with its own, which a graph clears at once.

        Kernels that share out their tiles count in them, from 0 on. What runs again and again is left alone.
        """
        out = []
        for entry in entries:
            if isinstance(entry, BranchEntry):
                sides = [tuple(self._with_counters(side)) for side in (entry.then, entry.otherwise)]
                entry = entry._replace(then=sides[0], otherwise=sides[1])
            elif isinstance(entry, ProductEntry | CallEntry) and entry.places[-1] == self._behind_arena:
                worker = entry.product if isinstance(entry, ProductEntry) else entry.call
                if 0 < worker.workspace <= COUNTER:
                    entry = entry._replace(places=(*entry.places[:-1], (self.slots.arena, self.arena)))
                    self.arena += COUNTER
            out.append(entry)
        return out

    def _behind(self, entries: Sequence[Any]) -> int:
        """Bytes behind the arena that libraries work in, one after another."""
        most = 0
        for entry in entries:
            if isinstance(entry, ProductEntry | CallEntry):
                worker = entry.product if isinstance(entry, ProductEntry) else entry.call
                most = max(most, worker.workspace if entry.places[-1] == self._behind_arena else 0)
            else:
                most = max(most, *[self._behind(side) for side in sides_of(entry)], 0)
        return most

    def _kernel(self, step: steps.Launch) -> KernelEntry | None:
        grid = evaluate(step.grid, self.numbers)
        if not grid or self._module is None:
            return None
        kernel = self._program.kernels[step.kernel]
        launch = Launch(self._module.function(kernel.name), len(step.arguments))
        patches = []
        for word, argument in enumerate(step.arguments):
            if isinstance(argument, Place):
                patches.append((word, *self._at(argument)))
            else:
                launch.words[word] = evaluate(argument, self.numbers) & 0xFFFFFFFFFFFFFFFF
        shape = (grid, 1, 1), (kernel.threads, 1, 1), kernel.shared
        launch.shape(*shape)
        return KernelEntry(launch, *shape, tuple(patches), self._touched(step), self._waits)

    def _touched(self, step: steps.Launch) -> tuple[Access, ...] | None:
        """What a launch touches, if that is known."""
        places = [a for a in step.arguments if isinstance(a, Place)]
        if not step.effects:
            return None
        fails = any(place.memory == "context" for place in places)
        out = [Access(CONTEXT, 0, 1, False)] if fails else []  # noted by any number of kernels at a time
        places = [place for place in places if place.memory != "context"]
        for place, (writes, count) in zip(places, step.effects, strict=True):
            slot, start = self._at(place)
            out.append(Access(slot, start, start + evaluate(count, self.numbers), writes))
        return tuple(out)
