"""What a call on a device runs: kernels, copies, fills, products, calls of libraries, branches, loops.

An entry lacks pointers alone: a call gives them as a table, by the numbers of ``Slots``. It tells which bytes
it touches, so that a graph knows what waits for what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.backends.cuda.card import Card
from weft.backends.cuda.launches import Launch, Three
from weft.backends.cuda.libraries import Call
from weft.backends.cuda.order import Access
from weft.backends.cuda.products import Product
from weft.backends.cuda.program import CudaProgram, Place
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
    """A launch; ``patches`` are (word, slot, offset) of its pointers.

    With ``waits`` its text says that it waits for what it comes after in a graph.
    """

    launch: Launch
    grid: Three
    block: Three
    shared: int
    patches: tuple[tuple[int, int, int], ...]
    touched: tuple[Access, ...] | None = None
    waits: bool = False

    def accesses(self) -> Sequence[Access] | None:
        """The bytes that it touches, where that is known."""
        return self.touched

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

    def accesses(self) -> Sequence[Access]:
        """The bytes that it touches."""
        (target, at), (source, begin) = self.target, self.source
        written = Access(target, at, at + self.nbytes, True)
        return written, Access(source, begin, begin + self.nbytes, False)

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

    def accesses(self) -> Sequence[Access]:
        """The bytes that it touches."""
        slot, at = self.target
        return (Access(slot, at, at + self.nbytes, True),)

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
    """A product of matrices by a library; ``places`` are (slot, offset) of c, a, b, bias and workspace."""

    product: Product
    places: tuple[tuple[int, int], ...]
    touched: tuple[Access, ...] | None = None

    def accesses(self) -> Sequence[Access] | None:
        """The bytes that it touches, where that is known."""
        return self.touched

    def run(self, table: Table, stream: Stream, card: Card) -> None:
        """Multiply them."""
        c, a, b, *bias, workspace = [table[slot] + offset for slot, offset in self.places]
        self.product.run(c, a, b, workspace, stream, *bias)

    def slots(self) -> set[int]:
        """The memory that it uses."""
        return {slot for slot, _ in self.places}


class CallEntry(NamedTuple):
    """A call of another library; ``places`` are (slot, offset) of inputs, outputs and its workspace."""

    call: Call
    places: tuple[tuple[int, int], ...]
    touched: tuple[Access, ...]

    def accesses(self) -> Sequence[Access]:
        """The bytes that it touches."""
        return self.touched

    def run(self, table: Table, stream: Stream, card: Card) -> None:
        """Have it computed."""
        *pointers, workspace = [table[slot] + offset for slot, offset in self.places]
        self.call.run(pointers, workspace, stream)

    def slots(self) -> set[int]:
        """The memory that it uses."""
        return {slot for slot, _ in self.places}


class BranchEntry(NamedTuple):
    """One of two lists of entries, by a bool at (slot, offset); None: whether nothing has failed so far.

    With ``committed`` nothing may have failed on any rank.
    """

    condition: tuple[int, int] | None
    then: tuple[Any, ...]
    otherwise: tuple[Any, ...] = ()
    committed: bool = False

    def accesses(self) -> None:
        """Whatever is in its memory."""

    def slots(self) -> set[int]:
        """The memory that it uses."""
        own = set() if self.condition is None else {self.condition[0]}
        return own.union(*[entry.slots() for entry in (*self.then, *self.otherwise)])


class LoopEntry(NamedTuple):
    """Entries that test, and while a bool at (slot, offset) holds, a body and the test again."""

    test: tuple[Any, ...]
    condition: tuple[int, int]
    body: tuple[Any, ...]

    def accesses(self) -> None:
        """Whatever is in its memory."""

    def slots(self) -> set[int]:
        """The memory that it uses."""
        return {self.condition[0]}.union(*[entry.slots() for entry in (*self.test, *self.body)])


Entry = KernelEntry | CopyEntry | FillEntry | ProductEntry | CallEntry | BranchEntry | LoopEntry
