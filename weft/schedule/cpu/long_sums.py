"""Long sums of float32: parts are added in float32, by vectors, and the sums of the parts in float64.

A sum that is much larger than what is added to it rounds that to few digits, to the same side each time where
the numbers are alike: of a million numbers near 10,000 the mean would be right to three digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.base.dtypes import DType, complex64, complex128, float32, float64
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Local, Value
from weft.schedule.extents import block_of, ceil_div, is_number

PART = 4096  # elements of a part: with 16 sums side by side each has 256 of them
_WIDE = {float32: float64, complex64: complex128}


def wide_dtype(instruction: str, dtype: DType, count: Any) -> DType | None:
    """What the parts of a fold of so many elements are added in; None for one that is as good without."""
    if instruction != "add" or (is_number(count) and count <= PART):
        return None
    return _WIDE.get(dtype)


class WideTotals:
    """Totals of which some are added up in another, wider one, part by part."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self._wide: dict[Local, Local] = {}

    def __bool__(self) -> bool:
        return bool(self._wide)

    def begin(self, start: Any, dtype: DType, wide: DType | None) -> Local:
        """A local for a fold, and one beside it if a wide dtype is given."""
        total = self.b.local(self.b.constant(start, dtype))
        if wide is not None:
            self._wide[total] = self.b.local(self.b.constant(start, wide))
        return total

    def get(self, total: Local) -> Value:
        """What was folded, in its wide dtype if there is one."""
        return self.b.get(self._wide.get(total, total))

    @contextmanager
    def part(self) -> Iterator[None]:
        """What is added to the totals in this block is one part of them."""
        for total in self._wide:
            self.b.set(total, 0)
        yield
        for total, wide in self._wide.items():
            self.b.set(wide, self.b.add(self.b.get(wide), self.b.cast(self.b.get(total), wide.dtype)))

    def _parts(self, count: Any) -> Any:
        return (
            self.b.quotient(count + (PART - 1), PART) if isinstance(count, Index) else ceil_div(count, PART)
        )

    @contextmanager
    def vector(self, count: Any) -> Iterator[Index]:
        """A vector loop, in parts if it is long and somebody wants them."""
        if not self._wide:
            with self.b.vector(count) as i:
                yield i
        elif is_number(count) and count <= PART:
            with self.part(), self.b.vector(count) as i:
                yield i
        else:
            with self.b.loop(self._parts(count)) as k:
                start, size = block_of(self.b, k, count, PART)
                with self.part(), self.b.vector(size) as i:
                    yield start + i
