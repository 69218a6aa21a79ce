"""Powers of float64, in basic scalar instructions.

x^y = exp(y log x), where the logarithm is a sum of two numbers with 65 good bits: log((1 + s) / (1 - s)) for
s = (m - 1) / (m + 1) is 2 s / 3 times 3 + s^2 + s^4 p(s^2). Each product that the first number comes from is
exact, because its factors are cut to half their bits (the plan is that of Sun's fdlibm, 1993).
"""

from __future__ import annotations

import numpy as np

from weft.ops.elementary import DOUBLE, as_float, at_least, at_most, estrin, upper_half
from weft.ops.exponent import exp_of_sum, scaled
from weft.ops.logarithm import normalised
from weft.ops.scalar import ScalarEmitter, Value

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
