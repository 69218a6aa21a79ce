"""A program of launches, copies, fills and products for sizes that are known: only pointers are missing.

The steps of a ``CudaProgram`` become *entries*: kernels with their argument blocks, of which a call fills in
the pointers that it does not share with the last one. A call is then a walk over a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from weft.backends.cuda import program as steps
from weft.backends.cuda.card import Card
from weft.backends.cuda.launches import Launch, Three
from weft.backends.cuda.modules import Module
from weft.backends.cuda.products import Product
from weft.backends.cuda.program import CudaProgram, Place, evaluate
from weft.backends.cuda.streams import Stream
from weft.base.records import NamedTuple
from weft.errors import GraphError

Table = Sequence[int]  # pointers, by the numbers that `Slots` gives


class Slots:
    """Which number in a table of pointers each piece of memory has."""

    __slots__ = ("_first", "arena", "context", "count")

    def __init__(self, program: CudaProgram) -> None:
        sizes = {
            "input": len(program.inputs),
            "output": len(program.outputs),
            "constant": len(program.constants),
            "arena": 1,
            "context": 1,
        }
        self._first: dict[str, int] = {}
        self.count = 0
        for name, size in sizes.items():
            self._first[name] = self.count
            self.count += size
        self.arena, self.context = self._first["arena"], self._first["context"]

    def of(self, place: Place) -> int:
        """The number of the memory of a place."""
        if place.memory == "heap":
            raise GraphError("cuda", "memory from the heap must be walked to, got it in a list of launches")
        return self._first[place.memory] + place.number


class KernelEntry(NamedTuple):
    """A launch; ``patches`` are (word, slot, offset) of its pointers."""

    launch: Launch
    grid: Three
    block: Three
    shared: int
    patches: tuple[tuple[int, int, int], ...]

    def run(self, table: Table, stream: Stream, card: Card) -> None:
        """Launch it."""
        words = self.launch.words
        for word, slot, offset in self.patches:
            words[word] = table[slot] + offset
        self.launch.start(stream)

    def slots(self) -> set[int]:
        """The memory that it uses."""
        return {slot for _, slot, _ in self.patches}


class CopyEntry(NamedTuple):
    """A copy of bytes from one (slot, offset) to another."""

    target: tuple[int, int]
    source: tuple[int, int]
    nbytes: int

    def run(self, table: Table, stream: Stream, card: Card) -> None:
        """Copy them."""
        card.driver.cuMemcpyDtoDAsync(*self.pointers(table), self.nbytes, stream.handle)

    def pointers(self, table: Table) -> tuple[int, int]:
        """Where to, and where from."""
        return table[self.target[0]] + self.target[1], table[self.source[0]] + self.source[1]

    def slots(self) -> set[int]:
        """The memory that it uses."""
        return {self.target[0], self.source[0]}


class FillEntry(NamedTuple):
    """Bytes at (slot, offset) that become one value."""

    target: tuple[int, int]
    value: int
    nbytes: int

    def run(self, table: Table, stream: Stream, card: Card) -> None:
        """Fill them."""
        card.driver.cuMemsetD8Async(self.pointer(table), self.value, self.nbytes, stream.handle)

    def pointer(self, table: Table) -> int:
        """Where they are."""
        return table[self.target[0]] + self.target[1]

    def slots(self) -> set[int]:
        """The memory that it uses."""
        return {self.target[0]}


class ProductEntry(NamedTuple):
    """A product of matrices by a library; ``places`` are (slot, offset) of c, a and b."""

    product: Product
    places: tuple[tuple[int, int], ...]

    def run(self, table: Table, stream: Stream, card: Card) -> None:
        """Multiply them."""
        c, a, b = [table[slot] + offset for slot, offset in self.places]
        self.product.run(c, a, b, stream)

    def slots(self) -> set[int]:
        """The memory that it uses."""
        return {slot for slot, _ in self.places}


Entry = KernelEntry | CopyEntry | FillEntry | ProductEntry
_LISTED = (steps.Launch, steps.CopyBytes, steps.FillBytes, steps.MatrixProduct)


def is_list(program: CudaProgram) -> bool:
    """Whether a program is a list of launches and the like, without control flow or a look at values."""
    return not program.heap and all(isinstance(step, _LISTED) for step in program.steps)


class Bound:
    """The entries of a program for sizes that are known.

    Attributes:
        card: the device.
        entries: in their order.
        slots: of the table of pointers that a call gives.
        arena: bytes for what lies between.
        numbers: the sizes.
    """

    def __init__(
        self, card: Card, program: CudaProgram, module: Module | None, numbers: Mapping[str, int]
    ) -> None:
        self.card = card
        self.slots = Slots(program)
        self.numbers = dict(numbers)
        self.arena = evaluate(program.arena, numbers)
        self._program, self._module = program, module
        found = [self._entry(step) for step in program.steps]
        self.entries: list[Entry] = [entry for entry in found if entry is not None]
        self._lock = Lock()

    def run(self, table: Table, stream: Stream) -> None:
        """Do all of it on a stream."""
        with self._lock:  # argument blocks are filled by one thread at a time
            for entry in self.entries:
                entry.run(table, stream, self.card)

    def _at(self, place: Place) -> tuple[int, int]:
        return self.slots.of(place), evaluate(place.offset, self.numbers)

    def _entry(self, step: Any) -> Entry | None:
        match step:
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
        raise GraphError("cuda", f"a list of launches must have no {type(step).__name__}")

    def _product(self, step: steps.MatrixProduct) -> Entry | None:
        m, n, k, batch = (evaluate(x, self.numbers) for x in (step.m, step.n, step.k, step.batch))
        if 0 in (m, n, batch) or (k == 0 and step.add):
            return None
        if k == 0:  # a sum of nothing
            return FillEntry(self._at(step.c), 0, m * n * batch * step.dtype.itemsize)
        places = tuple([self._at(place) for place in (step.c, step.a, step.b)])
        return ProductEntry(Product.of(self.card, step, self.numbers), places)

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
        return KernelEntry(launch, *shape, tuple(patches))
