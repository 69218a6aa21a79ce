"""The body of a group's kernel: for each row, sweeps over its columns.

A value that a row was reduced to is a scalar for the sweeps that follow. A value for each column that a later
sweep needs again is computed again if that is cheap, else kept: in a row on the stack, or, where the row is
too long for that or nobody knows its length, where a later sweep will write a result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from weft.base.dtypes import float32
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Node, Value
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Load, Loop, Store
from weft.schedule.arrays import Array
from weft.schedule.cpu.long_sums import PART, WideTotals, wide_dtype
from weft.schedule.extents import block_of, ceil_div, fold_instruction, identity
from weft.schedule.fusion import is_reduction
from weft.schedule.sweeps import CHEAP, GroupSweeps, accumulator
from weft.schedule.writer import Kernel, unflattened

if TYPE_CHECKING:
    from weft.schedule.cpu.row_kernel import RowKernel

ROWS = 128  # that are added up one after the other
SCRATCH = 8192  # elements of a row that is kept on the stack
LENT = 1 << 17  # elements of one that is kept where a result will be: it stays in a core's cache


class Sweeps(GroupSweeps):
    """The body of a kernel, while it is written."""

    def __init__(
        self,
        row_kernel: RowKernel,
        k: Kernel,
        sources: dict[Value, Any],
        targets: dict[Value, Array],
        blocks: Any,
        each: Any,
        lent: Collection[Value] = (),
    ) -> None:
        super().__init__(row_kernel, k, sources, targets)
        self.row_kernel, self.blocks, self.each = row_kernel, blocks, each
        self._lent = lent  # results whose memory may hold something else before they are written
        self._lenders: dict[Value, Value | None] = {}
        self._long = WideTotals(self.b)  # of all rows of a block
        self._sums: dict[Value, Array] = {}  # for each column, of some of the rows of a block

    def write(self) -> None:
        """Write the parallel loop and all in it."""
        with self.b.parallel(self.blocks) as block:
            self._begin(block)
            if self.row_kernel.flat:
                self._write_flat(block)
            else:
                self._write_rows(block)
            self._end(block)

    # Rows

    def _write_flat(self, block: Index) -> None:
        """One long row: a block of its columns."""
        total = size_of(self.frame.shape)
        if not isinstance(total, Size) and total == 0:
            return
        start = block * self.each
        fits = not isinstance(total, Size) and total % self.each == 0
        stop: Any = start + self.each if fits else clipped(self.b, start + self.each, total)
        offset = Index.of(0)
        if fits:
            start, stop, offset = Index.of(0), self.each, start
        with self.b.vector(stop, start) as c:
            index = tuple(unflattened(self.b, offset + c, self.frame.shape))
            self._at(block, (), index, self._work(0), {})

    def _write_rows(self, block: Index) -> None:
        rows = self.frame.rows
        if not isinstance(rows, Size) and rows == 0:
            return
        if not isinstance(self.each, Size) and self.each == 1:
            self._row(block, block)
            return
        even = not isinstance(rows, Size) and not isinstance(self.each, Size) and rows % self.each == 0
        start = block * self.each
        if not self._sums and not (self._long and self._has_short_rows()):
            self._rows_between(block, start, self.each, None if even else rows)
            return
        with self.b.loop(ceil_div(self.each, ROWS)) as k:
            skipped, count = block_of(self.b, k, self.each, ROWS)
            for sums in self._sums.values():
                with self.b.vector(self.frame.columns) as c:
                    self.b.store(sums.buffer, c, self.b.constant(0, sums.dtype))
            with self._long.part() if self._has_short_rows() else nullcontext():
                self._rows_between(block, start + skipped, count, None if even else rows)
            for v, sums in self._sums.items():
                with self.b.vector(self.frame.columns) as c:
                    self._add_up(block, v, sums, c)

    def _rows_between(self, block: Index, start: Index, count: Any, rows: Any) -> None:
        """So many rows from one on; those from ``rows`` on are not there."""
        if rows is None:
            with self.b.loop(count) as i:
                self._row(block, start + i)
            return
        with self.b.loop(clipped(self.b, start + count, rows), start) as r:
            self._row(block, r)

    def _add_up(self, block: Index, value: Value, sums: Array, column: Index) -> None:
        """What some rows sum to in a column is added to what those before did."""
        target = self.targets[value]
        place = self._partial(target, block, column)
        total = self.b.add(self.b.load(target.buffer, place), self.b.load(sums.buffer, column))
        self.b.store(target.buffer, place, total)

    def _has_short_rows(self) -> bool:
        """Whether a row is too short to be a part of a long sum."""
        columns = self.frame.columns
        return not isinstance(columns, Size) and columns < PART // 4

    def _row(self, block: Index, row: Index) -> None:
        """All sweeps over one row."""
        with self._long.part() if self._long and not self._has_short_rows() else nullcontext():
            self._row_parts(block, row)

    def _row_parts(self, block: Index, row: Index) -> None:
        frame = self.frame
        split = frame.split or 0
        index = tuple(unflattened(self.b, row, frame.shape[:split])) if split else ()
        kept = dict(self.sources)  # what was found for one row is not true of the next
        for level in range(self.last + 1):
            self._row_values(level, index)
            work = self._work(level)
            if work:
                self._sweep(block, level, index, work)
        self.sources.clear()
        self.sources.update(kept)

    # Columns

    def _kept(self, value: Value) -> bool:
        """Whether a later sweep needs a value that is too dear to be computed again, and there is room."""
        level = self.levels[value]
        if not self._is_needed_later(value, level) or self._price(value) <= CHEAP:
            return False
        return self._fits_the_stack() or self._lender(value) is not None

    def _fits_the_stack(self) -> bool:
        columns = self.frame.columns
        return not isinstance(columns, Size) and columns <= SCRATCH

    def _lender(self, value: Value) -> Value | None:
        """A result in whose memory a value is kept until that sweep of a row which writes the result."""
        columns = self.frame.columns
        if not isinstance(columns, Size) and columns > LENT:
            return None
        if value not in self._lenders:
            taken = set(self._lenders.values())
            found = (t for t in self._lent if t not in taken and self._may_lend(t, value))
            self._lenders[value] = next(found, None)
        return self._lenders[value]

    def _may_lend(self, target: Value, value: Value) -> bool:
        """Whether nobody needs a value any more when a result of its kind is written."""
        last = self.levels[target]
        if target.type != value.type or self.kinds[target] != "full" or last <= self.levels[value]:
            return False
        readers = [self.use_def.nodes[u] for u in self.use_def.users[self.use_def.producer[value]]]
        if any(n.outputs and n.outputs[0] in self.made and self._sweep_of(n) > last for n in readers):
            return False
        # The last thing that its sweep does: all that reads the value there has read it before.
        later = itertools.takewhile(lambda v: v is not target, reversed(self.made))
        return not any(self._sweep_of(self.made[v]) == last and self._has_columns(v) for v in later)

    def _has_columns(self, value: Value) -> bool:
        """Whether a value is computed for each column, or from all of them."""
        return self.kinds[value] != "row" or is_reduction(self.made[value])

    def _sweep(self, block: Index, level: int, row: tuple[Index, ...], work: Sequence[Value]) -> None:
        reduced = [v for v in work if self.kinds[v] == "row"]
        sums = WideTotals(self.b)
        for v in reduced:
            instruction, dtype = self.made[v].op.fold, accumulator(self.made[v])
            wide = wide_dtype(instruction, dtype, self.frame.columns)
            self.totals[v] = sums.begin(identity(instruction, dtype), dtype, wide)
        kept = [v for v in work if self.kinds[v] == "full" and v not in self.targets]
        scratch = {v: self._scratch(v) for v in kept}
        self._over_columns(lambda columns: self._at(block, row, columns, work, scratch), sums)
        for v in reduced:
            self.sources[v] = self.b.cast(sums.get(self.totals[v]), v.type.dtype)
        self.sources.update(scratch)
        for v in work:
            # What is written anyway is read back, whatever it cost: it is still in the nearest cache.
            if self.kinds[v] == "full" and v in self.targets and self._is_needed_later(v, level):
                self.sources[v] = self.targets[v]
        for v, lender in self._lenders.items():
            if lender in work:
                self.sources.pop(v, None)  # what was kept there is gone

    def _scratch(self, value: Value) -> Array:
        """A row on the stack, or memory that is lent, for a value, addressed like the value itself."""
        frame = self.frame
        if not self._fits_the_stack():
            lender = self._lender(value)
            assert lender is not None
            return self.targets[lender]
        buffer = self.b.scratch(f"row{len(self.b.scratches)}", value.type.dtype, frame.columns)
        shape = value.type.shape
        split = next(i for i in range(len(shape) + 1) if size_of(shape[i:]) == frame.columns)
        whole = Array(buffer, shape[split:])
        return Array(buffer, shape, (*[0] * split, *whole.strides))

    def _over_columns(self, body: Callable[[tuple[Index, ...]], None], sums: WideTotals) -> None:
        """A loop over the columns: all in one where every access walks evenly, else one for each axis."""
        axes = self.frame.shape[self.frame.split or 0 :]
        if self.row_kernel.breaks:
            self._over_axes(axes, (), body, sums)
            return
        # One flat loop is tried first: whether it reads unevenly shows only in the code that it gave.
        before = len(self.b.block.statements)
        with sums.vector(size_of(axes)) as c:
            body(tuple(unflattened(self.b, c, axes)) if len(axes) > 1 else (c,))
        if len(axes) > 1 and any(map(is_uneven, _vector_loops(self.b.block.statements[before:]))):
            del self.b.block.statements[before:]
            self._over_axes(axes, (), body, sums)

    def _over_axes(
        self,
        axes: Sequence[Any],
        done: tuple[Index, ...],
        body: Callable[[tuple[Index, ...]], None],
        sums: WideTotals,
    ) -> None:
        if len(axes) == 1:
            cuts = [0, *self.row_kernel.breaks, axes[0]]
            for start, stop in itertools.pairwise(cuts):
                with sums.vector(stop - start) as c:
                    body((*done, c + start))
            return
        with self.b.loop(axes[0]) as i:
            self._over_axes(axes[1:], (*done, i), body, sums)

    def _at(
        self,
        block: Index,
        row: tuple[Index, ...],
        columns: tuple[Index, ...],
        work: Sequence[Value],
        scratch: dict[Value, Array],
    ) -> None:
        """What is done for one element."""
        for v in work:
            node = self.made[v]
            if is_reduction(node):
                self._reduce(v, node, block, row, columns)
                continue
            at = self._index_of(v.type.shape, row, columns)
            target = scratch.get(v) or self.targets[v]
            self.b.store(target.buffer, target.at(*at), self.reader.read(v, at))

    def _reduce(
        self, value: Value, node: Node, block: Index, row: tuple[Index, ...], columns: tuple[Index, ...]
    ) -> None:
        (x,) = node.inputs
        element = self.reader.read(x, self._index_of(x.type.shape, row, columns))
        element = self.b.cast(element, accumulator(node))
        instruction = fold_instruction(node.op.fold, accumulator(node))
        if self.kinds[value] != "column":
            self.b.accumulate(self.totals[value], instruction, element)
            return
        target, number = self.targets[value], self._column_number(columns)
        place = self._partial(target, block, number)
        if value in self._sums:
            target, place = self._sums[value], number
        total = getattr(self.b, instruction)(self.b.load(target.buffer, place), element)
        self.b.store(target.buffer, place, total)

    def _column_number(self, columns: tuple[Index, ...]) -> Index:
        flat = Index.of(0)
        for i, size in zip(columns, self.frame.shape[self.frame.split or 0 :], strict=True):
            flat = flat * size + i
        return flat.folded()

    # Partial results

    def _partial(self, target: Array, block: Index, column: Any) -> Index:
        """Where the partial result of a block lies, for a column."""
        if not isinstance(self.blocks, Size) and self.blocks == 1:
            return target.flat(column)
        return target.at(block, column)

    def _begin(self, block: Index) -> None:
        for v, target in self.targets.items():
            how, instruction = self.kinds[v], self.made[v].op.fold
            if how == "all":
                count = self.each * self.frame.columns if not self.row_kernel.flat else 0
                wide = wide_dtype(instruction, target.dtype, count)
                self.totals[v] = self._long.begin(identity(instruction, target.dtype), target.dtype, wide)
            elif how == "column":
                start = self.b.constant(identity(instruction, target.dtype), target.dtype)
                with self.b.vector(self.frame.columns) as c:
                    self.b.store(target.buffer, self._partial(target, block, c), start)
                long = isinstance(self.each, Size) or self.each > 2 * ROWS
                if long and instruction == "add" and target.dtype == float32 and self._fits_the_stack():
                    buffer = self.b.scratch(f"sum{len(self.b.scratches)}", target.dtype, self.frame.columns)
                    self._sums[v] = Array(buffer, (self.frame.columns,))

    def _end(self, block: Index) -> None:
        for v, target in self.targets.items():
            if self.kinds[v] == "all":
                total = self.b.cast(self._long.get(self.totals[v]), target.dtype)
                self.b.store(target.buffer, self._partial(target, block, 0), total)


def clipped(b: Builder, index: Index, stop: Any) -> Index:
    """An index, or the end that it must not go beyond."""
    return b.term(b.min(index, Index.of(stop)))


def _vector_loops(statements: Sequence[Any]) -> list[Loop]:
    """The vector loops among statements, and in the loops among them."""
    loops = [s for s in statements if isinstance(s, Loop)]
    inner = [v for s in loops if s.kind != "vector" for v in _vector_loops(s.body.statements)]
    return [*(s for s in loops if s.kind == "vector"), *inner]


def is_uneven(loop: Any) -> bool:
    """Whether an access in a vector loop does not walk evenly through memory."""
    assert isinstance(loop, Loop)
    varying = _varying(loop)
    for s in loop.body.statements:
        if isinstance(s, Load | Store):
            for v in s.index.terms:
                if v is not loop.variable and v.value is not None and id(v.value) in varying:
                    return True
    return False


def _varying(loop: Loop) -> set[int]:
    """The scalars of a loop's body that depend on its variable."""
    found: set[int] = set()

    def depends(x: Any) -> bool:
        if isinstance(x, Index):
            return any(v is loop.variable or (v.value is not None and id(v.value) in found) for v in x.terms)
        return id(x) in found

    for s in loop.body.statements:
        args = getattr(s, "args", ())
        if isinstance(s, Load):
            args = (s.index,)
        if any(depends(a) for a in args):
            found.add(id(s))
    return found
