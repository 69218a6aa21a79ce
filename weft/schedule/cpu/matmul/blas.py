"""Large matrix products, block by block through the BLAS library.

Every block copies its rows and its columns into an order of the library's own, so there are few of them, and
they are cut where the fewest numbers are copied twice. How many there are is a figure of the processor, never
the number of threads or of cores that a process may use: bits do not depend on these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import Any

from weft.base.dtypes import float32, float64
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.schedule.arrays import Array, Shape
from weft.schedule.cpu.epilogues import Epilogue, add_parts, storing
from weft.schedule.cpu.machine import machine_of
from weft.schedule.cpu.matmul.plan import Matrices, known
from weft.schedule.cpu.tuning import Tuning
from weft.schedule.writer import Writer, unflattened

THIN = {float32: 1, float64: 4}  # how many times as small as the others, about, a size may be
BLOCK = 128  # least rows and columns of one
STEP = 16  # of which they are a multiple: the library takes twice as long over what is left of others
COPY_LEFT, COPY_RIGHT = 3, 1  # what it costs to copy a number of one side once more
CHUNK = 1024  # least part of a sum


def suits_blas(p: Matrices, tuning: Tuning) -> bool:
    """Whether the library takes a product, and is ahead on it."""
    if p.dtype not in (float32, float64) or any(isinstance(s, Size) for s in (p.m, p.n, p.k)):
        return False
    if not (_is_ordered(p.left) and _is_ordered(p.right)):
        return False
    edge = tuning.blas_single if p.dtype == float32 else tuning.blas_double
    return bool(min(p.m, p.n, p.k) * THIN[p.dtype] >= edge and p.m * p.n * p.k >= edge**3)


def _is_ordered(strides: tuple[Any, Any]) -> bool:
    """Whether one axis of a matrix lies in order, and the other at a distance that the library takes."""
    if any(isinstance(s, Size) or s <= 0 for s in strides):
        return False
    return bool(min(strides) == 1 and max(strides) > 1)


class Cut(NamedTuple):
    """Into how many blocks a product is cut along its rows, its columns and its sums."""

    rows: int
    columns: int
    chunks: int


def cut_of(p: Matrices, batch: Any, tuning: Tuning) -> Cut:
    """As many blocks as a product is cut into, where there is work for all, with the fewest copies.

    >>> import numpy as np
    >>> from weft.schedule.cpu.matmul.blas import cut_of
    >>> from weft.schedule.cpu.matmul.plan import Matrices
    >>> from weft.schedule.cpu.tuning import Tuning
    >>> cut_of(Matrices(800, 950, 900, (900, 1), (950, 1), np.dtype("f8")), 1, Tuning(blas_blocks=2))
    Cut(rows=2, columns=1, chunks=1)
    """
    tasks = 2.0 * p.m * p.n * p.k * known(batch) / tuning.blas_task
    even = 1 << max(1, int(log2(max(tasks, 2))))  # powers of two, as numbers of cores are
    want = max(1, ceil(min(tuning.blas_blocks, even) / known(batch)))
    cuts = [
        (rows, min(ceil(want / rows), max(1, p.n // BLOCK))) for rows in range(1, min(want, p.m // BLOCK) + 1)
    ]
    most = max((rows * columns for rows, columns in cuts), default=1)
    enough = [cut for cut in cuts if cut[0] * cut[1] >= min(want, most)] or [(1, 1)]
    rows, columns = min(enough, key=lambda cut: cut[0] * p.n * COPY_RIGHT + cut[1] * p.m * COPY_LEFT)
    chunks = 1
    while chunks < min(want / (rows * columns), p.k / CHUNK) / 2 and p.k % (2 * chunks) == 0:
        chunks *= 2
    return Cut(block_count(p.m, rows), block_count(p.n, columns), chunks)


def lower_large(
    writer: Writer, a: Array, b: Array, out: Array, batch: Shape, p: Matrices, epilogue: Epilogue | None
) -> None:
    """Write a product in blocks, each of which an epilogue then goes over while it is in the cache."""
    cut = cut_of(p, size_of(batch), machine_of(writer).tuning)
    if cut.chunks > 1:
        parts = writer.temporary((cut.chunks, *out.shape), out.dtype, "p")
        _blocks(writer, a, b, parts, batch, p, cut, None)
        add_parts(writer, parts, epilogue or storing(out), out.dtype)
        return
    target = out if epilogue is None else writer.temporary(out.shape, out.dtype, "m")
    _blocks(writer, a, b, target.with_shape((1, *out.shape)), batch, p, cut, epilogue)


def _blocks(
    writer: Writer,
    a: Array,
    b: Array,
    target: Array,
    batch: Shape,
    p: Matrices,
    cut: Cut,
    epilogue: Epilogue | None,
) -> None:
    reads, writes = (epilogue.reads, epilogue.writes) if epilogue else ((), ())
    lead = target.shape[1 + len(batch) : -1]
    with writer.kernel("matmul_large", [a, b, *reads], [target, *writes]) as kernel:
        build, product = kernel.builder, kernel.writes[0].with_shape((cut.chunks, *batch, p.m, p.n))
        tasks = (*batch, cut.chunks, cut.rows, cut.columns)
        with build.parallel(size_of(tasks)) as task:
            *at, chunk, i, j = unflattened(build, task, tasks)
            rows, columns = block_at(build, i, p.m, cut.rows), block_at(build, j, p.n, cut.columns)
            multiply_block(build, kernel.reads, product, at, rows, columns, (chunk, p.k // cut.chunks), p)
            if epilogue is not None:
                with build.loop(rows[1]) as r, build.vector(columns[1]) as c:
                    row, column = rows[0] + r, columns[0] + c
                    value = build.load(product.buffer, product.at(chunk, *at, row, column))
                    index = (*at, *unflattened(build, row, lead), column)
                    epilogue.finish(build, kernel.reads[2:], kernel.writes[1:], index, value)


def block_size(size: int, count: int) -> int:
    """How large the blocks of a size are, but perhaps for the last.

    >>> from weft.schedule.cpu.matmul.blas import block_size
    >>> [block_size(800, count) for count in (1, 2, 3, 4)]
    [800, 400, 272, 208]
    """
    return size if count == 1 else ceil(size / count / STEP) * STEP


def block_count(size: int, count: int) -> int:
    """So many blocks, or fewer where larger ones are enough."""
    return ceil(size / block_size(size, count))


def block_at(build: Builder, number: Index, size: int, count: int) -> tuple[Index, Index]:
    """Where a block begins, and how long it is."""
    block = block_size(size, count)
    start = number * block
    if size % block == 0:
        return start, Index.of(block)
    return start, build.term(build.min(Index.of(size) - start, block), block + 1)


def multiply_block(
    build: Builder, sides: Sequence[Array], product: Array, at: Sequence[Index], rows: tuple[Index, Index],
    columns: tuple[Index, Index], part: tuple[Index, int], p: Matrices,
) -> None:  # fmt: skip
    """Have the library multiply some rows and columns, for a part of the sum."""
    a, b = sides[:2]
    chunk, depth = part
    start = chunk * depth
    build.matmul(
        (a.buffer, a.at(*at, rows[0], start)),
        (b.buffer, b.at(*at, start, columns[0])),
        (product.buffer, product.at(chunk, *at, rows[0], columns[0])),
        rows[1], columns[1], depth,
        (max(p.left), max(p.right), p.n), transposed=(p.left[1] != 1, p.right[1] != 1),
    )  # fmt: skip
