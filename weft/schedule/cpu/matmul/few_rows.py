"""Products of few rows with a large matrix that lies in order: the matrix is read once, as it lies in memory.

A tile would walk down a few columns, each step in another page. Here some rows of the right side are taken at
a time, and multiplied into sums that stay in a cache: all columns of a block, for each row of the left side.
A right side whose number of columns only a run tells (a slice in a loop) is taken in blocks of columns, too.
"""

from __future__ import annotations

from weft.base.dtypes import float32, float64
from weft.base.records import dataclass
from weft.base.sizes import Size
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.schedule.arrays import Array
from weft.schedule.cpu.epilogues import Epilogue, add_parts, storing
from weft.schedule.cpu.matmul.plan import TASKS, Matrices
from weft.schedule.cpu.matmul.tile import multiply
from weft.schedule.cpu.tuning import Tuning
from weft.schedule.extents import block_of, ceil_div, is_number, sum_instruction
from weft.schedule.writer import Writer

MOST_ROWS = 16  # of the left side; with more the sums of a block do not stay near
SUMS_BYTES = 1 << 16  # of the sums of a block
FACTORS = 32  # numbers of the left side that are held at a time
DEPTH = 64  # least rows of the right side that a task takes
OPEN_ROWS = 4  # of the left side, where the number of columns is open; tiles have enough sums with more
OPEN_FACTORS = 8  # numbers of the left side that are held at a time there
OPEN_BYTES = 1 << 10  # of a row of the right side that a task takes


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
            left, right = kernel.reads
            part = _Block(build, left, right, kernel.writes[0], chunk, columns[0], columns[1], p)
            part.sum(rows[0], rows[1], max(1, FACTORS // p.m))
    add_parts(writer, parts, epilogue or storing(out), out.dtype)


def _part(build: Builder, number: Index, each: int, whole: int) -> tuple[Index, Index]:
    """Where a part begins, and how long it is; the last may be shorter."""
    start = number * each
    if whole % each == 0:
        return start, Index.of(each)
    return start, build.term(build.min(Index.of(whole) - start, each), each + 1)


def suits_open_columns(p: Matrices, rank: int) -> bool:
    """Whether a product without a batch has few rows, and an open number of columns that lie side by side."""
    if rank != 2 or p.dtype not in (float32, float64) or not isinstance(p.n, Size):
        return False
    known = not isinstance(p.m, Size) and not isinstance(p.k, Size)
    return known and 1 <= p.m <= OPEN_ROWS and p.k >= OPEN_FACTORS and is_number(p.right[1], 1)


def lower_open_columns(
    writer: Writer, a: Array, b: Array, out: Array, p: Matrices, epilogue: Epilogue | None
) -> None:
    """Sum all of k for blocks of columns; an epilogue goes over the sums of a block."""
    epilogue, width = epilogue or storing(out), OPEN_BYTES // p.dtype.itemsize
    with writer.kernel("matmul_columns", [a, b, *epilogue.reads], epilogue.writes) as kernel:
        build, sides = kernel.builder, kernel.reads[:2]
        sums = Array(build.scratch("sums", out.dtype, p.m * width), (1, p.m, width))
        with build.parallel(ceil_div(p.n, width)) as task:
            start, count = block_of(build, task, p.n, width)
            right = Array(sides[1].buffer, sides[1].shape, sides[1].strides, sides[1].at(0, start))
            part = _Block(build, sides[0], right, sums, Index.of(0), Index.of(0), Index.of(count), p)
            part.sum(Index.of(0), Index.of(p.k), max(1, OPEN_FACTORS // p.m))
            with build.loop(p.m) as row, build.vector(count) as j:
                value = build.load(sums.buffer, sums.at(0, row, j))
                epilogue.finish(build, kernel.reads[2:], kernel.writes, (row, start + j), value)


@dataclass
class _Block:
    """The sums of some columns: where both sides and the sums are, and which of the columns.

    Attributes:
        build: of the kernel.
        left, right: both sides.
        sums: of chunks, rows and columns.
        chunk: the part of k whose sums these are.
        start, count: of the columns.
        p: the matrices.
    """

    build: Builder
    left: Array
    right: Array
    sums: Array
    chunk: Index
    start: Index
    count: Index
    p: Matrices

    def sum(self, first: Index, depth: Index, step: int) -> None:
        """Write the loops over so many rows of the right side, so many of them at a time."""
        build, sums = self.build, self.sums
        with build.loop(self.p.m) as row, build.vector(self.count) as j:
            place = sums.at(self.chunk, row, self.start + j)
            build.store(sums.buffer, place, build.constant(0, sums.dtype))
        whole = build.quotient(depth, step)
        with build.loop(whole) as i:
            self._add_rows(first + i * step, step)
        with build.loop(depth - whole * step) as i:
            self._add_rows(first + whole * step + i, 1)

    def _add_rows(self, at: Index, step: int) -> None:
        """Add the products of some rows of the right side to all sums."""
        build, left, right, sums = self.build, self.left, self.right, self.sums
        factors = [
            [build.load(left.buffer, left.at(Index.of(row), at + r)) for r in range(step)]
            for row in range(self.p.m)
        ]
        add = sum_instruction(self.p.dtype)
        with build.vector(self.count) as j:
            column = self.start + j
            lines = [build.load(right.buffer, right.at(at + r, column)) for r in range(step)]
            for row in range(self.p.m):
                place = sums.at(self.chunk, Index.of(row), column)
                total = build.load(sums.buffer, place)
                for factor, line in zip(factors[row], lines, strict=True):
                    total = getattr(build, add)(total, multiply(build, factor, line))
                build.store(sums.buffer, place, total)
