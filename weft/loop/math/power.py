"""Powers, in basic scalar instructions.

|x|^y = 2^(y log2 |x|). The logarithm needs about ten bits more than the result has: those of float32 are
computed in float64. That of float64 is a sum of two numbers with 65 good bits: log((1 + s) / (1 - s)) for
s = (m - 1) / (m + 1) is 2 s / 3 times 3 + s^2 + s^4 p(s^2). Each product that the first number comes from is
exact, because its factors are cut to half their bits (the plan is that of Sun's fdlibm, 1993).
"""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import float32, float64
from weft.ops.elementary import DOUBLE, SINGLE, as_float, at_least, at_most, estrin, format_of, upper_half
from weft.ops.exponent import exp2_for_single, exp_of_sum, scaled
from weft.ops.logarithm import normalised, split
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


Sum = tuple[Value, Value]  # a number in half its bits, and what is to be added

# p for |s| <= (sqrt(2) - 1) / (sqrt(2) + 1); error 2^-73.5 of the logarithm
_TAIL = (
    0.5999999999999996, 0.428571428571688, 0.3333333332602944, 0.2727272833920799, 0.23076833007597017,
    0.20004564470066008, 0.1751043659157497, 0.17998419528282206,
)  # fmt: skip
_TWO_THIRDS = (0.6666666567325592, 9.934107462565104e-09)  # 26 and 53 bits


def power_of_double(e: ScalarEmitter[Value], size: Value, y: Value) -> Value:
    """size**y for a float64 size >= 0."""
    high, low = _logarithm(e, size)
    limited = at_least(e, at_most(e, y, 2.0**65), -(2.0**65))  # more is as good as infinite
    upper = upper_half(e, limited)
    main = e.mul(upper, high)
    rest = e.add(e.mul(e.sub(limited, upper), high), e.mul(limited, low))
    special = e.mul(e.select(e.eq(size, 0), -np.inf, size), y)
    ordinary = e.and_(e.lt(0, size), e.lt(size, np.inf))
    exponent = e.select(ordinary, e.add(main, rest), special)
    shifted, q = exp_of_sum(e, main, rest)
    out = scaled(e, DOUBLE, e.add(q, 1), shifted)
    out = e.select(e.le(exponent, DOUBLE.highest), out, e.mul(exponent, np.inf))  # NaN too
    return e.select(e.lt(exponent, DOUBLE.lowest), 0, out)


def _logarithm(e: ScalarEmitter[Value], x: Value) -> Sum[Value]:
    """log(x) of a finite x > 0."""
    k, f = normalised(e, DOUBLE, x)
    high, low = _logarithm_near_one(e, f)
    k = as_float(e, DOUBLE, k)
    main = e.mul(k, DOUBLE.ln2[0])
    out = upper_half(e, e.add(e.add(high, low), main))
    return out, e.add(e.sub(low, e.sub(e.sub(out, main), high)), e.mul(k, DOUBLE.ln2[1]))


def _logarithm_near_one(e: ScalarEmitter[Value], f: Value) -> Sum[Value]:
    """log(1 + f)."""
    s, s_high, s_low = _centred(e, f)
    square = e.mul(s, s)
    tail = e.mul(e.mul(square, square), estrin(e, square, _TAIL))
    tail = e.add(tail, e.mul(s_low, e.add(s_high, s)))
    main = e.mul(s_high, s_high)
    t_high = upper_half(e, e.add(e.add(main, 3), tail))
    t_low = e.sub(tail, e.sub(e.sub(t_high, 3), main))
    product, rest = e.mul(s_high, t_high), e.add(e.mul(s_low, t_high), e.mul(t_low, s))
    p_high = upper_half(e, e.add(product, rest))
    p_low = e.sub(rest, e.sub(p_high, product))
    a, b = _TWO_THIRDS
    return e.mul(p_high, a), e.add(e.mul(p_high, b), e.mul(p_low, a + b))


def _centred(e: ScalarEmitter[Value], f: Value) -> tuple[Value, Value, Value]:
    """f / (2 + f), and the same as a sum."""
    below = e.add(f, 2)
    inverse = e.div(1, below)
    high = upper_half(e, e.mul(f, inverse))
    d_high = upper_half(e, below)
    d_low = e.sub(f, e.sub(d_high, 2))
    low = e.mul(e.sub(e.sub(f, e.mul(high, d_high)), e.mul(high, d_low)), inverse)
    return e.add(high, low), high, low
