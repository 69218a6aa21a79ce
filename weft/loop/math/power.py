"""Powers, in basic scalar instructions.

|x|^y = 2^(y log2 |x|). The logarithm needs about ten bits more than the result has: those of float32 are
computed in float64.
"""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import float32, float64
from weft.loop.math.power_double import power_of_double
from weft.ops.elementary import DOUBLE, SINGLE, as_float, at_most, estrin, format_of
from weft.ops.exponent import exp2_for_single
from weft.ops.logarithm import split
from weft.ops.scalar import ScalarEmitter, Value

# log2(1 + f) / f for sqrt(1/2) <= 1 + f <= sqrt(2), error 2^-33.2
_LOG2 = (
    1.4426950409392607, -0.7213475252143069, 0.48089832074488914, -0.3606728004570355, 0.28854064255123535,
    -0.24050417670885638, 0.2060962834766099, -0.1790469322136035, 0.1590011669706589, -0.15698210777165417,
    0.15485901178488806, -0.08634788052546316,
)  # fmt: skip


def _log2(e: ScalarEmitter[Value], x: Value) -> Value:
    """log2 of a normal float64 x > 0, to float32's precision and eight bits more."""
    k, exponent = split(e, DOUBLE, x)
    rest = e.sub(e.bitcast(e.sub(e.bitcast(x, DOUBLE.bits), exponent), float64), 1)
    return e.add(e.mul(rest, estrin(e, rest, _LOG2)), as_float(e, DOUBLE, k))


def _power_of_single(e: ScalarEmitter[Value], size: Value, y: Value) -> Value:
    """size**y for a float32 size >= 0."""
    wide = e.cast(size, float64)
    exponent = e.mul(_at_limits(e, wide, _log2(e, wide)), e.cast(y, float64))
    exponent = at_most(e, exponent, 200.0)
    vanishing = e.lt(exponent, -151.0)  # chosen, because an underflow takes long
    power = exp2_for_single(e, e.select(vanishing, 0, exponent))
    return e.cast(e.select(vanishing, 0, power), float32)


def _at_limits(e: ScalarEmitter[Value], size: Value, logarithm: Value) -> Value:
    """The logarithm, of 0, infinity and NaN too."""
    logarithm = e.select(e.lt(size, np.inf), logarithm, size)
    return e.select(e.eq(size, 0), -np.inf, logarithm)


def pow(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    """x to the power of y, with the limits of C's pow."""
    f = format_of(e, x)
    size = e.abs(x)
    out = (_power_of_single if f is SINGLE else power_of_double)(e, size, y)
    out = e.select(e.and_(e.eq(size, 1), e.eq(y, y)), 1, out)  # y may be infinite
    half = e.mul(y, 0.5)
    whole = e.eq(e.floor(y), y)
    odd = e.and_(whole, e.not_(e.eq(e.floor(half), half)))
    negative = e.lt(e.bitcast(x, f.bits), 0)
    out = e.select(e.and_(negative, odd), e.neg(out), out)
    broken = e.and_(e.and_(e.lt(x, 0), e.not_(whole)), e.lt(size, np.inf))
    out = e.select(broken, np.nan, out)
    return e.select(e.or_(e.eq(y, 0), e.eq(x, 1)), 1, out)
