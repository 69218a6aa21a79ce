"""Products of matrices and convolutions on a GPU; ``library`` has those that a library takes.

``sliced`` has those of sizes that are known, up to a few million multiplications. Of the others, a product of
some size goes in square tiles: a block brings a tile of each side into shared memory, and each
thread has a small square of the result in registers. Small ones, and convolutions, are folds: the threads of
a result sum over what it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import bool_
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Local, Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.matmul.lowering import broadcast_batch
from weft.schedule.extents import ceil_div, is_number, sum_dtype
from weft.schedule.folding import fold_of
from weft.schedule.gpu.folds import fold_array
from weft.schedule.gpu.library import multiply_by_library
from weft.schedule.gpu.machine import Gpu
from weft.schedule.gpu.sliced import is_sliced, multiply_in_slices
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, unflattened

_TILE = 64  # rows and columns of a tile of the result
_DEPTH = 16  # that are multiplied between two barriers
_OWN = 4  # rows and columns of a thread
_SIDE = _TILE // _OWN  # threads along a side of a tile
_THREADS = _SIDE * _SIDE
_LEAST = 16  # rows and columns from which on tiles are worth it


@lowers("matmul", "matmul_halves", target="gpu", any_layout=True)
def _matmul(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (out,) = outputs
    if any(not isinstance(s, Size) and s == 0 for s in out.shape):
        return
    machine = writer.target.machine
    if isinstance(machine, Gpu) and is_sliced(node, machine):
        multiply_in_slices(writer, node, inputs, out)
        return
    if multiply_by_library(writer, inputs, out):
        return
    batch = out.shape[:-2]
    a, b = (broadcast_batch(x, batch) for x in inputs)
    small = out.dtype == bool_ or any(is_number(s) and s < _LEAST for s in out.shape[-2:])
    key = ("matmul", *[(x.dtype, x.shape, x.strides) for x in (a, b, out)])
    if small:
        _fold_product(writer, a, b, out)
    elif not writer.launch_again(key, (a, b, out)):
        with writer.kernel("matmul", [a, b], [out], inline=False, key=key) as k:
            _Tiles(k).write()


def _fold_product(writer: Writer, a: Array, b: Array, out: Array) -> None:
    fold = fold_of("add", out.dtype)

    def read(k: Kernel, index: tuple[Index, ...]) -> Value:
        *lead, i, j, n = index
        left, right = k.reads
        return _product(k.builder, left, left.at(*lead, i, n), right, right.at(*lead, n, j))

    shape = (*out.shape, a.shape[-1])
    fold_array(writer, "matmul", [a, b], shape, [len(shape) - 1], fold, out, read)


def _product(b: Builder, x: Array, at: Index, y: Array, place: Index, mask: Value | None = None) -> Value:
    """The product of two elements, in the dtype that they are summed in."""
    dtype = sum_dtype(x.dtype)
    left, right = b.load(x.buffer, at, mask), b.load(y.buffer, place)
    if dtype == bool_:
        return b.and_(left, right)
    return b.mul(b.cast(left, dtype), b.cast(right, dtype))


class _Tiles:
    """Writes a product in tiles."""

    def __init__(self, k: Kernel) -> None:
        self.b = k.builder
        (self.left, self.right), (self.out,) = k.reads, k.writes
        self.rows, self.columns = self.out.shape[-2:]
        self.depth = self.left.shape[-1]
        self.dtype = sum_dtype(self.left.dtype)

    def write(self) -> None:
        """Write the grid and all in it."""
        b = self.b
        down, across = ceil_div(self.rows, _TILE), ceil_div(self.columns, _TILE)
        tasks = (*self.out.shape[:-2], down, across)
        sides = [b.scratch(name, self.dtype, _TILE * _DEPTH, "shared") for name in ("left", "right")]
        with b.parallel(size_of(tasks)) as task, b.threads(_THREADS) as t:
            *lead, i, j = unflattened(b, task, tasks)
            row, column = i * _TILE, j * _TILE
            y, x = b.quotient(t, _SIDE) * _OWN, b.remainder(t, _SIDE) * _OWN
            sums = [[b.local(0, self.dtype) for _ in range(_OWN)] for _ in range(_OWN)]
            with b.loop(ceil_div(self.depth, _DEPTH)) as step:
                first = step * _DEPTH
                self._bring(sides[0], self.left, lead, t, row, first, self.rows, turned=False)
                self._bring(sides[1], self.right, lead, t, column, first, self.columns, turned=True)
                b.barrier()
                self._multiply(sides, y, x, sums)
                b.barrier()
            self._store(lead, row + y, column + x, sums)

    def _bring(
        self, side: Buffer, x: Array, lead: list[Index], t: Index, first: Index, depth: Index, size: Any,
        *, turned: bool,
    ) -> None:  # fmt: skip
        """A tile of a matrix into shared memory, by depth and then along the result; zeros beyond its end."""
        b = self.b
        along = x.strides[-1 if turned else -2]
        deep_first = is_number(along, 1)  # neighbouring threads reach neighbouring memory
        for n in range(_TILE * _DEPTH // _THREADS):
            number = t + n * _THREADS
            if deep_first:
                d, r = b.quotient(number, _TILE), b.remainder(number, _TILE)
            else:
                r, d = b.quotient(number, _DEPTH), b.remainder(number, _DEPTH)
            at, deep = first + r, depth + d
            inside = self._inside(at, size, deep)
            at, deep = self._clipped(at, size), self._clipped(deep, self.depth)
            place = x.at(*lead, deep, at) if turned else x.at(*lead, at, deep)
            value = b.cast(b.load(x.buffer, place), self.dtype)
            value = value if inside is None else b.select(inside, value, b.constant(0, self.dtype))
            b.store(side, d * _TILE + r, value)

    def _inside(self, at: Index, size: Any, deep: Index) -> Value | None:
        conditions = []
        if not (is_number(size) and size % _TILE == 0):
            conditions.append(self.b.lt(at, Index.of(size)))
        if not (is_number(self.depth) and self.depth % _DEPTH == 0):
            conditions.append(self.b.lt(deep, Index.of(self.depth)))
        if len(conditions) == 2:
            return self.b.and_(*conditions)
        return conditions[0] if conditions else None

    def _clipped(self, at: Index, size: Any) -> Index:
        """An index that is there, where one that is beyond the end is asked for."""
        return self.b.term(self.b.min(at, Index.of(size) - 1), size)

    def _multiply(self, sides: Sequence[Buffer], y: Index, x: Index, sums: list[list[Local]]) -> None:
        b = self.b
        with b.loop(_DEPTH) as d:
            left = [b.load(sides[0], d * _TILE + y + i) for i in range(_OWN)]
            right = [b.load(sides[1], d * _TILE + x + j) for j in range(_OWN)]
            for i in range(_OWN):
                for j in range(_OWN):
                    b.set(sums[i][j], b.add(b.get(sums[i][j]), b.mul(left[i], right[j])))

    def _store(self, lead: list[Index], row: Index, column: Index, sums: list[list[Local]]) -> None:
        b, out = self.b, self.out
        for i in range(_OWN):
            for j in range(_OWN):
                inside = b.and_(b.lt(row + i, Index.of(self.rows)), b.lt(column + j, Index.of(self.columns)))
                with b.if_(inside):
                    value = b.cast(b.get(sums[i][j]), out.dtype)
                    b.store(out.buffer, out.at(*lead, row + i, column + j), value)


# Convolutions


@lowers("conv", "conv_halves", target="gpu", any_layout=True)
def _conv(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (x, w), (out,) = inputs, outputs
    if any(not isinstance(s, Size) and s == 0 for s in out.shape):
        return
    groups = node.attrs["groups"]
    fold, rank = fold_of("add", out.dtype), x.ndim - 2
    shape = (out.shape[0], groups, out.shape[1] // groups, *out.shape[2:], *w.shape[1:])
    axes = list(range(3 + rank, len(shape)))
    by_group = Array(
        out.buffer, shape[: 3 + rank],
        (out.strides[0], out.strides[1] * shape[2], *out.strides[1:]), out.offset,
    )  # fmt: skip

    def read(k: Kernel, index: tuple[Index, ...]) -> Value:
        image, weight = k.reads
        (n, g, o), at = index[:3], index[3 : 3 + rank]
        c, taps = index[3 + rank], index[4 + rank :]
        place, mask = _windows(k.builder, image, node.attrs, at, taps)
        where = image.at(n, g * weight.shape[1] + c, *place)
        return _product(k.builder, image, where, weight, weight.at(g * shape[2] + o, c, *taps), mask)

    fold_array(writer, "conv", [x, w], shape, axes, fold, by_group, read)


def _windows(
    b: Builder, x: Array, attrs: Any, at: Sequence[Index], taps: Sequence[Index]
) -> tuple[list[Index], Value | None]:
    """The place in an image that a tap of a window at a position is at, and whether it is there."""
    places, inside = [], None
    for axis, (p, t) in enumerate(zip(at, taps, strict=True)):
        before, size, spread = attrs["padding"][axis][0], x.shape[axis + 2], attrs["input_dilation"][axis]
        place = p * attrs["stride"][axis] + t * attrs["dilation"][axis] - before
        condition = b.and_(b.le(0, place), b.lt(place, Index.of((size - 1) * spread + 1)))
        if spread > 1:
            # Of what is not negative alone is there a quotient.
            safe = b.term(b.max(place, 0))
            condition = b.and_(condition, b.eq(b.remainder(safe, spread), 0))
            place = b.quotient(safe, spread)
        places.append(place)
        inside = condition if inside is None else b.and_(inside, condition)
    return places, inside
