"""Large products of a matrix with its own transpose, of which one half is computed and mirrored.

The rows of the result are cut into strips. One call of the BLAS library computes what of a strip is beyond
its own square on the diagonal, which is also a part of the columns below. The square is done by narrower
strips in the same way, each to the end of the square: so less is computed twice, and the long calls copy what
they read only once.
"""

from __future__ import annotations

from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.epilogues import Epilogue, storing
from weft.schedule.cpu.machine import machine_of
from weft.schedule.cpu.matmul.blas import BLOCK, block_at, block_count, block_size, multiply_block, suits_blas
from weft.schedule.cpu.matmul.plan import Matrices
from weft.schedule.cpu.tuning import Tuning
from weft.schedule.extents import is_number
from weft.schedule.writer import Kernel, Writer

STRIPS = 8  # at least, where they are not too narrow
PARTS = 4  # strips of a square: so little more than half is computed
LEAST = 4  # strips, else the whole product is as good


def suits_symmetric(a: Array, b: Array, p: Matrices, tuning: Tuning) -> bool:
    """Whether one side is the transpose of the other, and large."""
    if not suits_blas(p, tuning) or a.buffer is not b.buffer or p.m < LEAST * BLOCK:
        return False
    between = a.offset - b.offset
    same = a.shape == b.shape[::-1] and a.strides == b.strides[::-1]
    return bool(same and between.is_fixed and is_number(between.offset, 0))


def lower_symmetric(
    writer: Writer, a: Array, b: Array, out: Array, p: Matrices, epilogue: Epilogue | None
) -> None:
    """Write a product strip by strip; an epilogue gets each element twice, for both of its places."""
    strips = block_count(p.m, min(p.m // BLOCK, max(STRIPS, machine_of(writer).tuning.blas_blocks)))
    size = block_size(p.m, strips)
    part = block_size(size, PARTS)
    product = out if epilogue is None else writer.temporary(out.shape, out.dtype, "m")
    reads, writes = (epilogue.reads, epilogue.writes) if epilogue else ((), ())
    with writer.kernel("matmul_symmetric", [a, b, *reads], [product, *writes]) as kernel:
        build = kernel.builder
        with build.parallel(strips) as strip:
            rows = block_at(build, strip, p.m, strips)
            end = rows[0] + rows[1]
            target = kernel.writes[0].with_shape((1, p.m, p.n))
            beyond = end, build.term(Index.of(p.n) - end, p.n + 1)
            multiply_block(build, kernel.reads, target, (), rows, beyond, (Index.of(0), p.k), p)
            with build.loop(build.quotient(rows[1] + (part - 1), part)) as number:
                start = rows[0] + number * part
                own = start, build.term(build.min(end - start, part), part + 1)
                columns = start, build.term(end - start, size + 1)
                multiply_block(build, kernel.reads, target, (), own, columns, (Index.of(0), p.k), p)
                columns = start, build.term(Index.of(p.n) - start, p.n + 1)
                _finish(kernel, own, columns, p, epilogue)


def _finish(
    kernel: Kernel,
    rows: tuple[Index, Index],
    columns: tuple[Index, Index],
    p: Matrices,
    epilogue: Epilogue | None,
) -> None:
    """Hand on the elements of a strip, and those that mirror them."""
    build, product = kernel.builder, kernel.writes[0]
    finish = (epilogue or storing(product)).finish
    reads, writes = (kernel.reads[2:], kernel.writes[1:]) if epilogue else ([], kernel.writes)
    if epilogue is not None:
        with build.loop(rows[1]) as r, build.vector(columns[1]) as c:
            index = rows[0] + r, columns[0] + c
            finish(build, reads, writes, index, _element(build, product, *index))
    end = rows[0] + rows[1]
    below = build.term(Index.of(p.n) - end, p.n + 1)
    with build.loop(below) as c, build.vector(rows[1]) as r:
        row, column = rows[0] + r, end + c
        finish(build, reads, writes, (column, row), _element(build, product, row, column))


def _element(build: Builder, product: Array, row: Index, column: Index) -> Value:
    return build.load(product.buffer, product.at(row, column))
