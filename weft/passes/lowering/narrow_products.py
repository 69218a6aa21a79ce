"""Products of int32 whose sides are bytes, written as products of bytes: processors have units for these.

That is what quantised models are made of: ``(x.astype(int32) - zero) @ w.astype(int32)``. A side is int8 and
a number that stands beside the sum: unsigned bytes are signed ones and 128, and zero points are subtracted.
With ``x = x8 + a`` and ``y = y8 + b`` the product is ``x8 @ y8 + a sum(y8) + b sum(x8) + k a b``, exactly, as
integers wrap around. Sums of constants are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np

from weft.base.dtypes import int8, int32, integer_range, uint8
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep, uniform
from weft.ops.arithmetic import add, mul, sub
from weft.ops.bits import bitcast
from weft.ops.bytes import matmul_bytes
from weft.ops.compare import bitwise_xor
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.conv.primitive import conv
from weft.ops.op import Array
from weft.ops.reduce import reduce_sum
from weft.ops.select import cast
from weft.ops.view.primitives import join, permute, reshape
from weft.ops.view.slices import pad_axes, slice_axes
from weft.passes.base import graph_pass

WORTH = 1 << 12  # multiplications; fewer are not worth it
MIDDLE = 128  # an unsigned byte less this is a signed one


@graph_pass(once=True)
def narrow_products(graph: Graph) -> Graph:
    """Write products and convolutions of int32 whose sides are bytes as products of bytes.

    >>> import weft
    >>> def f(x, w):
    ...     return (x.astype(weft.int32) - 3) @ w.astype(weft.int32)
    >>> x, w = weft.ones((16, 32), dtype=weft.int8), weft.ones((32, 16), dtype=weft.int8)
    >>> graph = weft.make_graph(f)(x, w).optimize()
    >>> [node.op.name for node in weft.passes.narrow_products(graph).nodes]
    ['matmul_bytes', 'cast', 'sum', 'mul', 'add']
    """
    return sweep(graph, {matmul: [_product], conv: [_convolution]})


@graph_pass(once=True)
def widen_products(graph: Graph) -> Graph:
    """Write products of bytes as products of int32, for what has no kernels for bytes.

    >>> import weft
    >>> from weft.ops.bytes import matmul_bytes
    >>> from weft.passes.lowering.narrow_products import widen_products
    >>> x = weft.ones((2, 2), dtype=weft.int8)
    >>> [node.op.name for node in widen_products(weft.make_graph(matmul_bytes)(x, x)).nodes]
    ['cast', 'cast', 'matmul']
    """
    return sweep(graph, {matmul_bytes: [_wide]})


def _wide(draft: Draft, node: Node) -> Sequence[Value]:
    sides = [draft.emit(cast, [v], dtype=int32)[0] for v in node.inputs]
    return draft.emit(matmul, sides)


class _Side(NamedTuple):
    """A side of a product: ``bytes + more + each``, in int32.

    Attributes:
        bytes: of int8.
        more: a number that is added to all.
        each: what else is added, of int32 and the same along the sum; or None.
    """

    bytes: Value
    more: int
    each: Value | None = None


def _product(draft: Draft, node: Node) -> Sequence[Value] | None:
    left, right = node.inputs
    count = left.type.shape[-1]
    if left.type.dtype != int32 or not isinstance(count, int) or _work(node.outputs[0], count) < WORTH:
        return None
    x, y = _side(draft, left, -1), _side(draft, right, -2)
    if x is None or y is None:
        return None
    (total,) = draft.emit(matmul_bytes, [x.bytes, y.bytes])
    return (_corrected(draft, total, x, y, count),)


def _work(out: Value, summed: int) -> float:
    """Multiplications; of open sizes there are many."""
    shape = out.type.shape
    return inf if any(isinstance(s, Size) for s in shape) else float(prod(shape) * summed)


def _side(draft: Draft, value: Value, axis: int) -> _Side | None:
    """A value of int32 as a side that is summed along an axis, from the end; None if it is no bytes."""
    array = draft.array(value)
    if array is not None:
        return _constant_side(draft, array)
    node = draft.made.get(value)
    if node is None:
        return None
    if node.op is cast:
        return _signed(draft, node.inputs[0])
    if node.op is permute or node.op is reshape:
        inner = _side(draft, node.inputs[0], 0)
        if inner is None or inner.each is not None:
            return None
        return _Side(draft.emit(node.op, [inner.bytes], **node.attrs)[0], inner.more)
    if node.op is sub or node.op is add:
        return _moved_side(draft, node, axis)
    return None


def _constant_side(draft: Draft, array: Array) -> _Side | None:
    """Numbers that are bytes, or bytes and 128."""
    if array.ndim < 2 or array.size == 0:
        return None
    low, high = integer_range(int8)
    for more in (0, MIDDLE):
        if low <= int(array.min()) - more and int(array.max()) - more <= high:
            return _Side(draft.constant((array - more).astype(int8)), more)
    return None


def _signed(draft: Draft, value: Value) -> _Side | None:
    """Bytes as int8."""
    if value.type.dtype == int8:
        return _Side(value, 0)
    if value.type.dtype != uint8:
        return None
    array = draft.array(value)
    if array is not None:
        return _Side(draft.constant((array ^ np.uint8(MIDDLE)).view(int8)), MIDDLE)
    (flipped,) = draft.emit(bitwise_xor, [value, draft.constant(np.asarray(MIDDLE, uint8))])
    return _Side(draft.emit(bitcast, [flipped], dtype=int8)[0], MIDDLE)


def _moved_side(draft: Draft, node: Node, axis: int) -> _Side | None:
    """Bytes with a zero point subtracted, or something added, that is the same along the sum."""
    value, zero = node.inputs
    found = _side(draft, value, axis) if value.type == node.outputs[0].type else None
    if found is None or found.each is not None:
        return None
    sign = -1 if node.op is sub else 1
    array = draft.array(zero)
    number = None if array is None else uniform(array)
    if number is not None:
        return _Side(found.bytes, found.more + sign * int(number))
    shape = zero.type.shape
    if len(shape) >= -axis > 0 and shape[axis] != 1:
        return None
    each = zero if sign > 0 else draft.emit(mul, [zero, _number(draft, -1)])[0]
    return _Side(found.bytes, found.more, each)


def _number(draft: Draft, number: int) -> Value:
    return draft.constant(np.asarray(number, np.int64).astype(int32))


def _corrected(draft: Draft, total: Value, x: _Side, y: _Side, count: int) -> Value:
    """The product of bytes with what stands beside the sums added."""
    for own, other, axis in ((x, y, -2), (y, x, -1)):
        for amount in _amounts(draft, own):
            (part,) = draft.emit(mul, [amount, _sums(draft, other.bytes, axis)])
            (total,) = draft.emit(add, [total, part])
    for a in _amounts(draft, x):
        for b in _amounts(draft, y):
            (part,) = draft.emit(mul, [draft.emit(mul, [a, b])[0], _number(draft, count)])
            (total,) = draft.emit(add, [total, part])
    return total


def _amounts(draft: Draft, side: _Side) -> list[Value]:
    more = [_number(draft, side.more)] if side.more else []
    return [*more, *([] if side.each is None else [side.each])]


def _sums(draft: Draft, value: Value, axis: int) -> Value:
    """Bytes summed along an axis, which is kept."""
    array = draft.array(value)
    if array is not None:
        return draft.constant(array.sum(axis=axis, keepdims=True, dtype=int32))
    (wide,) = draft.emit(cast, [value], dtype=int32)
    return draft.emit(reduce_sum, [wide], axes=(value.type.ndim + axis,), keepdims=True)[0]


# Convolutions


def _convolution(draft: Draft, node: Node) -> Sequence[Value] | None:
    """As the product of the weight with windows of the bytes, copied out: these are small."""
    image, weight = node.inputs
    attrs, (out,) = node.attrs, node.outputs
    if image.type.dtype != int32 or not _is_plain(node):
        return None
    x, w = _side(draft, image, 0), _side(draft, weight, 0)
    if x is None or w is None or x.each is not None or w.each is not None:
        return None
    low, high = integer_range(int8)
    if not low <= -x.more <= high:
        return None
    outputs, channels, *taps = weight.type.shape
    depth, places = channels * prod(taps), out.type.shape[2:]
    columns = _columns(draft, x, attrs, taps, places)
    flat = draft.emit(reshape, [columns], shape=(image.type.shape[0], depth, prod(places)))[0]
    rows = draft.emit(reshape, [w.bytes], shape=(outputs, depth))[0]
    if (array := draft.array(w.bytes)) is not None:
        rows = draft.constant(array.reshape(outputs, depth))
    (total,) = draft.emit(matmul_bytes, [rows, flat])
    total = _corrected(draft, total, _Side(rows, w.more), _Side(flat, x.more), depth)
    return draft.emit(reshape, [total], shape=out.type.shape)


def _is_plain(node: Node) -> bool:
    attrs, sizes = node.attrs, [s for v in (*node.inputs, *node.outputs) for s in v.type.shape]
    known = all(isinstance(s, int) and s > 0 for s in sizes)
    pads = [p for pair in attrs["padding"] for p in pair]
    plain = attrs["groups"] == 1 and all(e == 1 for e in attrs["input_dilation"])
    return known and plain and all(isinstance(p, int) and p >= 0 for p in pads)


def _columns(draft: Draft, x: _Side, attrs: Any, taps: Sequence[int], places: Sequence[int]) -> Value:
    """The windows of an image: (N, C, taps, places); around it are zeros, in bytes what stands for 0."""
    rank, padding = len(taps), attrs["padding"]
    image = x.bytes
    if any(p != (0, 0) for p in padding):
        low, high = ((0, 0, *[pair[i] for pair in padding]) for i in range(2))
        edge = {"low": low, "high": high, "interior": (0,) * (rank + 2), "value": -x.more}
        (image,) = draft.emit(pad_axes, [image], **edge)
    stride, dilation = attrs["stride"], attrs["dilation"]
    if all(t == 1 for t in taps) and all(s == 1 for s in stride):
        return image
    lead = image.type.shape[:2]
    parts: list[Value] = []
    for tap in product(*map(range, taps)):  # lines of all places, one tap after the other: long copies
        starts = (0, 0, *[t * d for t, d in zip(tap, dilation, strict=True)])
        reach = [(n - 1) * s + 1 for n, s in zip(places, stride, strict=True)]
        stops = (*lead, *[a + r for a, r in zip(starts[2:], reach, strict=True)])
        (part,) = draft.emit(slice_axes, [image], starts=starts, stops=stops, steps=(1, 1, *stride))
        parts += draft.emit(reshape, [part], shape=(*lead, 1, *places))
    return draft.emit(join, parts, axis=2)[0] if len(parts) > 1 else parts[0]
