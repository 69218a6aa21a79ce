"""Convolutions with output channels in lanes and positions in rows."""

from __future__ import annotations

from math import prod
from typing import Any

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.convolution.plan import Convolution, padded
from weft.schedule.cpu.epilogues import Epilogue, add_parts
from weft.schedule.cpu.machine import machine_of
from weft.schedule.cpu.matmul.loops import Contraction
from weft.schedule.cpu.matmul.plan import Matrices, Tiling, tile
from weft.schedule.cpu.matmul.tile import UNROLLED, Side, Step
from weft.schedule.extents import sum_dtype
from weft.schedule.writer import Kernel, Writer, unflattened

FEW = 1 << 17  # elements of a result of which several parts are added


def lower_by_channels(writer: Writer, conv: Convolution, epilogue: Epilogue, *, stages: bool) -> None:
    """Write a convolution; long sums with few results are cut into parts.

    With ``stages`` sums of a tile are put aside first, so that the code of the epilogue is written
    once for all rows.
    """
    x = padded(writer, conv)
    cut = _parts(writer, conv)
    if cut is None:
        # Without a panel lanes read the weight itself, which must have them side by side.
        w = turned_weight(writer, conv)
        with writer.kernel("conv", [x, w, *epilogue.reads], epilogue.writes, inline=False) as kernel:
            reads, writes = kernel.reads[2:], kernel.writes
            _Channels(kernel, conv, writer, (1, 1), stages).write(
                lambda index, part, value: epilogue.finish(
                    kernel.builder, reads, writes, index, kernel.builder.cast(value, conv.dtype)
                )
            )
        return
    parts = writer.temporary((size_of(cut), *conv.shape), sum_dtype(x.dtype), "p")
    with writer.kernel("conv_parts", [x, conv.w], [parts], inline=False) as kernel:
        target = kernel.writes[0]
        _Channels(kernel, conv, writer, cut, False).write(
            lambda index, part, value: kernel.builder.store(target.buffer, target.at(part, *index), value)
        )
    add_parts(writer, parts, epilogue, conv.dtype)


def channel_tiling(writer: Writer, conv: Convolution) -> Tiling:
    """How the product of positions and output channels is cut into tiles."""
    depth = size_of((conv.channels, *conv.taps))
    rows = size_of((conv.shape[0], *conv.positions))
    product = Matrices(rows, conv.outputs, depth, (1, 1), (1, 1), conv.x.dtype)
    found = tile(product, conv.groups, machine_of(writer), may_pack=False, may_turn=False)
    return found._replace(rows=_rows_of_a_line(writer, conv, found)) if conv.rank else found


