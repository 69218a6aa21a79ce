"""Exponentials normalised along an axis, and their logarithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import DTypeLike, as_dtype, kind
from weft.base.shapes import normalize_axis
from weft.errors import DtypeError
from weft.ir.types import TensorType
from weft.ops.exponential import exp, log
from weft.ops.factors import along
from weft.ops.families import primitive
from weft.ops.op import Sample, Tensor, composite
from weft.ops.public import example, published
from weft.ops.reduce import reduce_max, reduce_sum
from weft.ops.samples import call, joined, real_array
from weft.ops.select import cast, in_dtype, in_single
from weft.ops.statistics import as_floating


def _same_type(name: str) -> Callable[..., Any]:
    def type_rule(x: TensorType, *, axis: int) -> TensorType:
        if kind(x.dtype) != "f":
            raise DtypeError(name, f"dtype must be floating, got {x.dtype.name}")
        return x

    return type_rule


def _shifted(x: Tensor, axis: int) -> Tensor:
    """x minus its largest element along an axis, so that exponentials do not overflow."""
    wide = in_single(x)
    return wide - reduce_max(wide, axes=(axis,), keepdims=True)


def _softmax(x: Tensor, *, axis: int) -> Tensor:
    if 0 in x.shape:  # of no elements, none is the largest
        return x
    powers = exp(_shifted(x, axis))
    share = 1.0 / _total(powers, axis)  # one division a row: the sum is at least 1
    return in_dtype(powers * share, x.dtype)


def _log_softmax(x: Tensor, *, axis: int) -> Tensor:
    if 0 in x.shape:  # of no elements, none is the largest
        return x
    shifted = _shifted(x, axis)
    return in_dtype(shifted - log(_total(exp(shifted), axis)), x.dtype)


def _total(x: Tensor, axis: int) -> Tensor:
    return reduce_sum(x, axes=(axis,), keepdims=True)


def _softmax_rule(g: Tensor, out: Tensor, axis: int) -> Tensor:
    """Jacobian diag(out) - out outᵀ times a vector; it is symmetric, so jvp and vjp are one."""
    return (g - _total(g * out, axis)) * out


def _samples() -> list[Sample]:
    infinite = np.array([[0.0, -np.inf, 1.0], [-np.inf, -np.inf, -np.inf], [np.inf, 0.0, 1.0]])
    return [
        Sample((real_array((3, 4)),), {"axis": 1}),
        Sample((real_array((2, 3, 4)),), {"axis": 0}),
        Sample((real_array((4, 3)).T * 1000,), {"axis": 0}, smooth=False),
        Sample((real_array((3,), 1000, 1001),), {"axis": 0}),
        Sample((infinite,), {"axis": 1}, smooth=False),
        Sample((real_array((0, 3)),), {"axis": 1}),
        Sample((real_array((3, 0)),), {"axis": 1}),
        Sample((real_array((2, 3)).astype(np.float32),), {"axis": 1}, smooth=False),
        Sample((real_array((2, 3)).astype(np.float16),), {"axis": 1}, smooth=False),
    ]


softmax_op = primitive(
    "softmax",
    type_rule=_same_type("softmax"),
    decomposition=_softmax,
    cheap_again=True,
    vjp=(_softmax_rule,),
    jvp=lambda primals, tangents, out, *, axis: _softmax_rule(tangents[0], out, axis),
    samples=_samples,
    total=True,
    precision="high",
    factors=along("axis"),
    large_eval=True,
    large_vjp=True,
)

log_softmax_op = primitive(
    "log_softmax",
    type_rule=_same_type("log_softmax"),
    decomposition=_log_softmax,
    vjp=(lambda g, out, axis: g - exp(out) * _total(g, axis),),
    jvp=lambda primals, tangents, out, *, axis: tangents[0] - _total(exp(out) * tangents[0], axis),
    samples=_samples,
    total=True,
    precision="high",
    factors=along("axis"),
    large_eval=True,
    large_vjp=True,
)


def as_real(op: str, x: Tensor) -> Tensor:
    """x as floats if it is of integers, or an error if it is complex."""
    x = as_floating(x)
    if kind(x.dtype) != "f":
        raise DtypeError(op, f"dtype must be floating, got {x.dtype.name}")
    return x


def _prepared(op: str, x: Tensor, dtype: DTypeLike | None) -> Tensor:
    if dtype is not None and as_dtype(dtype) != x.dtype:
        x = cast(x, dtype=as_dtype(dtype))
    return as_real(op, x)


@published("(weft.tensor([1000.0, 1000.0])) -> tensor([0.5000, 0.5000])")
def softmax(x: Tensor, /, axis: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """Exponentials of x divided by their sum along an axis: positive numbers that sum to 1."""
    x = _prepared("softmax", x, dtype)
    return softmax_op(x, axis=normalize_axis("softmax", axis, x.ndim))


@published("(weft.tensor([0.0, 1000.0])) -> tensor([-1000.,     0.])")
def log_softmax(x: Tensor, /, axis: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of ``softmax``, without underflow."""
    x = _prepared("log_softmax", x, dtype)
    return log_softmax_op(x, axis=normalize_axis("log_softmax", axis, x.ndim))


@composite(samples=joined(call((3, 4)), call((3, 4), axis=0)))
@example("(weft.tensor([0.0, 100.0])) -> tensor([1.0000e+00, 3.7835e-44])")
def softmin(x: Tensor, /, axis: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """The softmax of -x: the smallest elements get the largest shares."""
    return softmax(-_prepared("softmin", x, dtype), axis=axis)
