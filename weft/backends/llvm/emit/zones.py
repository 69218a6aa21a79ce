"""What code that is checked does besides: rubbish in new memory, and zones around it that are looked at.

A buffer of the arena is spoilt where its span begins; its zones are looked at after each step of the main
function that uses it, and where its span ends. The step that runs is a word of the context, so that an
error names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.backends.llvm.code import llvm_text
from weft.backends.llvm.emit.lanes import statements
from weft.backends.llvm.emit.statements import Statements
from weft.backends.llvm.emit.types import Value, constant
from weft.base.dtypes import int64
from weft.loop.ir import Buffer, Copy, Host, Launch, Matmul, Program, Statement, Wave
from weft.loop.walk import own_accesses
from weft.schedule.memory import ZONE

STEP = 9  # the word of the context with the number of the step that runs
OUT_OF_ZONE = -6  # the number of the failure that a zone is which was written to
RUBBISH = 0x7FF6  # in every two bytes: a NaN in each float, a large number in each integer
STEPS = (Launch, Wave, Host, Copy, Matmul)

Way = Callable[[Any], None]


def mark_of(number: int) -> int:
    """What the zones of a buffer with a number hold; those of others, which may be copied there, do not."""
    return 1 + (37 * number + 196) % 251


def zones_text() -> str:
    """The functions that checked code calls."""
    low, high = RUBBISH & 0xFF, RUBBISH >> 8
    values = {"zone": ZONE, "both": 2 * ZONE, "low": low - 256, "high": high}
    return llvm_text("zones", values)


def steps_of_main(program: Program) -> list[Statement]:
    """The steps of a main function, in the order of their numbers."""
    return [s for s in statements(program.main.body) if isinstance(s, STEPS)]


class Zones:
    """Writes what spoils memory and looks at zones.

    Args:
        code: of the main function.
        program: whose main function it is.
        room: of a buffer of the heap, where its number of bytes is; None for others.
        leave: writes what ends a run that has failed.
    """

    def __init__(
        self,
        code: Statements,
        program: Program,
        room: Callable[[Buffer], Value | None],
        leave: Callable[[], None],
    ) -> None:
        self._code = code
        self._room = room
        self._leave = leave
        self._numbers = {s: i for i, s in enumerate(steps_of_main(program))}
        self._begins: dict[Statement, list[Buffer]] = {}
        self._ends: dict[Statement, list[Buffer]] = {}
        for buffer, (first, last) in program.spans.items():
            self._begins.setdefault(first, []).append(buffer)
            self._ends.setdefault(last, []).append(buffer)
        self._zoned = {*program.spans, *program.heap}

    def around(self, way: Way) -> Way:
        """A way to write statements, with what is done besides."""

        def write(s: Statement) -> None:
            self._before(s)
            way(s)
            self._after(s)

        return write

    def _before(self, s: Statement) -> None:
        writer = self._code.writer
        for buffer in self._begins.get(s, ()):
            base, size, mark = self._code.places.base(buffer), self._bytes(buffer), self._mark(buffer)
            writer.line(f"call void @weft_spoil(ptr {base.parts[0]}, i64 0, i64 {size.parts[0]}, {mark})")
        if s in self._numbers:
            at = writer.here(f"getelementptr i64, ptr %context, i64 {STEP}")
            writer.line(f"store i64 {self._numbers[s]}, ptr {at}")

    def _after(self, s: Statement) -> None:
        looked = self._ends.get(s, [])
        if s in self._numbers:
            looked = [*looked, *[a.buffer for a in own_accesses(s) if a.buffer in self._zoned]]
        for buffer in dict.fromkeys(looked):
            self.look(buffer)
        if s in self._numbers:
            self._leave()

    def look(self, buffer: Buffer) -> None:
        """Note a failure if a zone of a buffer was written to."""
        base, size, mark = self._code.places.base(buffer), self._bytes(buffer), self._mark(buffer)
        found = self._code.writer.here(
            f"call i64 @weft_look(ptr {base.parts[0]}, i64 {size.parts[0]}, {mark})"
        )
        which = Value(int64, (found,), 0, self._code.writer.depth)
        number = constant(self._code.places.numbers[buffer], int64)
        self._code.failures.fail(self._code.scalars.lt(0, which), OUT_OF_ZONE, (number, which))

    def _mark(self, buffer: Buffer) -> str:
        return f"i8 {mark_of(self._code.places.numbers[buffer])}"

    def _bytes(self, buffer: Buffer) -> Value:
        room = self._room(buffer)
        if room is not None:
            return room
        indices = self._code.indices
        return indices.product(indices.number(buffer.size), constant(buffer.dtype.itemsize, int64))
