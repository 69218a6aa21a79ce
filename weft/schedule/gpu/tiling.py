"""How the rows and columns of a group are shared out among blocks and threads.

A *tile* is what a block works on at a time: ``slots`` rows, and of each a stretch of columns, all of them
where rows are reduced. The threads of a slot, ``width`` of them, take the vectors of a row in turn, so that
neighbours reach neighbouring memory; each takes ``vectors`` of them, of ``lanes`` elements. So thread t of a
block is at slot ``t // width``, and its vector k begins at column ``(k * width + t % width) * lanes``.
"""

from __future__ import annotations

from typing import Any, Literal

from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.schedule.extents import ceil_div, is_number
from weft.schedule.gpu.machine import Gpu

_WIDTHS = (256, 192, 128, 384, 320, 512)  # threads, in the order in which they are tried
SPREAD = 4  # vectors of a thread where rows are not reduced: so many loads are under way at once
BUSY = 4  # times as many blocks are at work where each holds little
_BESIDE = 32  # columns of a block that has all rows, at least
_MOST_SLOTS = 64  # rows of a block whose sums a thread combines
_FEW = 4  # turns over rows in which one block finishes columns sooner than a second kernel combines them


class Tiling(NamedTuple):
    """Rows and columns, as threads share them out.

    Attributes:
        lanes: elements of a vector.
        width: threads of a slot.
        vectors: of a thread; None where a loop over them is written, because only the run tells how many.
        slots: rows of a tile.
        chunks: tiles side by side along the columns.
        blocks, each: of the grid, and how many tiles each takes, one after the other.
        stays: whether the tiles of a block are of one chunk, so that it has partial results of columns.
        exact: whether every vector of every thread is inside of a row.
        even: whether every slot of every tile of every block is a row.
    """

    lanes: int
    width: int
    vectors: int | None
    slots: int
    chunks: Any
    blocks: Any
    each: Any
    stays: bool
    exact: bool
    even: bool

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.width * self.slots

    @property
    def ends_columns(self) -> bool:
        """Whether a block has all rows of its columns, and each thread one vector of them."""
        return self.stays and self.vectors == 1 and is_number(self.row_blocks, 1)

    @property
    def row_blocks(self) -> Any:
        """Blocks that have the same columns, and other rows."""
        return self.blocks // self.chunks if self.stays else self.blocks


Partial = Literal["", "all", "column"]


