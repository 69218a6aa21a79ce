"""The angle of a point, in basic scalar instructions.

The smaller one of |x| and |y| is divided by the larger one, so that a polynomial on [0, 1] is enough. In
float64 the angle is, besides, measured from the diagonal where that is nearer, and what rounding took from
the quotient is added in the end.
"""

from __future__ import annotations

from weft.base.dtypes import float64, int64
from weft.ops.elementary import SINGLE, either, estrin, fast_two_sum, format_of, upper_half, with_sign_of
from weft.ops.scalar import ScalarEmitter, Value, sign_bit

# atan(t) = t + t^3 p(t^2) for |t| <= 1; error 2^-28.5
_SINGLE = (
    -0.33333298563957214, 0.1999852955341339, -0.14264015853405, 0.10950881242752075, -0.08399313688278198,
    0.05788165330886841, -0.0310974158346653, 0.010869011282920837, -0.0017829135758802295,
)  # fmt: skip
# the same for |t| <= 1/2; error 2^-57.8
_DOUBLE = (
    -0.3333333333333298, 0.19999999999902998, -0.14285714276370967, 0.11111110658851368, -0.09090896222733712,
    0.07692073541529541, -0.06663806625068723, 0.05858270846355821, -0.05121877289165772, 0.0418613520550009,
    -0.02742890867081981, 0.010112550171013007,
)  # fmt: skip


def atan2(e: ScalarEmitter[Value], y: Value, x: Value) -> Value:
    """The angle of the point (x, y)."""
    a, b = e.abs(x), e.abs(y)
    steep, left = e.lt(a, b), sign_bit(e, x)
    small, large = e.select(steep, a, b), e.select(steep, b, a)
    code = _angle_of_single if format_of(e, x) is SINGLE else _angle_of_double
    angle = e.select(e.and_(e.eq(x, x), e.eq(y, y)), code(e, small, large, steep, left), float("nan"))
    return with_sign_of(e, angle, y)


def _angle_of_single(e: ScalarEmitter[Value], small: Value, large: Value, steep: Value, left: Value) -> Value:
    t = e.div(small, large)
    t = e.select(e.eq(small, large), either(e, e.eq(large, 0), 0, 1, e.dtype(t)), t)  # 0 / 0, inf / inf
    square = e.mul(t, t)
    angle = e.add(t, e.mul(e.mul(t, square), estrin(e, square, _SINGLE)))
    high, low = 1.5707963705062866, -4.371139000186241e-08  # pi / 2
    angle = e.select(steep, e.sub(high, e.sub(angle, low)), angle)
    return e.select(left, e.sub(2 * high, e.sub(angle, 2 * low)), angle)


def _angle_of_double(e: ScalarEmitter[Value], small: Value, large: Value, steep: Value, left: Value) -> Value:
    diagonal = e.and_(e.lt(0, small), e.le(e.mul(large, 0.5), small))  # small - large is exact there
    t, rest = _tangent(e, small, large, diagonal)
    square = e.mul(t, t)
    rest = e.add(e.mul(e.mul(t, square), estrin(e, square, _DOUBLE)), e.mul(rest, e.sub(1, square)))
    high, low = 0.7853981633974483, 3.061616997868383e-17  # pi / 4, and its first part has 50 bits only
    base = e.select(steep, e.constant(2 * high, float64), either(e, left, 4 * high, 0, float64))
    quarter = either(e, diagonal, high, 0, float64)
    back = e.xor(steep, left)
    t, rest, quarter = (e.select(back, e.neg(v), v) for v in (t, rest, quarter))
    base = e.add(base, quarter)
    out, lost = fast_two_sum(e, base, t)
    return e.add(out, e.add(e.add(lost, rest), e.mul(base, low / high)))


def _tangent(e: ScalarEmitter[Value], small: Value, large: Value, diagonal: Value) -> tuple[Value, Value]:
    """small / large as a sum, or (small - large) / (small + large): the tangent from the diagonal."""
    scale = either(e, e.lt(large, 2.0**500), 2.0**500, 2.0**-9, float64)
    small, large = e.mul(small, scale), e.mul(large, scale)
    total, lost = fast_two_sum(e, large, small)
    x, y = e.select(diagonal, e.sub(small, large), small), e.select(diagonal, total, large)
    inverse = e.div(1, y)
    # Without its last bit the quotient is no product that could be fused into a sum.
    quotient = e.bitcast(e.and_(e.bitcast(e.mul(x, inverse), int64), -2), float64)
    rest = e.mul(_remainder(e, x, y, e.select(diagonal, lost, 0), quotient), inverse)
    limit = e.lt(e.abs(rest), 1)  # not so for 0 / 0 and where an infinity is
    return e.select(limit, quotient, 0), e.select(limit, rest, 0)


def _remainder(e: ScalarEmitter[Value], x: Value, y: Value, y_rest: Value, quotient: Value) -> Value:
    """x - quotient (y + y_rest), of products that are exact."""
    a, c = upper_half(e, quotient), upper_half(e, y)
    b, d = e.sub(quotient, a), e.add(e.sub(y, c), y_rest)
    for left, right in ((a, c), (a, d), (b, c), (b, d)):
        x = e.sub(x, e.mul(left, right))
    return x
