"""The regularised incomplete beta function, I of DLMF 8.17.2, and what it lacks of 1; in ``weft.special``.

One tail is computed, that of x or, with a and b exchanged, that of 1 - x; the other is what is left of 1.
First a is raised by the recurrence DLMF 8.17.20, whose terms are positive; what is left has no slow tail,
and is a quadrature along log(t / (1 - t)) of the density against its value at x, as in
``weft.ops.incomplete_gamma``. Computed in float64, whatever the dtype; gradients flow to all arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import nan, pi
from typing import Any

import numpy as np

from weft.base.dtypes import float64
from weft.ops.arithmetic import maximum, minimum
from weft.ops.complex import absolute
from weft.ops.exponential import exp, expm1, log1p, sqrt
from weft.ops.exponential import log as ln
from weft.ops.gamma import lgamma
from weft.ops.gamma_path import HALF_WEIGHTS, PLACES
from weft.ops.incomplete_gamma import LARGE, stirling
from weft.ops.op import Sample, Tensor, composite
from weft.ops.public import example
from weft.ops.reduce import reduce_sum
from weft.ops.select import cast, same_dtype, select
from weft.ops.statistics import as_floating
from weft.ops.stop import stop_gradient
from weft.ops.view.axes import expand_dims

_RAISED = 8  # by how much a is raised
_DEPTH = 40.0  # the integrand falls to exp(-40) of what it is at its start
_STEPS = 8  # to where it does
_SMALL = 1e-3  # where series are exact
_MOST = 1e300


def _samples() -> Iterable[Sample]:
    a = np.array([0.05, 0.3, 1.0, 2.5, 8.0, 12.0, 60.0, 3.0])
    b = np.array([2.0, 0.4, 1.0, 11.0, 0.2, 30.0, 70.0, 5.0])
    x = np.array([0.4, 0.9, 0.7, 0.1, 0.9, 0.3, 0.45, 0.8])
    yield Sample((a, b, x))
    yield Sample((np.linspace(0.2, 9.0, 12).reshape(3, 4), np.linspace(0.3, 8.0, 4), np.array(0.3)))
    yield Sample((np.array(2.0), np.array(3.5), np.linspace(0.1, 0.9, 6).reshape(3, 2).T))
    yield Sample((a.astype(np.float32), b.astype(np.float32), x.astype(np.float32)), smooth=False)
    ends = np.array([2.0, 2.0, 0.0, 2.0, -1.0, 2.0, np.nan, np.inf])
    others = np.array([3.0, 3.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    places = np.array([0.0, 1.0, 0.5, 0.5, 0.5, 1.5, 0.5, 0.5])
    yield Sample((ends, others, places), smooth=False)
    yield Sample((np.ones((0, 3)), np.ones(3), np.full(3, 0.5)))


@composite("betainc", samples=_samples)
@example(
    "weft.special.betainc(weft.tensor([1.0, 3.0]), weft.tensor(2.0), weft.tensor(0.5))"
    " -> tensor([0.7500, 0.3125])"
)
def betainc(a: Tensor, b: Tensor, x: Tensor, /) -> Tensor:
    """The probability that a beta variable of shapes a and b is at most x, with gradients to all three."""
    return _probability("betainc", a, b, x, upper=False)


@composite("betaincc", samples=_samples)
@example(
    "weft.special.betaincc(weft.tensor([1.0, 3.0]), weft.tensor(2.0), weft.tensor(0.5))"
    " -> tensor([0.2500, 0.6875])"
)
def betaincc(a: Tensor, b: Tensor, x: Tensor, /) -> Tensor:
    """The probability that a beta variable of shapes a and b is more than x, with gradients to all three."""
    return _probability("betaincc", a, b, x, upper=True)


def _probability(op: str, a: Tensor, b: Tensor, x: Tensor, *, upper: bool) -> Tensor:
    a, b, x = map(as_floating, same_dtype(op, a, b, x))
    dtype, (a, b, x) = a.dtype, (cast(v, dtype=float64) for v in (a, b, x))
    usual = (a > 0.0) & (a < _MOST) & (b > 0.0) & (b < _MOST) & (x > 0.0) & (x < 1.0)
    first, second, place = select(usual, a, 1.0), select(usual, b, 1.0), select(usual, x, 0.5)
    rest = 1.0 - place
    found = _split(second, first, rest, place) if upper else _split(first, second, place, rest)
    return cast(select(usual, found, _at_the_ends(a, b, x, upper)), dtype=dtype)


def _at_the_ends(a: Tensor, b: Tensor, x: Tensor, upper: bool) -> Tensor:
    """Where x is 0 or 1, or a shape is 0 or beyond all bounds: all is below x, or nothing is; NaN outside."""
    inner = (x > 0.0) & (x < 1.0)
    whole = (x == 1.0) | (inner & ((a == 0.0) | (b >= _MOST)))
    none = (x == 0.0) | (inner & ((b == 0.0) | (a >= _MOST)))
    least, most = minimum(a, b), maximum(a, b)
    inside = (least >= 0.0) & (most > 0.0) & (least < _MOST) & (whole | none)  # false for NaN
    found = cast(select(whole, 0.0 if upper else 1.0, 1.0 if upper else 0.0), dtype=float64)
    return select(inside, found, nan)


def _split(a: Tensor, b: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """I at p, where q is 1 - p to all its digits: from below, where what is below has no flat stretch."""
    raised = a + float(_RAISED)
    below = (p * (raised + b) <= raised) & (q * raised >= 1.0)
    shapes = select(below, a, b), select(below, b, a)
    found = _tail(*shapes, select(below, p, q), select(below, q, p))
    return select(below, found, 1.0 - found)


def _tail(a: Tensor, b: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """I at p, which is at most where the density of a raised a is highest."""
    raised = a + float(_RAISED)
    slope = float(_RAISED) * q - _off(a, b, p, q)
    total = raised * _against_density(raised, b, p, q, slope)
    for n in reversed(range(_RAISED)):
        total = 1.0 + (a + b + float(n)) / (a + float(n + 1)) * p * total
    return _front(a, b, p, q) * total


def _front(a: Tensor, b: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """p^a q^b / (a B(a, b)); of large a and b by what p is off, so that terms of their size do not cancel."""
    large = (a >= LARGE) & (b >= LARGE)
    many, more = select(large, a, LARGE), select(large, b, LARGE)
    both = many + more
    off = _off(many, more, p, q)
    depth = _depth_of(many, off, p * both / many) + _depth_of(more, -off, q * both / more)
    corrections = stirling(both) - stirling(many) - stirling(more)
    of_large = exp(0.5 * (ln(more / many) - ln(2 * pi * both)) - depth + corrections)
    some, other = select(large, 1.0, a), select(large, 1.0, b)
    less = some <= other  # not by minimum, whose second derivative is another where both are equal
    low, high = select(less, some, other), select(less, other, some)
    left = select(p < 0.5, p, 0.25), select(q < 0.5, q, 0.25)
    log_p = select(p < 0.5, ln(left[0]), log1p(-select(p < 0.5, 0.25, q)))
    log_q = select(q < 0.5, ln(left[1]), log1p(-select(q < 0.5, 0.25, p)))
    logs = some * log_p + other * log_q + _rise(high, low) - lgamma(low + 1.0)
    return select(large, of_large, exp(logs) * (low / some))


def _off(a: Tensor, b: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """By how much (a + b) p is more than a, from the lesser of p and q, which has all its digits."""
    return select(p <= 0.5, p * (a + b) - a, b - q * (a + b))


def _depth_of(count: Tensor, off: Tensor, ratio: Tensor) -> Tensor:
    """count (u - log(1 + u)) for u = off / count, where ratio is 1 + u; of small u by its series."""
    u = off / count
    tiny, near = absolute(u) < _SMALL, absolute(u) < 0.5
    small = select(tiny, u, 0.0)
    total: Any = 0.0
    for n in range(7, 1, -1):
        total = 1.0 / n - small * total
    far = off - count * select(near, log1p(select(near, u, 0.0)), ln(select(near, 1.0, ratio)))
    return select(tiny, off * small * total, far)


def _rise(m: Tensor, d: Tensor) -> Tensor:
    """log(gamma(m + d) / gamma(m)); of large m by differences."""
    large = m >= LARGE
    many, some = select(large, m, LARGE), select(large, 1.0, m)
    end = many + d
    steps = (many - 0.5) * log1p(d / many) + d * (ln(end) - 1.0)
    return select(large, steps + stirling(end) - stirling(many), lgamma(some + d) - lgamma(some))


def _against_density(a: Tensor, b: Tensor, p: Tensor, q: Tensor, slope: Tensor) -> Tensor:
    """The integral over s = log(p / q) - log(t / (1 - t)) of the density at t against that at p."""
    end = stop_gradient(_end_of(a, b, p, q, slope))
    s = expand_dims(end, -1) * PLACES
    wide = (expand_dims(v, -1) for v in (a, b, p, q, slope))
    terms = exp(-_depth(s, *wide)) * HALF_WEIGHTS
    return reduce_sum(terms, axes=(terms.ndim - 1,), keepdims=False) * end


def _depth(s: Tensor, a: Tensor, b: Tensor, p: Tensor, q: Tensor, slope: Tensor) -> Tensor:
    """By how much the logarithm of the density has fallen at s; it rises with s, ever faster.

    Of small s by its series, the cumulants of a Bernoulli variable, since terms of the size of a + b cancel.
    """
    left, tiny = p <= 0.5, s < _SMALL
    small, lean, spread = select(tiny, s, 0.0), q - p, p * q
    bend = 0.5 - small * (
        lean / 6.0 - small * ((1.0 - 6.0 * spread) / 24.0 - small * lean * (1.0 - 12.0 * spread) / 120.0)
    )
    near = small * (slope + (a + b) * spread * small * bend)
    from_left = a * s + (a + b) * log1p(select(left, p, 0.0) * expm1(-s))
    from_right = (a + b) * log1p(select(left, 0.0, q) * expm1(s)) - b * s
    return select(tiny, near, select(left, from_left, from_right))


def _end_of(a: Tensor, b: Tensor, p: Tensor, q: Tensor, slope: Tensor) -> Tensor:
    """About where the depth is reached.

    From a bound, since the depth is at least c s + w s²/(2 + s) for its slope c and bend w at 0, by Newton's
    method on its logarithm, which is at most straight where it is an exponential.
    """
    both = a + b
    start = minimum(maximum(slope, 0.0), 1e150)
    linear = 2.0 * start - _DEPTH
    bound = linear + sqrt(linear * linear + 8.0 * _DEPTH * (start + minimum(both * p * q, 1e290)))
    s: Any = minimum(4.0 * _DEPTH / bound, 300.0)
    for _ in range(_STEPS):
        depth = maximum(_depth(s, a, b, p, q, slope), 1e-3)
        steep = slope + both * (p * q * -expm1(-s) / (q + p * exp(-s)))
        fall = ln(depth * (1.0 / _DEPTH)) * depth / maximum(steep, 1e-300)
        s = minimum(maximum(s - fall, 0.25 * s), 2.0 * s)
    out: Tensor = s
    return out
