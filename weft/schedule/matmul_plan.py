"""How a product is cut up: which side goes into lanes, how large tiles are, and what threads get.

All choices are made from sizes, strides and the machine's registers, never from the number of threads, so
that results do not depend on it.
"""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

from weft.base.dtypes import DType
from weft.base.sizes import Size
from weft.schedule.machine import Machine
from weft.schedule.matmul_tile import sum_dtype

UNKNOWN = 64  # what a named size is taken for
TASK = 1.5e6  # operations that are worth a thread's attention
BLOCK_TASK, BLOCK_TASKS = 3.4e7, 4  # where more tasks copy more: the operations, and the number that may be
TASKS = 16  # enough for any number of threads that such a product can use
GATHER = 1.2  # cycles to read or write a number that does not lie beside its neighbour
NEAR_BYTES = 40 << 10  # of what a tile reads, so that it stays in the nearest cache
PANEL_BYTES = 1 << 18  # of a packed panel; it lies on the stack


class Matrices(NamedTuple):
    """One matrix product: the sizes, and how far apart neighbours are in memory.

    Attributes:
        m, n, k: (m x k) @ (k x n).
        left: strides of the left side along m and k.
        right: strides of the right side along k and n.
        dtype: of both sides.
    """

    m: Any
    n: Any
    k: Any
    left: tuple[Any, Any]
    right: tuple[Any, Any]
    dtype: DType

    @property
    def turned(self) -> Matrices:
        """The transposed product, (n x k) @ (k x m)."""
        left, right = self.right[::-1], self.left[::-1]
        return Matrices(self.n, self.m, self.k, left, right, self.dtype)


class Tiling(NamedTuple):
    """The cut of one product.

    Attributes:
        turned: whether it is computed as the transposed product.
        rows: of a tile, unrolled.
        lanes: of a tile; for dots its columns, unrolled.
        pack: whether the right side is copied first, so that lanes lie side by side.
        pack_left: whether the left side is copied first, so that the rows of a tile lie side by side.
        dots: whether sums run over vectors along k instead of lanes along n.
        chunks: k is cut into so many parts, whose sums are added at the end.
        depth: steps of k that are summed at a time (see ``matmul_blocks``); 0 for all at once.
        groups: tasks along m and along n.
    """

    turned: bool
    rows: int
    lanes: int
    pack: bool
    pack_left: bool
    dots: bool
    chunks: int
    depth: int
    groups: tuple[int, int]


def known(size: Any) -> int:
    """A size, or what it is taken for."""
    return UNKNOWN if isinstance(size, Size) else int(size)


def tile(
    p: Matrices, batch: Any, machine: Machine, *, may_pack: bool = True, may_turn: bool = True
) -> Tiling:
    """Choose how to cut a product that is computed so many times."""
    turned = may_turn and _cost(p.turned, machine) < _cost(p, machine)
    q = p.turned if turned else p
    if may_turn and _prefers_dots(q, machine):
        rows, lanes, dots, pack = *_dot_tile(q, machine), True, False
    else:
        rows, lanes = _lane_tile(q, machine)
        dots = False
        pack = may_pack and _packs(q, lanes)
    chunks = _chunks(q, lanes, pack)
    work = 2.0 * known(q.m) * known(q.n) * known(q.k)
    want = min(TASKS, work * known(batch) / TASK) / known(batch) / chunks
    pack_left = may_pack and not dots and _packs_left(q, chunks)
    depth = _depth(q, rows, lanes, chunks) if pack and (pack_left or q.m % rows == 0) else 0
    if depth:
        few = max(work / BLOCK_TASK, BLOCK_TASKS) / chunks
        groups = _block_groups(q, rows, lanes, depth, min(want, few))
    else:
        groups = _wide_groups(q, rows, lanes, chunks, want) if pack_left else _groups(q, rows, lanes, want)
    return Tiling(turned, rows, lanes, pack, pack_left, dots, chunks, depth, groups)


def _cost(p: Matrices, machine: Machine) -> float:
    """Cycles of a product in tiles, with packing and storing; to compare with the transposed one."""
    width = machine.lanes(sum_dtype(p.dtype))
    m, n, k = known(p.m), known(p.n), known(p.k)
    if isinstance(p.n, Size):
        return float("inf") if not isinstance(p.m, Size) else 0.0
    compute = m * ceil(n / width) * k / 2
    if not _is_one(p.right[1]) and m > 4:
        compute += k * n * GATHER
    elif not _is_one(p.right[1]):
        compute += m * n * k * GATHER
    return compute


def _is_one(stride: Any) -> bool:
    return not isinstance(stride, Size) and stride == 1


def _is_half(p: Matrices) -> bool:
    """Whether numbers are of half precision, so that packing spares the loops the conversion."""
    return sum_dtype(p.dtype) != p.dtype


def _bytes(p: Matrices) -> int:
    """The size of a packed number."""
    return sum_dtype(p.dtype).itemsize


def _prefers_dots(p: Matrices, machine: Machine) -> bool:
    """Whether both sides lie in order along k, and sums are so long that adding lanes up costs little."""
    if not (_is_one(p.left[1]) and _is_one(p.right[0])) or _is_one(p.right[1]):
        return False
    few = min(known(p.m), known(p.n)) < 4
    width = machine.lanes(sum_dtype(p.dtype))
    return bool(known(p.k) >= (width if few else 64 * width))


