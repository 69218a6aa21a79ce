"""Sine, cosine, tangent and the angle of a point, in basic scalar instructions.

A float32 x is reduced to x - n pi in [-pi/2, pi/2] and its sine computed in float64, where two parts of pi
are exact enough up to 2^22. Beyond (``rarely``), x is multiplied exactly by four parts of 1 / (2 pi), chosen
by the size of x, and whole turns are dropped from the products before they are added.

A float64 x is n pi/2 + r, where r is the sum of two numbers, the second what rounding took from the first.
Up to 2^20 four parts of pi/2 are subtracted (W. Cody and W. Waite, 1980); beyond, x is multiplied by those
bits of 2/pi that count, in integers (M. Payne and R. Hanek, 1983). Then sin or cos of r is chosen by n.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from weft.base.dtypes import float32, float64, int64, uint64
from weft.ops.elementary import (
    DOUBLE,
    SINGLE,
    either,
    estrin,
    fast_two_sum,
    format_of,
    rarely,
    two_sum,
    upper_half,
    with_sign_of,
)
from weft.ops.scalar import ScalarEmitter, Value, sign_bit

_PI = 3.141592653589793
_PI_PARTS = (3.141592651605606, 1.984187159361081e-09)  # 30 and 53 bits
# 1 / (2 pi) in parts of 29, 29, 29 and 53 bits: what counts for 2^22 < |x| < 2^79 and above
_TURN_PARTS = (
    (0.15915494039654732, 2.6953480142255515e-09, 4.038449463906148e-18, 6.317065088957875e-27),
    (4.038449450981451e-18, 1.9241762118391763e-26, 4.170716914254881e-35, 2.897178338357036e-44),
)
_FAR_SINGLE, _FARTHER = 2.0**22, 2.0**79

# sin(r) / r for |r| <= pi / 2, in r^2; error 2^-27.3
_SINE_32 = (1.0, -0.16666659544639947, 0.008333066083844702, -0.00019809590168352192, 2.60575082388892e-06)


def _with_parity(e: ScalarEmitter[Value], shifted: Value, r: Value) -> Value:
    """r, negated where the integer in the lowest bits of ``shifted`` is odd."""
    sign = e.shl(e.bitcast(shifted, int64), 63)
    return e.bitcast(e.xor(e.bitcast(r, int64), sign), float64)


def _reduced_single(e: ScalarEmitter[Value], x: Value, quarter: float) -> Value:
    """r with sin(r) = sin(x + quarter pi) for |x| < 2^22, where the quarter is 0 or 1/2."""
    turns = e.mul(x, 1 / _PI)
    shifted = e.add(e.add(turns, quarter) if quarter else turns, DOUBLE.magic)
    n = e.sub(shifted, DOUBLE.magic)
    n = e.sub(n, quarter) if quarter else n
    for part in _PI_PARTS:
        x = e.sub(x, e.mul(n, part))
    return _with_parity(e, shifted, x)


def _far_turns(e: ScalarEmitter[Value], x: Value, steps: int, shift: float) -> tuple[Value, Value]:
    """x >= 2^22 is n / steps + rest turns beside whole ones: n + shift in the lowest bits, and rest."""
    farther = e.le(_FARTHER, e.abs(x))
    products = [
        e.mul(x, e.select(farther, e.constant(b, float64), a)) for a, b in zip(*_TURN_PARTS, strict=True)
    ]
    first, *others = [e.sub(p, e.round(p)) for p in products]
    total = first
    for turn in others:
        total = e.add(total, turn)
    shifted = e.add(e.add(e.mul(total, steps), shift), DOUBLE.magic)
    n = e.sub(e.sub(shifted, DOUBLE.magic), shift)
    rest = e.sub(first, e.mul(n, 1 / steps))
    for turn in others:  # these sums are exact where they cancel
        rest = e.add(rest, turn)
    return shifted, rest


def _reduced_far_single(e: ScalarEmitter[Value], x: Value, quarter: float) -> Value:
    """As ``_reduced_single`` for |x| >= 2^22."""
    shifted, rest = _far_turns(e, x, 2, quarter)
    return _with_parity(e, shifted, e.mul(rest, 2 * _PI))


def _sine_of_single(e: ScalarEmitter[Value], x: Value, quarter: float) -> Value:
    """sin(x + quarter pi) of a float32."""
    wide = e.cast(x, float64)
    far = e.le(_FAR_SINGLE, e.abs(wide))
    near = _reduced_single(e, wide, quarter)
    r = rarely(e, far, lambda e, x: _reduced_far_single(e, x, quarter), wide, near)
    return e.cast(e.mul(r, estrin(e, e.mul(r, r), _SINE_32)), float32)


def sin(e: ScalarEmitter[Value], x: Value) -> Value:
    """The sine."""
    return sin_of_double(e, x) if e.dtype(x) == float64 else _sine_of_single(e, x, 0)


def cos(e: ScalarEmitter[Value], x: Value) -> Value:
    """The cosine."""
    return cos_of_double(e, x) if e.dtype(x) == float64 else _sine_of_single(e, x, 0.5)


# tan(r) / r for |r| <= pi / 4, in r^2; error 2^-29.6
_TANGENT_32 = (
    1.0, 0.3333334977020586, 0.13332662803430223, 0.05405997823705284, 0.021281862215283304,
    0.01083667164868604, 8.8428391504599e-05, 0.004376830575019393,
)  # fmt: skip


def tan(e: ScalarEmitter[Value], x: Value) -> Value:
    """The tangent: of a float32 that of what is left of quarters of a turn, or its negative reciprocal."""
    if e.dtype(x) == float64:
        return e.div(sin_of_double(e, x), cos_of_double(e, x))
    wide = e.cast(x, float64)
    shifted = e.add(e.mul(wide, 2 / _PI), DOUBLE.magic)
    n, r = e.sub(shifted, DOUBLE.magic), wide
    for part in _PI_PARTS:
        r = e.sub(r, e.mul(n, part / 2))
    r = rarely(e, e.le(_FAR_SINGLE, e.abs(wide)), _far_rest, wide, _marked(e, shifted, r))
    odd = e.lt(e.shl(e.bitcast(r, int64), 63), 0)
    out = e.cast(e.mul(r, estrin(e, e.mul(r, r), _TANGENT_32)), float32)
    return e.select(odd, e.div(-1, out), out)


def _far_rest(e: ScalarEmitter[Value], x: Value) -> Value:
    shifted, rest = _far_turns(e, x, 4, 0.0)
    return _marked(e, shifted, e.mul(rest, 2 * _PI))


def _marked(e: ScalarEmitter[Value], shifted: Value, r: Value) -> Value:
    """r, whose last bit tells whether the integer in the lowest bits of ``shifted`` is odd."""
    last = e.and_(e.bitcast(shifted, int64), 1)
    return e.bitcast(e.or_(e.and_(e.bitcast(r, int64), -2), last), float64)


Parts = tuple[Value, Value, Value]  # n (in the lowest bits of an integer), r, and the rest of r

_HALF_PI = 1.5707963267948966
_HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
_HALF_PI_SPLIT = (1.5707963109016418, 1.5893254773528196e-08)  # 26 and 53 bits
_FAR = 2.0**20

# sin(r) = r + r^3 p(r^2) for |r| <= pi / 4; error 2^-57.9
_SINE = (
    -0.1666666666666663, 0.00833333333332184, -0.0001984126982935852, 2.7557313538508876e-06,
    -2.505073438803807e-08, 1.5895433195021285e-10,
)  # fmt: skip
# cos(r) = 1 - r^2 / 2 + r^4 p(r^2); error 2^-63.9
_COSINE = (
    0.041666666666666595, -0.0013888888888873338, 2.48015872889975e-05, -2.755731421530974e-07,
    2.087570511719939e-09, -1.1358732927107205e-11,
)  # fmt: skip


def sin_of_double(e: ScalarEmitter[Value], x: Value) -> Value:
    """The sine."""
    return e.select(e.eq(x, 0), x, _turned(e, x, 0))


def cos_of_double(e: ScalarEmitter[Value], x: Value) -> Value:
    """The cosine."""
    return _turned(e, x, 1)


def _turned(e: ScalarEmitter[Value], x: Value, quarters: int) -> Value:
    """sin(x + quarters pi/2)."""
    far = e.le(_FAR, e.abs(x))

    def by(
        reduced: Callable[[ScalarEmitter[Value], Value], Parts[Value]],
    ) -> Callable[[ScalarEmitter[Value], Value], Value]:
        return lambda e, x: _sine(e, *reduced(e, x), quarters)

    return rarely(e, far, by(_reduced_far), x, by(_reduced)(e, x))


def _sine(e: ScalarEmitter[Value], n: Value, r: Value, rest: Value, quarters: int) -> Value:
    """sin(r + rest + (n + quarters) pi/2)."""
    n = e.add(n, quarters) if quarters else n
    square = e.mul(r, r)
    odd = e.eq(e.and_(n, 1), 1)
    out = e.select(odd, _near_cosine(e, r, rest, square), _near_sine(e, r, rest, square))
    sign = e.shl(e.and_(n, 2), 62)
    return e.bitcast(e.xor(e.bitcast(out, int64), sign), float64)


def _near_sine(e: ScalarEmitter[Value], r: Value, rest: Value, square: Value) -> Value:
    cube = e.mul(square, r)
    tail = e.sub(e.mul(rest, 0.5), e.mul(cube, estrin(e, square, _SINE[1:])))
    small = e.sub(e.sub(e.mul(square, tail), rest), e.mul(cube, _SINE[0]))
    return e.sub(r, small)


def _near_cosine(e: ScalarEmitter[Value], r: Value, rest: Value, square: Value) -> Value:
    half = e.mul(square, 0.5)
    main = e.sub(1, half)
    lost = e.sub(e.sub(1, main), half)
    tail = e.sub(e.mul(e.mul(square, square), estrin(e, square, _COSINE)), e.mul(r, rest))
    return e.add(main, e.add(lost, tail))


def _reduced(e: ScalarEmitter[Value], x: Value) -> Parts[Value]:
    """The parts of |x| < 2^20; products with the first three parts of pi/2 (33 bits each) are exact."""
    shifted = e.add(e.mul(x, 1 / _HALF_PI), DOUBLE.magic)
    n = e.sub(shifted, DOUBLE.magic)
    a, b, c, d = _HALF_PI_PARTS
    r, rest = two_sum(e, e.sub(x, e.mul(n, a)), e.neg(e.mul(n, b)))
    r, rest = two_sum(e, r, e.sub(rest, e.mul(n, c)))
    return e.bitcast(shifted, int64), r, e.sub(rest, e.mul(n, d))


# Far from zero: 34 zeros, then the bits of 2/pi, in words of 64

_WORDS = (
    0x0000000028BE60DB, 0x9391054A7F09D5F4, 0x7D4D377036D8A566, 0x4F10E4107F9458EA, 0xF7AEF1586DC91B8E,
    0x909374B801924BBA, 0x827464873F877AC7, 0x2C4A69CFBA208D7D, 0x4BAED1213A671C09, 0xAD17DF904E64758E,
    0x60D4CE7D272117E2, 0xEF7E4A0EC7FE25FF, 0xF7816603FBCBC462, 0xD6829B47DB4D9FB3, 0xC9F2C26DD3D18FD9,
    0xA797FA8B5D49EEB1, 0xFAF97C5ECF41CE7D, 0xE294A4BA9AFED7EC, 0x47E357421580CC11,
)  # fmt: skip


def _window(e: ScalarEmitter[Value], place: Value) -> list[Value]:
    """192 bits of ``_WORDS``, beginning at a place, in three words."""
    words: list[Value] = [e.constant(word, uint64) for word in _WORDS]
    for step in (8, 4, 2, 1):
        skip = e.eq(e.and_(place, step * 64), step * 64)
        words = [e.select(skip, words[i + step], words[i]) for i in range(step + 3)]
    shift = e.and_(place, 63)
    rest = e.sub(63, shift)  # of two shifts, one by 1: a shift by 64 is not defined
    return [e.or_(e.shl(a, shift), e.shr(e.shr(b, 1), rest)) for a, b in pairwise(words)]


def _high_product(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    """The upper 64 of the 128 bits of a product, x < 2^53."""
    low = 0xFFFFFFFF
    a, b, c, d = e.shr(x, 32), e.and_(x, low), e.shr(y, 32), e.and_(y, low)
    first = e.add(e.mul(a, d), e.shr(e.mul(b, d), 32))
    second = e.add(e.mul(b, c), e.and_(first, low))
    return e.add(e.add(e.mul(a, c), e.shr(first, 32)), e.shr(second, 32))


def _quarter_turns(e: ScalarEmitter[Value], x: Value) -> tuple[Value, Value]:
    """x / (pi/2) modulo 4 for x >= 2^20, in units of 2^-62 and 2^-126."""
    bits = e.bitcast(x, uint64)
    place = e.sub(e.shr(bits, 52), 1043)
    whole = e.or_(e.and_(bits, (1 << 52) - 1), 1 << 52)
    high, middle, low = _window(e, place)
    below = e.mul(whole, middle)
    second = e.add(below, _high_product(e, whole, low))
    carry = e.cast(e.lt(second, below), uint64)
    return e.add(e.add(e.mul(whole, high), _high_product(e, whole, middle)), carry), second


def _reduced_far(e: ScalarEmitter[Value], x: Value) -> Parts[Value]:
    """The parts of |x| >= 2^20; of infinity, NaN."""
    first, second = _quarter_turns(e, e.abs(x))
    n = e.shr(e.add(first, 1 << 61), 62)
    signed = e.bitcast(e.sub(first, e.shl(n, 62)), int64)
    main = e.cast(signed, float64)
    left = e.cast(e.sub(signed, e.cast(main, int64)), float64)
    tail = e.add(left, e.mul(e.cast(e.shr(second, 1), float64), 2.0**-63))
    negative = e.lt(x, 0)
    finite = e.lt(e.abs(x), float("inf"))
    unit = e.select(finite, either(e, negative, -(2.0**-62), 2.0**-62, float64), float("nan"))
    r, rest = _times_half_pi(e, *fast_two_sum(e, e.mul(main, unit), e.mul(tail, unit)))
    n = e.bitcast(n, int64)
    return e.select(negative, e.neg(n), n), r, rest


def _times_half_pi(e: ScalarEmitter[Value], main: Value, tail: Value) -> tuple[Value, Value]:
    a, b = _HALF_PI_SPLIT
    upper = upper_half(e, main)
    small = e.add(e.mul(main, b), e.mul(e.add(e.sub(main, upper), tail), a))
    return fast_two_sum(e, e.mul(upper, a), small)


# atan(t) = t + t^3 p(t^2) for |t| <= 1; error 2^-28.5
_ANGLE_SINGLE = (
    -0.33333298563957214, 0.1999852955341339, -0.14264015853405, 0.10950881242752075, -0.08399313688278198,
    0.05788165330886841, -0.0310974158346653, 0.010869011282920837, -0.0017829135758802295,
)  # fmt: skip
# the same for |t| <= 1/2; error 2^-57.8
_ANGLE_DOUBLE = (
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
    angle = e.add(t, e.mul(e.mul(t, square), estrin(e, square, _ANGLE_SINGLE)))
    high, low = 1.5707963705062866, -4.371139000186241e-08  # pi / 2
    angle = e.select(steep, e.sub(high, e.sub(angle, low)), angle)
    return e.select(left, e.sub(2 * high, e.sub(angle, 2 * low)), angle)


def _angle_of_double(e: ScalarEmitter[Value], small: Value, large: Value, steep: Value, left: Value) -> Value:
    diagonal = e.and_(e.lt(0, small), e.le(e.mul(large, 0.5), small))  # small - large is exact there
    t, rest = _tangent(e, small, large, diagonal)
    square = e.mul(t, t)
    rest = e.add(e.mul(e.mul(t, square), estrin(e, square, _ANGLE_DOUBLE)), e.mul(rest, e.sub(1, square)))
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
