"""How draws of the gamma distribution move with its shape, for gradients through them.

A draw x of shape a is held at its quantile: P(a, x) stays what it is while a changes. So dx/da is
-(dP/da) / p(x), where P is the regularised lower incomplete gamma function and p its derivative by x (M.
Figurnov, S. Mohamed, A. Mnih, Implicit Reparameterization Gradients, NeurIPS 2018). All is said of log x,
since draws of small shapes are too small for floats. It is computed in float64, whatever the dtype, to about
1e-12.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import Any

import numpy as np

from weft.base.dtypes import float64
from weft.ops.arithmetic import maximum, minimum
from weft.ops.exponential import exp, expm1, sqrt
from weft.ops.exponential import log as ln
from weft.ops.families import elementwise
from weft.ops.gamma import digamma
from weft.ops.op import Op, Sample, Tensor, composite
from weft.ops.reduce import reduce_sum
from weft.ops.samples import reals
from weft.ops.select import cast, same_dtype, select
from weft.ops.stop import stop_gradient
from weft.ops.view.axes import expand_dims

_TERMS = 18  # of the series, for x <= 1
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
PLACES, HALF_WEIGHTS = _NODES * 0.5 + 0.5, _WEIGHTS * 0.5  # in 0..1
_DEPTH = 40.0  # the integrand falls to exp(-40) of what it is at its start


def _samples() -> Iterable[Sample]:
    shapes = np.array([0.01, 0.3, 0.9, 1.0, 2.5, 8.0, 60.0, 1e4])
    near = np.log(shapes) + np.array([-90.0, -2.0, 1.0, 0.5, -0.7, 0.2, 0.1, 0.01])
    yield Sample((shapes[1:], near[1:]))
    yield Sample((shapes, near), smooth=False)  # differences are too coarse for the smallest shape
    yield Sample((np.linspace(0.2, 9.0, 12).reshape(3, 4), np.linspace(-2.0, 2.0, 4)))
    yield Sample((np.array(2.0), np.linspace(-2.0, 2.0, 6).reshape(3, 2).T))
    yield Sample((shapes.astype(np.float32), near.astype(np.float32)), smooth=False)
    yield Sample((np.ones((0, 3)), np.ones(3)))


@composite("gamma_slope", samples=_samples)
def gamma_slope(a: Tensor, y: Tensor, /) -> Tensor:
    """The derivative by a of y, the logarithm of a gamma draw of shape a that stays at its quantile."""
    a, y = same_dtype("gamma_slope", a, y)
    dtype, a, y = a.dtype, minimum(cast(a, dtype=float64), 1e150), minimum(cast(y, dtype=float64), 345.0)
    small = y <= 0.0
    next_up = digamma(a + 1.0)  # precise for small a too, less 1 / a
    near = _series(a, select(small, y, -0.5), next_up)
    far = _integral(a, select(small, 0.5, y), next_up - 1.0 / a)
    return cast(select(small, near, far), dtype=dtype)


def _series(a: Tensor, y: Tensor, next_up: Tensor) -> Tensor:
    """By the power series of P in x, DLMF 8.7.1; its first term is written so that small a lose nothing."""
    x = exp(y)
    above = next_up - 1.0 / a - y
    total = (next_up - y) / a
    power: Any = 1.0
    for n in range(1, _TERMS + 1):
        power = x * power * (-1.0 / n)
        step = 1.0 / (a + float(n))
        total = total + power * (above + step) * step
    return exp(x) * total


def _integral(a: Tensor, y: Tensor, centre: Tensor) -> Tensor:
    """By quadrature along s = |log t - y| of -(log t - centre) p(t), on the side where its sign is one;
    the centre is digamma(a).

    Against p(x), the density at s is exp(-depth(s)).
    """
    x, off = exp(y), y - centre
    lower = off < 0.0
    sign = select(lower, -1.0, 1.0)
    end = stop_gradient(end_of(a, x, lower))
    s = expand_dims(end, -1) * PLACES
    x_at, signed = expand_dims(x, -1), s * expand_dims(sign, -1)
    depth = expand_dims(x - a, -1) * signed + x_at * (expm1(signed) - signed)
    terms = (expand_dims(off * sign, -1) + s) * exp(-depth) * HALF_WEIGHTS
    return reduce_sum(terms, axes=(terms.ndim - 1,), keepdims=False) * end


def end_of(a: Tensor, x: Tensor, lower: Tensor) -> Tensor:
    """Where the depth is surely reached, by bounds of what grows with s.

    Above, e^s - 1 - s is at least s²/2, and at least 0.26 e^s where s > 1; below, e^-s - 1 + s at least
    s²/(2 + s).
    """
    linear = 2.0 * (a - x) - _DEPTH
    below = 4.0 * _DEPTH / (linear + sqrt(linear * linear + 8.0 * _DEPTH * a))
    more = x - a
    above = 2.0 * _DEPTH / (more + sqrt(more * more + 2.0 * _DEPTH * x))
    steep = maximum(log(_DEPTH / 0.26) - ln(x), 1.0)
    return select(lower, below, minimum(above, steep))


gamma_path: Op = elementwise(
    "gamma_path",
    eval=lambda x, y: np.positive(np.broadcast_arrays(x, y)[0]),
    partials=(1, lambda out, y: gamma_slope(y, out)),
    accepts="f",
    samples=lambda: [s._replace(smooth=False) for s in reals(2, 0.2, 4.0)()],  # it says what gradients are
    scalar=lambda e, x, y: x,
)
