"""Exponentials and hyperbolic functions in basic scalar instructions: x = n log 2 + r, a polynomial in r."""

from __future__ import annotations

from weft.base.dtypes import float32, float64, int32, int64
from weft.ops.elementary import (
    DOUBLE,
    LN2,
    SINGLE,
    Format,
    at_least,
    at_most,
    either,
    estrin,
    fast_two_sum,
    format_of,
    known_sign,
    power_of_two,
    unless_tiny,
    with_sign_of,
)  # fmt: skip
from weft.ops.scalar import Operand, ScalarEmitter, Value, polynomial


def _by_powers_of_two(e: ScalarEmitter[Value], f: Format, x: Value) -> tuple[Value, Value]:
    """(n + f.magic, r), where x = n log 2 + r for a whole n, and r is small."""
    shifted = e.add(e.mul(x, 1 / LN2), f.magic)
    n = e.sub(shifted, f.magic)
    high, low = f.ln2
    return shifted, e.sub(e.sub(x, e.mul(n, high)), e.mul(n, low))


def _exp_near_zero(e: ScalarEmitter[Value], f: Format, r: Value) -> Value:
    """exp(r) for |r| <= log(2) / 2."""
    if f is SINGLE:
        return polynomial(e, r, (1.0, 1.0, *f.expm1))
    return e.add(_expm1_near_zero(e, f, r), 1)


def scaled(
    e: ScalarEmitter[Value], f: Format, x: Value, shifted: Value, sign: int = 0, *, bounded: bool = False
) -> Value:
    """x 2**n for 1/2 < x < 2 and a whole n, of which n + f.magic is given, and the sign if it is known.

    What is far below the smallest number is chosen to be 0, not computed: an underflow takes an x86 processor
    a hundred times as long as a product, and masks make exp(-inf) a common one. An emitter may have a method
    ``scale(x, n, lowest)`` for all of it, which gives None where the machine has no such instruction. Where n
    is bounded, it is not so far below.
    """
    if bounded:
        bias, factor = _two_steps(e, f, e.sub(shifted, f.magic), sign)
        return e.mul(e.mul(x, power_of_two(e, f, e.bitcast(shifted, f.bits), bias)), factor)
    n, lowest = e.sub(shifted, f.magic), -(f.bias + f.mantissa)
    scale = getattr(e, "scale", None)
    found: Value | None = None if scale is None else scale(x, n, lowest)
    if found is not None:
        return found
    vanishing = e.lt(n, lowest)
    bits = e.select(vanishing, 0, e.bitcast(shifted, f.bits))
    bias, factor = _two_steps(e, f, n, sign)
    return e.select(vanishing, 0, e.mul(e.mul(x, power_of_two(e, f, bits, bias)), factor))


def _two_steps(e: ScalarEmitter[Value], f: Format, n: Value, sign: int) -> tuple[Value, Value]:
    """What to add to n as an exponent, and the other factor: all powers of two do not fit into one."""
    down, up = (f.bias + f.lift) << f.mantissa, (f.bias - 1) << f.mantissa
    if sign < 0:
        return e.constant(down, f.bits), e.constant(2.0**-f.lift, f.dtype)
    negative = e.lt(n, 0)
    return either(e, negative, down, up, f.bits), either(e, negative, 2.0**-f.lift, 2.0, f.dtype)


def exp(e: ScalarEmitter[Value], x: Value) -> Value:
    """e to the power of x."""
    return _exp(e, x, known_sign(e, x))


def _exp(e: ScalarEmitter[Value], x: Value, sign: int) -> Value:
    f = format_of(e, x)
    x = x if sign < 0 else at_most(e, x, f.highest)
    # An emitter may say that underflow takes no time: one instruction bounds x, where choosing takes three.
    bounded: bool = getattr(e, "underflows_freely", False)
    x = e.max(x, f.lowest) if bounded else x
    if f is DOUBLE:
        shifted, q = exp_of_sum(e, x, 0)
        return scaled(e, f, e.add(q, 1), shifted, sign, bounded=bounded)
    shifted, r = _by_powers_of_two(e, f, x)
    return scaled(e, f, _exp_near_zero(e, f, r), shifted, sign, bounded=bounded)


