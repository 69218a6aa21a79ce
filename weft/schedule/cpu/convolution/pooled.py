"""A convolution with the pool that reads it, in one kernel: what is between is never all in memory.

A task is for a line of windows. It computes the lines of the convolution that these reach, with channels side
by side, and what follows the convolution (a bias, an activation); then it takes the largest of each window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.base.shapes import size_of
from weft.ir.graph import Node, Value
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer
from weft.schedule.arrays import Array
from weft.schedule.cpu.convolution.channels import channel_tiling, summed, turned_weight
from weft.schedule.cpu.convolution.plan import Convolution, padded
from weft.schedule.cpu.epilogues import Epilogue, following, storing
from weft.schedule.cpu.layouts import LINE_BYTES, is_pool
from weft.schedule.cpu.matmul.loops import Contraction
from weft.schedule.cpu.matmul.tile import Side
from weft.schedule.extents import sum_dtype
from weft.schedule.fusion import Group
from weft.schedule.pointwise.rules import Reader
from weft.schedule.region import Scope
from weft.schedule.use_def import UseDef
from weft.schedule.writer import Kernel, unflattened

SHORT = 4  # nodes, of which code is written for each row of a tile


def find_pooled(use_def: UseDef, groups: Mapping[int, Group], layouts: Mapping[Value, Any]) -> dict[int, int]:
    """By number of a convolution that is written for one pool, the number of that pool, if it suits."""
    found = {}
    for j, pool in enumerate(use_def.nodes):
        if not (is_pool(pool) and pool.op.fold == "max") or pool.inputs[0] not in layouts or not _suits(pool):
            continue
        i = use_def.producer[pool.inputs[0]]
        members, anchor = (groups[i].members, groups[i].anchor) if i in groups else ([i], i)
        outputs = use_def.used_outside(members)
        if anchor is not None and outputs == [pool.inputs[0]] and use_def.users[i] - set(members) == {j}:
            found[anchor] = j
    return found


def _suits(pool: Node) -> bool:
    """Whether each line of a convolution is in one line of windows at most, and a few of them fit."""
    (value,), attrs = pool.inputs, pool.attrs
    lines, line = attrs["kernel"][0], value.type.shape[1] * value.type.shape[-1] * value.type.dtype.itemsize
    whole = all(low == high == 0 for low, high in attrs["padding"]) and attrs["dilation"][0] == 1
    flat = len(attrs["kernel"]) == value.type.ndim - 2 == 2
    return bool(flat and whole and lines <= attrs["stride"][0] and lines * line <= LINE_BYTES)


def lower_conv_pool(scope: Scope, use_def: UseDef, unit: Group | int, pool: Node) -> None:
    """Write the kernel of a convolution, or of a group with one at its anchor, and of its pool."""
    anchor = unit if isinstance(unit, int) else unit.anchor
    assert anchor is not None
    node = use_def.nodes[anchor]
    (product,) = node.outputs
    x, w = (scope.array(v) for v in node.inputs)
    shape = product.type.shape
    out = Array(Buffer("product", product.type.dtype, size_of(shape)), shape)
    epilogue = storing(out)
    if isinstance(unit, Group):
        _, reads, finish, _ = following(scope, use_def, unit, product)
        epilogue = Epilogue(reads, [], finish)
    conv = Convolution.of(x, w, out, node.attrs)
    x, w = padded(scope.writer, conv), turned_weight(scope.writer, conv)
    target = scope.output(pool.outputs[0])
    with scope.writer.kernel("conv_pool", [x, w, *epilogue.reads], [target], inline=False) as kernel:
        staged = isinstance(unit, Group) and len(unit.members) > SHORT
        _ConvPool(scope, kernel, conv, epilogue, pool, staged=staged).write()


class _ConvPool:
    """Writes the tasks.

    Attributes:
        lines: of the convolution, that a line of windows reaches; with channels side by side.
        aside: a line of results, likewise.
        stage: where the sums of a tile are put before what follows is done with them.
    """

    def __init__(
        self, scope: Scope, kernel: Kernel, conv: Convolution, epilogue: Epilogue, pool: Node, *, staged: bool
    ) -> None:
        self.scope, self.kernel, self.conv, self.epilogue, self.pool = scope, kernel, conv, epilogue, pool
        self.b: Builder = kernel.builder
        self.x, self.w = kernel.reads[:2]
        self.tiling = channel_tiling(scope.writer, conv)
        (value,), (result,) = pool.inputs, pool.outputs
        _, self.channels, _, self.width = value.type.shape
        self.reached = pool.attrs["kernel"][0]
        size = self.reached * self.width * self.channels
        self.lines = self.b.scratch("lines", value.type.dtype, size)
        self.aside = self.b.scratch("line", result.type.dtype, result.type.shape[-1] * self.channels)
        tile = self.tiling.rows * self.tiling.lanes
        self.stage = self.b.scratch("stage", sum_dtype(conv.x.dtype), tile) if staged else None

    def write(self) -> None:
        """Write a task for each line of windows."""
        (value,), (result,) = self.pool.inputs, self.pool.outputs
        n, _, count, _ = result.type.shape
        (target,) = self.kernel.writes
        with self.b.parallel(size_of((n, count))) as task:
            i, line = unflattened(self.b, task, (n, count))
            first = line * self.pool.attrs["stride"][0]
            image = self._image(value, first)
            self._contraction(i, first, image).write(Index.of(0), 1, Index.of(0), 1)
            reader = self.scope.reader(self.b, {value: image}, {result: self.pool})
            _pool_line(self.b, reader, result, self.aside, target, (i, line))

    def _image(self, value: Value, first: Index) -> Array:
        """The convolution as if all of it were in memory; a task uses the lines that it has."""
        across = self.width * self.channels
        return Array(self.lines, value.type.shape, (0, 1, across, self.channels), first * -across)

    def _contraction(self, i: Index, first: Index, image: Array) -> Contraction:
        conv, x, w, b = self.conv, self.x, self.w, self.b
        down, right = (s * stride for s, stride in zip(conv.stride, x.strides[2:], strict=True))
        reads = self.kernel.reads[2:]

        def finish(row: Index, column: Index, value: Any) -> None:
            h, at = unflattened(b, row, (self.reached, self.width))
            index = (i, column, first + h, at)
            self.epilogue.finish(b, reads, [image], index, b.cast(value, conv.dtype))

        left = Side(x.buffer, x.offset + i * x.strides[0] + first * down)
        rows, columns = ((self.reached, self.width), (down, right)), (conv.outputs, w.strides[0])
        steps, tile = summed(conv, x, w), (self.tiling.rows, self.tiling.lanes)
        right_side = Side(w.buffer, w.offset)
        return Contraction(b, left, right_side, rows, columns, steps, tile, finish, stage=self.stage)


# Pools of convolutions whose channels lie side by side (see ``layouts``): those go in lanes


def lower_pool_by_channels(scope: Scope, node: Node) -> None:
    """Write a pool whose input has its channels last; a task takes a line of windows."""
    (value,), (out,) = node.inputs, node.outputs
    with scope.writer.kernel(node.op.name, [scope.array(value)], [scope.output(out)]) as k:
        b, (target,) = k.builder, k.writes
        reader = scope.reader(b, {value: k.reads[0]}, {out: node})
        n, channels, *lines, width = target.shape
        aside = b.scratch("line", out.type.dtype, width * channels)
        tasks = (n, *lines)
        with b.parallel(size_of(tasks)) as task:
            _pool_line(b, reader, out, aside, target, unflattened(b, task, tasks))


def _pool_line(
    b: Builder, reader: Reader, result: Value, aside: Buffer, target: Array, at: Sequence[Index]
) -> None:
    """Compute a line of results with channels side by side, then turn it into the usual order."""
    channels, width = target.shape[1], target.shape[-1]
    i, *lines = at
    with b.loop(width) as w, b.vector(channels) as c:
        b.store(aside, w * channels + c, reader.read(result, (i, c, *lines, w)))
    with b.loop(channels) as c, b.loop(width) as w:
        b.store(target.buffer, target.at(i, c, *lines, w), b.load(aside, w * channels + c))
