"""Inverse sine, cosine and tangent of reals, and those of the hyperbolic ones, in basic scalar instructions.

asin(x) is s + s^3 p(s^2), where s = |x| if that is small; else pi/2 minus twice that, where
s = sqrt((1 - |x|) / 2). The hyperbolic ones are logarithms; near their zeros float32 has a polynomial each,
because there what is rounded before the logarithm counts whole.
"""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import float32, float64
from weft.ops.elementary import LN2, estrin, with_sign_of
from weft.ops.logarithm import log1p
from weft.ops.scalar import ScalarEmitter, Value

_NEAR = 0.5625  # just above sin(pi/2 - 1): from there on acos(x) < 1 has a bit less before its point
# p for 0 <= s <= _NEAR; errors 2^-29.0 and 2^-57.8
_ARCSINE = {
    float32: (
        0.16666631400585175, 0.07502099871635437, 0.04423162713646889, 0.03401566669344902,
        0.006725086830556393, 0.04750598222017288,
    ),
    float64: (
        0.16666666666666316, 0.07500000000098703, 0.04464285704562895, 0.030381949277640975,
        0.022372016960494644, 0.01735546129197637, 0.013930084089354334, 0.011865382933349208,
        0.007752814191488434, 0.017532082518152275, -0.021792267163160354, 0.06881561408332192,
        -0.07696351459132213, 0.059918346535436484,
    ),
}  # fmt: skip
# atan(t) = t + t^3 p(t^2) for |t| <= 1; error 2^-28.5
_ARCTANGENT = (
    -0.33333298563957214, 0.1999852955341339, -0.14264015853405, 0.10950881242752075, -0.08399313688278198,
    0.05788165330886841, -0.0310974158346653, 0.010869011282920837, -0.0017829135758802295,
)  # fmt: skip
_HALF_PI = {
    float32: (1.5707963705062866, -4.371139000186241e-08),
    float64: (1.5707963267948966, 6.123233995736766e-17),
}


def _reduced_arcsine(e: ScalarEmitter[Value], x: Value) -> tuple[Value, Value]:
    """Whether |x| is small, and then asin |x|; else half of acos |x|."""
    a = e.abs(x)
    near = e.lt(a, _NEAR)
    square = e.select(near, e.mul(a, a), e.mul(e.sub(1, a), 0.5))
    s = e.select(near, a, e.sqrt(square))
    return near, e.add(s, e.mul(e.mul(s, square), estrin(e, square, _ARCSINE[e.dtype(x)])))


def asin(e: ScalarEmitter[Value], x: Value) -> Value:
    """The inverse sine."""
    near, out = _reduced_arcsine(e, x)
    high, low = _HALF_PI[e.dtype(x)]
    return with_sign_of(e, e.select(near, out, e.sub(high, e.sub(e.mul(out, 2), low))), x)


def acos(e: ScalarEmitter[Value], x: Value) -> Value:
    """The inverse cosine."""
    near, out = _reduced_arcsine(e, x)
    high, low = _HALF_PI[e.dtype(x)]
    twice = e.add(out, out)
    far = e.select(e.lt(x, 0), e.sub(2 * high, e.sub(twice, 2 * low)), twice)
    return e.select(near, e.sub(high, e.sub(with_sign_of(e, out, x), low)), far)


def atan(e: ScalarEmitter[Value], x: Value) -> Value:
    """The inverse tangent."""
    if e.dtype(x) == float64:
        return e.atan2(x, e.constant(1, float64))
    a = e.abs(x)
    steep = e.lt(1, a)
    t = e.select(steep, e.div(-1, a), a)
    square = e.mul(t, t)
    out = e.add(t, e.mul(e.mul(t, square), estrin(e, square, _ARCTANGENT)))
    high, low = _HALF_PI[float32]
    return with_sign_of(e, e.select(steep, e.add(high, e.add(out, low)), out), x)


# Hyperbolic

_SMALL = 0.5  # up to here float32 has polynomials
# asinh(x) = x + x^3 p(x^2) for |x| < _SMALL, error 2^-29.6
_AREA_SINE = (
    -0.1666664332151413, 0.07498641312122345, -0.044383201748132706, 0.028162920847535133,
    -0.01322746928781271,
)  # fmt: skip
# atanh(x) = x + x^3 p(x^2) for |x| < _SMALL, error 2^-29.4
_AREA_TANGENT = (
    0.33333298563957214, 0.2000260353088379, 0.14221234619617462, 0.11835654824972153, 0.050934504717588425,
    0.17725317180156708,
)  # fmt: skip
# acosh(1 + t) = sqrt(2 t) (1 + t p(t)) for 0 <= t < _SMALL, error 2^-29.6
_AREA_COSINE = (
    -0.08333321660757065, 0.018746603280305862, -0.005547900218516588, 0.0017601825529709458,
    -0.0004133584152441472,
)  # fmt: skip


def asinh(e: ScalarEmitter[Value], x: Value) -> Value:
    """The inverse hyperbolic sine."""
    size = e.abs(x)
    square = e.mul(size, size)
    more = e.div(square, e.add(e.sqrt(e.add(square, 1)), 1))
    out = _log1p_unless_huge(e, size, e.add(size, more))
    return with_sign_of(e, _unless_small(e, size, square, _AREA_SINE, out), x)


def atanh(e: ScalarEmitter[Value], x: Value) -> Value:
    """The inverse hyperbolic tangent."""
    size = e.abs(x)
    out = e.mul(log1p(e, e.div(e.mul(size, 2), e.sub(1, size))), 0.5)
    return with_sign_of(e, _unless_small(e, size, e.mul(size, size), _AREA_TANGENT, out), x)


def _unless_small(
    e: ScalarEmitter[Value], size: Value, square: Value, coefficients: tuple[float, ...], out: Value
) -> Value:
    """A function of a size, in float32 by a polynomial in its square where it is small."""
    if e.dtype(size) == float64:
        return out
    near = e.add(size, e.mul(e.mul(size, square), estrin(e, square, coefficients)))
    return e.select(e.lt(size, _SMALL), near, out)


def acosh(e: ScalarEmitter[Value], x: Value) -> Value:
    """The inverse hyperbolic cosine."""
    below, above = e.sub(x, 1), e.add(x, 1)
    if e.dtype(x) == float64:
        return _log1p_unless_huge(e, x, e.add(below, e.mul(e.sqrt(below), e.sqrt(above))))
    near = e.lt(below, _SMALL)  # so are numbers below 1, whose root is none
    root = e.sqrt(e.select(near, e.add(below, below), e.mul(below, above)))
    bend = e.mul(below, estrin(e, below, _AREA_COSINE))
    return e.select(near, e.add(root, e.mul(root, bend)), _log1p_unless_huge(e, x, e.add(below, root)))


def _log1p_unless_huge(e: ScalarEmitter[Value], size: Value, y: Value) -> Value:
    """log(1 + y), and log(2 size) where that is the same but y may overflow."""
    dtype = e.dtype(size)
    huge = e.lt(1 / float(np.finfo(dtype).eps) ** 0.5, size)  # adding 1 to the square does not change it
    out = log1p(e, e.select(huge, e.sub(size, 1), y))
    return e.add(out, e.select(huge, e.constant(LN2, dtype), 0))
