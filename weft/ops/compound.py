"""Elementwise functions made of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import DType, float64, kind
from weft.ops.compare import equal, isfinite, isnan, less_equal
from weft.ops.complex import absolute, imaginary_part, make_complex, real_part
from weft.ops.op import Sample, Tensor, composite
from weft.ops.public import example
from weft.ops.samples import complex_array, int_array, real_array, reals
from weft.ops.select import cast, same_dtype, select

_NOT_FINITE = np.array([0.0, 1.0, np.nan, np.inf, -np.inf, -0.0, 1e300])


def _close_samples() -> list[Sample]:
    x = real_array((3, 4))
    calls: list[tuple[tuple[Any, Any], dict[str, Any]]] = [
        ((x, x + np.where(real_array((3, 4), seed=1) > 0, 1e-9, 1e-2)), {}),
        ((_NOT_FINITE, _NOT_FINITE[::-1].copy()), {}),
        ((_NOT_FINITE, _NOT_FINITE), {"equal_nan": True}),
        ((int_array((4,)), int_array((4,), seed=1)), {"atol": 1.0}),
        ((complex_array((3,)), complex_array((3,)) + 1e-3), {"rtol": 1e-2}),
        ((real_array((0, 2)), real_array((2,))), {}),
    ]
    return [Sample(inputs, attrs, smooth=False) for inputs, attrs in calls]


@composite(samples=_close_samples)
@example("(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 2.1])) -> tensor([ True, False])")
def isclose(
    x1: Tensor, x2: Tensor, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether ``|x1 - x2| <= atol + rtol * |x2|``, element by element; equal infinities are close."""
    x1, x2 = _comparable(*same_dtype("isclose", x1, x2))
    near = less_equal(absolute(x1 - x2), atol + rtol * absolute(x2)) & isfinite(x2)
    close = near | equal(x1, x2)
    return close | (isnan(x1) & isnan(x2)) if equal_nan else close


def _comparable(x1: Tensor, x2: Tensor) -> list[Tensor]:
    """Integers and bools as floats, whose difference does not wrap around."""
    return [x if kind(x.dtype) in "fc" else cast(x, dtype=float64) for x in (x1, x2)]


@composite(samples=_close_samples)
@example("(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 2.0 + 1e-7])) -> tensor(True)")
def allclose(
    x1: Tensor, x2: Tensor, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether all elements are close in the sense of ``isclose``."""
    from weft.ops.reduce import all

    return all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))


def _nan_samples() -> list[Sample]:
    return [
        Sample((_NOT_FINITE,), smooth=False),
        Sample((_NOT_FINITE,), {"nan": 7.0, "posinf": 1.0, "neginf": -1.0}, smooth=False),
        Sample((real_array((3, 4)),)),
        Sample((int_array((3,)),)),
        Sample((np.array([1 + 1j, np.nan + 1j, complex(1, np.inf)]),), smooth=False),
    ]


@composite(samples=_nan_samples)
@example('(weft.tensor([1.0, float("nan"), float("inf")]), posinf=9.0) -> tensor([1., 0., 9.])')
def nan_to_num(
    x: Tensor, /, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with NaN replaced by ``nan`` and infinities by the largest and smallest number, or as given."""
    if kind(x.dtype) == "c":
        parts = [nan_to_num(part, nan, posinf, neginf) for part in (real_part(x), imaginary_part(x))]
        return make_complex(*parts)
    if kind(x.dtype) != "f":
        return x
    largest = _largest(x.dtype)
    for special, value in (
        (isnan(x), nan),
        (equal(x, np.inf), largest if posinf is None else posinf),
        (equal(x, -np.inf), -largest if neginf is None else neginf),
    ):
        x = select(special, np.asarray(value, x.dtype), x)
    return x


def _largest(dtype: DType) -> float:
    """The largest finite number of a floating dtype."""
    from ml_dtypes import finfo

    return float(finfo(dtype).max)  # type: ignore[no-untyped-call]


@composite(samples=reals(3, edges=False, complex=True), single=True)
@example("(weft.tensor([0.0, 10.0]), weft.tensor([1.0, 20.0]), 0.5) -> tensor([ 0.5000, 15.0000])")
def lerp(start: Tensor, end: Tensor, weight: Tensor, /) -> Tensor:
    """The point that divides the way from ``start`` to ``end``: ``start + weight * (end - start)``."""
    return start + weight * (end - start)
