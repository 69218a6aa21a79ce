"""Sorting: sort, argsort, topk_index, and searchsorted.

An element becomes a *key*, an unsigned integer of its size that has the same order: NaN counts as the
largest, and descending order flips the bits. Few keys are inserted one by one into a row that is kept in
order; many are sorted by their bytes, the lowest first, which takes as many passes as a key has bytes (fewer,
where all keys share one). Both keep equal keys in their order. Rows are sorted in parallel. Truth values are
not sorted: once one kind of them is counted, each has its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bool_, int32, int64, kind, uint8
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Local, Value
from weft.ops.scalar import integer_of_size, is_nan
from weft.schedule.arrays import Array, Shape
from weft.schedule.extents import block_of, ceil_div, is_number
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, over, unflattened

FEW = 64  # so many keys are inserted one by one
WORKERS = 16  # rows that are sorted by bytes at the same time, each with memory of its own
_DIGITS = 256


@lowers("sort", "argsort", "topk_index", target="cpu")
def _sort(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    write_sort(writer, node.op.name, inputs[0], outputs[0], Order.of(node, inputs[0]))


class Order(NamedTuple):
    """What is asked for: the first ``count`` elements along an axis in order, or their places."""

    axis: int
    descending: bool
    count: Any
    values: bool

    @classmethod
    def of(cls, node: Node, x: Array) -> Order:
        """What a node asks for of an array."""
        attrs, axis = node.attrs, node.attrs["axis"]
        if "k" in attrs:
            return cls(axis, attrs["largest"], attrs["k"], values=False)
        return cls(axis, attrs["descending"], x.shape[axis], node.op.name == "sort")


# Keys


def key_dtype(dtype: DType) -> DType:
    """The unsigned integers that elements of a dtype become."""
    return uint8 if dtype == bool_ else np.dtype(f"uint{dtype.itemsize * 8}")


def key_of(b: Builder, x: Value, descending: bool) -> Value:
    """The key of an element; a negative zero has that of zero."""
    dtype, wide = x.dtype, key_dtype(x.dtype)
    if dtype == bool_:
        key = b.cast(x, uint8)
    elif kind(dtype) == "u":
        key = x
    else:
        signed = integer_of_size(dtype)
        bits = x if kind(dtype) == "i" else b.bitcast(b.select(b.eq(x, 0.0), b.constant(0, dtype), x), signed)
        key = b.xor(b.bitcast(bits, wide), _sign(b, wide))
        if kind(dtype) == "f":
            key = b.select(b.lt(bits, 0), b.not_(b.bitcast(bits, wide)), key)
            key = b.select(is_nan(b, x), b.constant(2 ** (8 * wide.itemsize) - 1, wide), key)
    return b.not_(key) if descending else key


def element_of(b: Builder, key: Value, dtype: DType, descending: bool) -> Value:
    """The element that a key stands for."""
    key = b.not_(key) if descending else key
    if dtype == bool_:
        return b.cast(key, bool_)
    if kind(dtype) == "u":
        return key
    bits = b.xor(key, _sign(b, key.dtype))
    if kind(dtype) == "f":
        bits = b.select(b.lt(key, _sign(b, key.dtype)), b.not_(key), bits)
    return b.bitcast(bits, dtype)


def _sign(b: Builder, dtype: DType) -> Value:
    return b.constant(1 << (8 * dtype.itemsize - 1), dtype)


# Rows


class Row(NamedTuple):
    """One row that is sorted: how to read its keys, and how to write its results."""

    size: Any
    key: Callable[[Index], Value]
    write: Callable[[Index, Value, Any], None]  # at a place: a key, and the number of its element or None


def write_sort(writer: Writer, name: str, x: Array, out: Array, order: Order) -> None:
    """Sort rows, one after the other by one task each."""
    size, count = x.shape[order.axis], order.count
    if is_number(count) and (count <= FEW // 2 or (count <= FEW and is_number(size))):
        with writer.kernel(name, [x], [out], inline=False) as k:
            _sort_by_insertion(k, order)
        return
    others = (*x.shape[: order.axis], *x.shape[order.axis + 1 :])
    if x.dtype == bool_ and not order.values and name == "argsort":
        with writer.kernel(name, [x], [out], inline=False) as k:
            _part_truth(k, order, others)
        return
    rows = size_of(others)
    each = ceil_div(rows, WORKERS) if not is_number(rows) else max(ceil_div(rows, WORKERS), 1)
    workers = ceil_div(rows, each) if is_number(rows) else WORKERS
    wide = int32 if is_number(size) and size < 2**31 else int64
    memory = [writer.temporary((workers, 2, size), key_dtype(x.dtype), "k")]
    if not order.values:
        memory.append(writer.temporary((workers, 2, size), wide, "i"))
    with writer.kernel(name, [x], [out, *memory], inline=False) as k:
        _sort_by_bytes(k, order, others, each, workers)


def row_of(b: Builder, x: Array, out: Array, place: Sequence[Index], order: Order) -> Row:
    """The row at a place of the other axes."""
    axis = order.axis

    def at(array: Array, i: Index) -> Index:
        return array.at(*place[:axis], i, *place[axis:])

    def write(i: Index, key: Value, number: Any) -> None:
        value = element_of(b, key, x.dtype, order.descending) if order.values else b.cast(number, int64)
        b.store(out.buffer, at(out, i), value)

    return Row(x.shape[axis], lambda i: key_of(b, b.load(x.buffer, at(x, i)), order.descending), write)


# Few


def _sort_by_insertion(k: Kernel, order: Order) -> None:
    b, (x,), (out,) = k
    others = (*x.shape[: order.axis], *x.shape[order.axis + 1 :])
    room = max(order.count, 1)
    keys, numbers = b.scratch("keys", key_dtype(x.dtype), room), b.scratch("numbers", int64, room)
    with b.parallel(size_of(others)) as line:
        row = row_of(b, x, out, unflattened(b, line, others), order)
        with b.loop(row.size) as i:
            _insert(b, keys, numbers, row.key(i), i, order.count)
        with b.loop(order.count) as i:
            row.write(i, b.load(keys, i), b.load(numbers, i))


def _insert(b: Builder, keys: Buffer, numbers: Buffer, key: Value, number: Index, count: int) -> None:
    """Put a key after all that are not larger; what moves beyond the end is dropped."""
    at = b.local(b.min(number, count))

    def is_smaller() -> Any:
        place = b.get(at)
        inside = b.lt(0, place)
        return b.and_(inside, b.lt(key, b.load(keys, b.term(place) - 1, inside)))

    with b.while_(is_smaller):
        place = b.get(at)
        to, kept = b.term(place), b.lt(place, count)
        b.store(keys, to, b.load(keys, to - 1), kept)
        b.store(numbers, to, b.load(numbers, to - 1), kept)
        b.set(at, b.sub(place, 1))
    place = b.get(at)
    kept = b.lt(place, count)
    b.store(keys, b.term(place), key, kept)
    b.store(numbers, b.term(place), number, kept)


# Truth values


def _part_truth(k: Kernel, order: Order, others: Shape) -> None:
    """The places of the false ones, then those of the true ones; descending, the other way round."""
    b, (x,), (out,) = k
    size, axis = x.shape[order.axis], order.axis
    with b.parallel(size_of(others)) as line:
        place = unflattened(b, line, others)

        def at(array: Array, i: Index) -> Index:
            return array.at(*place[:axis], i, *place[axis:])

        def is_late(i: Index) -> Value:
            value = b.load(x.buffer, at(x, i))
            return b.not_(value) if order.descending else value

        before = b.local(0, int64)
        with b.vector(size) as i:
            b.accumulate(before, "add", b.cast(b.not_(is_late(i)), int64))
        early, late = b.local(0, int64), b.local(b.get(before), int64)
        with b.loop(size) as i:
            where = is_late(i)
            # Without a branch: nobody can guess which way it would go.
            to = b.select(where, b.get(late), b.get(early))
            b.store(out.buffer, at(out, b.term(to)), i)
            b.set(early, b.add(b.get(early), b.cast(b.not_(where), int64)))
            b.set(late, b.add(b.get(late), b.cast(where, int64)))


# Many


def _sort_by_bytes(k: Kernel, order: Order, others: Shape, each: Any, workers: int) -> None:
    b, (x,), (out, *memory) = k
    counts = b.scratch("counts", int64, _DIGITS * memory[0].dtype.itemsize)
    with b.parallel(workers) as worker:
        first, rows = block_of(b, worker, size_of(others), each)
        own = [array.row(worker) for array in memory]
        with b.loop(rows) as r:
            row = row_of(b, x, out, unflattened(b, first + r, others), order)
            half = _load_keys(b, row, own, counts)
            for number in range(counts.size // _DIGITS):
                _pass(b, row.size, own, counts, number, half)
            start = _start(b, half, row.size)
            with b.loop(order.count) as i:
                found = [b.load(a.buffer, a.flat(start + i)) for a in own]
                row.write(i, found[0], found[-1])


def _start(b: Builder, half: Local, size: Any) -> Index:
    """Where the half that holds the keys now begins."""
    return b.term(b.mul(b.get(half), Index.of(size)))


def _digit(b: Builder, key: Value, number: int) -> Index:
    """Where a byte of a key is counted."""
    byte = b.and_(b.shr(key, 8 * number), _DIGITS - 1) if key.dtype != uint8 else key
    return b.term(b.cast(byte, int64), _DIGITS) + number * _DIGITS


def _load_keys(b: Builder, row: Row, own: Sequence[Array], counts: Buffer) -> Local:
    """Keys into the first half of the memory, and how often each byte occurs at each place of a key."""
    with b.vector(counts.size) as i:
        b.store(counts, i, 0)
    with b.loop(row.size) as i:
        key = row.key(i)
        b.store(own[0].buffer, own[0].flat(i), key)
        for numbers in own[1:]:
            b.store(numbers.buffer, numbers.flat(i), b.cast(i, numbers.dtype))
        for number in range(counts.size // _DIGITS):
            at = _digit(b, key, number)
            b.store(counts, at, b.add(b.load(counts, at), 1))
    return b.local(0, int64)


def _pass(b: Builder, size: Any, own: Sequence[Array], counts: Buffer, number: int, half: Local) -> None:
    """Keys into the other half by one byte, unless it is the same in all."""
    some = b.lt(0, Index.of(size))
    start = _start(b, half, size)
    keys = own[0]
    at = _digit(b, b.load(keys.buffer, keys.flat(start), some), number)
    shared = b.eq(b.load(counts, at), Index.of(size))
    with b.if_(b.and_(some, b.not_(shared))):
        _sum_counts(b, counts, number)
        with b.loop(size) as i:
            found = [b.load(a.buffer, a.flat(start + i)) for a in own]
            at = _digit(b, found[0], number)
            to = b.load(counts, at)
            b.store(counts, at, b.add(to, 1))
            for array, value in zip(own, found, strict=True):
                b.store(array.buffer, array.flat(Index.of(size) - start + b.term(to)), value)
        b.set(half, b.sub(1, b.get(half)))


def _sum_counts(b: Builder, counts: Buffer, number: int) -> None:
    """Where the keys with each byte go."""
    total = b.local(0, int64)
    with b.loop(_DIGITS) as i:
        before = b.get(total)
        b.set(total, b.add(before, b.load(counts, i + number * _DIGITS)))
        b.store(counts, i + number * _DIGITS, before)


# Search


@lowers("searchsorted", target="cpu")
def _search(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (x1, x2), (out,) = inputs, outputs
    with writer.kernel(node.op.name, [x1, x2], [out]) as k:
        b, (table, wanted), (found,) = k

        def write(*index: Index) -> None:
            row = table if table.ndim == 1 else _row_at(table, index[:-1])
            key = key_of(b, b.load(wanted.buffer, wanted.at(*index)), False)
            b.store(found.buffer, found.at(*index), _count_before(b, row, key, node.attrs["side"] == "right"))

        over(b, out.shape, write)


def _row_at(x: Array, index: Sequence[Index]) -> Array:
    for i in index:
        x = x.row(i)
    return x


def _count_before(b: Builder, row: Array, key: Value, equal_too: bool) -> Value:
    """How many elements of a sorted row are smaller, by steps of powers of two."""
    size = row.shape[0]
    steps = size.bit_length() if is_number(size) else 40
    count: Value = b.constant(0, int64)
    for step in reversed(range(steps)):
        reach = b.add(count, 1 << step)
        inside = b.le(reach, Index.of(size))
        other = key_of(b, b.load(row.buffer, row.at(b.term(reach) - 1), inside), False)
        before = b.le(other, key) if equal_too else b.lt(other, key)
        count = b.select(b.and_(inside, before), reach, count)
    return count
