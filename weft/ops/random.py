"""Random bits and keys as ops. What is drawn is stated in ``weft.base.philox``, for every backend.

A key is a ``uint64[2]``. Both ops also take many keys, along leading axes, and then work on each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import UNSIGNED, DType, uint8, uint16, uint32, uint64
from weft.base.philox import FOLD, SPLIT, derive_key
from weft.base.shapes import Shape, broadcast_shapes, size_of
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import to_front
from weft.ops.families import primitive
from weft.ops.op import Array, Attrs, Op, Sample, no_gradient
from weft.ops.view.primitives import reshape

_BEFORE_ZERO = np.full(4, 2**64 - 1, np.uint64)  # NumPy's generator counts before it draws


def check_keys(op: str, key: TensorType) -> Shape:
    """The shape of an array of keys, or an error if it is none."""
    if key.dtype != uint64:
        raise DtypeError(
            op, f"a key must be of dtype uint64, got {key}", hint="make one with weft.random.key(seed)"
        )
    if key.shape[-1:] != (2,):
        raise ShapeError(op, f"a key must be a u64[2], got {key}", hint="make one with weft.random.key(seed)")
    return key.shape[:-1]


# Bits


def _bits_type(key: TensorType, *, shape: Shape, dtype: DType) -> TensorType:
    if dtype not in UNSIGNED:
        raise DtypeError("random_bits", f"dtype must be an unsigned integer, got {dtype.name}")
    return TensorType((*check_keys("random_bits", key), *shape), dtype)


def _bits(key: Array, *, shape: Shape, dtype: DType) -> Array:
    _bits_type(TensorType(key.shape, key.dtype), shape=shape, dtype=dtype)
    count = size_of(shape)
    if key.ndim == 1:
        return _bits_of_key(key, count, dtype).reshape(shape)
    out = np.empty((size_of(key.shape[:-1]), count), dtype)
    for row, one in zip(out, key.reshape(-1, 2), strict=True):
        row[:] = _bits_of_key(one, count, dtype)
    return out.reshape((*key.shape[:-1], *shape))


def _bits_of_key(key: Array, count: int, dtype: DType) -> Array:
    from numpy.random import Philox  # takes milliseconds to import

    words = -(-count * dtype.itemsize // 8)
    drawn: Array = Philox(key=np.ascontiguousarray(key), counter=_BEFORE_ZERO).random_raw(words)
    little_endian = drawn.astype("<u8", copy=False).view(dtype.newbyteorder("<"))
    return little_endian[:count].astype(dtype, copy=False)


def _bits_samples() -> list[Sample]:
    one, many = np.array([3, 2**63], np.uint64), np.arange(12, dtype=np.uint64).reshape(2, 3, 2)
    return [
        Sample((one,), {"shape": (3, 5), "dtype": uint64}),
        Sample((one,), {"shape": (3, 5), "dtype": uint32}),
        Sample((one,), {"shape": (), "dtype": uint16}),
        Sample((one,), {"shape": (0, 3), "dtype": uint64}),
        Sample((many,), {"shape": (7,), "dtype": uint8}),
        Sample((many[:, :, ::-1],), {"shape": (2,), "dtype": uint64}),
        Sample((many[:0],), {"shape": (2,), "dtype": uint32}),
    ]


random_bits = primitive(
    "random_bits",
    type_rule=_bits_type,
    eval=_bits,
    vjp=no_gradient("random bits"),
    samples=_bits_samples,
    total=True,
)

# Keys from keys


def _derived_type(key: TensorType, data: TensorType, *, purpose: int) -> TensorType:
    if data.dtype != uint64:
        raise DtypeError("derive_key", f"the data must be of dtype uint64, got {data}")
    keys = check_keys("derive_key", key)
    return TensorType((*broadcast_shapes("derive_key", [keys, data.shape], (key, data)), 2), uint64)


def _derive(key: Array, data: Array, *, purpose: int) -> Array:
    shape = np.broadcast_shapes(key.shape[:-1], data.shape)
    keys = np.broadcast_to(key, (*shape, 2)).reshape(-1, 2).tolist()
    numbers = np.broadcast_to(data, shape).reshape(-1).tolist()
    derived = [derive_key((k0, k1), n, purpose) for (k0, k1), n in zip(keys, numbers, strict=True)]
    return np.array(derived, np.uint64).reshape(*shape, 2)


def _batch_derive(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    """Put batch axes first and pad ranks after them; the last axis of the keys is not among them."""
    key, data = (to_front(x, a, size) for x, a in zip(inputs, axes, strict=True))
    rank = max(key.ndim - 1, data.ndim)
    key = reshape(key, shape=(size, *[1] * (rank + 1 - key.ndim), *key.shape[1:]))
    data = reshape(data, shape=(size, *[1] * (rank - data.ndim), *data.shape[1:]))
    return op(key, data, **attrs), 0


def _derive_samples() -> list[Sample]:
    one, many = np.array([3, 2**63], np.uint64), np.arange(12, dtype=np.uint64).reshape(2, 3, 2)
    numbers = np.array([0, 1, 2**64 - 1], np.uint64)
    return [
        Sample((one, numbers[2]), {"purpose": FOLD}),
        Sample((one, numbers), {"purpose": SPLIT}),
        Sample((many, numbers), {"purpose": FOLD}),
        Sample((many[:1], numbers[:, None, None]), {"purpose": FOLD}),
        Sample((one, numbers[:0]), {"purpose": SPLIT}),
    ]


derive = primitive(
    "derive_key",
    type_rule=_derived_type,
    eval=_derive,
    vjp=no_gradient("a random key"),
    batch=_batch_derive,
    samples=_derive_samples,
    total=True,
)
