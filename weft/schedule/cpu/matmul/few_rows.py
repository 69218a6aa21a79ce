"""Products of few rows with a large matrix that lies in order: the matrix is read once, as it lies in memory.

A tile would walk down a few columns, each step in another page. Here some rows of the right side are taken at
a time, and multiplied into sums that stay in a cache: all columns of a block, for each row of the left side.
"""

from __future__ import annotations

from weft.base.dtypes import float32, float64
from weft.base.sizes import Size
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.schedule.arrays import Array
from weft.schedule.cpu.epilogues import Epilogue, add_parts, storing
from weft.schedule.cpu.matmul.plan import TASKS, Matrices
from weft.schedule.cpu.matmul.tile import multiply
from weft.schedule.cpu.tuning import Tuning
from weft.schedule.extents import sum_instruction
from weft.schedule.writer import Writer

MOST_ROWS = 16  # of the left side; with more the sums of a block do not stay near
SUMS_BYTES = 1 << 16  # of the sums of a block
FACTORS = 32  # numbers of the left side that are held at a time
DEPTH = 64  # least rows of the right side that a task takes


def suits_few_rows(p: Matrices, rank: int, tuning: Tuning) -> bool:
    """Whether a product without a batch has few rows, and a right side in order that no cache holds."""
    sizes = (p.m, p.n, p.k, *p.left, *p.right)
    if rank != 2 or p.dtype not in (float32, float64) or any(isinstance(s, Size) for s in sizes):
        return False
    if not 2 <= p.m <= MOST_ROWS or p.right[1] != 1 or p.right[0] < p.n:
        return False
    return bool(p.k * p.n * p.dtype.itemsize >= tuning.stream_bytes)


def lower_few_rows(
    writer: Writer, a: Array, b: Array, out: Array, p: Matrices, epilogue: Epilogue | None
) -> None:
    """Sum parts of k for blocks of columns, then add the parts in order."""
    width = min(p.n, max(64, SUMS_BYTES // (p.m * p.dtype.itemsize) // 64 * 64))
    blocks = -(-p.n // width)
    chunks = max(1, min(-(-TASKS // blocks), p.k // DEPTH))
    depth = -(-p.k // chunks)
    parts = writer.temporary((-(-p.k // depth), p.m, p.n), out.dtype, "p")
    with writer.kernel("matmul_rows", [a, b], [parts]) as kernel:
        build = kernel.builder
        with build.parallel(parts.shape[0] * blocks) as task:
            chunk, block = build.quotient(task, blocks), build.remainder(task, blocks)
            rows = _part(build, chunk, depth, p.k)
            columns = _part(build, block, width, p.n)
            _sum_block(build, kernel.reads, kernel.writes[0], chunk, rows, columns, p)
    add_parts(writer, parts, epilogue or storing(out), out.dtype)


def _part(build: Builder, number: Index, each: int, whole: int) -> tuple[Index, Index]:
    """Where a part begins, and how long it is; the last may be shorter."""
    start = number * each
    if whole % each == 0:
        return start, Index.of(each)
    return start, build.term(build.min(Index.of(whole) - start, each), each + 1)


def _sum_block(
    build: Builder,
    sides: list[Array],
    sums: Array,
    chunk: Index,
    rows: tuple[Index, Index],
    columns: tuple[Index, Index],
    p: Matrices,
) -> None:
    step = max(1, FACTORS // p.m)
    (first, depth), (start, count) = rows, columns
    with build.loop(p.m) as row, build.vector(count) as j:
        build.store(sums.buffer, sums.at(chunk, row, start + j), build.constant(0, sums.dtype))
    whole = build.quotient(depth, step)
    with build.loop(whole) as i:
        _add_rows(build, sides, sums, chunk, first + i * step, step, columns, p)
    with build.loop(depth - whole * step) as i:
        _add_rows(build, sides, sums, chunk, first + whole * step + i, 1, columns, p)


def _add_rows(
    build: Builder,
    sides: list[Array],
    sums: Array,
    chunk: Index,
    at: Index,
    step: int,
    columns: tuple[Index, Index],
    p: Matrices,
) -> None:
    """Add the products of some rows of the right side to all sums of a block."""
    left, right = sides
    start, count = columns
    factors = [
        [build.load(left.buffer, left.at(Index.of(row), at + r)) for r in range(step)] for row in range(p.m)
    ]
    add = sum_instruction(p.dtype)
    with build.vector(count) as j:
        column = start + j
        lines = [build.load(right.buffer, right.at(at + r, column)) for r in range(step)]
        for row in range(p.m):
            place = sums.at(chunk, Index.of(row), column)
            total = build.load(sums.buffer, place)
            for factor, line in zip(factors[row], lines, strict=True):
                total = getattr(build, add)(total, multiply(build, factor, line))
            build.store(sums.buffer, place, total)
