"""Matrix products as loops: tiles in registers for most sizes, the BLAS library for the largest.

``lower_matmul`` is what fusion calls: its ``epilogue`` takes each element of the product
from a register, so a bias, an activation or a residual is part of the kernel, and several results may be
stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import DType, float32, int8, int32
from weft.base.records import replace
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Array, Shape
from weft.schedule.cpu.epilogues import Epilogue, add_parts, anchors, storing
from weft.schedule.cpu.machine import machine_of
from weft.schedule.cpu.matmul.blas import lower_large, suits_blas
from weft.schedule.cpu.matmul.blocks import Blocks
from weft.schedule.cpu.matmul.few_rows import (
    lower_few_rows,
    lower_open_columns,
    suits_few_rows,
    suits_open_columns,
)
from weft.schedule.cpu.matmul.loops import Contraction
from weft.schedule.cpu.matmul.panels import unpacked
from weft.schedule.cpu.matmul.plan import FEW_ROWS, Matrices, Tiling, tile, tile_panels, tile_words
from weft.schedule.cpu.matmul.symmetric import lower_symmetric, suits_symmetric
from weft.schedule.cpu.matmul.tile import Side, Step
from weft.schedule.cpu.units import Words, unit_for
from weft.schedule.extents import ceil_div, sum_dtype
from weft.schedule.group_code import array_key
from weft.schedule.pointwise.rules import Indices
from weft.schedule.writer import Kernel, Writer, over, unflattened

# By dtype of sums, the least sizes from which packing into words pays: of the smaller and the larger side.
WORTH: dict[DType, tuple[int, int]] = {int32: (1, 1), float32: (4, 16)}


@anchors("matmul_halves")
@anchors("matmul")
def _matmul(
    writer: Writer, node: Node, inputs: Sequence[Array], out: Array, epilogue: Epilogue | None
) -> None:
    lower_matmul(writer, inputs[0], inputs[1], out, epilogue)


@anchors("matmul_bytes")
def _matmul_bytes(
    writer: Writer, node: Node, inputs: Sequence[Array], out: Array, epilogue: Epilogue | None
) -> None:
    if any(not isinstance(s, Size) and s == 0 for s in out.shape):
        return
    batch, a, b = _folded(out.shape[:-2], inputs[0], inputs[1])
    words = find_words(writer, a, b)
    if words is not None:
        lower_words(writer, a, b, out, batch, words, epilogue)
        return
    wide = [_widened(writer, x, out.dtype) for x in inputs]
    lower_matmul(writer, wide[0], wide[1], out, epilogue)


@anchors("matmul_panels")
def _matmul_panels(
    writer: Writer, node: Node, inputs: Sequence[Array], out: Array, epilogue: Epilogue | None
) -> None:
    if any(not isinstance(s, Size) and s == 0 for s in out.shape):
        return
    (x, panels), shape = inputs, (inputs[0].shape[-1], out.shape[-1])
    # All batches have one right side, whose columns are as far from each other as in a matrix.
    columns = Array(panels.buffer, shape, (panels.shape[2], 1), panels.offset)
    batch, a, b = _folded(out.shape[:-2], x, columns)
    lead = len(batch)
    panels = Array(panels.buffer, (*batch, *panels.shape), (*[0] * lead, *panels.strides), panels.offset)
    if x.dtype != int8:
        lower_panels(writer, a, b, panels, out, batch, epilogue)
        return
    words = find_words(writer, a, b, int8)
    if words is not None:
        lower_words(writer, a, b, out, batch, words, epilogue, panels)
        return
    wide = [_widened(writer, x, out.dtype), unpacked(writer, inputs[1], shape, out.dtype)]
    lower_matmul(writer, wide[0], wide[1], out, epilogue)


def _widened(writer: Writer, x: Array, dtype: DType) -> Array:
    """A copy of an array in another dtype."""
    wide = writer.temporary(x.shape, dtype, "w")
    with writer.kernel("widen", [x], [wide]) as k:
        b, (source,), (target,) = k.builder, k.reads, k.writes
        over(b, x.shape, lambda *i: b.store(
            target.buffer, target.at(*i), b.cast(b.load(source.buffer, source.at(*i)), dtype)
        ))  # fmt: skip
    return wide


def lower_matmul(writer: Writer, a: Array, b: Array, out: Array, epilogue: Epilogue | None = None) -> None:
    """Write the product of arrays, and what an epilogue does with its elements; else they are stored."""
    shape = out.shape
    if any(not isinstance(s, Size) and s == 0 for s in shape):
        return
    # A batch of one right side is a taller left side: its panels are packed once, not once for each.
    batch, a, b = _folded(shape[:-2], a, b)
    matrices = Matrices(a.shape[-2], b.shape[-1], a.shape[-1], a.strides[-2:], b.strides[-2:], a.dtype)
    words = find_words(writer, a, b)
    if words is not None:
        lower_words(writer, a, b, out, batch, words, epilogue)
        return
    tuning = machine_of(writer).tuning
    if not batch and len(shape) == 2 and suits_symmetric(a, b, matrices, tuning):
        lower_symmetric(writer, a, b, out, matrices, epilogue)
        return
    if suits_blas(matrices, tuning):
        lower_large(writer, a, b, out, batch, matrices, epilogue)
        return
    in_loop = writer.depth > 0
    if not batch and not in_loop and suits_few_rows(matrices, len(shape), tuning):
        lower_few_rows(writer, a, b, out, matrices, epilogue)
        return
    if not batch and suits_open_columns(matrices, len(shape)):
        lower_open_columns(writer, a, b, out, matrices, epilogue)
        return
    key = _key(a, b, out, epilogue, in_loop)
    arrays = (a, b, out) if epilogue is None else (a, b, *epilogue.reads, *epilogue.writes)
    if writer.launch_again(key, arrays):
        return
    may_turn = len(shape) - len(batch) == 2  # else the rows of the result are not one axis
    free = {"may_turn": may_turn, "may_dot": "dots" not in writer.disabled}
    tiling = tile(matrices, size_of(batch), machine_of(writer), **free, in_loop=in_loop)
    if tiling.chunks > 1:
        _in_chunks(writer, a, b, out, batch, matrices, tiling, epilogue or storing(out))
        return
    # An epilogue is written once for a tile by way of a stage, and not once for each of its unrolled rows.
    stages = epilogue is not None or tiling.turned
    epilogue = epilogue or storing(out)
    with writer.kernel("matmul", [a, b, *epilogue.reads], epilogue.writes, key=key) as kernel:
        if kernel.builder is writer.main:  # which has no scratch memory
            tiling = tile(matrices, size_of(batch), machine_of(writer), **free, may_pack=False)
            stages = False
        reads, writes = kernel.reads[2:], kernel.writes
        product = Product(kernel, shape, batch, matrices, tiling, stages)
        product.write(lambda index, value: epilogue.finish(
            kernel.builder, reads, writes, index, kernel.builder.cast(value, out.dtype)
        ))  # fmt: skip


def lower_panels(
    writer: Writer, a: Array, b: Array, panels: Array, out: Array, batch: Shape, epilogue: Epilogue | None
) -> None:
    """Write a product whose right side lies in panels; ``b`` is its shape, as if it were one panel."""
    key = _key(a, panels, out, epilogue, in_loop=False)
    arrays = (a, panels, out) if epilogue is None else (a, panels, *epilogue.reads, *epilogue.writes)
    if writer.launch_again(key, arrays):
        return
    matrices = Matrices(a.shape[-2], b.shape[-1], a.shape[-1], a.strides[-2:], b.strides[-2:], a.dtype)
    tiling = tile_panels(matrices, size_of(batch), machine_of(writer), panels.shape[-1])
    stages = epilogue is not None
    epilogue = epilogue or storing(out)
    with writer.kernel("matmul_panels", [a, panels, *epilogue.reads], epilogue.writes, key=key) as kernel:
        reads, writes = kernel.reads[2:], kernel.writes
        stages = stages and kernel.builder is not writer.main
        product = Product(kernel, out.shape, batch, matrices, tiling, stages, panels=panels.shape[-2])
        product.write(lambda index, value: epilogue.finish(
            kernel.builder, reads, writes, index, kernel.builder.cast(value, out.dtype)
        ))  # fmt: skip


def find_words(writer: Writer, a: Array, b: Array, right: DType | None = None) -> Words | None:
    """How matrices are words for a unit of the processor, if it has one and that pays; else None.

    ``right`` is the dtype of numbers that lie in words already.
    """
    unit = unit_for(machine_of(writer).units, a.dtype, right or b.dtype)
    if unit is None or "units" in writer.disabled:
        return None
    m, k, n = *a.shape[-2:], b.shape[-1]
    if any(isinstance(s, Size) for s in (m, n, k, *a.strides[-2:], *b.strides[-2:])) or k < unit.group:
        return None
    few, many = WORTH[unit.dot.total]
    return Words(unit, k % unit.group) if min(m, n) >= few and max(m, n) >= many else None


def lower_words(
    writer: Writer,
    a: Array,
    b: Array,
    out: Array,
    batch: Shape,
    words: Words,
    epilogue: Epilogue | None,
    panels: Array | None = None,
) -> None:
    """Write a product by a unit of the processor; the right side may lie in panels of words already."""
    (steps, width), side = ((0, 0), b) if panels is None else (panels.shape[-2:], panels)
    key = _key(a, side, out, epilogue, in_loop=False)
    arrays = (a, side, out) if epilogue is None else (a, side, *epilogue.reads, *epilogue.writes)
    if writer.launch_again(key, arrays):
        return
    shape, dot, group = out.shape, words.unit.dot, words.unit.group
    left, right = a.strides[-2:], b.strides[-2:]
    sizes = a.shape[-2], b.shape[-1], ceil_div(a.shape[-1], group)
    matrices = Matrices(*sizes, (left[0], left[1] * group), (right[0] * group, right[1]), dot.total)
    may_turn = len(shape) - len(batch) == 2 and panels is None
    tiling = tile_words(matrices, size_of(batch), machine_of(writer), may_turn=may_turn, width=width)
    epilogue = epilogue or storing(out)
    name = f"matmul_{words.unit.instruction}"
    with writer.kernel(name, [a, side, *epilogue.reads], epilogue.writes, inline=False, key=key) as kernel:
        reads, writes = kernel.reads[2:], kernel.writes
        product = Product(kernel, shape, batch, matrices, tiling, False, words, steps)
        product.write(lambda index, value: epilogue.finish(
            kernel.builder, reads, writes, index, kernel.builder.cast(value, out.dtype)
        ))  # fmt: skip


def _key(a: Array, b: Array, out: Array, epilogue: Epilogue | None, in_loop: bool) -> Any:
    """What the code of a product depends on; None where that cannot be told."""
    own = ("matmul", array_key(a), array_key(b), array_key(out), in_loop)
    if epilogue is None:
        return own
    return None if epilogue.key is None else (*own, epilogue.key)


def _folded(batch: Shape, a: Array, b: Array) -> tuple[Shape, Array, Array]:
    """The batch axes that have not become rows of the left side, and both sides broadcast to them."""
    a, b = (broadcast_batch(x, batch) for x in (a, b))
    axes = len(batch)
    while axes and _is_still(b, axes - 1) and a.strides[axes - 1] == a.strides[axes] * a.shape[axes]:
        lead, rows = axes - 1, a.shape[axes - 1] * a.shape[axes]
        strides = [(*x.strides[:lead], *x.strides[axes:]) for x in (a, b)]
        a = Array(a.buffer, (*a.shape[:lead], rows, a.shape[-1]), strides[0], a.offset)
        b = Array(b.buffer, (*b.shape[:lead], *b.shape[axes:]), strides[1], b.offset)
        axes = lead
    return batch[:axes], a, b


def broadcast_batch(x: Array, batch: Shape) -> Array:
    """Matrices as seen in a larger batch."""
    own = x.shape[:-2]
    lead = len(batch) - len(own)
    strides = [
        stride if size == whole else 0
        for size, whole, stride in zip(own, batch[lead:], x.strides, strict=False)
    ]
    return Array(x.buffer, (*batch, *x.shape[-2:]), (*[0] * lead, *strides, *x.strides[-2:]), x.offset)


def _is_still(x: Array, axis: int) -> bool:
    stride, size = x.strides[axis], x.shape[axis]
    return not isinstance(stride, Size) and (stride == 0 or (not isinstance(size, Size) and size == 1))


def _in_chunks(
    writer: Writer,
    a: Array,
    b: Array,
    out: Array,
    batch: Shape,
    matrices: Matrices,
    tiling: Tiling,
    epilogue: Epilogue,
) -> None:
    """Sum parts of k side by side, then add the parts in order."""
    shape, dtype = out.shape, out.dtype
    # Parts are as many as the plan says, whatever runs them, and added in order: the same bits everywhere.
    parts = writer.temporary((tiling.chunks, *shape), sum_dtype(a.dtype), "p")
    key = ("matmul_parts", array_key(a), array_key(b), array_key(parts), writer.depth > 0)
    if not writer.launch_again(key, (a, b, parts)):
        with writer.kernel("matmul_parts", [a, b], [parts], key=key) as kernel:
            product = Product(kernel, shape, batch, matrices, tiling, tiling.turned)
            target, store = kernel.writes[0], kernel.builder.store
            product.write(lambda index, value: store(target.buffer, target.at(product.chunk, *index), value))
    add_parts(writer, parts, epilogue, dtype)


class Product:
    """Writes the tasks of one product into a kernel.

    Attributes:
        chunk: the part of k that is being summed.
        panels: steps of a panel, where the right side lies in panels; else 0.
    """

    def __init__(
        self, kernel: Kernel, shape: Shape, batch: Shape, matrices: Matrices, tiling: Tiling, stages: bool,
        words: Words | None = None, panels: int = 0,
    ) -> None:  # fmt: skip
        self.b = kernel.builder
        self.panels = panels
        self.sides = kernel.reads[1::-1] if tiling.turned else kernel.reads[:2]
        self.shape, self.batch, self.tiling = shape, batch, tiling
        self.matrices = matrices.turned if tiling.turned else matrices
        self.chunk = Index.of(0)
        self._at: list[Index] = []
        self.blocks = Blocks.of(self.b, self.matrices, tiling, words, panels) if tiling.depth else None
        if self.blocks is not None:
            return
        panel, dtype = self.matrices.k // tiling.chunks * tiling.lanes, sum_dtype(matrices.dtype)
        self.panel = self.b.scratch("panel", dtype, panel) if tiling.pack else None
        self.stage = self.b.scratch("stage", dtype, tiling.rows * tiling.lanes) if stages else None

    def write(self, finish: Callable[[Indices, Value], None]) -> None:
        """Write everything; ``finish(index, value)`` gets the elements, as they are summed."""
        chunks, groups = self.tiling.chunks, self.tiling.groups
        tasks = (*self.batch, chunks, *groups)
        # One task has no need of threads; and without a parallel loop it may go into the main function.
        if all(not isinstance(s, Size) and s == 1 for s in tasks):
            self._at = [Index.of(0) for _ in self.batch]
            self._task(finish, Index.of(0), Index.of(0))
            return
        with self.b.parallel(size_of(tasks)) as task:
            *self._at, self.chunk, rows, columns = unflattened(self.b, task, tasks)
            self._task(finish, rows, columns)

    def _task(self, finish: Callable[[Indices, Value], None], rows: Index, columns: Index) -> None:
        """Write the loops over one group of rows and of columns."""
        p, tiling = self.matrices, self.tiling
        dtype = sum_dtype(p.dtype)
        depth = p.k // tiling.chunks
        left = self._start(self.sides[0], depth * p.left[1])
        right = self._start(self.sides[1], depth * p.right[0])

        def finish_element(row: Index, column: Index, value: Value) -> None:
            i, j = (column, row) if tiling.turned else (row, column)
            lead = unflattened(self.b, i, self.shape[len(self.batch) : -1])
            finish((*self._at, *lead, j), self.b.cast(value, dtype))

        if self.blocks is not None:
            self.blocks.write(left, right, (rows, columns), finish_element)
            return
        contraction = Contraction(
            self.b, left, right, ((p.m,), (p.left[0],)), (p.n, p.right[1]),
            [Step(depth, p.left[1], p.right[0])], (tiling.rows, tiling.lanes), finish_element,
            self.panel, self.stage, tiling.turned, tiling.dots, tiling.vector, panels=self.panels,
        )  # fmt: skip
        if tiling.few is None:
            contraction.write(rows, tiling.groups[0], columns, tiling.groups[1])
            return
        # How many rows there are only a call tells, so both ways are in the code.
        with self.b.if_(self.b.lt(Index.of(p.m), FEW_ROWS)) as otherwise:
            few = replace(contraction, tile=tiling.few, panel=None, dots=True)
            few.write(rows, tiling.groups[0], columns, tiling.groups[1])
        with self.b.inside(otherwise):
            contraction.write(rows, tiling.groups[0], columns, tiling.groups[1])

    def _start(self, array: Array, chunk: Any) -> Side:
        """Where a matrix begins, at the batch and the part of k that is being computed."""
        place = array.offset
        for i, stride in zip(self._at, array.strides, strict=False):
            place = place + i * stride
        return Side(array.buffer, place + self.chunk * chunk)
