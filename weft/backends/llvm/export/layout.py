"""Where everything is in the memory of a handle, and in the data of a library."""

from __future__ import annotations

from collections.abc import Sequence

from weft.backends.library import ALIGNMENT, Model
from weft.backends.llvm.entry import CONTEXT_WORDS
from weft.base.records import NamedTuple, dataclass
from weft.loop.ir import Program

MESSAGE_BYTES = 2048

# Words of a handle; the context of a run, sizes, buffers and copies of weights follow.
MUTEX, ALLOCATE, RELEASE, USER, ARENA, ARENA_BYTES, BASE, MAPPED = 0, 8, 9, 10, 11, 12, 13, 14
CONTEXT = 16
SIZES = CONTEXT + CONTEXT_WORDS

# Words of the options that a user gives.
OPTION_SIZE, SEED, WEIGHTS_PATH, OWN_ALLOCATE, OWN_RELEASE, OWN_USER = range(6)
OPTION_WORDS = 6


class Start(NamedTuple):
    """What a buffer is when a handle is made.

    Attributes:
        slot: its number among the buffers.
        source: where its data is in the data of the library, -1 if nowhere.
        bytes: how long it is.
        state: where the handle has memory for it, -1 if it stays where it is.
    """

    slot: int
    source: int
    bytes: int
    state: int


@dataclass(frozen=True)
class Layout:
    """The places in a handle.

    Attributes:
        buffers, owned, message: words at which the table of buffers, the copies of weights that were set, and
            the message begin.
        state: the byte at which the memory of what runs change begins.
        size: of the handle, in bytes.
        starts: what buffers are at first.
        swapped: pairs of buffers that change places after a run: what was written becomes what is read.
        generators: by generator, the byte at which its state is at first.
    """

    buffers: int
    owned: int
    message: int
    state: int
    size: int
    starts: tuple[Start, ...]
    swapped: tuple[tuple[int, int], ...]
    generators: tuple[int, ...]


def layout_of(model: Model, program: Program, offsets: Sequence[int]) -> Layout:
    """The places in the handles of a library, whose arrays are at offsets in its data."""
    buffers = SIZES + max(1, len(program.main.sizes))
    owned = buffers + len(program.main.buffers)
    message = owned + len(model.weights)
    state = _aligned(8 * message + MESSAGE_BYTES)
    states = _States(model, program, state)
    for weight, offset in zip(model.weights, offsets, strict=False):
        states.add(weight.slot, weight.update, offset, weight.array.nbytes)
    for generator in model.generators:
        states.add(generator.slot, generator.update, -1, 16)
    first = program.inputs + program.outputs
    for i, (array, offset) in enumerate(zip(program.constants, offsets[len(model.weights) :], strict=True)):
        states.starts.append(Start(first + i, offset, array.nbytes, -1))
    places = {start.slot: start.state for start in states.starts}
    generators = tuple(places[g.slot] for g in model.generators)
    return Layout(
        buffers, owned, message, state, states.end, tuple(states.starts), tuple(states.swapped), generators
    )


class _States:
    """Gives what runs change its places."""

    def __init__(self, model: Model, program: Program, begin: int) -> None:
        results = model.graph.results
        self._kept = {i for i, v in enumerate(model.graph.inputs) if v in results}
        self._inputs = program.inputs
        self._donated = frozenset(program.donated)
        self.starts: list[Start] = []
        self.swapped: list[tuple[int, int]] = []
        self.end = begin

    def add(self, slot: int, update: int | None, source: int, size: int) -> None:
        """Place an input; one that no run changes stays where it is, unless nothing is there."""
        if update is None and source >= 0:
            self.starts.append(Start(slot, source, size, -1))
            return
        own = self._room(size)
        self.starts.append(Start(slot, source, size, own))
        if update is None:
            return
        in_place = (slot, update) in self._donated and slot not in self._kept
        self.starts.append(Start(self._inputs + update, -1, size, own if in_place else self._room(size)))
        if not in_place:
            self.swapped.append((slot, self._inputs + update))

    def _room(self, size: int) -> int:
        begin, self.end = self.end, _aligned(self.end + size)
        return begin


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
