"""Sorting on a GPU: a block for each row, in shared memory, by exchanges of pairs (K. E. Batcher, 1968).

Elements become keys as on processors (``weft.schedule.cpu.sorting``), and equal keys are told apart by their
places, so the order is the same. Rows that are too long are cut into chunks; then pairs of chunks are merged,
again and again: each element counts those of the other chunk that come before it. Of chunks that the first
few elements are asked of, no more than so many are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import DType, int32, int64
from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.sorting import Order, Row, key_dtype, row_of, write_sort
from weft.schedule.extents import ceil_div, is_number
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, unflattened

_FEW = 16  # elements that a thread sorts by itself
_ROOM = 32768  # bytes of shared memory
_THREADS = 512

Read = Callable[[Index], tuple[Value, Any]]  # an element of a row: its key, and its number
Write = Callable[[Index, Value, Any], None]


@lowers("sort", "argsort", "topk_index", target="gpu")
def _sort(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    name, (x,), (out,) = node.op.name, inputs, outputs
    order = Order.of(node, x)
    size = x.shape[order.axis]
    known = is_number(size) and is_number(order.count) and is_number(out.size)
    if not known or size <= _FEW or out.size == 0:
        write_sort(writer, name, x, out, order)
        return
    most = _most(key_dtype(x.dtype), order)
    if size <= most:
        with writer.kernel(name, [x], [out], inline=False) as k:
            _sort_rows(k, order)
        return
    _Long(writer, name, x, out, order, most).run()


def _most(dtype: DType, order: Order) -> int:
    """The elements that fit into shared memory, a power of two."""
    room = _ROOM // (dtype.itemsize + (0 if order.values else 4))
    return 1 << (min(room, 4096).bit_length() - 1)


def _others(x: Array, axis: int) -> tuple[Any, ...]:
    return (*x.shape[:axis], *x.shape[axis + 1 :])


def _numbered(row: Row) -> Read:
    return lambda i: (row.key(i), i)


def _sort_rows(k: Kernel, order: Order) -> None:
    """Rows that fit, a block each."""
    b, (x,), (out,) = k
    others, size = _others(x, order.axis), x.shape[order.axis]
    sorter = _Block(b, key_dtype(x.dtype), size, numbers=not order.values)
    with b.parallel(size_of(others)) as line, b.threads(sorter.threads) as t:
        row = row_of(b, x, out, unflattened(b, line, others), order)
        sorter.sort(t, _numbered(row), Index.of(size))
        sorter.write(t, order.count, row.write)


class _Block:
    """Sorts some elements in shared memory."""

    def __init__(self, b: Builder, dtype: DType, size: int, *, numbers: bool) -> None:
        self.b = b
        self.size = 1 << max(size - 1, 1).bit_length()
        self.threads = min(self.size // 2, _THREADS)
        self.keys: Buffer = b.scratch("keys", dtype, self.size, "shared")
        self.numbers = b.scratch("numbers", int32, self.size, "shared") if numbers else None

    def sort(self, t: Index, read: Read, count: Index) -> None:
        """Bring so many elements, and exchange until they are in order."""
        b = self.b
        b.barrier()  # what was read of a row before
        with b.loop(self.size // self.threads) as turn:
            i = turn * self.threads + t
            self._bring(i, read, count)
        b.barrier()
        span = 2
        while span <= self.size:
            distance = span // 2
            while distance:
                with b.loop(self.size // 2 // self.threads) as turn:
                    self._exchange(turn * self.threads + t, span, distance)
                b.barrier()
                distance //= 2
            span *= 2

    def _bring(self, i: Index, read: Read, count: Index) -> None:
        """An element, or something that comes after all of them."""
        b, dtype = self.b, self.keys.dtype
        b.store(self.keys, i, b.constant(2 ** (8 * dtype.itemsize) - 1, dtype))
        if self.numbers is not None:
            b.store(self.numbers, i, b.constant(2**31 - 1, int32))
        with b.if_(b.lt(i, count)):
            key, number = read(i)
            b.store(self.keys, i, key)
            if self.numbers is not None:
                b.store(self.numbers, i, b.cast(number, int32))

    def _exchange(self, pair: Index, span: int, distance: int) -> None:
        """Put two elements in order; which one that is depends on where they are."""
        b = self.b
        first = b.quotient(pair, distance) * (2 * distance) + b.remainder(pair, distance)
        places = first, first + distance
        rising = b.eq(b.remainder(b.quotient(pair, span // 2), 2), 0)
        x, y = (b.load(self.keys, at) for at in places)
        later = b.lt(y, x)
        pairs = [(self.keys, x, y)]
        if self.numbers is not None:
            n, m = (b.load(self.numbers, at) for at in places)
            later = b.or_(later, b.and_(b.eq(x, y), b.lt(m, n)))
            pairs.append((self.numbers, n, m))
        turned = b.eq(later, rising)
        for buffer, one, two in pairs:
            b.store(buffer, places[0], b.select(turned, two, one))
            b.store(buffer, places[1], b.select(turned, one, two))

    def write(self, t: Index, count: int, write: Write) -> None:
        """The first elements in order."""
        b = self.b
        with b.loop(ceil_div(count, self.threads)) as turn:
            i = turn * self.threads + t
            with b.if_(b.lt(i, count)):
                number = None if self.numbers is None else b.load(self.numbers, i)
                write(i, b.load(self.keys, i), number)


class _Long:
    """Rows that do not fit: chunks are sorted, then merged.

    Attributes:
        kept: elements of a chunk that are needed.
        length: of a row of what is kept.
    """

    def __init__(self, writer: Writer, name: str, x: Array, out: Array, order: Order, most: int) -> None:
        self.writer, self.name, self.x, self.out, self.order = writer, name, x, out, order
        self.most = most
        self.others = _others(x, order.axis)
        self.rows, self.size = size_of(self.others), x.shape[order.axis]
        self.chunks = ceil_div(self.size, most)
        self.kept = min(most, order.count)
        few = self.kept < most
        self.length = self.chunks * self.kept if few else self.size

    def run(self) -> None:
        """All kernels."""
        memory = self._memory()
        self._sort_chunks(memory)
        run = self.kept
        while run < self.length:
            last = 2 * run >= self.length
            memory = self._merge(memory, run, last)
            run *= 2

    def _memory(self) -> list[Array]:
        """Room for keys, and for numbers where they are asked for."""
        dtypes = [key_dtype(self.x.dtype)] + ([] if self.order.values else [int32])
        return [self.writer.temporary((self.rows, self.length), dtype, "k") for dtype in dtypes]

    def _sort_chunks(self, memory: list[Array]) -> None:
        with self.writer.kernel(self.name, [self.x], memory, inline=False) as k:
            b, (x,), held = k
            sorter = _Block(b, key_dtype(x.dtype), self.most, numbers=not self.order.values)
            with b.parallel(self.rows * self.chunks) as block, b.threads(sorter.threads) as t:
                line, chunk = b.quotient(block, self.chunks), b.remainder(block, self.chunks)
                row = row_of(b, x, self.out, unflattened(b, line, self.others), self.order)
                first = chunk * self.most
                rest = b.term(b.min(Index.of(self.size) - first, Index.of(self.most)))
                sorter.sort(t, lambda i: (row.key(first + i), first + i), rest)

                def write(i: Index, key: Value, number: Any) -> None:
                    at = chunk * self.kept + i
                    with b.if_(b.lt(at, self.length)):
                        for array, value in zip(held, (key, number), strict=False):
                            b.store(array.buffer, array.at(line, at), value)

                sorter.write(t, self.kept, write)

    def _merge(self, memory: list[Array], run: int, last: bool) -> list[Array]:
        """Pairs of runs as one each, into other memory, or into the result."""
        writer = self.writer
        targets = [self.out] if last else self._memory()
        reads = [*memory, self.x] if last else memory
        with writer.kernel("merge", reads, targets, inline=False) as k:
            b, found = k.builder, k.reads[: len(memory)]
            with b.parallel(self.rows * self.length) as task:
                line, i = b.quotient(task, self.length), b.remainder(task, self.length)
                values = [b.load(a.buffer, a.at(line, i)) for a in found]
                to = self._place(b, found[0], line, i, values[0], run)
                if last:
                    self._finish(k, line, to, values)
                for array, value in zip(() if last else k.writes, values, strict=False):
                    b.store(array.buffer, array.at(line, to), value)
        return targets

    def _finish(self, k: Kernel, line: Index, to: Index, values: list[Value]) -> None:
        b = k.builder
        row = row_of(b, k.reads[-1], k.writes[0], unflattened(b, line, self.others), self.order)
        with b.if_(b.lt(to, self.order.count)):
            row.write(to, values[0], values[-1])

    def _place(self, b: Builder, keys: Array, line: Index, i: Index, key: Value, run: int) -> Index:
        """Where an element goes: after those of its own run before it, and those of the other that are."""
        number = b.quotient(i, run)
        second = b.remainder(number, 2)
        first = (number - second) * run
        other = first + (Index.of(1) - second) * run
        size = b.term(b.max(b.min(Index.of(self.length) - other, Index.of(run)), 0))
        is_second = b.eq(second, 1)
        count: Value = b.constant(0, int64)
        for step in reversed(range(run.bit_length())):
            reach = b.add(count, 1 << step)
            inside = b.le(reach, size)
            there = b.load(keys.buffer, keys.at(line, other + b.term(reach) - 1), inside)
            before = b.or_(b.lt(there, key), b.and_(is_second, b.eq(there, key)))
            count = b.select(b.and_(inside, before), reach, count)
        return first + (i - number * run) + b.term(count)
