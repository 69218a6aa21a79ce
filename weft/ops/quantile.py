"""The inverse of the normal distribution function, precise for small probabilities too.

(``erfinv(2 p - 1)`` would give the same for p near 1/2, and has no digits left where p is small.)

M. Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37(3), 1988: three ratios of polynomials, for the
centre, the tails and the far tails; relative error about 1e-16.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from weft.ops.arithmetic import add, div, mul, neg, sub
from weft.ops.compare import less, less_equal
from weft.ops.complex import absolute
from weft.ops.exponential import log, sqrt
from weft.ops.op import Sample, Tensor, composite
from weft.ops.select import select

# Numerator and denominator, lowest power first
_CENTRE = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
_TAIL = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_FAR_TAIL = (
    (
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    total = add(mul(x, coefficients[-1]), coefficients[-2])
    for c in coefficients[-3::-1]:
        total = add(mul(total, x), c)
    return total


def _ratio(x: Tensor, polynomials: tuple[Sequence[float], Sequence[float]]) -> Tensor:
    return div(_polynomial(x, polynomials[0]), _polynomial(x, polynomials[1]))


def _quantile_samples() -> Iterable[Sample]:
    yield Sample((np.array([0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 0.9]),))
    yield Sample((np.array([1e-300, 1e-20, 1e-12, 1e-5, 0.01, 0.95, 0.999]),), smooth=False)
    yield Sample((np.array([0.01, 0.3, 0.95], np.float32),), smooth=False)


@composite("normal_quantile", samples=_quantile_samples, single=True)
def normal_quantile(p: Tensor) -> Tensor:
    """The number that a normal variable is below with probability p, for p in (0, 1)."""
    q = sub(p, 0.5)
    upper = less(0.5, p)
    outer = select(upper, sub(1.0, p), p)  # the probability of the nearer tail
    r = sqrt(neg(log(outer)))
    tail = select(less_equal(r, 5.0), _ratio(sub(r, 1.6), _TAIL), _ratio(sub(r, 5.0), _FAR_TAIL))
    centre = mul(q, _ratio(sub(0.180625, mul(q, q)), _CENTRE))
    return select(less_equal(absolute(q), 0.425), centre, select(upper, tail, neg(tail)))
