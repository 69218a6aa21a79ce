"""Random bits: Philox4x64-10 as ``weft.base.philox`` states it, in the scalar instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import uint64
from weft.base.philox import MASK, MULTIPLIERS, ROUNDS, WEYL
from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Array
from weft.schedule.extents import block_of, ceil_div, is_number
from weft.schedule.pointwise.rules import Indices, Reader, broadcast_index, pointwise
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, unflattened

_TASK = 1024  # blocks of four words that one task draws
_HALF = 2**32 - 1

Words = tuple[Value, ...]


def philox(b: Builder, counter: Words, key: tuple[Value, Value]) -> Words:
    """The block of random words of a counter under a key, all uint64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for number in range(ROUNDS):
        high0, low0 = product(b, c0, MULTIPLIERS[0])
        high1, low1 = product(b, c2, MULTIPLIERS[1])
        c0, c1 = b.xor(b.xor(high1, c1), b.add(k0, number * WEYL[0] & MASK)), low1
        c2, c3 = b.xor(b.xor(high0, c3), b.add(k1, number * WEYL[1] & MASK)), low0
    return c0, c1, c2, c3


def product(b: Builder, x: Value, factor: int) -> tuple[Value, Value]:
    """The upper and the lower half of a product of 64-bit integers, from products of their halves."""
    high, low = b.shr(x, 32), b.and_(x, _HALF)
    upper, lower = factor >> 32, factor & _HALF
    lows = b.mul(low, lower)
    middle = b.add(b.mul(high, lower), b.shr(lows, 32))
    other = b.add(b.mul(low, upper), b.and_(middle, _HALF))
    top = b.add(b.add(b.mul(high, upper), b.shr(middle, 32)), b.shr(other, 32))
    return top, b.or_(b.shl(other, 32), b.and_(lows, _HALF))


@lowers("random_bits")
def _bits(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """A task draws some blocks of one key, a lane of a vector one block at a time."""
    _write_bits(writer, node, inputs, outputs, _TASK)


@lowers("random_bits", target="gpu")
def _bits_by_threads(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """A thread draws one block."""
    _write_bits(writer, node, inputs, outputs, 1)


def _write_bits(
    writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array], task_size: int
) -> None:
    (out,), (keys,) = outputs, inputs
    lead, count = keys.shape[:-1], size_of(node.attrs["shape"])
    flat = out.with_shape((*lead, count))
    per = 32 // out.dtype.itemsize
    with writer.kernel(node.op.name, [keys], [flat], inline=False) as k:
        b, (key,), _ = k
        blocks = ceil_div(count, per)
        chunk = min(task_size, max(blocks, 1)) if is_number(blocks) else task_size
        tasks = (*lead, ceil_div(blocks, chunk))
        with b.parallel(size_of(tasks)) as task:
            *place, part = unflattened(b, task, tasks)
            pair = (b.load(key.buffer, key.at(*place, 0)), b.load(key.buffer, key.at(*place, 1)))
            first, some = block_of(b, part, blocks, chunk)
            with b.vector(some) as i:
                _draw(k, pair, place, first + i, per, count)


def _draw(
    k: Kernel, key: tuple[Value, Value], place: Sequence[Index], block: Index, per: int, count: Any
) -> None:
    """The random integers of one block, as far as they are asked for."""
    b, _, (out,) = k
    zero = b.constant(0, uint64)
    words = philox(b, (b.cast(block, uint64), zero, zero, zero), key)
    bits = 8 * out.dtype.itemsize
    even = is_number(count) and count % per == 0
    for number in range(per):
        word = words[number * bits // 64]
        value = b.cast(b.shr(word, number * bits % 64), out.dtype) if bits < 64 else word
        at = block * per + number
        b.store(out.buffer, out.at(*place, at), value, None if even else b.lt(at, Index.of(count)))


@pointwise("derive_key")
def _derive(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    key, data = node.inputs
    b, lead = r.builder, index[:-1]
    places = broadcast_index(lead, key.type.shape[:-1])
    pair = tuple(r.read(key, (*places, Index.of(k)), mask) for k in range(2))
    zero, purpose = b.constant(0, uint64), b.constant(node.attrs["purpose"], uint64)
    number = r.read(data, broadcast_index(lead, data.type.shape), mask)
    words = philox(b, (number, zero, zero, purpose), (pair[0], pair[1]))
    return b.select(b.eq(index[-1], 0), words[0], words[1])
