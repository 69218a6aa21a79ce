"""The loops over the tiles of a product, for one task of it.

What is summed may be more than one axis (a convolution sums over channels and taps), and rows may be more
than one axis too; columns are one, whose elements lie at one distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.records import dataclass
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Value
from weft.schedule.arrays import Shape, row_major
from weft.schedule.cpu.matmul.tile import Side, Step, add_dots, add_tile, pack
from weft.schedule.writer import unflattened

FEW = 4  # rows of a tile for what is left of an open number of them, before the last are taken one by one

Finish = Callable[[Index, Index, Value], None]


@dataclass
class Contraction:
    """A product ``sum(left[row, p] * right[p, column])`` as loops.

    Attributes:
        b: of the kernel.
        left, right: where both sides begin, for this task.
        rows: sizes and strides of the left side's rows.
        columns: number and stride of the right side's columns.
        steps: what is summed over.
        tile: rows and lanes (for dots: columns) of a tile.
        panel: where a part of the right side is packed, or None.
        stage: where the sums of a tile are put before they are handed on, so that the code for an element is
            written once, and not for each row; None where they are handed on at once.
        across: whether sums are handed on from row to row in vectors, instead of from lane to lane.
        dots: whether sums run over vectors along the one step, in which both sides lie in order.
        vector: lanes of these vectors; 0 for as many as suit the loop.
        finish: ``finish(row, column, sum)`` gets each element.
        begin: ``begin(row, column)`` gives what the sum of an element begins with; 0 without it.
        again: whether elements may be handed on twice. Then the last columns are those of a whole tile too,
            some of which another one has: less code, and faster than smaller tiles.
        panels: steps of a panel, where the right side lies in panels as wide as a tile, one after the other;
            else 0.
    """

    b: Builder
    left: Side
    right: Side
    rows: tuple[Shape, Shape]
    columns: tuple[Any, Any]
    steps: Sequence[Step]
    tile: tuple[int, int]
    finish: Finish
    panel: Buffer | None = None
    stage: Buffer | None = None
    across: bool = False
    dots: bool = False
    vector: int = 0
    begin: Callable[[Index, Index], Value] | None = None
    again: bool = False
    panels: int = 0

    def write(self, rows: Index, row_groups: int, columns: Index, column_groups: int) -> None:
        """Write the loops over one of so many groups of rows and of columns."""
        count, _ = self.columns
        lanes = self.tile[1]
        known = column_groups == 1 and not isinstance(count, Size)
        if self.again and known and count > lanes and count % lanes:
            self._overlapping(count, lanes, rows, row_groups)
            return
        # Panels outside, rows inside: a packed panel is read by all rows while it is in the cache.
        each = count // lanes // column_groups
        with self.b.loop(each) as i:
            self._panel((columns * each + i) * lanes, lanes, rows, row_groups)
        # Columns that fill no tile get code of their own: masked lanes would slow down every tile.
        rest = count - count // lanes * lanes

        def write(start: Index, size: Any) -> None:
            for piece in _pieces(size, lanes):
                self._panel(start, piece, rows, row_groups)
                start = start + piece

        self._rest(count, rest, columns, column_groups, write)

    def _overlapping(self, count: int, lanes: int, rows: Index, row_groups: int) -> None:
        """Panels of which the last one begins early enough to be a whole one."""
        last = count - lanes
        with self.b.loop(-(-count // lanes)) as i:
            start = self.b.term(self.b.min(i * lanes, Index.of(last)), last + 1)
            self._panel(start, lanes, rows, row_groups)

    def _rest(self, whole: Any, rest: Any, group: Index, groups: int, write: Any) -> None:
        """What is left after whole tiles is done by the last group."""
        if not isinstance(rest, Size) and rest == 0:
            return
        if groups == 1:
            write(Index.of(whole - rest), rest)
            return
        with self.b.if_(self.b.eq(group, groups - 1)):
            write(Index.of(whole - rest), rest)

    def _panel(self, column: Index, lanes: Any, group: Index, groups: int) -> None:
        """All rows of a group, for some columns."""
        right, steps, apart = self._packed(column, lanes)

        def write(start: Index, rows: Any) -> None:
            if not isinstance(rows, Size):
                self._tile(start, rows, column, lanes, right, steps, apart)
                return
            # An open rest may be nearly a whole tile, and row by row would read the panel as often as that.
            some = rows // FEW * FEW if self.tile[0] > FEW else 0
            for first, count, each in ((0, some, FEW), (some, rows - some, 1)):
                if isinstance(count, Size):
                    with self.b.loop(count // each) as i:
                        self._tile(start + first + i * each, each, column, lanes, right, steps, apart)

        count, height = size_of(self.rows[0]), self.tile[0]
        each = count // height // groups
        with self.b.loop(each) as i:
            write((group * each + i) * height, height)
        self._rest(count, count - count // height * height, group, groups, write)

    def _packed(self, column: Index, lanes: Any) -> tuple[Side, Sequence[Step], Any]:
        """Where some columns of the right side are read, with which steps, and how far apart they are."""
        _, apart = self.columns
        if self.panels:
            # Whole tiles begin where panels do; what is left, at a place in the last one that is known.
            inside = column.offset % self.tile[1] if not column.terms else 0
            place = (column - inside) * self.panels + inside
            return Side(self.right.buffer, self.right.start + place), self.steps, apart
        side = Side(self.right.buffer, self.right.start + column * apart)
        # The panel is as wide as a tile, so an open number of lanes cannot be packed.
        if self.panel is None or isinstance(lanes, Size):
            return side, self.steps, apart
        width = self.tile[1]
        pack(self.b, self.panel, lanes, width, side, [(s.extent, s.right) for s in self.steps], apart)
        strides = [s * width for s in row_major(tuple(s.extent for s in self.steps))]
        steps = [Step(s.extent, s.left, stride) for s, stride in zip(self.steps, strides, strict=True)]
        return Side(self.panel, Index.of(0)), steps, 1

    def _tile(
        self, row: Index, rows: int, column: Index, lanes: Any, right: Side, steps: Sequence[Step], apart: Any
    ) -> None:
        """The sums of some rows and columns."""
        left = [Side(self.left.buffer, self.left.start + place) for place in self._rows(row, rows)]
        # Only lanes whose number is known are sure to fit into the stage.
        stage = None if isinstance(lanes, Size) else self.stage

        def finished(r: int, lane: Any, value: Value) -> None:
            if stage is not None:
                self.b.store(stage, lane + r * self.tile[1], value)
            else:
                self.finish(row + r, column + lane, value)

        if self.dots and not isinstance(lanes, Size):
            sides = [Side(right.buffer, right.start + j * apart) for j in range(lanes)]
            add_dots(self.b, left, sides, steps[0].extent, finished, self.vector)
        else:
            begin = self._begin(row, column)
            add_tile(self.b, lanes, left, right, steps, finished, lane_stride=apart, begin=begin)
        if stage is not None:
            self._hand_on(stage, row, rows, column, lanes)

    def _begin(self, row: Index, column: Index) -> Callable[[int, Index], Value] | None:
        """What the sums of a tile begin with."""
        begin = self.begin
        return None if begin is None else lambda r, lane: begin(row + r, column + lane)

    def _hand_on(self, stage: Buffer, row: Index, rows: int, column: Index, lanes: int) -> None:
        """Hand on the sums of a tile."""
        b, width = self.b, self.tile[1]
        # Vectors run along what lies side by side in the result, which of a turned product are its rows.
        if self.across:
            with b.loop(lanes) as lane, b.vector(rows) as r:
                self.finish(row + r, column + lane, b.load(stage, r * width + lane))
        else:
            with b.loop(rows) as r, b.vector(lanes) as lane:
                self.finish(row + r, column + lane, b.load(stage, r * width + lane))

    def _rows(self, row: Index, count: int) -> list[Index]:
        """Where some rows of the left side begin.

        Where lines are made of whole tiles, those of a tile lie at one distance: one register is enough for
        all their addresses.
        """
        line, height = self.rows[0][-1], self.tile[0]
        if count != height or isinstance(line, Size) or line % height:
            return [self._row(row + r) for r in range(count)]
        first = self._row(row)
        return [first + r * self.rows[1][-1] for r in range(count)]

    def _row(self, row: Index) -> Index:
        """Where a row of the left side begins."""
        place = Index.of(0)
        for i, stride in zip(unflattened(self.b, row, self.rows[0]), self.rows[1], strict=True):
            place = place + i * stride
        return place


def _pieces(size: Any, lanes: int) -> list[Any]:
    """Parts of the lanes that are left, which fill registers well: halves of a tile, then the rest."""
    if isinstance(size, Size):
        return [size]
    out = []
    while size and lanes > 4:
        lanes //= 2
        if size >= lanes:
            out.append(lanes)
            size -= lanes
    return [*out, size] if size else out
