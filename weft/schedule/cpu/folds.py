"""Folds: many elements into one by an instruction, in loops that suit how they lie in memory.

A ``Fold`` says how two elements become one. A ``Reduction`` plans the loops for a shape and axes, and writes
them into a kernel, on a function that gives the element at an index, so that what it reads may be computed on
the way. Three forms: *rows*, where elements that belong together lie side by side, by vectors along them;
*columns*, by vectors across them, on a row of partial results that stays in the cache; and *strips*, for few
columns, with a register for each. What is large and gives little is divided into blocks, whose partial
results are folded in turn. How many blocks there are depends on the shape alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from math import prod
from typing import Any

from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Value
from weft.schedule.cpu.long_sums import WideTotals, wide_dtype
from weft.schedule.extents import block_of, ceil_div, is_number, weight
from weft.schedule.folding import Fold
from weft.schedule.writer import unflattened

Indices = tuple[Index, ...]
Read = Callable[[Builder, Indices], Value]
Write = Callable[[Builder, Indices, Value], None]

FEW = 16  # so many elements are handled one by one in the code
GROUP = 8  # rows that are folded into the partial results at once
COLUMNS = 1024  # the longest row of partial results
TASK = 16384  # elements that are worth a task of their own
TASKS = 8  # where there are so many already, a reduction is not divided further


class Reduction:
    """The loops that fold the elements of a shape along axes.

    Attributes:
        shape: of what is read; its last axis is the one whose elements lie side by side.
        axes: that are folded; ``kept`` are the others.
        fold: how.
        split: the axis that is divided into blocks, or None; ``block`` is the size of one.
    """

    def __init__(self, shape: Sequence[Any], axes: Sequence[int], fold: Fold, *, whole: bool = False) -> None:
        self.shape = tuple(shape)
        self.axes = tuple(axes)
        self.kept = tuple(i for i in range(len(self.shape)) if i not in self.axes)
        self.fold = fold
        self._across = self._choose_across()
        self.columns = self._choose_columns()
        self.split, self.block = (None, 0) if whole else self._choose_split()

    # Decisions

    def _size(self, axes: Sequence[int]) -> int:
        return weight(*[self.shape[i] for i in axes])

    def _choose_across(self) -> bool:
        """Whether vectors go along a kept axis."""
        if not self.kept:
            return False
        last = len(self.shape) - 1
        if last in self.axes:
            return weight(self.shape[last]) < FEW <= weight(self.shape[self.kept[-1]])
        return not self._is_strip()

    def _is_strip(self) -> bool:
        """Whether there are few columns, and vectors go along the last folded axis all the same."""
        if not self.kept or self.kept[-1] != len(self.shape) - 1 or not self.axes:
            return False
        width = self.shape[-1]
        return is_number(width) and width <= FEW <= weight(self.shape[self.axes[-1]])

    def _choose_columns(self) -> int:
        """How many columns are folded together, where vectors go across."""
        if not self._across:
            return 1
        rows = max(self._size(self.axes), 1)
        chunk = min(max(ceil_div(TASK // rows, 64) * 64, 64), COLUMNS)
        width = self.shape[self.kept[-1]]
        return int(min(chunk, max(width, 1)) if is_number(width) else chunk)

    def _tasks(self) -> tuple[Any, ...]:
        """The shape of the parallel loop, without blocks."""
        outer = [self.shape[i] for i in self.kept]
        if self._across:
            return (*outer[:-1], ceil_div(outer[-1], self.columns))
        return tuple(outer[:-1]) if self._is_strip() else tuple(outer)

    def _choose_split(self) -> tuple[int | None, int]:
        tasks, total = weight(*self._tasks()), weight(*self.shape)
        if not self.axes or tasks >= TASKS or total < 2 * TASK:
            return None, 0
        axis = max(self.axes, key=lambda i: weight(self.shape[i]))
        size = weight(self.shape[axis])
        each = max(total // max(size * tasks, 1), 1)  # elements of a task for one step of the axis
        block = max(ceil_div(TASK, each), ceil_div(size, 256))
        block = ceil_div(block, 64) * 64 if not self._across else ceil_div(block, GROUP) * GROUP
        return (axis, block) if block < size else (None, 0)

    @property
    def partial_shape(self) -> tuple[Any, ...] | None:
        """The shape of the partial results, by block and then as kept; None where there are no blocks."""
        if self.split is None:
            return None
        blocks = ceil_div(self.shape[self.split], self.block)
        return (blocks, *[self.shape[i] for i in self.kept])

    @property
    def needs_scratch(self) -> bool:
        """Whether the code needs memory of its own, for a row of partial results."""
        return self._across and not self._is_short()

    # Loops

    def write(self, b: Builder, read: Read, write: Write) -> None:
        """Write all loops, the outer one parallel: the last statement of a kernel.

        ``read`` gives the element at an index of the shape. ``write`` gets the results, each with its index
        in the kept axes, after the number of the block where there are blocks.
        """
        tasks = self._tasks()
        if self.split is not None:
            tasks = (ceil_div(self.shape[self.split], self.block), *tasks)
        body = self._columns if self._across else self._strip if self._is_strip() else self._row
        scratch = None
        if self.needs_scratch:
            scratch = b.scratch("partial", self.fold.dtype, self.columns)
        with _tasks_of(b, size_of(tasks)) as task:
            places = unflattened(b, task, tasks)
            ranges = {i: (Index.of(0), self.shape[i]) for i in self.axes}
            lead: Indices = ()
            if self.split is not None:
                lead = (places.pop(0),)
                ranges[self.split] = block_of(b, lead[0], self.shape[self.split], self.block)
            part = _Part(ranges, read, lambda b, i, x: write(b, (*lead, *i), x))
            body(b, part, places, scratch)

    def _is_short(self) -> bool:
        """Whether all that is folded into one element is handled one by one in the code."""
        known = all(is_number(self.shape[i]) for i in self.axes)
        return self.split is None and known and self._size(self.axes) <= FEW

    def _element(self, b: Builder, part: _Part, kept: Sequence[Any], folded: Sequence[Any]) -> Value:
        places = dict(zip(self.kept, kept, strict=True))
        places |= {i: part.ranges[i][0] + at for i, at in zip(self.axes, folded, strict=True)}
        index = tuple(Index.of(places[i]) for i in range(len(self.shape)))
        return b.cast(part.read(b, index), self.fold.dtype)

    @contextmanager
    def _outer(self, b: Builder, part: _Part) -> Iterator[list[Index]]:
        """Serial loops over the folded axes but the last."""
        with ExitStack() as stack:
            yield [stack.enter_context(b.loop(part.ranges[i][1])) for i in self.axes[:-1]]

    def _row(self, b: Builder, part: _Part, kept: Sequence[Index], scratch: Buffer | None) -> None:
        self._accumulate(b, part, [list(kept)])

    def _strip(self, b: Builder, part: _Part, kept: Sequence[Index], scratch: Buffer | None) -> None:
        self._accumulate(b, part, [[*kept, Index.of(k)] for k in range(self.shape[-1])])

    def _accumulate(self, b: Builder, part: _Part, results: Sequence[list[Index]]) -> None:
        """Vectors along the last folded axis, for some results at once."""
        sums = WideTotals(b)
        sizes = [part.ranges[i][1] for i in self.axes]
        count = prod(sizes) if all(is_number(n) for n in sizes) else None
        wide = wide_dtype(self.fold.instruction, self.fold.dtype, count)
        totals = [sums.begin(self.fold.start, self.fold.dtype, wide) for _ in results]
        if not self.axes:
            for kept, total in zip(results, totals, strict=True):
                b.accumulate(total, self.fold.instruction, self._element(b, part, kept, ()))
        else:
            with self._outer(b, part) as outer, sums.vector(sizes[-1]) as i:
                for kept, total in zip(results, totals, strict=True):
                    x = self._element(b, part, kept, [*outer, i])
                    b.accumulate(total, self.fold.instruction, x)
        for kept, total in zip(results, totals, strict=True):
            part.write(b, tuple(kept), b.cast(sums.get(total), self.fold.dtype))

    def _columns(self, b: Builder, part: _Part, kept: list[Index], scratch: Buffer | None) -> None:
        """Vectors across columns: of all elements at once where they are few, else rows into a row."""
        start, count = block_of(b, kept[-1], self.shape[self.kept[-1]], self.columns)
        outer = kept[:-1]
        if scratch is None:
            with b.vector(count) as j:
                place = [*outer, start + j]
                every = product(*[range(self.shape[i]) for i in self.axes])
                values = [self._element(b, part, place, steps) for steps in every]
                empty = [b.constant(self.fold.start, self.fold.dtype)]
                part.write(b, tuple(place), self.fold.tree(b, values or empty))
            return
        with b.vector(count) as j:
            b.store(scratch, j, self.fold.start)
        self._fold_rows(b, part, [*outer, start], count, scratch)
        with b.vector(count) as j:
            part.write(b, (*outer, start + j), b.load(scratch, j))

    def _fold_rows(self, b: Builder, part: _Part, kept: list[Index], count: Any, scratch: Buffer) -> None:
        rows = part.ranges[self.axes[-1]][1]
        with self._outer(b, part) as outer:
            if is_number(rows):
                whole, rest = Index.of(rows // GROUP), rows % GROUP
            else:
                whole, rest = b.quotient(rows, GROUP), None
            with b.loop(whole) as group:
                self._fold_group(b, part, kept, count, outer, group * GROUP, GROUP, scratch)
            if rest is None:
                with b.loop(Index.of(rows), whole * GROUP) as i:
                    self._fold_group(b, part, kept, count, outer, i, 1, scratch)
            elif rest:
                self._fold_group(b, part, kept, count, outer, whole * GROUP, rest, scratch)

    def _fold_group(
        self, b: Builder, part: _Part, kept: list[Index], count: Any,
        outer: list[Index], first: Index, rows: int, scratch: Buffer,
    ) -> None:  # fmt: skip
        with b.vector(count) as j:
            place = [*kept[:-1], kept[-1] + j]
            values = [self._element(b, part, place, [*outer, first + k]) for k in range(rows)]
            b.store(scratch, j, self.fold(b, b.load(scratch, j), self.fold.tree(b, values)))


class _Part(NamedTuple):
    """What one task folds: for each axis where it begins and how many elements it has; and how to read."""

    ranges: dict[int, tuple[Index, Any]]
    read: Read
    write: Write


@contextmanager
def _tasks_of(b: Builder, count: Any) -> Iterator[Index]:
    """A parallel loop, unless there is one task only."""
    if is_number(count, 1):
        yield Index.of(0)
    else:
        with b.parallel(count) as task:
            yield task
