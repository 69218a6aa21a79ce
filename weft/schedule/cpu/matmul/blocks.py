"""Long sums of products, some steps at a time, so that what tiles read stays in the nearest cache.

A task copies a block of steps of the right side tile by tile, so that the lanes of a tile lie side by side,
and maybe of the left side too. What a packed tile has beyond the rows and columns of the matrices is computed
with the rest, and not handed on: so all tiles have the same code.

Where the processor has a unit for numbers of the sides, they are packed into words for it (``cpu.units``):
then a step is a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import uint32
from weft.base.records import dataclass
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Value
from weft.schedule.cpu.matmul.plan import Matrices, Tiling
from weft.schedule.cpu.matmul.tile import Load, Side, Step, add_tile, load_wide, pack
from weft.schedule.cpu.units import FLIPPED_ZEROS, Words
from weft.schedule.extents import block_of, ceil_div, sum_dtype

ACROSS = 64  # rows that are handed on together column by column, so that they stay in the nearest cache


@dataclass
class Blocks:
    """One product whose sums are added up block by block.

    Attributes:
        b: of the kernel.
        p: the matrices.
        tiling: how they are cut.
        panel: where a block of a tile's columns is packed; None where the right side lies in panels.
        strip: where a block of a group's rows is packed, tile after tile, or None.
        sums: of a group's rows and columns.
        words: how numbers are words, or None.
        excess: by how much the sums of a tile's columns are too large after a block, or None.
        steps: of a panel, where the right side lies in panels; else 0.
    """

    b: Builder
    p: Matrices
    tiling: Tiling
    panel: Buffer | None
    strip: Buffer | None
    sums: Buffer
    words: Words | None = None
    excess: Buffer | None = None
    steps: int = 0

    @staticmethod
    def of(b: Builder, p: Matrices, tiling: Tiling, words: Words | None = None, steps: int = 0) -> Blocks:
        """A product with the scratch memory that it needs."""
        dtype = sum_dtype(p.dtype)
        packed = dtype if words is None else uint32
        rows, columns = _tiles(p, tiling)
        height, width, depth = tiling.rows, tiling.lanes, tiling.depth
        panel = None if steps else b.scratch("panel", packed, depth * width)
        strip = b.scratch("strip", packed, rows * _pitch(tiling)) if tiling.pack_left else None
        sums = b.scratch("sums", dtype, rows * height * columns * width)
        flips = words is not None and words.unit.flips
        excess = b.scratch("excess", dtype, width) if flips else None
        return Blocks(b, p, tiling, panel, strip, sums, words, excess, steps)

    def write(
        self,
        left: Side,
        right: Side,
        group: tuple[Index, Index],
        finish: Callable[[Index, Index, Value], None],
    ) -> None:
        """Write the loops over one group of rows and of columns; ``finish(row, column, sum)`` gets each."""
        b, (height, width), depth = self.b, self._tile, self.tiling.depth
        rows, columns = _tiles(self.p, self.tiling)
        with b.vector(self.sums.size) as i:
            b.store(self.sums, i, 0)
        tail = 0 if self.words is None else self.words.tail
        steps = self.p.k // self.tiling.chunks - (tail > 0)
        with b.loop(steps // depth) as block:
            self._add_block(left, right, group, block * depth, depth)
        # Unrolled loops want a depth that is known, so what is left is a block of its own.
        if steps % depth:
            self._add_block(left, right, group, Index.of(steps - steps % depth), steps % depth)
        if tail:
            self._add_block(left, right, group, Index.of(steps), 1, tail)
        first, count = block_of(b, group[0], self.p.m, rows * height)
        start, lanes = block_of(b, group[1], self.p.n, columns * width)
        line = columns * width
        if not self.tiling.turned:
            with b.loop(count) as r, b.vector(lanes) as c:
                finish(first + r, start + c, b.load(self.sums, r * line + c))
            return
        with b.loop(ceil_div(rows * height, ACROSS)) as i:
            above, some = block_of(b, i, count, ACROSS)
            with b.loop(lanes) as c, b.vector(some) as r:
                finish(first + above + r, start + c, b.load(self.sums, (above + r) * line + c))

    def _add_block(
        self, left: Side, right: Side, group: tuple[Index, Index], first: Index, depth: int, filled: int = 0
    ) -> None:
        """Add the products of some steps to all sums; words may be filled in part."""
        b, (rows, columns) = self.b, _tiles(self.p, self.tiling)
        left = Side(left.buffer, left.start + first * self.p.left[1])
        if not self.steps:
            right = Side(right.buffer, right.start + first * self.p.right[0])
        full = self.words is not None
        top, count = block_of(b, group[0], ceil_div(self.p.m, self.tiling.rows), rows, full=full)
        start, panels = block_of(b, group[1], ceil_div(self.p.n, self.tiling.lanes), columns)
        if self.strip is not None:
            # Once for all panels, which each read these rows again.
            self._pack_rows(left, top, count, depth, filled)
        with b.loop(panels) as j:
            panel = self._panel(right, start + j, first, depth, filled)
            self._find_excess(panel, depth)
            with b.loop(count) as i:
                self._add_tile(left, panel, top + i, i, j, depth)

    @property
    def _tile(self) -> tuple[int, int]:
        return self.tiling.rows, self.tiling.lanes

    def _load(self, filled: int, *, left: bool) -> tuple[Load, int]:
        """How a number of a side is read to be packed, and how many are at once."""
        words = self.words
        if words is None:
            return load_wide, 1
        apart = self.p.left[1] if left else self.p.right[0]
        return words.loader(apart, filled, left=left), words.unit.group

    def _panel(self, right: Side, number: Index, first: Index, depth: int, filled: int) -> Side:
        """Where the block of a tile's columns lies, which is packed unless it was before."""
        if self.panel is not None:
            self._pack_columns(self.panel, right, number, depth, filled)
            return Side(self.panel, Index.of(0))
        return Side(right.buffer, right.start + (number * self.steps + first) * self.tiling.lanes)

    def _find_excess(self, panel: Side, depth: int) -> None:
        """What the words of a packed panel add to each sum beyond what they should."""
        if self.excess is None:
            return
        assert self.words is not None
        b, excess, width, unit = self.b, self.excess, self.tiling.lanes, self.words.unit
        with b.vector(width, lanes=width) as lane:
            total = b.local(0, excess.dtype)
            with b.loop(depth) as p:
                word = b.load(panel.buffer, panel.start + p * width + lane)
                b.set(total, b.dot(unit.instruction, b.get(total), FLIPPED_ZEROS, word))
            b.store(excess, lane, b.get(total))

    def _pack_columns(self, panel: Buffer, side: Side, number: Index, depth: int, filled: int) -> None:
        """Copy the block of a tile's columns."""
        width, apart = self.tiling.lanes, self.p.right[1]
        source = Side(side.buffer, side.start + number * (width * apart))

        load, step = self._load(filled, left=False)

        def write(lanes: int) -> None:
            steps = [(depth, self.p.right[0])]
            pack(self.b, panel, lanes, width, source, steps, apart, load=load, step=step)

        self._whole_or_rest(number, self.p.n, width, write)

    def _pack_rows(self, side: Side, first: Index, tiles: Any, depth: int, filled: int) -> None:
        """Copy the block of a group's rows, tile by tile; line by line where a line has rows side by side."""
        assert self.strip is not None
        strip, height, apart = self.strip, self.tiling.rows, self.p.left[0]
        load, step = self._load(filled, left=True)
        # Either way reads follow memory: along the rows where they lie apart, else across them.
        if apart != 1:
            with self.b.loop(tiles) as t:
                source = Side(side.buffer, side.start + (first + t) * (height * apart))
                steps = [(depth, self.p.left[1])]

                def turn(rows: int) -> None:
                    place = t * _pitch(self.tiling)
                    pack(self.b, strip, rows, height, source, steps, apart, place, load=load, step=step)

                self._whole_or_rest(first + t, self.p.m, height, turn)
            return
        with self.b.loop(depth) as k, self.b.loop(tiles) as t:
            line = side.start + k * self.p.left[1] + (first + t) * height
            place = t * _pitch(self.tiling) + k * height

            def copy(rows: int) -> None:
                with self.b.vector(rows, lanes=rows) as r:
                    self.b.store(strip, place + r, load(self.b, side.buffer, line + r))

            self._whole_or_rest(first + t, self.p.m, height, copy)

    def _whole_or_rest(self, number: Index, size: int, tile: int, write: Callable[[int], None]) -> None:
        """Write code for a whole tile, and for the one at the end that is not whole, if there is one."""
        if size % tile == 0:
            write(tile)
            return
        with self.b.if_(self.b.lt(number, size // tile)) as otherwise:
            write(tile)
        with self.b.inside(otherwise):
            write(size % tile)

    def _add_tile(self, side: Side, panel: Side, number: Index, i: Index, j: Index, depth: int) -> None:
        """Add the products of some steps to the sums of a tile."""
        height, apart = self.tiling.rows, self.p.left[0]
        if self.strip is not None:
            # A strip has room for whole tiles: rows beyond the end are added up too, and never handed on.
            packed = [Side(self.strip, i * _pitch(self.tiling) + r) for r in range(height)]
            self._add_rows(packed, panel, i, j, Step(depth, height, self.tiling.lanes))
            return
        base = side.start + number * (height * apart)

        def add(rows: int) -> None:
            left = [Side(side.buffer, base + r * apart) for r in range(rows)]
            self._add_rows(left, panel, i, j, Step(depth, self.p.left[1], self.tiling.lanes))

        self._whole_or_rest(number, self.p.m, height, add)

    def _add_rows(self, left: Sequence[Side], panel: Side, i: Index, j: Index, step: Step) -> None:
        b, (height, width) = self.b, self._tile
        line = width * _tiles(self.p, self.tiling)[1]
        place = i * (height * line) + j * width

        def begin(r: int, lane: Index) -> Value:
            total = b.load(self.sums, place + r * line + lane)
            return total if self.excess is None else b.sub(total, b.load(self.excess, lane))

        def finished(r: int, lane: Index, value: Value) -> None:
            b.store(self.sums, place + r * line + lane, value)

        if self.words is None:
            add_tile(b, width, left, panel, [step], finished, begin=begin)
            return
        name, dtype = self.words.unit.instruction, self.sums.dtype

        def add(b: Builder, total: Value, x: Value, y: Value) -> Value:
            return b.dot(name, total, x, y)

        add_tile(b, width, left, panel, [step], finished, begin=begin, sums=dtype, add=add)


def _tiles(p: Matrices, tiling: Tiling) -> tuple[Any, Any]:
    """How many tiles of rows and of columns a group has; the last may have fewer."""
    rows, columns = ceil_div(p.m, tiling.rows), ceil_div(p.n, tiling.lanes)
    return ceil_div(rows, tiling.groups[0]), ceil_div(columns, tiling.groups[1])


def _pitch(tiling: Tiling) -> int:
    """The distance of tiles in a strip; at a power of two they would drive each other out of the cache."""
    return tiling.rows * tiling.depth + 16
