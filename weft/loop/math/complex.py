"""Functions of complex numbers, composed of functions of their parts.

Limits follow C99, annex G, but for the intermediate overflow of exp just below its end. The plans for the
square root and the tangent are W. Kahan's ("Branch cuts for complex elementary functions", 1987).
"""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import float32, float64
from weft.ops.elementary import either, upper_half
from weft.ops.exponent import cosh, sinh
from weft.ops.logarithm import log1p
from weft.ops.scalar import ScalarEmitter, Value, copy_sign, is_nan


def _times(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    """x y, and 0 where one of them is 0, though the other one may be infinite or NaN."""
    product = e.mul(x, y)
    lost = e.and_(is_nan(e, product), e.or_(e.eq(x, 0), e.eq(y, 0)))
    return e.select(lost, 0, product)


def exp(e: ScalarEmitter[Value], z: Value) -> Value:
    """e to the power of z."""
    a, b = e.real(z), e.imag(z)
    size = e.exp(a)
    re = e.mul(size, e.cos(b))
    im = _times(e, e.sin(b), size)
    nowhere = is_nan(e, e.sub(b, b))  # a direction that is infinite or NaN
    gone, huge = e.and_(nowhere, e.eq(a, -np.inf)), e.and_(nowhere, e.eq(a, np.inf))
    re = e.select(huge, np.inf, e.select(gone, 0, re))
    return e.complex(re, e.select(gone, 0, e.select(e.eq(b, 0), b, im)))


def _log_of_size(e: ScalarEmitter[Value], a: Value, b: Value) -> Value:
    """log |a + ib|, accurate near the unit circle too."""
    x, y = e.abs(a), e.abs(b)
    steep = e.lt(x, y)
    large, small = e.select(steep, y, x), e.select(steep, x, y)
    ratio = e.select(e.lt(0, small), e.div(small, large), 0)
    far = e.add(e.log(large), e.mul(log1p(e, e.mul(ratio, ratio)), 0.5))
    near = e.mul(log1p(e, _square_less_one(e, large, small)), 0.5)
    out = e.select(e.and_(e.lt(0.5, large), e.lt(large, 2)), near, far)
    out = e.select(e.or_(is_nan(e, a), is_nan(e, b)), np.nan, out)
    return e.select(e.or_(e.eq(x, np.inf), e.eq(y, np.inf)), np.inf, out)


def _square_less_one(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    """x^2 + y^2 - 1 from exact products."""
    a, c = upper_half(e, x), upper_half(e, y)
    b, d = e.sub(x, a), e.sub(y, c)
    main = e.add(e.sub(e.mul(a, a), 1), e.mul(c, c))
    rest = e.add(e.mul(e.add(x, a), b), e.mul(e.add(y, c), d))
    return e.add(main, rest)


def log(e: ScalarEmitter[Value], z: Value) -> Value:
    """The natural logarithm."""
    a, b = e.real(z), e.imag(z)
    if e.dtype(a) == float32:
        size = e.cast(_log_of_size(e, e.cast(a, float64), e.cast(b, float64)), float32)
    else:
        size = _log_of_size(e, a, b)
    return e.complex(size, e.atan2(b, a))


def sin(e: ScalarEmitter[Value], z: Value) -> Value:
    """The sine."""
    a, b = e.real(z), e.imag(z)
    im = _times(e, sinh(e, b), e.cos(a))
    im = e.select(e.and_(is_nan(e, im), e.eq(e.abs(b), np.inf)), np.inf, im)
    return e.complex(_times(e, e.sin(a), cosh(e, b)), im)


def cos(e: ScalarEmitter[Value], z: Value) -> Value:
    """The cosine."""
    a, b = e.real(z), e.imag(z)
    re = e.mul(e.cos(a), cosh(e, b))
    re = e.select(e.and_(is_nan(e, re), e.eq(e.abs(b), np.inf)), np.inf, re)
    return e.complex(re, e.neg(_times(e, e.sin(a), sinh(e, b))))


def tanh(e: ScalarEmitter[Value], z: Value) -> Value:
    """The hyperbolic tangent."""
    a, b = e.real(z), e.imag(z)
    sine, cosine = e.sin(b), e.cos(b)
    t, s = e.div(sine, cosine), sinh(e, a)
    slope, size = e.add(e.mul(t, t), 1), e.sqrt(e.add(e.mul(s, s), 1))
    below = e.add(e.mul(slope, e.mul(s, s)), 1)
    re, im = e.div(e.mul(e.mul(slope, size), s), below), e.div(t, below)
    far = e.lt(20, e.abs(a))
    decay = e.mul(e.mul(e.mul(sine, cosine), 4), e.exp(e.mul(e.abs(a), -2)))
    decay = e.select(e.and_(e.eq(e.abs(a), np.inf), is_nan(e, decay)), 0, decay)
    unit = e.add(copy_sign(e, e.constant(1, e.dtype(a)), a), e.mul(decay, 0))
    re = e.select(e.eq(a, 0), a, e.select(far, unit, re))
    return e.complex(re, e.select(e.eq(b, 0), b, e.select(far, decay, im)))


def sqrt(e: ScalarEmitter[Value], z: Value) -> Value:
    """The square root whose real part is not negative."""
    a, b = e.real(z), e.imag(z)
    dtype = e.dtype(a)
    tiny, huge = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    size = e.abs(z)
    low, high = e.lt(size, tiny / float(np.finfo(dtype).eps)), e.lt(huge / 4, size)
    # Divided by a power of four, nothing overflows or loses bits.
    scale = e.select(high, e.constant(2.0**-4, dtype), either(e, low, 2.0**54, 1, dtype))
    back = e.select(high, e.constant(4, dtype), either(e, low, 2.0**-27, 1, dtype))
    re, im = _root(e, e.mul(a, scale), e.mul(b, scale))
    re, im = e.mul(re, back), e.mul(im, back)
    infinite = e.eq(e.abs(b), np.inf)
    re = e.select(e.or_(infinite, e.eq(a, np.inf)), np.inf, re)
    im = e.select(e.eq(a, -np.inf), copy_sign(e, e.constant(np.inf, dtype), b), im)
    im = e.select(e.and_(e.eq(a, np.inf), e.eq(b, b)), copy_sign(e, e.constant(0, dtype), b), im)
    re = e.select(e.and_(e.eq(a, -np.inf), e.lt(e.abs(b), np.inf)), 0, re)
    return e.complex(re, e.select(infinite, b, im))


def _root(e: ScalarEmitter[Value], a: Value, b: Value) -> tuple[Value, Value]:
    """The square root of a + ib in range."""
    size = e.sqrt(e.mul(e.add(e.abs(e.complex(a, b)), e.abs(a)), 0.5))
    other = e.select(e.eq(size, 0), e.abs(b), e.div(e.abs(b), e.mul(size, 2)))
    right = e.le(0, a)
    return e.select(right, size, other), copy_sign(e, e.select(right, other, size), b)


def pow(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    """x to the power of y: exp(y log x)."""
    c, d = e.real(y), e.imag(y)
    out = exp(e, _product(e, y, log(e, x)))
    zero = e.and_(e.eq(e.real(x), 0), e.eq(e.imag(x), 0))
    limit = either(e, e.lt(0, c), 0, np.nan, e.dtype(c))
    re, im = (e.select(zero, limit, part(out)) for part in (e.real, e.imag))
    one = e.and_(e.eq(c, 0), e.eq(d, 0))
    return e.complex(e.select(one, 1, re), e.select(one, 0, im))


def _product(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    """x y, where a part that is 0 makes no NaN of an infinite one."""
    a, b, c, d = e.real(x), e.imag(x), e.real(y), e.imag(y)
    re = e.sub(_times(e, a, c), _times(e, b, d))
    return e.complex(re, e.add(_times(e, a, d), _times(e, b, c)))
