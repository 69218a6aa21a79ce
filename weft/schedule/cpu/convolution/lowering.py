"""Convolutions as loops: products of the weight with windows of the input, which are never copied out.

Tiles (see ``matmul.tile``) sum over channels and taps. Either positions of the result go in lanes, output
channels in rows: then positions along the last two axes are counted through as they lie in the (padded)
input, so that a vector may run over the end of a line, and what lies beyond it is left out at the end. Or
output channels go in lanes: that suits the gradient by the weight, with few positions and long sums, and any
stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.convolution.channels import lower_by_channels
from weft.schedule.cpu.convolution.plan import (
    Convolution,
    counts_through,
    line_blocks,
    padded,
    prefers_positions,
    write_padded,
)
from weft.schedule.cpu.epilogues import Epilogue, anchors, storing
from weft.schedule.cpu.machine import machine_of
from weft.schedule.cpu.matmul.loops import Contraction
from weft.schedule.cpu.matmul.plan import TASKS, Matrices, Tiling, known, tile
from weft.schedule.cpu.matmul.tile import Side, Step
from weft.schedule.extents import sum_dtype
from weft.schedule.writer import Kernel, Writer, unflattened

IMAGE_BYTES = 1 << 19  # that a task has on its stack for the padded input
PART_BYTES = 1 << 17  # and for the sums of some output channels, if they can be cut


@anchors("conv_halves")
@anchors("conv")
def _conv(writer: Writer, node: Node, inputs: Sequence[Array], out: Array, epilogue: Epilogue | None) -> None:
    lower_conv(writer, inputs[0], inputs[1], out, node.attrs, epilogue)


def lower_conv(
    writer: Writer, x: Array, w: Array, out: Array, attrs: Any, epilogue: Epilogue | None = None
) -> None:
    """Write a convolution, and what an epilogue does with its elements; without one they are stored."""
    if any(not isinstance(s, Size) and s == 0 for s in out.shape):
        return
    conv = Convolution.of(x, w, out, attrs)
    writes = epilogue.writes if epilogue is not None else [out]
    # Lanes go along what lies side by side in the results; else each store would be scattered.
    channels_last = all(len(t.shape) > 2 and t.strides[1] == 1 and t.strides[-1] != 1 for t in writes)
    if not channels_last and prefers_positions(conv, machine_of(writer)):
        lower_by_positions(writer, conv, epilogue or storing(out))
    else:
        lower_by_channels(writer, conv, epilogue or storing(out), stages=epilogue is not None)


def lower_by_positions(writer: Writer, conv: Convolution, epilogue: Epilogue) -> None:
    """Write a convolution; a task is for one group of one example, or for some lines or channels of it."""
    pads_itself = conv.is_padded and _fits(conv)
    x = conv.x if pads_itself else padded(writer, conv)
    with writer.kernel("conv", [x, conv.w, *epilogue.reads], epilogue.writes, inline=False) as kernel:
        _Positions(kernel, conv, epilogue, writer, pads_itself).write()


def _fits(conv: Convolution) -> bool:
    size = size_of((conv.channels, *conv.padded_sizes))
    return not isinstance(size, Size) and size * conv.x.dtype.itemsize <= IMAGE_BYTES


class _Positions:
    """Writes one convolution.

    Attributes:
        image: the padded input of a task, on its stack, or None.
        strides: of the input along the axes of windows.
        flat: whether positions along the last two axes are counted through.
        outer: sizes of the axes of positions that are not in lanes.
        blocks: parts of the lines that are counted through.
        parts: of the output channels.
    """

    def __init__(
        self, kernel: Kernel, conv: Convolution, epilogue: Epilogue, writer: Writer, pads: bool
    ) -> None:
        self.kernel, self.conv, self.epilogue = kernel, conv, epilogue
        self.b: Builder = kernel.builder
        self.x, self.w = kernel.reads[:2]
        self.image: Array | None = None
        if pads:
            shape = (conv.channels, *conv.padded_sizes)
            self.image = Array(self.b.scratch("image", self.x.dtype, size_of(shape)), shape)
        self.strides = (self.image or self.x).strides[-conv.rank :]
        self.flat = counts_through(conv, self.strides)
        self.outer = conv.positions[: -2 if self.flat else -1]
        self.blocks = line_blocks(conv, self.strides) or 1
        self.count, self.apart = self._columns()
        self.tiling = self._tiling(writer)
        self.parts = self._parts()
        self.sums = self._sums()

    def _columns(self) -> tuple[Any, Any]:
        """How many positions are counted through, and how far apart they are."""
        positions = self.conv.positions
        if self.flat:
            return (positions[-2] // self.blocks - 1) * self.strides[-2] + positions[-1], 1
        return positions[-1], self.strides[-1] * self.conv.stride[-1]

    def _tiling(self, writer: Writer) -> Tiling:
        conv = self.conv
        depth = size_of((conv.channels, *conv.taps))
        product = Matrices(conv.outputs, self.count, depth, (depth, 1), (self.count, 1), self.x.dtype)
        return tile(product, 1, machine_of(writer), may_pack=False, may_turn=False)

    def _parts(self) -> int:
        """Into how many parts output channels are cut, so that their sums are small."""
        conv, rows = self.conv, self.tiling.rows
        if isinstance(conv.outputs, Size) or conv.outputs % rows:
            return 1
        tiles = conv.outputs // rows
        most = max(1, PART_BYTES // (known(self.count) * rows * sum_dtype(self.x.dtype).itemsize))
        # Few examples and groups would leave threads idle, so channels are cut as far as they can be.
        few = known(conv.shape[0]) * conv.groups * self.blocks < TASKS // 4
        wanted = 1 if few else most if self.flat else tiles
        return next(p for p in range(1, tiles + 1) if tiles % p == 0 and tiles // p <= wanted)

    def _sums(self) -> Array | None:
        """Memory for the sums of some output channels, where lines are to be cut off of them."""
        if not self.flat:
            return None
        shape = (self.conv.outputs // self.parts, self.count)
        return Array(self.b.scratch("sums", sum_dtype(self.x.dtype), size_of(shape)), shape)

    def write(self) -> None:
        """Write the tasks: by examples and groups, by lines and channels too where those are few."""
        conv, b = self.conv, self.b
        inner = (self.blocks, self.parts)
        # A task that pads for itself should pad for much: it is cut only where threads would be idle.
        alone = self.image is None or known(conv.shape[0]) * conv.groups < TASKS // 4
        tasks = (conv.shape[0], conv.groups, *(inner if alone else ()))
        with b.parallel(size_of(tasks)) as task:
            i, group, *at = unflattened(b, task, tasks)
            start, strides = self._input(i, group)
            if at:
                self._part(i, group, at[0], at[1], start, strides)
                return
            with b.loop(self.blocks) as block, b.loop(self.parts) as part:
                self._part(i, group, block, part, start, strides)

    def _input(self, i: Index, group: Index) -> tuple[Side, Any]:
        """Where the input of a task begins, and its strides along channels and windows."""
        part = self.x.row(i)
        first = part.offset + group * (self.conv.channels * part.strides[0])
        if self.image is None:
            return Side(self.x.buffer, first), part.strides
        source = Array(self.x.buffer, (self.conv.channels, *part.shape[1:]), part.strides, first)
        write_padded(self.b, self.conv, source, self.image)
        return Side(self.image.buffer, self.image.offset), self.image.strides

    def _part(self, i: Index, group: Index, block: Index, part: Index, start: Side, strides: Any) -> None:
        """Some lines of some output channels, at all positions of the other axes."""
        outputs = self.conv.outputs // self.parts
        first = group * self.conv.outputs + part * outputs
        line = block * (self.conv.positions[-2] // self.blocks) if self.flat else Index.of(0)
        moved = start.start + line * self.strides[-2] if self.flat else start.start
        self._over_outer(i, first, line, Side(start.buffer, moved), strides, [])

    def _over_outer(
        self, i: Index, first: Index, line: Index, start: Side, strides: Any, at: list[Index]
    ) -> None:
        """Loops over the positions of the axes that are not in lanes."""
        axis = len(at)
        if axis < len(self.outer):
            with self.b.loop(self.outer[axis]) as p:
                moved = start.start + p * (self.conv.stride[axis] * strides[axis + 1])
                self._over_outer(i, first, line, Side(start.buffer, moved), strides, [*at, p])
            return
        self._contract(i, first, start, strides, at)
        if self.sums is not None:
            self._cut(i, first, line, at)

    def _contract(self, i: Index, first: Index, start: Side, strides: Any, at: list[Index]) -> None:
        conv, w, b = self.conv, self.w, self.b
        steps = [Step(conv.channels, w.strides[1], strides[0])]
        for axis, taps in enumerate(conv.taps):
            if isinstance(taps, Size) or taps != 1:
                steps.append(Step(taps, w.strides[2 + axis], strides[1 + axis] * conv.dilation[axis]))

        def finish(row: Index, column: Index, value: Value) -> None:
            if self.sums is not None:
                b.store(self.sums.buffer, self.sums.at(row, column), value)
            else:
                self._finish((i, first + row, *at, column), value)

        left = Side(w.buffer, w.offset + first * w.strides[0])
        rows = ((conv.outputs // self.parts,), (w.strides[0],))
        columns, tile = (self.count, self.apart), (self.tiling.rows, self.tiling.lanes)
        again = self.sums is not None
        product = Contraction(b, left, start, rows, columns, steps, tile, finish, again=again)
        product.write(Index.of(0), 1, Index.of(0), 1)

    def _cut(self, i: Index, first: Index, line: Index, at: list[Index]) -> None:
        """Hand on the sums, without what lies beyond the ends of lines."""
        assert self.sums is not None
        height, width = self.conv.positions[-2] // self.blocks, self.conv.positions[-1]
        with self.b.loop(self.sums.shape[0]) as o, self.b.loop(height) as h, self.b.vector(width) as w:
            value = self.b.load(self.sums.buffer, self.sums.at(o, h * self.strides[-2] + w))
            self._finish((i, first + o, *at, line + h, w), value)

    def _finish(self, index: tuple[Index, ...], value: Value) -> None:
        reads, writes = self.kernel.reads[2:], self.kernel.writes
        self.epilogue.finish(self.b, reads, writes, index, self.b.cast(value, self.conv.dtype))