def sigmoid(e: ScalarEmitter[Value], x: Value) -> Value:
    """1 / (1 + exp(-x)), by the power that does not overflow."""
    small = _exp(e, e.neg(e.abs(x)), -1)
    out = e.div(e.select(e.lt(x, 0), small, 1), e.add(small, 1))
    product = e.mul(unless_tiny(e, small), out)
    return e.select(e.lt(out, 0.25), e.sub(small, product), out)  # the quotient's error counts less


def exp_of_parts(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    """e to the power of x + y in float32, from -120 to 0, where y is small and what x has no room for."""
    f = SINGLE
    shifted = e.add(e.mul(e.add(x, y), 1 / LN2), f.magic)
    n = e.sub(shifted, f.magic)
    high, low = f.ln2
    r = e.add(e.sub(e.sub(x, e.mul(n, high)), e.mul(n, low)), y)
    # 2^n is none of float32's numbers where n is below -149, but 2^(n + 64) is.
    power = power_of_two(e, f, e.bitcast(shifted, f.bits), (f.bias + 64) << f.mantissa)
    return e.mul(e.mul(_exp_near_zero(e, f, r), power), 2.0**-64)


def exp2(e: ScalarEmitter[Value], x: Value) -> Value:
    """2 to the power of x."""
    f = format_of(e, x)
    x = at_most(e, x, f.bias + 1)
    shifted = e.add(x, f.magic)
    r = e.mul(e.sub(x, e.sub(shifted, f.magic)), LN2)
    return scaled(e, f, _exp_near_zero(e, f, r), shifted)


def exp_of_sum(e: ScalarEmitter[Value], x: Value, rest: Operand[Value]) -> tuple[Value, Value]:
    """(n + magic, q), where (1 + q) 2**n is e to the power of the sum of a number and a small one."""
    f = format_of(e, x)
    shifted = e.add(e.mul(x, 1 / LN2), f.magic)
    n = e.sub(shifted, f.magic)
    rest = e.sub(rest, e.mul(n, f.ln2[1]))
    r, rest = fast_two_sum(e, e.sub(x, e.mul(n, f.ln2[0])), rest)
    bend = e.add(e.mul(e.mul(r, r), estrin(e, r, f.expm1)), e.add(e.mul(r, rest), rest))
    return shifted, e.add(r, bend)


# 2^x for |x| <= 1/2, error 2^-29.0
_EXP2 = (
    1.0000000005634393, 0.6931472060380857, 0.24022646841472894, 0.05550328123972486, 0.009618492341920986,
    0.0013400195698668276, 0.0001534541730658582,
)  # fmt: skip


def exp2_for_single(e: ScalarEmitter[Value], x: Value) -> Value:
    """2 to the power of a float64 between -1000 and 1000, to float32's precision."""
    shifted = e.add(x, DOUBLE.magic)
    rest = e.sub(x, e.sub(shifted, DOUBLE.magic))
    power = power_of_two(e, DOUBLE, e.bitcast(shifted, DOUBLE.bits), DOUBLE.bias << DOUBLE.mantissa)
    return e.mul(polynomial(e, rest, _EXP2), power)


def _expm1_near_zero(e: ScalarEmitter[Value], f: Format, r: Value) -> Value:
    """exp(r) - 1 for |r| <= log(2) / 2."""
    bend = polynomial(e, r, f.expm1) if f is SINGLE else estrin(e, r, f.expm1)
    return e.add(r, e.mul(e.mul(r, r), bend))


def expm1(e: ScalarEmitter[Value], x: Value) -> Value:
    """exp(x) - 1 without cancellation."""
    f = format_of(e, x)
    shifted, r = _by_powers_of_two(e, f, at_least(e, at_most(e, x, f.highest), -2.0 * f.mantissa))
    half = power_of_two(e, f, e.bitcast(shifted, f.bits), (f.bias - 1) << f.mantissa)
    out = e.mul(e.add(e.mul(half, _expm1_near_zero(e, f, r)), e.sub(half, 0.5)), 2)
    return e.select(e.lt(e.abs(x), 2.0 ** -(f.mantissa + 2)), x, out)


def _half_exp(e: ScalarEmitter[Value], f: Format, x: Value) -> Value:
    """exp(x) / 2 for x >= 0; it overflows later than exp(x)."""
    shifted, r = _by_powers_of_two(e, f, at_most(e, x, f.highest + 1))
    power = power_of_two(e, f, e.bitcast(shifted, f.bits), (f.bias - 2) << f.mantissa)
    out = e.mul(_exp_near_zero(e, f, r), power)
    return e.mul(out, 2)


def cosh(e: ScalarEmitter[Value], x: Value) -> Value:
    """The hyperbolic cosine."""
    half = _half_exp(e, format_of(e, x), e.abs(x))
    return e.add(half, e.div(0.25, half))


def sinh(e: ScalarEmitter[Value], x: Value) -> Value:
    """The hyperbolic sine: by a polynomial for |x| < 1."""
    f = format_of(e, x)
    size = e.abs(x)
    square = e.mul(size, size)
    near = e.add(size, e.mul(e.mul(size, square), estrin(e, square, _SINH[f.dtype])))
    half = _half_exp(e, f, size)
    return with_sign_of(e, e.select(e.lt(size, 1), near, e.sub(half, e.div(0.25, half))), x)


def tanh(e: ScalarEmitter[Value], x: Value) -> Value:
    """The hyperbolic tangent."""
    f = format_of(e, x)
    return with_sign_of(e, (_tanh_of_single if f is SINGLE else _tanh_of_double)(e, e.abs(x)), x)


def _tanh_of_single(e: ScalarEmitter[Value], x: Value) -> Value:
    """h / (1 + h) with h = expm1(2 x) / 2, for x >= 0."""
    x = at_most(e, x, 10)
    shifted = e.add(e.mul(x, 2 / LN2), SINGLE.magic)
    r = e.sub(x, e.mul(e.sub(shifted, SINGLE.magic), LN2 / 2))
    near = e.add(r, e.mul(e.mul(r, r), polynomial(e, r, _HALF_EXPM1)))
    power = power_of_two(e, SINGLE, e.bitcast(shifted, int32), SINGLE.bias << SINGLE.mantissa)
    h = e.add(e.mul(power, near), e.sub(e.mul(power, 0.5), 0.5))
    out = e.div(h, e.add(h, 1))
    return e.select(e.lt(h, 0.5), e.sub(h, e.mul(h, out)), out)  # the quotient's error counts less


def _tanh_of_double(e: ScalarEmitter[Value], x: Value) -> Value:
    """A polynomial below 0.75, 1 - 2 / (1 + exp(2 x)) above, for x >= 0."""
    square = e.mul(x, x)
    near = e.add(x, e.mul(e.mul(x, square), estrin(e, square, _TANH)))
    shifted, q = exp_of_sum(e, e.mul(at_most(e, x, 32), 2), 0)
    power = power_of_two(e, DOUBLE, e.bitcast(shifted, int64), DOUBLE.bias << DOUBLE.mantissa)
    total, lost = fast_two_sum(e, e.add(power, 1), e.mul(power, q))
    half = e.div(1, total)
    far, rest = fast_two_sum(e, e.constant(1, float64), e.mul(half, -2))
    far = e.add(far, e.add(rest, e.mul(e.mul(half, half), e.mul(lost, 2))))
    return e.select(e.lt(x, 0.75), near, far)


# expm1(2 r) / 2 = r + r^2 p(r) for |r| <= log(2) / 4
_HALF_EXPM1 = tuple(2 ** (k + 1) * c for k, c in enumerate(SINGLE.expm1))
# sinh(x) = x + x^3 p(x^2) for |x| < 1; errors 2^-31.6 and 2^-61.8
_SINH = {
    float32: (0.1666666716337204, 0.00833331048488617, 0.00019842895562760532, 2.7822131869470468e-06),
    float64: (
        0.16666666666666669, 0.008333333333332912, 0.00019841269841593408, 2.7557319106758163e-06,
        2.505213099841424e-08, 1.6056659194247894e-10, 7.776599356675339e-13,
    ),
}  # fmt: skip
# tanh(x) = x + x^3 p(x^2) for |x| < 1, error 2^-59.8
_TANH = (
    -0.333333333333333, 0.13333333333329114, -0.05396825396648865, 0.02186948849867785, -0.008863235053977746,
    0.0035921240724496287, -0.0014558114477713378, 0.000589931660613615, -0.00023883316358736092,
    9.622738599902941e-05, -3.806290823167242e-05, 1.4278726380139443e-05, -4.757178858523725e-06,
    1.2709577980905773e-06, -2.3292272927020255e-07, 2.1295532934350828e-08,
)  # fmt: skip
