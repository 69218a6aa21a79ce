"""Bits read as another dtype, as a view: ``x.view(weft.int32)``.

Numbers of another size are made of whole words along the last axis, the low word first, as they lie in
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.base.dtypes import DType, kind, real_dtype, uint8, uint16, uint32, uint64
from weft.base.shapes import Shape
from weft.errors import DtypeError, ShapeError
from weft.ops.alias import Step, Strides, link_taken, strides_of
from weft.ops.bits import bitcast
from weft.ops.compare import bitwise_and, bitwise_or, left_shift, right_shift
from weft.ops.complex import imaginary_part, make_complex, real_part
from weft.ops.op import Array, Container, Sample, Tensor, TensorLike, composite, type_of
from weft.ops.samples import int_array, real_array
from weft.ops.select import cast
from weft.ops.view.primitives import reshape, stack

_WORDS = {1: uint8, 2: uint16, 4: uint32, 8: uint64}


def _samples() -> list[Sample]:
    floats = real_array((3, 4)).astype(np.float32)
    return [
        Sample((floats,), {"dtype": np.dtype(np.int32)}),
        Sample((floats.T,), {"dtype": np.dtype(np.int32)}),
        Sample((floats,), {"dtype": uint8}),
        Sample((floats,), {"dtype": np.dtype(np.int64)}),
        Sample((floats,), {"dtype": np.dtype(np.complex64)}),
        Sample((real_array((3, 2)) + 1j * real_array((3, 2)),), {"dtype": np.dtype(np.int16)}),
        Sample((int_array((2, 16)).astype(np.int8),), {"dtype": np.dtype(np.complex128)}),
        Sample((np.array([[True, False]]),), {"dtype": np.dtype(np.int8)}),
        Sample((real_array(()),), {"dtype": np.dtype(np.int64)}),
        Sample((real_array((0, 3)),), {"dtype": uint8}),
    ]


@composite("reinterpret", samples=_samples)
def reinterpret(x: Tensor, *, dtype: DType) -> Tensor:
    """The bits of numbers as numbers of another dtype; the last axis is as long as they fill."""
    _check(x, dtype)
    return x if x.dtype == dtype else _from_words(_words(x), dtype)


def _check(x: Tensor, dtype: DType) -> None:
    own, wanted = x.dtype.itemsize, dtype.itemsize
    if kind(dtype) == "b":
        raise DtypeError(
            "view", "bits that are no truth values must not be read as such, got bool", hint="use x != 0"
        )
    if own == wanted:
        return
    if x.ndim == 0:
        raise ShapeError(
            "view", f"numbers of another size need an axis to lie along, got {type_of(x)} to {dtype.name}"
        )
    if x.shape[-1] * own % wanted != 0:
        raise ShapeError(
            "view",
            f"the last axis must hold whole numbers of {dtype.name}, got {type_of(x)} of {own} bytes each",
        )


def _words(x: Tensor) -> Tensor:
    """The bits of numbers as unsigned integers of their size; of complex ones, of both parts in turn."""
    if kind(x.dtype) == "c":
        pairs = stack([real_part(x), imaginary_part(x)], axis=-1)
        x = reshape(pairs, shape=(*x.shape[:-1], x.shape[-1] * 2) if x.ndim else (2,))
    word = _WORDS[x.dtype.itemsize]
    if kind(x.dtype) == "b":
        return cast(x, dtype=word)
    return x if x.dtype == word else bitcast(x, dtype=word)


def _from_words(words: Tensor, dtype: DType) -> Tensor:
    part = real_dtype(dtype) if kind(dtype) == "c" else dtype
    word = _WORDS[part.itemsize]
    words = _resized(words, word)
    found = words if part == word else bitcast(words, dtype=part)
    if part == dtype:
        return found
    pairs = reshape(found, shape=(*found.shape[:-1], found.shape[-1] // 2, 2))
    return make_complex(pairs[..., 0], pairs[..., 1])


def _resized(x: Tensor, word: DType) -> Tensor:
    own, wanted = x.dtype.itemsize, word.itemsize
    lead, length = x.shape[:-1], x.shape[-1] if x.ndim else 1
    if own > wanted:
        low = 2 ** (8 * wanted) - 1
        parts = [right_shift(x, 8 * wanted * k) if k else x for k in range(own // wanted)]
        split = stack([cast(bitwise_and(p, low), dtype=word) for p in parts], axis=-1)
        return reshape(split, shape=(*lead, length * (own // wanted)))
    if own < wanted:
        count = wanted // own
        grouped = cast(reshape(x, shape=(*lead, length // count, count)), dtype=word)
        out = grouped[..., 0]
        for k in range(1, count):
            out = bitwise_or(out, left_shift(grouped[..., k], 8 * own * k))
        return out
    return x


class Reinterpreted(Step[Mapping[str, Any]]):
    """Bits as another dtype: a new part goes back by its bits."""

    keeps_history = False

    def get(self, parent: Tensor, args: Mapping[str, Any]) -> Tensor:
        """The bits of the parent."""
        return reinterpret(parent, dtype=args["dtype"])

    def put(self, parent: Tensor, part: Tensor, args: Mapping[str, Any]) -> Tensor:
        """The bits of the part, as the parent has them."""
        if kind(parent.dtype) == "b":
            return cast(part, dtype=parent.dtype)
        return reshape(reinterpret(part, dtype=parent.dtype), shape=parent.shape)

    def array(self, parent: Array, args: Mapping[str, Any]) -> Array:
        """NumPy's view."""
        out: Array = parent.view(args["dtype"])
        return out

    def strides(self, shape: Shape, strides: Strides, args: Mapping[str, Any]) -> Strides:
        """Those of the parent, counted in elements of the new size."""
        own, wanted = args["size"], args["dtype"].itemsize
        return strides if own == wanted else (*(s * own // wanted for s in strides[:-1]), 1)


_STEP = Reinterpreted()


def reinterpreted(x: Tensor, dtype: DType) -> Tensor:
    """The bits of x as numbers of another dtype, as a view of x."""
    _check(x, dtype)
    changes = x.dtype.itemsize != dtype.itemsize
    if changes and strides_of(x)[-1] != 1 and x.shape[-1] != 1:
        raise ShapeError(
            "view",
            f"numbers of another size must lie in one piece along the last axis, got {type_of(x)} "
            "of axes that were permuted or cut",
            hint="take x.contiguous() before",
        )
    out = reinterpret(x, dtype=dtype)
    if isinstance(x, TensorLike) and not isinstance(x, Container) and out is not x:
        link_taken(out, x, _STEP, {"dtype": dtype, "size": x.dtype.itemsize})
    return out
