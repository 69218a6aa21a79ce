"""Functions of probabilities and of signals that are made of others; users find them in ``weft.special``.

Names and special values are SciPy's. What a branch does not choose is computed of harmless numbers, so that
its gradient is 0 and never NaN.
"""

from __future__ import annotations

from math import inf, log, pi

import numpy as np

from weft.base.dtypes import float64
from weft.ops import exponential as e
from weft.ops.activation import normal_cdf
from weft.ops.complex import absolute
from weft.ops.op import Sample, Tensor, composite
from weft.ops.public import example
from weft.ops.quantile import normal_quantile
from weft.ops.rounding import floor, round
from weft.ops.samples import real_array, reals
from weft.ops.select import cast, same_dtype, select
from weft.ops.statistics import as_floating
from weft.ops.trigonometric import atanh, sin


@composite(samples=reals(1, 0.05, 0.95), single=True)
def logit(x: Tensor, /) -> Tensor:
    """The logarithm of the odds, ``log(x / (1 - x))``; the inverse of ``expit``.

    >>> import weft
    >>> weft.special.logit(weft.tensor([0.0, 0.25, 0.5, 1.0]))
    tensor([   -inf, -1.0986,  0.0000,     inf])
    """
    x = as_floating(x)
    near = absolute(x - 0.5) < 0.25
    centre = atanh(select(near, x, 0.5) * 2.0 - 1.0) * 2.0  # where the logarithms would cancel
    outer = select(near, 0.25, x)
    return select(near, centre, e.log(outer) - e.log1p(-outer))


@composite("ndtr", samples=reals(1))
@example("weft.special.ndtr(weft.tensor([-1.96, 0.0, 1.96])) -> tensor([0.0250, 0.5000, 0.9750])")
def ndtr(x: Tensor, /) -> Tensor:
    """The probability that a standard normal variable is below x."""
    return normal_cdf(as_floating(x))


@composite(samples=reals(1, 0.05, 0.95), single=True)
@example("weft.special.ndtri(weft.tensor([0.0, 0.025, 0.5])) -> tensor([   -inf, -1.9600,  0.0000])")
def ndtri(p: Tensor, /) -> Tensor:
    """The number that a standard normal variable is below with probability p; the inverse of ``ndtr``."""
    p = as_floating(p)
    inside = (p > 0.0) & (p < 1.0)
    outside = select(p == 0.0, -inf, select(p == 1.0, inf, np.nan))
    return select(inside, normal_quantile(select(inside, p, 0.5)), cast(outside, dtype=p.dtype))


def _log_ndtr_samples() -> list[Sample]:
    return [
        Sample((real_array((3, 4), -3.0, 3.0),)),
        Sample((np.array([-1e4, -40.0, -21.0, -12.0, -1.0, 7.0]),)),
        Sample((np.array([-40.0, -11.0, -9.0, 3.0], np.float32),), smooth=False),
        Sample((np.array([-np.inf, np.inf, np.nan]),), smooth=False),
    ]


@composite(samples=_log_ndtr_samples, single=True)
@example("weft.special.log_ndtr(weft.tensor([-100.0, 0.0])) -> tensor([-5.0055e+03, -6.9315e-01])")
def log_ndtr(x: Tensor, /) -> Tensor:
    """The logarithm of ``ndtr(x)``, precise in both tails."""
    x = as_floating(x)
    border = -20.0 if x.dtype == float64 else -10.0  # below it, eight terms of the series are exact
    far, upper = x < border, x > 0.0
    low = select(far, x, border)
    probability = normal_cdf(select(upper, -x, select(far, border, x)))
    near = select(upper, e.log1p(-probability), e.log(probability))
    return select(far, low * low * -0.5 - e.log(-low) - 0.5 * log(2 * pi) + _log_series(low), near)


def _log_series(x: Tensor) -> Tensor:
    """The logarithm of 1 - 1/x² + 1·3/x⁴ - 1·3·5/x⁶ + ... (DLMF 7.12.1)."""
    square = 1.0 / (x * x)
    total = 1.0 - square * 15.0
    for odd in (13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0):
        total = 1.0 - square * odd * total
    return e.log(total)


@composite(samples=reals(1, 0.1, 2.0), single=True)
@example("weft.special.entr(weft.tensor([0.0, 0.5, 1.0])) -> tensor([ 0.0000,  0.3466, -0.0000])")
def entr(x: Tensor, /) -> Tensor:
    """What a probability adds to an entropy: ``-x * log(x)``; 0 at 0, as is its gradient, and -inf below."""
    x = as_floating(x)
    found = -x * e.log(select(x > 0.0, x, 1.0))
    return select(x < 0.0, -inf, select(x == 0.0, 0.0, found))


@composite(samples=reals(2, 0.1, 2.0), single=True)
@example("weft.special.xlogy(weft.tensor([0.0, 2.0]), weft.tensor([0.0, 3.0])) -> tensor([0.0000, 2.1972])")
def xlogy(x: Tensor, y: Tensor, /) -> Tensor:
    """``x * log(y)``, and 0 where x is 0."""
    x, y = map(as_floating, same_dtype("xlogy", x, y))
    nothing = (x == 0.0) & ((y <= 0.0) | (y == inf))  # else the product is 0 anyway, and has a gradient
    return x * e.log(select(nothing, 1.0, y))


@composite(samples=reals(2, 0.1, 2.0), single=True)
def xlog1py(x: Tensor, y: Tensor, /) -> Tensor:
    """``x * log(1 + y)``, and 0 where x is 0.

    >>> import weft
    >>> weft.special.xlog1py(weft.tensor([0.0, 2.0]), weft.tensor([-1.0, 3.0]))
    tensor([0.0000, 2.7726])
    """
    x, y = map(as_floating, same_dtype("xlog1py", x, y))
    nothing = (x == 0.0) & ((y <= -1.0) | (y == inf))
    return x * e.log1p(select(nothing, 0.0, y))


@composite(samples=reals(1), single=True)
@example("weft.special.sinc(weft.tensor([0.0, 0.5, 1.5])) -> tensor([ 1.0000,  0.6366, -0.2122])")
def sinc(x: Tensor, /) -> Tensor:
    """``sin(pi x) / (pi x)``, and 1 at 0."""
    x = as_floating(x)
    angle = x * pi
    near = absolute(angle) < 0.01
    small, large = select(near, angle, 0.0), select(near, 1.0, angle)
    square = small * small
    half_turns = round(x)
    sign = 1.0 - 2.0 * (half_turns - 2.0 * floor(half_turns * 0.5))
    sine = sin((x - half_turns) * pi) * sign  # exactly 0 where x is whole
    return select(near, 1.0 - square * (1.0 - square / 20.0) / 6.0, sine / large)
