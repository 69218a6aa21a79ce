"""The error function, its complement and inverse, and the normal distribution function, in float32 code.

These are what compiled code inlines; ``weft.ops.special`` has the code of float64 and of eager kernels. With
a rational function fitted to Mills' ratio on [0, 15] by iteratively reweighted least squares (relative error
9.4e-9), Phi(-a) = exp(-a^2 / 2) P(a) / Q(a), and erfc(a) = 2 Phi(-a sqrt(2)).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base.dtypes import float32, float64, int32
from weft.ops.elementary import LN2, at_most, estrin, with_sign_of
from weft.ops.exponent import exp2_for_single, exp_of_parts
from weft.ops.scalar import Choose, ScalarEmitter, Value, by_selecting, polynomial

_MILLS = (
    (0.500000003, 0.439283239, 0.183969007, 0.0408810862, 0.00415322436),
    (1.0, 1.67645148, 1.20554771, 0.471408352, 0.102479803, 0.0104104779),
)
_ERFC = (
    tuple(2 * c * 2 ** (k / 2) for k, c in enumerate(_MILLS[0])),
    tuple(c * 2 ** (k / 2) for k, c in enumerate(_MILLS[1])),
)
# (a + 2) Phi(-a) exp(a^2 / 2) for 0 <= a <= 15, in 4 / (a + 2) - 1; error 2^-25.3
_MILLS_SINGLE = (
    0.6724079847335815, 0.33140456676483154, 0.028798408806324005, -0.03672191500663757,
    -0.0004832384584005922, 0.006753652822226286, -0.0018912001978605986, -0.0008892516489140689,
    0.0007268007611855865, -2.6672376407077536e-05, -7.917798211565241e-05,
)  # fmt: skip
# erf(x) / x - 1 for |x| < 0.9, in x^2; error 2^-26.1
_NEAR = (
    0.12837915122509003, -0.3761250376701355, 0.11281921714544296, -0.026770493015646935,
    0.004998959135264158, -0.0006020799628458917,
)  # fmt: skip
# log(erfc(x)) for 0.9 <= x <= 4; error 2^-29.1 of erf
_LOG_ERFC = (
    -0.00016645609866827726, -1.127797245979309, -0.6369760036468506, -0.10411381721496582,
    0.022315312176942825, -0.003065522527322173, 0.00019822355534415692,
)  # fmt: skip

# erfinv(x) / x - 1 by w = -log(1 - x^2): for w < 5 in w, error 2^-27.4 of erfinv
_INVERSE_NEAR = (
    -0.11377307772636414, 0.2320137917995453, 0.011548749171197414, -0.0023344489745795727,
    -0.0001273497473448515, 4.449839616427198e-05, 4.003704816568643e-06, -1.980189608730143e-06,
    2.2140221744848532e-07, -8.806630980018326e-09,
)  # fmt: skip
# and for w >= 5 in sqrt(w) - 3.125, error 2^-27.2
_INVERSE_FAR = (
    1.958320140838623, 1.0037187337875366, 0.007048835977911949, -0.005301351193338633,
    0.0037828020285815, -0.002519897883757949, 0.0013085228856652975, -0.00032467811251990497,
    -0.00017244268383365124, 0.00012997532030567527,
)  # fmt: skip

Fraction = tuple[Sequence[float], Sequence[float]]


def _tail(e: ScalarEmitter[Value], x: Value, factor: float, fraction: Fraction) -> Value:
    """exp(factor x^2) times a fraction in |x|; from 15 on it is less than half the smallest number.

    In float64: a rounding error of x^2 would be multiplied by x^2, and there the square is exact.
    """
    a = at_most(e, e.abs(e.cast(x, float64)), 15)
    decay = exp2_for_single(e, e.mul(e.mul(a, a), factor / LN2))
    return e.cast(e.mul(_ratio(e, a, fraction), decay), float32)


def _tail_in_single(e: ScalarEmitter[Value], x: Value) -> Value:
    """Phi(-|x|) without float64, to 5 units in the last place, for machines where that is dear.

    a = high + low, where the square of high is exact, so that the exponential is of all of a^2. What rounding
    took from a + 2, and from its reciprocal, is put back with the last term of the polynomial.
    """
    a = at_most(e, e.abs(x), 15)
    high = e.bitcast(e.and_(e.add(e.bitcast(a, int32), 0x800), -0x1000), float32)
    rest = e.mul(e.sub(a, high), e.add(a, high))
    decay = exp_of_parts(e, e.mul(e.mul(high, high), -0.5), e.mul(rest, -0.5))
    below = e.add(a, 2)
    near = _reciprocal(e, below)
    lost = e.sub(e.sub(1, e.mul(near, below)), e.mul(near, e.sub(a, e.sub(below, 2))))
    at = e.sub(e.mul(near, 4), 1)
    bend = e.add(e.mul(polynomial(e, at, _MILLS_SINGLE[1:]), at), e.mul(lost, 0.75))
    return e.mul(e.mul(e.add(bend, _MILLS_SINGLE[0]), near), decay)


def _reciprocal(e: ScalarEmitter[Value], x: Value) -> Value:
    """1 / x of a normal float32, nearly: by its exponent, then three steps of Newton's."""
    near = e.bitcast(e.sub(0x7EF311C7, e.bitcast(x, int32)), float32)
    for _ in range(3):
        near = e.add(near, e.mul(near, e.sub(1, e.mul(near, x))))
    return near