def _rows_of_a_line(writer: Writer, conv: Convolution, tiling: Tiling) -> int:
    """Rows of a tile that lie in one line, few enough for registers to hold what several taps read of it."""
    line, taps = conv.positions[-1], conv.taps[-1]
    if isinstance(line, Size) or isinstance(taps, Size) or taps > UNROLLED:
        return tiling.rows
    vectors = max(1, tiling.lanes // machine_of(writer).lanes(sum_dtype(conv.x.dtype)))
    apart = (taps - 1) * conv.dilation[-1] + 1
    # Fewer than four rows use a loaded weight too seldom, however well the line is used.
    for rows in range(tiling.rows, 3, -1):
        numbers = min(rows * taps, (rows - 1) * conv.stride[-1] + apart)
        held = (rows + 1) * vectors + numbers
        if tiling.rows % rows == 0 and line % rows == 0 and held <= machine_of(writer).registers:
            return rows
    return tiling.rows


def _parts(writer: Writer, conv: Convolution) -> tuple[int, int] | None:
    """Into how many parts channels and the first axis of taps are cut, so that a panel of each is small."""
    sizes = (*conv.shape, conv.channels, *conv.taps)
    # Each part writes a whole result, which pays only where results are small.
    if any(isinstance(s, Size) for s in sizes) or prod(conv.shape) > FEW or conv.rank == 0:
        return None
    one = prod(conv.taps) * channel_tiling(writer, conv).lanes * conv.x.dtype.itemsize
    most = machine_of(writer).tuning.panel_bytes
    if one * conv.channels <= most:
        return None
    channels = max(1, most // one)
    taps = max(1, most * conv.taps[0] // one)
    return _cut(conv.channels, channels), _cut(conv.taps[0], taps)


def _cut(size: int, most: int) -> int:
    """The fewest equal parts of a size that are not larger than the most."""
    # Equal ones, so that all parts are done by the same code.
    return next(parts for parts in range(1, size + 1) if size % parts == 0 and size // parts <= most)


def turned_weight(writer: Writer, conv: Convolution) -> Array:
    """The weight with output channels side by side in memory, seen as it was."""
    w = conv.w
    if not isinstance(w.strides[0], Size) and w.strides[0] == 1:
        return w
    shape = (*w.shape[1:], w.shape[0])
    view = Array(w.buffer, shape, (*w.strides[1:], w.strides[0]), w.offset)
    copy = writer.copied(view)
    return Array(copy.buffer, w.shape, (copy.strides[-1], *copy.strides[:-1]), copy.offset)


class _Channels:
    """Writes one convolution."""

    def __init__(
        self, kernel: Kernel, conv: Convolution, writer: Writer, cut: tuple[int, int], stages: bool
    ) -> None:
        self.kernel, self.conv, self.cut = kernel, conv, cut
        self.b = kernel.builder
        self.x, self.w = kernel.reads[:2]
        self.tiling = channel_tiling(writer, conv)
        tile, dtype = self.tiling.rows * self.tiling.lanes, sum_dtype(conv.x.dtype)
        self.stage = self.b.scratch("stage", dtype, tile) if stages else None
        self.panel = None
        if cut != (1, 1):
            depth = size_of((conv.channels, *conv.taps)) // size_of(cut)
            self.panel = self.b.scratch("panel", dtype, depth * self.tiling.lanes)

    def write(self, finish: Any) -> None:
        """Write the tasks; ``finish(index, part, value)`` gets the elements."""
        groups = self.tiling.groups
        tasks = (self.conv.groups, *self.cut, *groups)
        with self.b.parallel(size_of(tasks)) as task:
            group, channels, taps, rows, columns = unflattened(self.b, task, tasks)
            self._contraction(group, channels, taps, finish).write(rows, groups[0], columns, groups[1])

    def _contraction(self, group: Index, channels: Index, taps: Index, finish: Any) -> Contraction:
        conv, x, w, b = self.conv, self.x, self.w, self.b
        steps = summed(conv, x, w, self.cut)
        moved = (group * conv.channels + channels * steps[0].extent) * x.strides[1]
        across = group * (conv.outputs * w.strides[0]) + channels * (steps[0].extent * w.strides[1])
        if len(steps) > 1:
            moved = moved + taps * (steps[1].extent * steps[1].left)
            across = across + taps * (steps[1].extent * steps[1].right)
        rows = (conv.shape[0], *conv.positions)
        strides = [s * stride for s, stride in zip(conv.stride, x.strides[2:], strict=True)]

        def finish_element(row: Index, column: Index, value: Value) -> None:
            i, *at = unflattened(b, row, rows)
            part = channels * self.cut[1] + taps
            finish((i, group * conv.outputs + column, *at), part, value)

        left, right = Side(x.buffer, x.offset + moved), Side(w.buffer, w.offset + across)
        columns, tile = (conv.outputs, w.strides[0]), (self.tiling.rows, self.tiling.lanes)
        left_rows = (rows, (x.strides[0], *strides))
        return Contraction(
            b, left, right, left_rows, columns, steps, tile, finish_element, self.panel, self.stage
        )


def summed(conv: Convolution, x: Array, w: Array, cut: tuple[int, int] = (1, 1)) -> list[Step]:
    """What is summed over: channels, then the axes of taps; of a part, where they are cut."""
    steps = [Step(conv.channels // cut[0], x.strides[1], w.strides[1])]
    for axis, taps in enumerate(conv.taps):
        extent = taps // cut[1] if axis == 0 else taps
        steps.append(Step(extent, x.strides[2 + axis] * conv.dilation[axis], w.strides[2 + axis]))
    return steps
