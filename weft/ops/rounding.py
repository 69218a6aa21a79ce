"""Rounding to integers. Integers are returned as they are; the gradient is zero wherever there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.ops.families import elementwise
from weft.ops.op import Array, Op, Operand, Tensor
from weft.ops.public import Public
from weft.ops.samples import integers, joined, reals
from weft.ops.scalar import ScalarEmitter, Value


def _rounding(
    name: str, ufunc: np.ufunc, scalar: Callable[..., Any], accepts: str = "iuf", *, public: Public
) -> Op:
    def eval(x: Array) -> Array:
        return x.copy() if kind(x.dtype) in "iu" else ufunc(x)

    def code(e: ScalarEmitter[Value], x: Value) -> Value:
        return x if kind(e.dtype(x)) in "iu" else scalar(e, x)

    samples = joined(reals(1, complex="c" in accepts), integers(1))
    return elementwise(
        name, eval=eval, partials=(0,), accepts=accepts, samples=samples, scalar=code, public=public
    )


def _round_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if kind(e.dtype(x)) == "c":
        return e.complex(e.round(e.real(x)), e.round(e.imag(x)))
    return e.round(x)


def _round_to(x: Operand, /, decimals: int = 0) -> Tensor:
    from weft.ops.rounded import round_decimals  # which builds on this module

    return round_decimals(x, decimals)


floor = _rounding(
    "floor",
    np.floor,
    lambda e, x: e.floor(x),
    public=Public("The largest integer not above x.", "[1.5, -1.5] -> [ 1., -2.]"),
)
ceil = _rounding(
    "ceil",
    np.ceil,
    lambda e, x: e.neg(e.floor(e.neg(x))),
    public=Public("The smallest integer not below x.", "[1.5, -1.5] -> [ 2., -1.]"),
)
trunc = _rounding(
    "trunc",
    np.trunc,
    lambda e, x: e.trunc(x),
    public=Public("x rounded towards 0.", "[1.5, -1.5] -> [ 1., -1.]"),
)
round = _rounding(
    "round",
    np.rint,
    _round_code,
    "iufc",
    public=Public(
        "The nearest integer, or the nearest number with so many decimals; the even one of two.",
        "[0.5, 1.5, -1.2] -> [ 0.,  2., -1.]",
        options=_round_to,
    ),
)
