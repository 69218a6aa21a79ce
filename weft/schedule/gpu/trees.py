"""What the threads of a block have found, combined: in shared memory, in an order that is fixed.

Of n values, m threads combine n / m each, with m about the square root of n; then every thread combines the m
for itself, so that all of them know the result. That takes two barriers for any number of threads, and what
is written in a later turn of a loop around it is behind a barrier for whoever still reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.records import NamedTuple
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Local, Value

FEW = 8  # values that every thread combines at once


class Part(NamedTuple):
    """A value that each thread has a part of: the local that holds it, and how two become one."""

    local: Local
    instruction: str


class Tree:
    """Combines values of threads, ``width`` neighbours at a time.

    Attributes:
        width: threads whose values become one.
        threads: of a block.
    """

    def __init__(self, b: Builder, width: int, threads: int) -> None:
        self._b = b
        self.width = width
        self.threads = threads
        self.step = _step(width)
        self._rows: dict[tuple[int, str], tuple[Buffer, Buffer | None]] = {}

    def combine(self, thread: Index, parts: Sequence[Part]) -> list[Value]:
        """The parts of neighbours as one; every thread of the block must come here."""
        b = self._b
        if self.width == 1:
            return [b.get(part.local) for part in parts]
        own = b.remainder(thread, self.width)
        first = thread - own if self.width < self.threads else Index.of(0)
        rows = [self._memory(i, part) for i, part in enumerate(parts)]
        if self.step == 0:
            b.barrier()  # what was read of the turn before
        for part, (row, _) in zip(parts, rows, strict=True):
            b.store(row, thread, b.get(part.local))
        b.barrier()
        if self.step == 0:
            return [
                self._folded(part, row, first, self.width, 1)
                for part, (row, _) in zip(parts, rows, strict=True)
            ]
        group = b.quotient(thread, self.width) * self.step if self.width < self.threads else Index.of(0)
        with b.if_(b.lt(own, self.step)):
            for part, (row, second) in zip(parts, rows, strict=True):
                assert second is not None
                count = self.width // self.step
                b.store(second, group + own, self._folded(part, row, first + own, count, self.step))
        b.barrier()
        out = []
        for part, (_, second) in zip(parts, rows, strict=True):
            assert second is not None
            out.append(self._folded(part, second, group, self.step, 1))
        return out

    def _memory(self, number: int, part: Part) -> tuple[Buffer, Buffer | None]:
        key = (number, part.local.dtype.name)
        if key not in self._rows:
            b, dtype = self._b, part.local.dtype
            count = len(b.scratches)
            row = b.scratch(f"parts{count}", dtype, self.threads, "shared")
            sums = None
            if self.step:
                size = self.threads // self.width * self.step
                sums = b.scratch(f"sums{count}", dtype, size, "shared")
            self._rows[key] = row, sums
        return self._rows[key]

    def _folded(self, part: Part, row: Buffer, first: Index, count: int, stride: int) -> Value:
        """Elements of a row at even distances as one, from the first to the last."""
        values = [self._b.load(row, first + i * stride) for i in range(count)]
        return pairwise(self._b, part.instruction, values)


def pairwise(b: Builder, instruction: str, values: Sequence[Value]) -> Value:
    """Neighbours combined, and neighbours of that, until one is left."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        done = [getattr(b, instruction)(x, y) for x, y in pairs]
        values = [*done, *values[2 * len(done) :]]
    return values[0]


def _step(width: int) -> int:
    """How many threads combine in the first of two turns; 0 where one turn does."""
    if width <= FEW:
        return 0
    divisors = [m for m in range(1, width) if width % m == 0]
    best = min(divisors, key=lambda m: (width // m + m, m))
    return 0 if width // best + best > width else best
