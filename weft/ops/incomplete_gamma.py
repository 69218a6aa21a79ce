"""The regularised incomplete gamma functions, P and Q of DLMF 8.2.4; users find them in ``weft.special``.

Of x <= 1 by the power series; else by quadrature of the density against its value at x, on the side of x
that holds less, as ``weft.ops.gamma_path`` does for slopes. Computed in float64, whatever the dtype, to
about 1e-11 of the side that holds less; gradients flow to both arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, log, nan, pi
from typing import Any

import numpy as np

from weft.base.dtypes import float64
from weft.ops.exponential import exp, expm1, log1p
from weft.ops.exponential import log as ln
from weft.ops.gamma import lgamma
from weft.ops.gamma_path import HALF_WEIGHTS, PLACES, end_of
from weft.ops.op import Sample, Tensor, composite
from weft.ops.public import example
from weft.ops.reduce import reduce_sum
from weft.ops.select import cast, same_dtype, select
from weft.ops.statistics import as_floating
from weft.ops.stop import stop_gradient
from weft.ops.view.axes import expand_dims

_TERMS = 20  # of the series, for x <= 1
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)  # DLMF 5.11.1
LARGE = 10.0  # from which shape on the series of Stirling is exact
_MOST = 1e150


def _samples() -> Iterable[Sample]:
    a, x = np.array([0.01, 0.3, 1.0, 2.5, 8.0, 12.0, 60.0]), np.array([0.4, 1.5, 0.7, 4.0, 1.1, 30.0, 58.0])
    yield Sample((a, x))
    yield Sample((np.linspace(0.2, 9.0, 12).reshape(3, 4), np.linspace(0.3, 8.0, 4)))
    yield Sample((np.array(2.0), np.linspace(0.2, 6.0, 6).reshape(3, 2).T))
    yield Sample((a.astype(np.float32), x.astype(np.float32)), smooth=False)
    yield Sample(
        (np.array([2.0, 2.0, 0.0, -1.0, 2.0, np.nan]), np.array([0.0, np.inf, 1.0, 1.0, -1.0, 1.0])),
        smooth=False,
    )
    yield Sample((np.ones((0, 3)), np.ones(3)))


@composite("gammainc", samples=_samples)
@example(
    "weft.special.gammainc(weft.tensor([1.0, 3.0]), weft.tensor([2.0, 2.0])) -> tensor([0.8647, 0.3233])"
)
def gammainc(a: Tensor, x: Tensor, /) -> Tensor:
    """The probability that a gamma variable of shape a is at most x, with gradients to both."""
    return _probability("gammainc", a, x, upper=False)


@composite("gammaincc", samples=_samples)
@example(
    "weft.special.gammaincc(weft.tensor([1.0, 3.0]), weft.tensor([2.0, 2.0])) -> tensor([0.1353, 0.6767])"
)
def gammaincc(a: Tensor, x: Tensor, /) -> Tensor:
    """The probability that a gamma variable of shape a is more than x, with gradients to both."""
    return _probability("gammaincc", a, x, upper=True)


def _probability(op: str, a: Tensor, x: Tensor, *, upper: bool) -> Tensor:
    """P(a, x), or Q(a, x): the side that holds less is computed, the other is what is left of 1."""
    a, x = map(as_floating, same_dtype(op, a, x))
    dtype, a, x = a.dtype, cast(a, dtype=float64), cast(x, dtype=float64)
    usual = (a > 0.0) & (a < _MOST) & (x > 0.0) & (x < _MOST)
    shape, place = select(usual, a, 1.0), select(usual, x, 0.5)
    small = place <= 1.0
    near = _series(shape, select(small, place, 0.5))
    large = select(small, 2.0, place)
    below = large < shape
    beyond = _front(shape, large) * _against_density(shape, large, below)
    lower = small | below
    found = select(small, near, beyond)
    less = 1.0 - found
    out = select(lower, less, found) if upper else select(lower, found, less)
    return cast(select(usual, out, _at_the_ends(a, x, upper)), dtype=dtype)


def _at_the_ends(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """Where a or x is 0 or beyond all bounds: all is below x, or nothing is; NaN outside, as SciPy has it."""
    whole = ((x >= _MOST) & (a < _MOST)) | ((x == inf) & (a < inf)) | ((a == 0.0) & (x > 0.0))
    both = (a == inf) & (x == inf) | ((a == 0.0) & (x == 0.0))
    inside = (a >= 0.0) & (x >= 0.0)  # false for NaN
    found = cast(select(whole, 0.0 if upper else 1.0, 1.0 if upper else 0.0), dtype=float64)
    return select(inside & (both == np.asarray(False)), found, nan)


def _series(a: Tensor, x: Tensor) -> Tensor:
    """P by its power series, DLMF 8.7.1, times a so that small a lose nothing."""
    total: Any = 1.0
    power: Any = 1.0
    for n in range(1, _TERMS + 1):
        power = x * power * (-1.0 / n)
        total = total + power * a / (a + float(n))
    out: Tensor = exp(a * ln(x) - lgamma(a + 1.0)) * total
    return out


def _front(a: Tensor, x: Tensor) -> Tensor:
    """x^a e^-x / gamma(a); of large a by what x is off, so that terms of the size of a do not cancel."""
    large = a >= LARGE
    some = select(large, 1.0, a)
    plain = exp(some * ln(x) - x - lgamma(some))
    many = select(large, a, LARGE)
    off = (x - many) / many
    depth = many * (off - log1p(off)) + stirling(many)
    return select(large, exp(0.5 * ln(many) - 0.5 * log(2 * pi) - depth), plain)


def stirling(a: Tensor) -> Tensor:
    """What the logarithm of gamma is more than (a - 1/2) log a - a + log(2 pi) / 2, for a large a."""
    square = 1.0 / (a * a)
    correction: Any = 0.0
    for term in reversed(_STIRLING):
        correction = term + square * correction
    out: Tensor = correction / a
    return out


def _against_density(a: Tensor, x: Tensor, below: Tensor) -> Tensor:
    """The integral over s = |log t - log x| of the density at t against that at x."""
    end = stop_gradient(end_of(a, x, below))
    s = expand_dims(end, -1) * PLACES * expand_dims(select(below, -1.0, 1.0), -1)
    depth = expand_dims(x - a, -1) * s + expand_dims(x, -1) * (expm1(s) - s)
    terms = exp(-depth) * HALF_WEIGHTS
    return reduce_sum(terms, axes=(terms.ndim - 1,), keepdims=False) * end