def tile(
    rows: Any, columns: Any, lanes: int, machine: Gpu, *, whole: bool, partial: Partial, once: bool = False
) -> Tiling:
    """Share out rows of columns.

    Args:
        rows, columns: numbers, or named sizes.
        lanes: of a vector; they divide the columns.
        machine: that it is for.
        whole: whether a row belongs into one tile, because it is reduced.
        partial: whether blocks have partial results, of all elements or of columns: their number is limited.
        once: whether rows are gone through once, so that nothing of them is held.
    """
    few: tuple[int, int] | None = None
    if whole:
        width, vectors = _row_shape(columns, lanes, machine)
        if once and not partial and is_number(rows):
            width, vectors = _longer_share(rows, width, vectors, machine)
        slots = _slots(rows, width, machine.threads)
        chunks: Any = 1
    elif partial == "column" and (few := _few_rows(rows, columns, lanes, machine)) is not None:
        (width, slots), vectors = few, 1
        chunks = ceil_div(columns, width * lanes)
    else:
        width, vectors, slots = _free_shape(rows, columns, lanes, machine, partial == "column")
        if not partial and is_number(rows) and is_number(columns):
            vectors = _fewer(rows * columns // (width * lanes), vectors, machine)
        chunks = ceil_div(columns, width * lanes * vectors)
    exact = vectors is not None and is_number(columns) and columns % (width * lanes * vectors) == 0
    row_tiles, stays = ceil_div(rows, slots), partial == "column"
    # What reduces rows holds much in registers, so fewer blocks run at once.
    most = machine.blocks if whole else machine.blocks * (BUSY if partial == "all" else 2)
    if stays:
        around = max(1, most // chunks) if is_number(chunks) else 1
        around = 1 if few is not None else around
        row_blocks, each = _shared_out(row_tiles, around)
        blocks = row_blocks * chunks
    else:
        tiles = row_tiles * chunks
        blocks, each = _shared_out(tiles, most) if partial else (tiles, 1)
    filled = is_number(rows) and rows % slots == 0 and is_number(blocks)
    filled = filled and blocks * each == row_tiles * chunks
    return Tiling(lanes, width, vectors, slots, chunks, blocks, each, stays, exact, filled)


def _row_shape(columns: Any, lanes: int, machine: Gpu) -> tuple[int, int | None]:
    """The threads of a row, and the vectors of each; None for rows that do not fit into registers."""
    if isinstance(columns, Size):
        return machine.threads, None
    count = max(columns // lanes, 1)
    most = max(machine.row_elements // lanes, 1)
    fitting = [k for k in range(1, most + 1) if count % k == 0 and count // k <= machine.most_threads]
    if fitting and count >= machine.warp:
        full = [k for k in fitting if (count // k) % machine.warp == 0] or fitting
        best = min(full, key=lambda k: (abs(k * lanes - machine.good_elements), k))
        return count // best, best
    width = 1 << (max(ceil_div(count, max(machine.good_elements // lanes, 1)), 1) - 1).bit_length()
    width = min(width, machine.most_threads)
    vectors = ceil_div(count, width)
    # Two blocks of half the threads wait for memory and for each other less than one of all.
    return (width, vectors) if vectors <= most else (max(machine.most_threads // 2, 1), None)


def _longer_share(rows: int, width: int, vectors: int | None, machine: Gpu) -> tuple[int, int | None]:
    """Fewer threads for a row, of more vectors each, where so many rows keep the machine busy all the same.

    Then fewer threads have to tell each other what they found.
    """
    if vectors is None:
        return width, vectors
    least = machine.blocks * machine.threads
    for k in range(SPREAD // vectors, 1, -1):
        narrow = width // k
        if width % k == 0 and narrow % machine.warp == 0 and rows * narrow >= least:
            return narrow, vectors * k
    return width, vectors


def _free_shape(
    rows: Any, columns: Any, lanes: int, machine: Gpu, sums: bool = False
) -> tuple[int, int, int]:
    """The threads of a row, the vectors of each, and the rows of a tile, where nothing keeps rows whole.

    With sums of columns a thread holds one for each element, so that many threads of one vector are better.
    """
    if isinstance(columns, Size):
        return machine.threads, SPREAD, 1
    if columns >= machine.threads * lanes:
        count = columns // lanes
        widths = range(2 * machine.threads, machine.threads // 2 - 1, -machine.warp)
        whole = [w for w in widths if sums and count % w == 0]
        if whole:
            return whole[0], 1, 1
        shapes = [(w, k) for k in range(SPREAD, 0, -1) for w in _WIDTHS if count % (k * w) == 0]
        wide = [shape for shape in shapes if shape[1] > 1] or shapes
        return *(wide or [(machine.threads, 1)])[0], 1
    width = max(columns // lanes, 1)
    return width, 1, _slots(rows, width, machine.threads)


def _few_rows(rows: Any, columns: Any, lanes: int, machine: Gpu) -> tuple[int, int] | None:
    """The threads of a row, and the rows of a tile, if a block has all rows; None where they are too many."""
    if not is_number(rows) or not is_number(columns):
        return None
    width = min(max(_BESIDE // lanes, _BESIDE // 4), max(columns // lanes, 1))
    slots = _slots(rows, width, min(machine.most_threads // 2, _MOST_SLOTS * width))
    return (width, slots) if rows <= slots * _FEW else None


def _fewer(tiles: int, vectors: int, machine: Gpu) -> int:
    """Vectors of a thread, fewer where there is not enough for many blocks: then it is time that counts."""
    enough = [k for k in range(vectors, 1, -1) if vectors % k == 0 and tiles // k >= machine.blocks // 2]
    return enough[0] if enough else 1


def _slots(rows: Any, width: int, threads: int) -> int:
    """Rows that are side by side in a block of so many threads: as many as fill it, if there are so many."""
    most = max(threads // width, 1)
    if isinstance(rows, Size):
        return most
    most = max(min(most, rows), 1)
    # A number that divides the rows leaves no threads idle at the end.
    best = max(s for s in range(1, most + 1) if rows % s == 0) if rows else 1
    return best if 2 * best > most else most


def _shared_out(tiles: Any, most: int) -> tuple[Any, Any]:
    """The number of blocks, at most so many, and of tiles for each."""
    if isinstance(tiles, Size):
        return most, ceil_div(tiles, most)
    each = max(1, -(-tiles // most))
    return max(1, -(-tiles // each)), each
