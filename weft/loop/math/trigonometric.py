"""Sine, cosine and the angle of a point, in basic scalar instructions.

A float32 x is reduced to x - n pi in [-pi/2, pi/2] and its sine computed in float64, where two parts of pi
are exact enough up to 2^22. Beyond (``rarely``), x is multiplied exactly by four parts of 1 / (2 pi), chosen
by the size of x, and whole turns are dropped from the products before they are added.
"""

from __future__ import annotations

from weft.base.dtypes import float32, float64, int64
from weft.loop.math.trigonometric_double import cos_of_double, sin_of_double
from weft.ops.elementary import DOUBLE, estrin, rarely
from weft.ops.scalar import ScalarEmitter, Value

_PI = 3.141592653589793
_PI_PARTS = (3.141592651605606, 1.984187159361081e-09)  # 30 and 53 bits
# 1 / (2 pi) in parts of 29, 29, 29 and 53 bits: what counts for 2^22 < |x| < 2^79 and above
_TURN_PARTS = (
    (0.15915494039654732, 2.6953480142255515e-09, 4.038449463906148e-18, 6.317065088957875e-27),
    (4.038449450981451e-18, 1.9241762118391763e-26, 4.170716914254881e-35, 2.897178338357036e-44),
)
_FAR, _FARTHER = 2.0**22, 2.0**79

# sin(r) / r for |r| <= pi / 2, in r^2; error 2^-27.3
_SINE = (1.0, -0.16666659544639947, 0.008333066083844702, -0.00019809590168352192, 2.60575082388892e-06)


def _with_parity(e: ScalarEmitter[Value], shifted: Value, r: Value) -> Value:
    """r, negated where the integer in the lowest bits of ``shifted`` is odd."""
    sign = e.shl(e.bitcast(shifted, int64), 63)
    return e.bitcast(e.xor(e.bitcast(r, int64), sign), float64)


def _reduced(e: ScalarEmitter[Value], x: Value, quarter: float) -> Value:
    """r with sin(r) = sin(x + quarter pi) for |x| < 2^22, where the quarter is 0 or 1/2."""
    turns = e.mul(x, 1 / _PI)
    shifted = e.add(e.add(turns, quarter) if quarter else turns, DOUBLE.magic)
    n = e.sub(shifted, DOUBLE.magic)
    n = e.sub(n, quarter) if quarter else n
    for part in _PI_PARTS:
        x = e.sub(x, e.mul(n, part))
    return _with_parity(e, shifted, x)


def _reduced_far(e: ScalarEmitter[Value], x: Value, quarter: float) -> Value:
    """The same for |x| >= 2^22."""
    farther = e.le(_FARTHER, e.abs(x))
    products = [
        e.mul(x, e.select(farther, e.constant(b, float64), a)) for a, b in zip(*_TURN_PARTS, strict=True)
    ]
    first, *others = [e.sub(p, e.round(p)) for p in products]
    total = first
    for turn in others:
        total = e.add(total, turn)
    shifted = e.add(e.add(e.mul(total, 2), quarter), DOUBLE.magic)
    n = e.sub(e.sub(shifted, DOUBLE.magic), quarter)
    rest = e.sub(first, e.mul(n, 0.5))
    for turn in others:  # these sums are exact where they cancel
        rest = e.add(rest, turn)
    return _with_parity(e, shifted, e.mul(rest, 2 * _PI))


def _sine_of_single(e: ScalarEmitter[Value], x: Value, quarter: float) -> Value:
    """sin(x + quarter pi) of a float32."""
    wide = e.cast(x, float64)
    far = e.le(_FAR, e.abs(wide))
    r = rarely(e, far, lambda e, x: _reduced_far(e, x, quarter), wide, _reduced(e, wide, quarter))
    return e.cast(e.mul(r, estrin(e, e.mul(r, r), _SINE)), float32)


def sin(e: ScalarEmitter[Value], x: Value) -> Value:
    """The sine."""
    return sin_of_double(e, x) if e.dtype(x) == float64 else _sine_of_single(e, x, 0)


def cos(e: ScalarEmitter[Value], x: Value) -> Value:
    """The cosine."""
    return cos_of_double(e, x) if e.dtype(x) == float64 else _sine_of_single(e, x, 0.5)
