"""The norm of vectors. Where a norm is 0 its gradient is 0."""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import bfloat16, float16, float32, kind, real_dtype
from weft.base.shapes import Axes, normalize_axes
from weft.errors import ArgumentError
from weft.ops.arithmetic import pow, square
from weft.ops.complex import absolute, imaginary_part, real_part
from weft.ops.exponential import sqrt
from weft.ops.linalg.common import floating
from weft.ops.op import Sample, Tensor, composite, plain_number
from weft.ops.reduce import max, min, sum
from weft.ops.samples import complex_array, real_array
from weft.ops.select import cast, select

_INFINITE = float("inf")


def _vector_samples() -> list[Sample]:
    x = real_array((3, 4))
    zeros = np.zeros((2, 3))
    return [
        Sample((x,)),
        Sample((x,), {"axis": 0}),
        Sample((real_array((2, 3, 4)),), {"axis": (0, -1), "keepdims": True}),
        *(Sample((x,), {"axis": 1, "ord": p}) for p in (1, 3, 2.5, 0.5, -1, -2.0, _INFINITE, -_INFINITE)),
        Sample((x.T,), {"ord": 0}, smooth=False),
        Sample((complex_array((3, 2)),)),
        Sample((complex_array((3, 2)),), {"ord": 3, "axis": 0}),
        Sample((complex_array((3,)),), {"ord": _INFINITE}),
        Sample((real_array(()),)),
        Sample((real_array((0, 3)),), {"axis": 0}),
        Sample((real_array((0,)),), {"ord": _INFINITE}),
        *(Sample((zeros,), {"ord": p}, smooth=False) for p in (1, 2, 3, _INFINITE)),
        Sample((np.array([np.inf, -1.0]),), smooth=False),
        Sample((x.astype(float32),), smooth=False),
    ]


@composite(samples=_vector_samples, precision="high")
def vector_norm(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The norm ``sum(|x| ** ord) ** (1 / ord)`` over axes, over all of them by default.

    An ord of inf or -inf gives the largest or smallest absolute value, 0 the number of elements that are
    not zero. Half precision is summed in single precision.

    >>> import weft
    >>> weft.linalg.vector_norm(weft.tensor([3.0, 4.0]))
    tensor(5.)
    >>> weft.linalg.vector_norm(weft.tensor([[3.0, -4.0]]), axis=0, ord=1)
    tensor([3., 4.])
    """
    (x,) = floating("vector_norm", x)
    axes, keepdims = normalize_axes("vector_norm", axis, x.ndim), bool(keepdims)
    ord = plain_number(ord)
    if isinstance(ord, bool | str) or not isinstance(ord, int | float):
        raise ArgumentError("vector_norm", f"ord must be a number, got {ord!r}")
    if x.dtype in (float16, bfloat16):
        return cast(_vector_norm(cast(x, dtype=float32), axes, keepdims, ord), dtype=x.dtype)
    return _vector_norm(x, axes, keepdims, ord)


def _vector_norm(x: Tensor, axes: tuple[int, ...], keepdims: bool, ord: float) -> Tensor:
    empty = any(x.shape[a] == 0 for a in axes)
    if abs(ord) == _INFINITE and not (empty and ord > 0):
        return (max if ord > 0 else min)(absolute(x), axis=axes, keepdims=keepdims)
    if ord == 0:
        return sum(cast(x != 0, dtype=real_dtype(x.dtype)), axis=axes, keepdims=keepdims)
    if ord == 1 or empty:
        return sum(absolute(x), axis=axes, keepdims=keepdims)
    if ord == 2:
        return _root(sum(_squared_length(x), axis=axes, keepdims=keepdims), 2)
    return _root(sum(pow(absolute(x), _like(x, ord)), axis=axes, keepdims=keepdims), ord)


def _like(x: Tensor, value: float) -> Tensor:
    return np.asarray(value, real_dtype(x.dtype))  # type: ignore[return-value]


def _squared_length(x: Tensor) -> Tensor:
    return square(real_part(x)) + square(imaginary_part(x)) if kind(x.dtype) == "c" else square(x)


def _root(total: Tensor, order: float) -> Tensor:
    """``total ** (1 / order)``, whose slope at 0 is taken to be 0 where it would be infinite."""
    zero, one = total == 0, np.ones((), total.dtype)
    safe = select(zero, one, total)
    root = sqrt(safe) if order == 2 else pow(safe, _like(total, 1 / order))
    at_zero = np.zeros((), total.dtype) if order > 0 else np.full((), _INFINITE, total.dtype)
    return select(zero, at_zero, root)
