"""Products of matrices that take no longer than memory takes to answer: small tiles, whose depth is cut.

A product of a few million multiplications is done in a microsecond, if all of a card works on it: so tiles of
the result are small, and there are many of them. The warps of a block have the same tile and each a slice of
the depth: of every chunk that a block brings into shared memory, some neighbouring places. In the end a tree
over shared memory adds what they found, in an order that is fixed. While warps multiply one chunk, the next
ones are under way, in registers. What follows element by element is computed where the sums are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from typing import Any

from weft.base.dtypes import DType, float32, float64
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Local, Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.epilogues import Epilogue, storing
from weft.schedule.cpu.matmul.lowering import broadcast_batch
from weft.schedule.extents import ceil_div, is_number
from weft.schedule.gpu.machine import Gpu
from weft.schedule.group_code import array_key
from weft.schedule.writer import Kernel, Writer, unflattened

_DOWN, _ACROSS = 4, 8  # threads of a warp, along the rows and the columns of a tile
_TILES = (  # rows and columns of a thread, warps, and chunks that are under way at once
    (8, 4, 8, 2),
    (4, 2, 16, 4),
)
_FEWEST = 4  # warps, however few places of the depth there are
_ENOUGH = 96  # tiles that keep a card busy
_STEP = 4  # places of the depth that a warp takes at once
_SHARED = 48 << 10  # bytes of shared memory that any card has
_DEEP, _DEEP_EACH = 512, 16  # places of the depth that few tiles are enough for; and for each tile there is
_LEAST = 8  # rows and columns from which on it is worth it
_WIDER = 512  # times as many multiplications as in half precision are done by weft itself; see ``is_sliced``


def is_sliced(node: Node, machine: Gpu) -> bool:
    """Whether a product is one of these: in single or double precision, of known sizes, not too large.

    A library has few large tiles, which suit large products, and adds parts of the depth by another kernel;
    for half precision it has units that we do not reach. On an H200, in float32, microseconds a product in
    graphs of nothing but products, each of what the one before gave:

    ======================================  =======  =====
    products (m x n x k)                    library   here
    ======================================  =======  =====
    128 x 10 x 128, 128 x 128 x 10              2.8    1.6
    128 x 128 x 256, 128 x 256 x 128            3.6    2.6
    128 x 128 x 128, left side transposed       5.8    2.9
    256 x 256 x 256                             4.1    5.7
    128 x 256 x 784, 128 x 784 x 256            5.2    7.9
    64 x 2048 x 512, 64 x 512 x 2048            7.2   17.4
    512 x 512 x 512                             7.9   35.9
    ======================================  =======  =====

    By itself the kernel of 64 x 2048 x 512 takes 7 and that of 512 cubed 11: why they take so much longer in
    a row is not known. Where other kernels stand between products, as in networks, they do not: the gradient
    of an LSTM with two products of that size a step takes 2.95 ms, and 3.31 with the library's; and a step of
    an MNIST network, whose largest product is 128 x 256 x 784, half the time. The bound is from these steps.
    What is deep and has few tiles (64 x 64 x 4096: 24 against 8) is the library's.
    """
    (out,) = node.outputs
    shape, depth = out.type.shape, node.inputs[0].type.shape[-1]
    dtype = node.inputs[0].type.dtype
    if dtype not in (float32, float64) or not all(isinstance(s, int) for s in (*shape, depth)):
        return False
    work = size_of(shape) * depth
    if min(shape[-2:]) < _LEAST or not 0 < work <= _WIDER * machine.least_product:
        return False
    return bool(depth <= max(_DEEP, _DEEP_EACH * _count(shape, *_TILES[-1][:2])))


def multiply_in_slices(
    writer: Writer, node: Node, inputs: Sequence[Array], out: Array, epilogue: Epilogue | None = None,
    name: str = "matmul",
) -> None:  # fmt: skip
    """Write a product, and what follows it."""
    then = storing(out) if epilogue is None else epilogue
    a, b = (broadcast_batch(x, out.shape[:-2]) for x in inputs)
    key = None if then.key is None else ("sliced", array_key(a), array_key(b), then.key)
    arrays = [a, b, *then.reads, *then.writes]
    if key is not None and writer.launch_again(key, arrays):
        return
    with writer.kernel(name, [a, b, *then.reads], then.writes, inline=False, key=key) as k:
        _Slices(k, out.shape, out.dtype, then).write()


class _Plan(NamedTuple):
    """How a product is cut.

    Attributes:
        own: rows and columns of a thread.
        warps: of a block.
        chunk: places of the depth between two barriers.
        chunks: of them.
        ahead: chunks that are under way at once; an even number, where there are more chunks.
    """

    own: tuple[int, int]
    warps: int
    chunk: int
    chunks: int
    ahead: int

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.own[0] * _DOWN, self.own[1] * _ACROSS

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.warps * _DOWN * _ACROSS

    @property
    def buffers(self) -> int:
        """Chunks that are in shared memory."""
        return min(self.chunks, 2)


def _plan(shape: tuple[int, ...], depth: int, dtype: DType) -> _Plan:
    large = (t for t in _TILES if dtype.itemsize == 4 and _count(shape, t[0], t[1]) >= _ENOUGH)
    *own, warps, ahead = next(large, _TILES[-1])
    warps = min(warps, max(_FEWEST, 1 << (ceil_div(depth, _STEP) - 1).bit_length()))
    line = (own[0] * _DOWN + own[1] * _ACROSS) * dtype.itemsize  # bytes of a place of the depth
    unit, lanes = _STEP * warps, 16 // dtype.itemsize
    whole, half = ((_SHARED // (n * line) - lanes) // unit * unit for n in (1, 2))
    chunks = 1 if depth <= whole else ceil_div(depth, half)
    chunk = ceil_div(ceil_div(depth, chunks), unit) * unit
    chunks = ceil_div(depth, chunk)
    return _Plan((own[0], own[1]), warps, chunk, chunks, min(ahead, chunks))


def _count(shape: tuple[int, ...], rows: int, columns: int) -> int:
    """How many tiles there are, for so many rows and columns of a thread."""
    tiles: int = ceil_div(shape[-2], rows * _DOWN) * ceil_div(shape[-1], columns * _ACROSS)
    return size_of(shape[:-2]) * tiles


class _Side:
    """One side of a product: how its chunks get from memory into shared memory, and from there to threads.

    In shared memory it lies as it does in memory. Where places of the depth are neighbours there, rows are
    apart by some more, so that threads with neighbouring rows do not meet in a bank.
    """

    def __init__(
        self, b: Builder, x: Array, plan: _Plan, axis: int, room: Buffer, first: int, dtype: DType
    ) -> None:
        self.b, self.x, self.plan, self.axis, self.room, self.first = b, x, plan, axis, room, first
        self.size, self.depth = x.shape[axis - 2], x.shape[-1 - axis]
        self.tile, self.own, self.beside = plan.tile[axis], plan.own[axis], (_DOWN, _ACROSS)[axis]
        self.most = 16 // dtype.itemsize
        along, deep = x.strides[axis - 2], x.strides[-1 - axis]
        self.is_deep = is_number(deep, 1) and not (is_number(along, 1) and self.size > 1)
        line = self.depth if self.is_deep else self.size
        self.lanes = self._lanes(line, along if self.is_deep else deep, deep if self.is_deep else along)
        self.vectors = self.tile * plan.chunk // self.lanes
        self.turns = ceil_div(self.vectors, plan.threads)
        self.held = [
            b.scratch(f"held{axis}{i}", dtype, self.turns * self.lanes, "private") for i in range(plan.ahead)
        ]
        self.taken = b.scratch(f"taken{axis}", dtype, self.own * _STEP, "private")

    def _lanes(self, line: int, stride: Any, step: Any) -> int:
        """Elements that a thread reads at once."""
        lanes = self.most if is_number(step, 1) else 1
        while lanes > 1 and (line % lanes or not is_number(stride) or stride % lanes):
            lanes //= 2
        return lanes

    def _place(self, at: Index, deep: Index) -> Index:
        """Where an element of a chunk lies in shared memory."""
        if self.is_deep:
            return at * (self.plan.chunk + self.most) + deep + self.first
        return deep * self.tile + at + self.first

    def _vector(self, thread: Index, turn: int) -> tuple[Index, Index]:
        """Which vector of a chunk is a thread's: its row and its place in the depth, one in vectors."""
        b, number = self.b, thread + turn * self.plan.threads
        if self.is_deep:
            each = self.plan.chunk // self.lanes
            return b.quotient(number, each), b.remainder(number, each)
        each = self.tile // self.lanes
        return b.remainder(number, each), b.quotient(number, each)

    def _is_there(self, thread: Index, turn: int) -> Any:
        if self.vectors >= (turn + 1) * self.plan.threads:
            return nullcontext()
        return self.b.if_(self.b.lt(thread + turn * self.plan.threads, self.vectors))

    def bring(self, lead: Sequence[Index], tile: Index, thread: Index, chunk: Index, held: int) -> None:
        """Ask for a chunk."""
        for turn in range(self.turns):
            with self._is_there(thread, turn):
                vector = self._vector(thread, turn)
                self._bring(lead, tile, vector, chunk, self.held[held], turn * self.lanes)

    def _bring(
        self, lead: Sequence[Index], tile: Index, vector: tuple[Index, Index], chunk: Index, held: Buffer,
        place: int,
    ) -> None:  # fmt: skip
        b, lanes, plan = self.b, self.lanes, self.plan
        wide, far = (1, lanes) if self.is_deep else (lanes, 1)
        at = tile * (self.tile // wide) + vector[0]
        deep = chunk * (plan.chunk // far) + vector[1]
        if self.size % self.tile:  # what is beyond the end reads something, and nobody reads its sums
            at = b.term(b.min(at, Index.of(self.size // wide - 1)), self.size // wide)
        if self.depth % plan.chunk:
            deep = b.term(b.min(deep, Index.of(self.depth // far - 1)), self.depth // far)

        def read(c: Index | int) -> None:
            index = (at, deep * far + c) if self.is_deep else (at * wide + c, deep)
            value = b.load(self.x.buffer, self.x.at(*lead, *(index if self.axis == 0 else index[::-1])))
            b.store(held, Index.of(place) + c, value)

        if lanes == 1:
            read(0)
            return
        with b.vector(lanes, lanes=lanes) as c:
            read(c)

    def keep(self, thread: Index, chunk: Index, held: int, buffer: int) -> None:
        """Put what was asked for into shared memory; zeros beyond the end of the depth.

        That is asked here and not when it is read, since to choose is to wait for it.
        """
        b, lanes, inside = self.b, self.lanes, None
        for turn in range(self.turns):
            with self._is_there(thread, turn):
                at, deep = self._vector(thread, turn)
                if self.depth % self.plan.chunk:
                    far = lanes if self.is_deep else 1
                    inside = b.lt(chunk * (self.plan.chunk // far) + deep, Index.of(self.depth // far))
                at, deep = (at, deep * lanes) if self.is_deep else (at * lanes, deep)
                place = self._place(at, deep) + buffer
                self._copy(self.held[held], turn * lanes, self.room, place, lanes, inside)

    def take(self, own: Index, step: Index, buffer: int) -> None:
        """Read what a thread multiplies at a step."""
        place = self._place(self.row(own, 0), step * _STEP) + buffer
        if self.is_deep:
            apart, lanes = self.beside * (self.plan.chunk + self.most), min(self.most, _STEP)
            for i in range(self.own):
                for part in range(0, _STEP, lanes):
                    self._copy(self.room, place + (i * apart + part), self.taken, i * _STEP + part, lanes)
            return
        lanes = min(self.most, self.own)
        for d in range(_STEP):
            for part in range(0, self.own, lanes):
                self._copy(self.room, place + (d * self.tile + part), self.taken, d * self.own + part, lanes)

    def _copy(
        self, source: Buffer, start: Any, target: Buffer, at: Any, lanes: int, inside: Value | None = None
    ) -> None:
        b, start, at = self.b, Index.of(start), Index.of(at)

        def move(c: Index | int) -> None:
            value = b.load(source, start + c)
            value = value if inside is None else b.select(inside, value, b.constant(0, value.dtype))
            b.store(target, at + c, value)

        if lanes == 1:
            move(0)
            return
        with b.vector(lanes, lanes=lanes) as c:
            move(c)

    def row(self, own: Index, i: int) -> Index:
        """The i-th row of a thread: neighbours have neighbouring ones, or each has its own side by side."""
        return own + i * self.beside if self.is_deep else own * self.own + i

    def element(self, i: int, d: int) -> Value:
        """What was taken, by row and place of the depth."""
        return self.b.load(self.taken, i * _STEP + d if self.is_deep else d * self.own + i)


class _Slices:
    """Writes a product."""

    def __init__(self, k: Kernel, shape: tuple[int, ...], dtype: DType, then: Epilogue) -> None:
        self.b, self.shape, self.dtype, self.then = k.builder, shape, dtype, then
        (a, b), self.reads, self.writes = k.reads[:2], k.reads[2:], k.writes
        self.plan = plan = _plan(shape, a.shape[-1], dtype)
        rooms = [tile * (plan.chunk + 16 // dtype.itemsize) for tile in plan.tile]
        self.area = plan.tile[0] * plan.tile[1]
        self.each = sum(rooms)
        size = max(plan.buffers * self.each, plan.warps * self.area)
        self.room = self.b.scratch("room", dtype, size, "shared")
        self.sides = [
            _Side(self.b, x, plan, axis, self.room, sum(rooms[:axis]), dtype) for axis, x in enumerate((a, b))
        ]

    def write(self) -> None:
        """Write the grid and all in it."""
        b, plan = self.b, self.plan
        tiles = [ceil_div(s, t) for s, t in zip(self.shape[-2:], plan.tile, strict=True)]
        tasks = (*self.shape[:-2], *tiles)
        with b.parallel(size_of(tasks)) as task, b.threads(plan.threads) as thread:
            *lead, down, across = unflattened(b, task, tasks)
            warp, lane = b.quotient(thread, _DOWN * _ACROSS), b.remainder(thread, _DOWN * _ACROSS)
            own = b.quotient(lane, _ACROSS), b.remainder(lane, _ACROSS)
            sums = [[b.local(0, self.dtype) for _ in range(plan.own[1])] for _ in range(plan.own[0])]
            self._chunks(partial(self._bring, lead, (down, across), thread), thread, warp, own, sums)
            b.barrier()
            self._add(warp, own, sums)
            self._finish(lead, (down, across), thread)

    def _chunks(
        self, bring: Callable[[Index, int], None], thread: Index, warp: Index, own: Sequence[Index],
        sums: list[list[Local]],
    ) -> None:  # fmt: skip
        """One chunk after another, each in the other half of shared memory than the one before.

        So a barrier for each is enough: who writes a half is behind one that all have come to since they
        read it.
        """
        b, ahead = self.b, self.plan.ahead

        def chunk(number: Index, held: int, more: Any) -> None:
            buffer = held % 2 * self.each
            for side in self.sides:
                side.keep(thread, number, held, buffer)
            b.barrier()
            if more is not None:
                with more:
                    bring(number + ahead, held)
            self._multiply(warp, own, buffer, sums)

        for i in range(ahead):
            bring(Index.of(i), i)
        groups, rest = divmod(self.plan.chunks, ahead)
        if groups > 1:
            with b.loop(groups) as group:
                for i in range(ahead):
                    more = nullcontext() if i < rest else b.if_(b.lt(group + 1, groups))
                    chunk(group * ahead + i, i, more)
        else:
            for i in range(ahead):
                chunk(Index.of(i), i, nullcontext() if i < rest else None)
        for i in range(rest):
            chunk(Index.of(groups * ahead + i), i, None)

    def _bring(
        self, lead: Sequence[Index], tile: Sequence[Index], thread: Index, chunk: Index, held: int
    ) -> None:
        for side, at in zip(self.sides, tile, strict=True):
            side.bring(lead, at, thread, chunk, held)

    def _multiply(self, warp: Index, own: Sequence[Index], buffer: int, sums: list[list[Local]]) -> None:
        b = self.b
        with b.loop(self.plan.chunk // (_STEP * self.plan.warps)) as turn:
            for side, at in zip(self.sides, own, strict=True):
                side.take(at, turn * self.plan.warps + warp, buffer)
            for d in range(_STEP):
                right = [self.sides[1].element(j, d) for j in range(self.plan.own[1])]
                for i, row in enumerate(sums):
                    left = self.sides[0].element(i, d)
                    for total, x in zip(row, right, strict=True):
                        b.set(total, b.add(b.get(total), b.mul(left, x)))

    def _add(self, warp: Index, own: Sequence[Index], sums: list[list[Local]]) -> None:
        """The sums of all warps into shared memory."""
        b, (left, right), wide = self.b, self.sides, self.plan.tile[1]
        for i, row in enumerate(sums):
            for j, total in enumerate(row):
                place = left.row(own[0], i) * wide + right.row(own[1], j)
                b.store(self.room, warp * self.area + place, b.get(total))
        b.barrier()

    def _finish(self, lead: Sequence[Index], tile: Sequence[Index], thread: Index) -> None:
        """Each thread has some elements side by side: their sums over the warps, and what follows."""
        b, (high, wide), (rows, columns) = self.b, self.plan.tile, self.shape[-2:]
        each = max(self.area // self.plan.threads, 1)
        first, across = thread * each, wide // each
        row = tile[0] * high + b.quotient(thread, across)
        column = tile[1] * wide + b.remainder(thread, across) * each
        conditions = [b.lt(row, Index.of(rows))] if rows % high else []
        if self.area < self.plan.threads:
            conditions.append(b.lt(thread, Index.of(self.area)))

        def element(c: Index | int) -> None:
            parts = [b.load(self.room, first + w * self.area + c) for w in range(self.plan.warps)]
            while len(parts) > 1:
                parts = [b.add(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            self.then.finish(b, self.reads, self.writes, (*lead, row, column + c), parts[0])

        if each > 1 and columns % each == 0:
            conditions += [b.lt(column, Index.of(columns))] if columns % wide else []
            with self._only(conditions), b.vector(each, lanes=each) as c:
                element(c)
            return
        for n in range(each):
            there = [b.lt(column + n, Index.of(columns))] if columns % wide else []
            with self._only([*conditions, *there]):
                element(n)

    def _only(self, conditions: Sequence[Value]) -> Any:
        return nullcontext() if not conditions else self.b.if_(reduce(self.b.and_, conditions))
