"""Logarithms in basic scalar instructions: x = (1 + f) 2**k with 1 + f next to 1, and a polynomial in f."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base.dtypes import float32, float64
from weft.ops.elementary import (
    LN2,
    SINGLE,
    Format,
    as_float,
    either,
    estrin,
    format_of,
    known_sign,
    unless_tiny,
)
from weft.ops.scalar import ScalarEmitter, Value, polynomial


def split(e: ScalarEmitter[Value], f: Format, x: Value) -> tuple[Value, Value]:
    """(k, k as an exponent), where x = m 2**k with sqrt(1/2) <= m < sqrt(2)."""
    half = int(np.asarray(0.5**0.5, f.dtype).view(f.bits))
    k = e.shr(e.sub(e.bitcast(x, f.bits), half), f.mantissa)
    return k, e.shl(k, f.mantissa)


def _log_from_parts(e: ScalarEmitter[Value], f: Format, k: Value, rest: Value) -> Value:
    """log((1 + rest) 2**k)."""
    k = as_float(e, f, k)
    if f is SINGLE:
        return e.add(e.mul(k, LN2), e.add(rest, _log_bend(e, f, rest)))
    high, low = f.ln2
    return e.add(e.mul(k, high), e.add(rest, e.add(e.mul(k, low), _log_bend(e, f, rest))))


def _log_bend(e: ScalarEmitter[Value], f: Format, x: Value, of_single: Sequence[float] = SINGLE.log) -> Value:
    """log(1 + x) - x."""
    if f is SINGLE:
        return e.mul(e.mul(x, x), polynomial(e, x, of_single))
    return e.mul(e.mul(x, x), e.add(e.mul(x, estrin(e, x, f.log[1:])), f.log[0]))


def normalised(e: ScalarEmitter[Value], f: Format, x: Value) -> tuple[Value, Value]:
    """(k, rest), where a positive x is (1 + rest) 2**k."""
    subnormal = e.lt(x, 2.0 ** (1 - f.bias))
    normal = e.select(subnormal, e.mul(x, 2.0**f.mantissa), x)
    k, exponent = split(e, f, normal)
    m = e.bitcast(e.sub(e.bitcast(normal, f.bits), exponent), f.dtype)
    return e.sub(k, either(e, subnormal, f.mantissa, 0, f.bits)), e.sub(m, 1)


def log(e: ScalarEmitter[Value], x: Value) -> Value:
    """The natural logarithm."""
    f = format_of(e, x)
    return _outside(e, x, _log_from_parts(e, f, *normalised(e, f, x)), x, 0)


# For log2 and log10: 1 / log(base) and the logarithm of 2, each in two parts
_BASES = {
    (2, float32): ((1.4426950216293335, 1.925963033500011e-08), (1.0, 0.0)),
    (2, float64): ((1.4426950408889634, 2.0355273740931033e-17), (1.0, 0.0)),
    (10, float32): ((0.4342944920063019, -1.0103049952192578e-08), (0.301025390625, 4.605039066518657e-06)),
    (10, float64): ((0.4342944819032518, 1.098319650216765e-17), (0.30102999566383914, 1.42050232272661e-13)),
}
# As ``SINGLE.log``, error 2^-27.8: more roundings follow
_LOG = (
    -0.49999988079071045, 0.33333325386047363, -0.25001609325408936, 0.20002004504203796,
    -0.16608409583568573, 0.14180850982666016, -0.13248087465763092, 0.12912987172603607,
    -0.07619057595729828,
)  # fmt: skip


def _log_to_base(e: ScalarEmitter[Value], x: Value, base: int) -> Value:
    f = format_of(e, x)
    k, rest = normalised(e, f, x)
    k = as_float(e, f, k)
    (scale, scale_rest), (high, low) = _BASES[base, f.dtype]
    small = e.add(e.mul(rest, scale_rest), e.mul(_log_bend(e, f, rest, _LOG), scale))
    small = e.add(small, e.mul(k, low)) if low else small
    return _outside(e, x, e.add(e.mul(k, high), e.add(e.mul(rest, scale), small)), x, 0)


def log2(e: ScalarEmitter[Value], x: Value) -> Value:
    """The logarithm to base 2."""
    return _log_to_base(e, x, 2)


def log10(e: ScalarEmitter[Value], x: Value) -> Value:
    """The logarithm to base 10."""
    return _log_to_base(e, x, 10)


def _outside(e: ScalarEmitter[Value], x: Value, out: Value, size: Value, pole: float) -> Value:
    """A logarithm of a size that is infinite, zero (where x is at the pole) or negative."""
    return _at_pole(e, x, e.select(e.lt(size, np.inf), out, size), pole)


def _at_pole(e: ScalarEmitter[Value], x: Value, out: Value, pole: float) -> Value:
    """A logarithm of x, at its pole and below too."""
    return e.select(e.lt(pole, x), out, either(e, e.eq(x, pole), -np.inf, np.nan, e.dtype(x)))


# log(1 + x) = x + x^2 p(x) for 0 <= x <= 1, error 2^-27.5
_LOG1P = (
    -0.4999993145465851, 0.33330464363098145, -0.24958018958568573, 0.19692102074623108, -0.15344882011413574,
    0.10661137104034424, -0.05745742842555046, 0.02008643187582493, -0.003290535882115364,
)  # fmt: skip


def log1p_of_positive(e: ScalarEmitter[Value], x: Value) -> Value:
    """log(1 + x) for 0 <= x <= 1, in fewer instructions."""
    f = format_of(e, x)
    if f is SINGLE:
        y = unless_tiny(e, x)
        bend = e.add(e.mul(estrin(e, y, _LOG1P[1:]), y), _LOG1P[0])
        return e.add(x, e.mul(e.mul(y, y), bend))
    k, exponent = split(e, f, e.add(x, 1))
    scale = e.bitcast(e.sub(f.bias << f.mantissa, exponent), f.dtype)
    return _log_from_parts(e, f, k, e.add(e.mul(x, scale), e.sub(scale, 1)))


def log1p(e: ScalarEmitter[Value], x: Value) -> Value:
    """log(1 + x) without cancellation: x and 1 are divided by the same power of two before they are added."""
    f = format_of(e, x)
    if f is SINGLE:
        out = _log1p_of_single(e, x)
        return out if known_sign(e, x) > 0 else _at_pole(e, x, out, -1)
    u = e.add(x, 1)
    k, exponent = split(e, f, u)
    # The scale is of x / 4, because 2**-k may be subnormal.
    scale = e.bitcast(e.sub((f.bias + 2) << f.mantissa, exponent), f.dtype)
    rest = e.add(e.mul(e.mul(x, 0.25), scale), e.sub(e.mul(scale, 0.25), 1))
    out = _outside(e, x, _log_from_parts(e, f, k, rest), u, -1)
    return e.select(e.eq(u, 1), x, out)


# Code of four times what ``f.log`` is for
_LOG_OF_FOURTH = tuple(c * 0.25 ** (i + 2) for i, c in enumerate(SINGLE.log))


def _log1p_of_single(e: ScalarEmitter[Value], x: Value) -> Value:
    """The same for x > -1, by 4 2**-k, which is never subnormal; -k keeps the sign of a zero."""
    f = SINGLE
    above = int(np.float32(2**0.5).view(np.int32)) - 1
    lowered = e.and_(e.sub(above, e.bitcast(e.add(x, 1), f.bits)), -1 << f.mantissa)  # -k as an exponent
    scale = e.bitcast(e.add(lowered, (f.bias + 2) << f.mantissa), f.dtype)
    rest = e.sub(e.mul(x, scale), e.sub(4, scale))
    bend = e.mul(e.mul(rest, rest), polynomial(e, rest, _LOG_OF_FOURTH))
    shift = e.mul(e.cast(lowered, f.dtype), -LN2 * 2.0**-f.mantissa)
    return e.add(shift, e.add(e.mul(rest, 0.25), bend))