def _dot_tile(p: Matrices, machine: Machine) -> tuple[int, int]:
    side = 4 if machine.registers >= 32 else 3
    return _even(p.m, side), _even(p.n, side)


def _lane_tile(p: Matrices, machine: Machine) -> tuple[int, int]:
    """Rows and lanes of a tile that fills the registers, and fits the sizes."""
    width = machine.lanes(sum_dtype(p.dtype))
    sums = 24 if machine.registers >= 32 else 10
    if isinstance(p.n, Size):
        return _even(p.m, 8), width

    most = 8 if known(p.m) < 4 else 4 if known(p.m) < 8 else 2
    count = next(c for c in (8, 4, 2, 1) if c <= max(1, min(most, p.n // width)))
    rows = min(16 if count == 1 else 12, sums // count)
    return _even(p.m, rows), min(width * count, p.n)


def _even(size: Any, most: int) -> int:
    """The number of unrolled rows: the most that divides a size, if that is not far below the most."""
    if isinstance(size, Size):
        return most
    if size <= most:
        return max(1, int(size))
    return next((r for r in range(most, most // 2, -1) if size % r == 0), most)


def _packs(p: Matrices, lanes: int) -> bool:
    """Whether packing pays: where lanes are apart, or panels are used by many rows."""
    if known(p.k) * lanes * _bytes(p) > 4 * PANEL_BYTES or isinstance(p.k, Size):
        return False
    if not _is_one(p.right[1]) or _is_half(p):
        return known(p.m) > 4
    return known(p.m) >= 48 and known(p.k) >= 96


def _packs_left(p: Matrices, chunks: int) -> bool:
    """Whether rows lie side by side, and each step of a long sum is in another line of the cache."""
    if any(isinstance(s, Size) for s in (p.m, p.k, *p.left)):
        return False
    if _is_half(p):
        return bool(p.m >= 4 and known(p.n) >= 32 and p.k // chunks * 16 * _bytes(p) <= PANEL_BYTES)
    return bool(p.left[0] == 1 and p.left[1] >= 16 and p.k // chunks >= 384 and known(p.n) >= 64)


def _chunks(p: Matrices, lanes: int, pack: bool) -> int:
    """Parts of k: more than one where panels would not fit, or where the result is small and k is long."""
    if isinstance(p.k, Size) or isinstance(p.m, Size) or isinstance(p.n, Size):
        return 1
    limit = PANEL_BYTES // (_bytes(p) * lanes) if pack else 2048
    if p.k <= limit:
        return 1
    if not pack and p.m * p.n > 1 << 16:
        return 1
    return next((c for c in range(ceil(p.k / limit), p.k) if p.k % c == 0), 1)


def _groups(p: Matrices, rows: int, lanes: int, want: float) -> tuple[int, int]:
    """How many groups of columns and of rows make as many tasks as wanted."""
    columns = _divisor(known(p.n) // lanes, want) if not isinstance(p.n, Size) else 1
    if isinstance(p.m, Size):
        return 1, columns
    return _divisor(p.m // rows, min(want / columns, p.m / rows / 4)), columns


def _wide_groups(p: Matrices, rows: int, lanes: int, chunks: int, want: float) -> tuple[int, int]:
    """Groups of rows whose part of the left side is small enough to be packed, and groups of columns."""
    least = p.m * (p.k // chunks) * _bytes(p) / PANEL_BYTES
    groups = _divisor(p.m // rows, max(least, min(want, p.m / rows / 4)))
    return groups, _divisor(known(p.n) // lanes, want / groups) if not isinstance(p.n, Size) else 1


def _depth(p: Matrices, rows: int, lanes: int, chunks: int) -> int:
    """Steps of which both sides of a tile fit the nearest cache; 0 where all do, or few would."""
    if any(isinstance(s, Size) for s in (p.m, p.n, p.k, *p.left, *p.right)):
        return 0
    steps, most = p.k // chunks, NEAR_BYTES // (_bytes(p) * (rows + lanes))
    if steps <= 2 * most:
        return 0
    depth = next(d for d in range(most, 0, -1) if steps % d == 0)
    return depth if 3 * depth >= most else 0


def _block_groups(p: Matrices, rows: int, lanes: int, depth: int, want: float) -> tuple[int, int]:
    """Groups of rows and of columns that are small enough for scratch memory, with the least packing."""
    tiles, panels = ceil(p.m / rows), ceil(p.n / lanes)
    groups = [
        (r, c)
        for r in range(1, tiles + 1)
        for c in range(1, panels + 1)
        if tiles % r == 0 and panels % c == 0 and r * c >= min(want, tiles * panels)
        and tiles // r * rows * max(depth, panels // c * lanes) * _bytes(p) <= PANEL_BYTES
    ]  # fmt: skip
    cost = [r * p.n * _pack_cost(p.right[1]) + c * p.m * _pack_cost(p.left[0]) for r, c in groups]
    return groups[cost.index(min(cost))]


def _pack_cost(stride: Any) -> float:
    """Cycles to copy a number."""
    return GATHER / 8 if _is_one(stride) else GATHER


def _divisor(count: int, want: float) -> int:
    """The smallest divisor of a count that is at least as large as wanted; the count where none is."""
    return next((d for d in range(1, count + 1) if count % d == 0 and d >= want), max(count, 1))