def _ratio(e: ScalarEmitter[Value], a: Value, fraction: Fraction) -> Value:
    """A fraction, by a reciprocal in float32 and a step of Newton's: three times as fast as a division."""
    numerator, denominator = (polynomial(e, a, coefficients) for coefficients in fraction)
    near = e.cast(e.div(1, e.cast(denominator, float32)), float64)
    return e.mul(numerator, e.mul(near, e.sub(2, e.mul(denominator, near))))


def erf(e: ScalarEmitter[Value], x: Value) -> Value:
    """The error function."""
    a = e.abs(x)
    square = e.mul(a, a)
    near = e.add(a, e.mul(a, estrin(e, square, _NEAR)))
    far = e.sub(1, e.exp(estrin(e, at_most(e, a, 4), _LOG_ERFC)))
    return with_sign_of(e, e.select(e.lt(a, 0.9), near, far), x)


def erfc(e: ScalarEmitter[Value], x: Value) -> Value:
    """1 - erf(x), accurate where that is small."""
    tail = _tail(e, x, -1.0, _ERFC)
    return e.select(e.lt(x, 0), e.sub(2, tail), tail)


def normal_cdf(e: ScalarEmitter[Value], x: Value) -> Value:
    """The normal distribution function."""
    tail = _tail_in_single(e, x) if getattr(e, "single", False) else _tail(e, x, -0.5, _MILLS)
    return e.select(e.lt(x, 0), tail, e.sub(1, tail))


def erfinv(e: ScalarEmitter[Value], x: Value, choose: Choose[Value] = by_selecting) -> Value:
    """The inverse of the error function: x, and x times what bends it.

    After M. Giles, Approximating the erfinv function (2010). Of 1 - x^2 and (1 - x) (1 + x) the first is
    better for a small x, the second next to 1.
    """
    square = e.mul(x, x)
    rest = e.select(e.lt(square, 0.5), e.sub(1, square), e.mul(e.sub(1, x), e.add(x, 1)))
    bend = choose(e, e.neg(e.log(rest)), ((5, _bend_near), (np.inf, _bend_far)))
    return with_sign_of(e, e.add(x, e.mul(x, bend)), x)


def _bend_near(e: ScalarEmitter[Value], w: Value) -> Value:
    return polynomial(e, w, _INVERSE_NEAR)


def _bend_far(e: ScalarEmitter[Value], w: Value) -> Value:
    out = polynomial(e, e.sub(e.sqrt(w), 3.125), _INVERSE_FAR)
    return e.select(e.lt(w, np.inf), out, w)
