"""How a product is cut up: which side goes into lanes, how large tiles are, and what threads get.

All choices are made from sizes, strides and what is known of the processor, never from the number of
threads, so that results do not depend on it.
"""

from __future__ import annotations

from math import ceil, gcd
from typing import Any

from weft.base.dtypes import DType
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.schedule.cpu.machine import Machine
from weft.schedule.extents import is_number, sum_dtype

UNKNOWN = 64  # what a named size is taken for
TASK = 1.5e6  # operations that are worth a thread's attention
COPY_TASK, COPY_TASKS = 1.7e7, 4  # where more tasks pack more: operations of one, and how many may be smaller
ROW_TASKS = 4  # of which each may read all of the right side
TASKS = 16  # enough for any number of threads that such a product can use
APART = 1024  # bytes from step to step that the nearest cache can stand
GATHER = 1.2  # cycles to read or write a number that does not lie beside its neighbour
READ = 0.1  # cycles to fetch a number from another processor's cache, or from memory
TURN, COPY = 0.5, 0.3  # cycles to pack a number whose neighbours are apart, or lie beside it
MANY_ROWS = 512  # fewer, and a product gains if its right side is packed before
FEW_ROWS = 32  # fewer, and packing costs more than it spares
FEW_WORK = 1 << 18  # elements of a right side that takes long to pack; else all rows are summed in one order
CHUNK, SMALL = 2048, 1 << 16  # steps of a part of a long sum, and elements of a small result


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
        pack_left: whether the left side is copied first, so that the rows of a tile lie side by side; it is
            done in blocks alone.
        dots: whether sums run over vectors along k instead of lanes along n.
        few: rows and columns of tiles for dots, where an open number of rows turns out to be small; or None.
        vector: lanes of vectors along k; 0 for as many as suit the loop. An open number of rows has the same
            for all tiles, so that a row gives the same bits among others as by itself.
        chunks: k is cut into so many parts, whose sums are added at the end.
        depth: steps of k that are summed at a time (see ``blocks``); 0 without blocks.
        groups: tasks along m and along n.
    """

    turned: bool
    rows: int
    lanes: int
    pack: bool
    pack_left: bool
    dots: bool
    few: tuple[int, int] | None
    vector: int
    chunks: int
    depth: int
    groups: tuple[int, int]


def known(size: Any) -> int:
    """A size, or what it is taken for."""
    return UNKNOWN if isinstance(size, Size) else int(size)


def tile(
    p: Matrices,
    batch: Any,
    machine: Machine,
    *,
    may_pack: bool = True,
    may_turn: bool = True,
    may_dot: bool = True,
    in_loop: bool = False,
) -> Tiling:
    """Choose how to cut a product that is computed so many times; in a loop its right side is often near.

    Without ``may_dot`` the order of its sums does not depend on how its sides lie in memory.
    """
    may_dot = may_dot and may_turn
    # The transposed product is written across the rows of the result, which costs for each of its elements.
    turned = may_turn and _cost(p.turned, machine) + known(p.m) * known(p.n) * GATHER < _cost(p, machine)
    q = p.turned if turned else p
    if may_dot and _prefers_dots(q, machine):
        rows, lanes, dots, pack = *_dot_tile(q, machine), True, False
    else:
        rows, lanes = _lane_tile(q, machine)
        dots = False
        pack = may_pack and _packs(q)
    vector = machine.lanes(sum_dtype(q.dtype)) if isinstance(q.m, Size) or isinstance(q.n, Size) else 0
    chunks = _chunks(q)
    # Tasks are wanted by work alone. Where each one packs for itself, a few large ones waste less.
    work = 2.0 * known(q.m) * known(q.n) * known(q.k)
    want = min(TASKS, work * known(batch) / TASK) / known(batch) / chunks
    few = min(want, max(work * known(batch) / COPY_TASK, COPY_TASKS) / known(batch) / chunks)
    pack_left = pack and _packs_left(q)
    depth = _depth(q, rows, lanes, chunks, pack_left, machine) if pack else 0
    if depth:
        groups = _block_groups(q, rows, lanes, depth, few, pack_left, machine)
    else:
        pack = pack and q.k // chunks * lanes * _bytes(q) <= 4 * machine.tuning.panel_bytes
        pack_left = False
        groups = _groups(q, rows, lanes, want, few if pack and not is_number(q.right[1], 1) else want)
        if in_loop and not (pack or turned):
            groups = _groups_of_rows(q, rows, groups)
    few_tile = _few_tile(q, machine) if pack and not depth and may_dot else None
    if few_tile is not None:  # both have the same tasks
        groups = groups[0], gcd(groups[1], q.n // few_tile[1])
    return Tiling(turned, rows, lanes, pack, pack_left, dots, few_tile, vector, chunks, depth, groups)


def panel_width(p: Matrices, machine: Machine) -> int | None:
    """How wide panels are in which the right side of a product is best kept; None where that gains nothing.

    It gains where each call would pack them, and as long as that takes a part of its time that tells.
    """
    cut = tile(p, 1, machine)
    if cut.turned or cut.chunks > 1 or not cut.pack or (is_number(p.m) and p.m > MANY_ROWS):
        return None
    fits = p.k * cut.lanes * _bytes(p) <= machine.tuning.panel_bytes
    return cut.lanes if fits and not _is_half(p) else None


def word_width(p: Matrices, machine: Machine) -> int:
    """How wide panels of words are in which the right side of a product is best kept."""
    return _word_tile(p, machine)[1]


def tile_panels(p: Matrices, batch: Any, machine: Machine, width: int) -> Tiling:
    """How to cut a product whose right side lies in panels that are so wide."""
    rows, _ = _lane_tile(p, machine)
    vectors = -(-width // machine.lanes(p.dtype))
    sums = machine.tuning.tile_sums or (24 if machine.registers >= 32 else 10)
    rows = _even(p.m, max(1, min(rows, sums // vectors)))
    work = 2.0 * known(p.m) * known(p.n) * known(p.k)
    want = min(TASKS, work * known(batch) / TASK) / known(batch)
    groups = _groups(p, rows, width, want, want)
    return Tiling(False, rows, width, False, False, False, None, 0, 1, 0, groups)


def tile_words(p: Matrices, batch: Any, machine: Machine, *, may_turn: bool = True, width: int = 0) -> Tiling:
    """How to cut a product of words, of which both sides are packed; all sizes and strides are known.

    The right side may lie in panels that are so wide.
    """
    turned = may_turn and _cost(p.turned, machine) + p.m * p.n * GATHER < _cost(p, machine)
    q = p.turned if turned else p
    rows, lanes = _word_tile(q, machine)
    lanes = width or lanes
    work = 2.0 * q.m * q.n * q.k * known(batch)
    want = min(TASKS, work / TASK, max(work / COPY_TASK, COPY_TASKS)) / known(batch)
    depth = _depth(q, rows, lanes, 1, True, machine)
    groups = _block_groups(q, rows, lanes, depth, want, True, machine)
    return Tiling(turned, rows, lanes, True, True, False, None, 0, 1, depth, groups)


def _word_tile(p: Matrices, machine: Machine) -> tuple[int, int]:
    """Rows and lanes of a tile of whole registers: wide, as a word of the left side is spread to lanes."""
    width, sums = machine.lanes(p.dtype), 24 if machine.registers >= 32 else 10
    count = next(c for c in (4, 2, 1) if c == 1 or (c - 1) * width < p.n)
    most = min(sums // count if count > 1 else 12, p.m)
    # What a tile has beyond the last row is computed for nothing; and a step loads words beside its sums.
    rows = min(range(most, most // 2, -1), key=lambda r: ceil(p.m / r) * (r + 1.7))
    return rows, width * count


def _cost(p: Matrices, machine: Machine) -> float:
    """Cycles of a product in tiles, with packing; to compare with the transposed one."""
    width = machine.lanes(sum_dtype(p.dtype))
    m, n, k = known(p.m), known(p.n), known(p.k)
    if isinstance(p.n, Size):
        return float("inf") if not isinstance(p.m, Size) else 0.0
    # Two vectors of products a cycle.
    compute = m * ceil(n / width) * k / 2
    if not is_number(p.right[1], 1) and m > 4:
        compute += k * n * TURN
    elif not is_number(p.right[1], 1):
        compute += m * n * k * GATHER
    return compute + (m * k * TURN if _packs_left(p) else 0)


def _is_half(p: Matrices) -> bool:
    """Whether numbers are of half precision, so that packing spares the loops the conversion."""
    return sum_dtype(p.dtype) != p.dtype


def _bytes(p: Matrices) -> int:
    """The size of a packed number."""
    return sum_dtype(p.dtype).itemsize


def _prefers_dots(p: Matrices, machine: Machine) -> bool:
    """Whether both sides lie in order along k, and sums are so long that adding lanes up costs little."""
    if not (is_number(p.left[1], 1) and is_number(p.right[0], 1)) or is_number(p.right[1], 1):
        return False
    few = min(known(p.m), known(p.n))
    width = machine.lanes(sum_dtype(p.dtype))
    return bool(few < 4 and known(p.k) >= width) or bool(few < 48 and known(p.k) >= 64 * width)


def _few_tile(p: Matrices, machine: Machine) -> tuple[int, int] | None:
    """The tile for few rows, of a number that is open: along k, so that nothing is packed."""
    if not isinstance(p.m, Size) or isinstance(p.n, Size) or known(p.k) * p.n < FEW_WORK:
        return None
    in_order = is_number(p.left[1], 1) and is_number(p.right[0], 1) and not is_number(p.right[1], 1)
    return _dot_tile(p, machine) if in_order and p.k >= machine.lanes(sum_dtype(p.dtype)) else None


def _dot_tile(p: Matrices, machine: Machine) -> tuple[int, int]:
    side = 4 if machine.registers >= 32 else 3
    return _even(p.m, side), _even(p.n, side)


def _lane_tile(p: Matrices, machine: Machine) -> tuple[int, int]:
    """Rows and lanes of a tile that fills the registers, and fits the sizes."""
    width = machine.lanes(sum_dtype(p.dtype))
    # Of 32 registers 24 hold sums; the others what is loaded, and the optimiser's own.
    sums = machine.tuning.tile_sums or (24 if machine.registers >= 32 else 10)
    if isinstance(p.n, Size):
        return _even(p.m, 8), width

    most = 8 if known(p.m) < 4 else 4 if known(p.m) < 8 else machine.tuning.tile_vectors
    count = next(c for c in (8, 4, 2, 1) if c <= max(1, min(most, p.n // width)))
    rows = max(1, min(16 if count == 1 else 12, sums // count))
    return _even(p.m, rows), min(width * count, p.n)


def _even(size: Any, most: int) -> int:
    """The number of unrolled rows: the most that divides a size, if that is not far below the most."""
    if isinstance(size, Size):
        return most
    if size <= most:
        return max(1, int(size))
    return next((r for r in range(most, most // 2, -1) if size % r == 0), most)


def _packs(p: Matrices) -> bool:
    """Whether packing pays: where lanes are apart, or panels are used by many rows."""
    if isinstance(p.k, Size):
        return False
    if not is_number(p.right[1], 1) or _is_half(p):
        return known(p.m) > 4
    return known(p.m) >= 48 and known(p.k) >= 96


def _packs_left(p: Matrices) -> bool:
    """Whether rows lie side by side, and the steps of a long sum so far apart that the cache forgets them.

    Or whether numbers are of half precision, and used often.
    """
    if any(isinstance(s, Size) for s in (p.k, *p.left)):
        return False
    if _is_half(p):
        return known(p.m) >= 4 and known(p.n) >= 32
    return bool(p.left[0] == 1 and p.left[1] * _bytes(p) > APART and p.k >= 384 and known(p.n) >= 64)


def _chunks(p: Matrices) -> int:
    """Parts of k: more than one where the result is small and k is long."""
    if isinstance(p.k, Size) or isinstance(p.n, Size):
        return 1
    least = ceil(p.k / CHUNK)
    if least == 1 or known(p.m) * p.n > SMALL:
        return 1
    return next((c for c in range(least, 4 * least) if p.k % c == 0), 1)


def _groups(p: Matrices, rows: int, lanes: int, want: float, few: float) -> tuple[int, int]:
    """How many groups of columns make as many tasks as wanted; or else groups of both, as many as a few."""
    columns = _divisor(known(p.n) // lanes, want) if not isinstance(p.n, Size) else 1
    if isinstance(p.m, Size):
        return 1, columns
    if few < want and columns < want and not isinstance(p.n, Size):
        groups = [(r, c) for r in _divisors(p.m // rows) for c in _divisors(p.n // lanes)]
        enough = [(r, c) for r, c in groups if few <= r * c <= 4 * few]
        cheapest = min(enough, key=lambda g: g[0] * p.n * TURN + g[1] * p.m * READ, default=None)
        return cheapest or max(groups, key=lambda g: g[0] * g[1] if g[0] * g[1] < few else 0)
    return _divisor(p.m // rows, min(want / columns, p.m / rows / 4)), columns


def _groups_of_rows(p: Matrices, rows: int, groups: tuple[int, int]) -> tuple[int, int]:
    """Rows instead of columns for each thread, where there are so few that either will do.

    What a loop does with a row is then done by the thread that has it in its cache.
    """
    tasks = groups[0] * groups[1]
    fits = not isinstance(p.m, Size) and p.m % (rows * tasks) == 0
    return (tasks, 1) if fits and tasks <= ROW_TASKS else groups


def _depth(p: Matrices, rows: int, lanes: int, chunks: int, pack_left: bool, machine: Machine) -> int:
    """Steps of which both sides of a tile fit the nearest cache.

    It is 0 where all do, or nearly so; but all of them where the left side is packed, or where tiles do not
    fit the sizes, since blocks need no code of their own for what is left.
    """
    if any(isinstance(s, Size) for s in (p.m, p.n, p.k, *p.left, *p.right)):
        return 0
    steps, most = p.k // chunks, machine.tuning.near_bytes // (_bytes(p) * (rows + lanes))
    if steps <= 2 * most:
        fits = p.m % rows == 0 and p.n % lanes in (0, lanes // 2)
        return steps if pack_left or (not fits and ceil(p.n / lanes) * lanes <= 1.15 * p.n) else 0
    return next((d for d in range(most, most // 3, -1) if steps % d == 0), most)


def _block_groups(
    p: Matrices, rows: int, lanes: int, depth: int, want: float, pack_left: bool, machine: Machine
) -> tuple[int, int]:
    """Groups of rows and of columns that are small enough for scratch memory, with the least packing."""
    tiles, panels = ceil(p.m / rows), ceil(p.n / lanes)
    most, depth = machine.tuning.panel_bytes // (_bytes(p) * rows), depth if pack_left else 0
    right = COPY if is_number(p.right[1], 1) else TURN
    left = READ if not pack_left else COPY if is_number(p.left[0], 1) else TURN

    def cost(group: tuple[int, int]) -> float:
        """Cycles for each step, as if all groups were as large as the largest."""
        (r, c), (i, j) = group, (ceil(tiles / group[0]), ceil(panels / group[1]))
        return float(i * r * rows * j * c + r * p.n * right + c * p.m * left)

    def fits(r: int, c: int) -> bool:
        enough = r * c >= min(want, tiles * panels)
        return bool(enough and ceil(tiles / r) * max(depth, ceil(panels / c) * lanes) <= most)

    return min([(r, c) for r in _parts(tiles) for c in _parts(panels) if fits(r, c)], key=cost)


def _parts(count: int) -> list[int]:
    """Some numbers of groups that so many things may be cut into, all of which have some."""
    some = [n for e in range(count.bit_length() + 1) for n in (2**e, 3 * 2**e) if n < count]
    return sorted({ceil(count / ceil(count / n)) for n in (*some, count)})


def _divisor(count: int, want: float) -> int:
    """A divisor of a count near to what is wanted: rather more than less."""
    divisors = _divisors(count)
    return next((d for d in divisors if want <= d <= 2 * want), max(d for d in divisors if d <= max(want, 1)))


def _divisors(count: int) -> list[int]:
    return [d for d in range(1, count + 1) if count % d == 0] or [1]
