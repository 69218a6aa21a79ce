"""The error function, its complement and its inverse.

Coefficients are fits of our own: rational least squares on Chebyshev nodes in 50-digit arithmetic,
reweighted until the error is level, then rounded. The plan for erfc (a correction inside the exponent,
and exp of the exact and the inexact part of -x^2) follows Sun's fdlibm (1993); that for erfinv (a centre
and tails in the root of a logarithm) M. Wichura, Algorithm AS 241, Applied Statistics 37 (1988).
"""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from weft.base.dtypes import float32, float64
from weft.ops import gaussian
from weft.ops.arithmetic import pow
from weft.ops.elementary import widened
from weft.ops.exponential import exp
from weft.ops.families import elementwise
from weft.ops.public import Public
from weft.ops.samples import reals
from weft.ops.scalar import (
    Choose,
    Code,
    ScalarEmitter,
    Value,
    by_selecting,
    copy_sign,
    integer_of_size,
    kernel,
    rational,
)

# erf(x) / x - 1 for |x| < 0.875, in x^2; error 2^-55.9
_CENTRE = (
    (
        0.12837916709551256, -0.3249220133463247, -0.028786041719283874, -0.005796613049865902,
        -2.8393739956307474e-05,
    ),
    (
        1.0, 0.398852686490911, 0.06539271508505154, 0.005139285328088992, 0.00013644021837655324,
        -3.898813205705476e-06,
    ),
)  # fmt: skip
# log(x erfc(x)) + x^2 + 0.5625, in 1 / x^2; for 0.875 <= x < 2.75, error 2^-57.0
_MIDDLE = (
    (
        -0.009864943918273285, -0.713362339187693, -11.897299088639187, -81.11365435245507,
        -262.52423985330853, -418.33355910103245, -320.2965044835987, -108.28464251954621,
        -13.418423844590382, -0.3809959553203484,
    ),
    (
        1.0, 21.628348631338817, 173.1506319186571, 660.3682906023377, 1290.3080403589277,
        1297.5314977672238, 642.4490690938834, 141.1108809695994, 11.043192411133523, 0.1742111657565529,
    ),
)  # fmt: skip
# the same for 2.75 <= x < 28, error 2^-57.7
_TAIL = (
    (
        -0.009864942924700108, -0.7946243279306728, -17.419343912588765, -154.99433765506473,
        -603.5423813102612, -949.3003074036253, -436.475939662898,
    ),
    (
        1.0, 29.865791437374853, 315.40458141914047, 1461.3870592220042, 2985.242264465696,
        2333.4801432945683, 424.7854529717692, -19.389497534338627,
    ),
)  # fmt: skip


def _excess(e: ScalarEmitter[Value], x: Value) -> Value:
    """erf(x) / x - 1 near zero."""
    return rational(e, e.mul(x, x), _CENTRE)


def _upper_half(e: ScalarEmitter[Value], x: Value) -> Value:
    """The leading bits of x, so few that their square plus 0.5625 is exact."""
    dtype = e.dtype(x)
    bits = integer_of_size(dtype)
    mask = -(1 << (28 if dtype == float64 else 13))
    return e.bitcast(e.and_(e.bitcast(x, bits), mask), dtype)


def _decay(e: ScalarEmitter[Value], x: Value, correction: Value) -> Value:
    """exp(-x^2 - 0.5625 + correction) / x."""
    high = _upper_half(e, x)
    low = e.mul(e.sub(high, x), e.add(high, x))  # high^2 - x^2
    exact = e.exp(e.sub(e.neg(e.mul(high, high)), 0.5625))
    return e.div(e.mul(exact, e.exp(e.add(low, correction))), x)


def _erfc_middle(e: ScalarEmitter[Value], x: Value) -> Value:
    return _decay(e, x, rational(e, e.div(1, e.mul(x, x)), _MIDDLE))


def _erfc_tail(e: ScalarEmitter[Value], x: Value) -> Value:
    return _decay(e, x, rational(e, e.div(1, e.mul(x, x)), _TAIL))


def _widened(e: ScalarEmitter[Value], x: Value) -> Value:
    """x, from 16 bits in 32."""
    return e.cast(x, float32) if e.dtype(x).itemsize == 2 else x


def erf_code(e: ScalarEmitter[Value], x: Value, choose: Choose[Value] = by_selecting) -> Value:
    """The error function."""
    wide = _widened(e, x)
    pieces = (
        (0.875, lambda e, a: e.add(a, e.mul(a, _excess(e, a)))),
        (2.75, lambda e, a: e.sub(1, _erfc_middle(e, a))),
        (6.0, lambda e, a: e.sub(1, _erfc_tail(e, a))),
        (np.inf, lambda e, a: e.min(a, 1)),
    )
    return e.cast(copy_sign(e, choose(e, e.abs(wide), pieces), wide), e.dtype(x))


def erfc_code(e: ScalarEmitter[Value], x: Value, choose: Choose[Value] = by_selecting) -> Value:
    """1 - erf(x), accurate where that is small."""
    wide = _widened(e, x)
    pieces = (
        (-6.0, lambda e, a: e.add(e.mul(e.div(1, a), 0), 2)),
        (-2.75, lambda e, a: e.sub(2, _erfc_tail(e, e.neg(a)))),
        (-0.875, lambda e, a: e.sub(2, _erfc_middle(e, e.neg(a)))),
        (0.25, lambda e, a: e.sub(1, e.add(a, e.mul(a, _excess(e, a))))),
        (0.875, lambda e, a: e.sub(0.5, e.add(e.mul(a, _excess(e, a)), e.sub(a, 0.5)))),
        (2.75, _erfc_middle),
        (28.0, _erfc_tail),
        (np.inf, lambda e, a: e.mul(e.div(1, a), 0)),
    )
    return e.cast(choose(e, wide, pieces), e.dtype(x))


# erfinv(x) / x - 1 for |x| < 0.75, in 0.5625 - x^2; error 2^-57.1
_INVERSE_CENTRE = (
    (
        0.08455979679682472, -0.0013697325311372063, -1.6469975985565515, -4.28263051786875,
        -4.070807023165305, -1.5085135619715593, -0.16631390694936252, -0.000615537927707562,
    ),
    (
        1.0, 6.637238944282848, 16.739252844585856, 20.022181361475937, 11.547816575573421,
        2.8771598893952994, 0.21970586977130618,
    ),
)  # fmt: skip
# 1 - erfinv(x) / s for s = sqrt(-log(1 - |x|)) < 2.75, in s - 1.125; error 2^-56.2
_INVERSE_MIDDLE = (
    (
        0.32388232269557765, 0.809523557893232, 0.7904763549512774, 0.3734533218274904,
        0.07866154224946564, 0.005359161579605087, 2.9805468886529647e-05, -3.1724769937753384e-07,
    ),
    (
        1.0, 3.396804902620444, 4.918068260823866, 3.9060339197538014, 1.7977937356311555,
        0.4627044712127672, 0.057344258721475666, 0.002374989701379917,
    ),
)  # fmt: skip
# the same for s >= 2.75, in s - 2.75; error 2^-58.0
_INVERSE_TAIL = (
    (
        0.10764245225908212, 0.10295262214746448, 0.03634625544246749, 0.005587389168786083,
        0.00034511368050898047, 6.262029079314973e-06, 5.887685533095022e-09,
    ),
    (
        1.0, 1.4702608183208348, 0.8882952634301695, 0.28016057968237923, 0.04836746151556899,
        0.004361223996070129, 0.00017602352537245992, 2.141337692680058e-06,
    ),
)  # fmt: skip
_TAIL_START = 1 - float(np.exp(-(2.75**2)))


def _tail_variable(e: ScalarEmitter[Value], a: Value) -> Value:
    return e.sqrt(e.neg(e.log(e.sub(1, a))))


def _inverse_centre(e: ScalarEmitter[Value], a: Value) -> Value:
    return e.add(a, e.mul(a, rational(e, e.sub(0.5625, e.mul(a, a)), _INVERSE_CENTRE)))


def _inverse_middle(e: ScalarEmitter[Value], a: Value) -> Value:
    s = _tail_variable(e, a)
    return e.sub(s, e.mul(s, rational(e, e.sub(s, 1.125), _INVERSE_MIDDLE)))


def _inverse_tail(e: ScalarEmitter[Value], a: Value) -> Value:
    s = _tail_variable(e, a)
    out = e.sub(s, e.mul(s, rational(e, e.sub(s, 2.75), _INVERSE_TAIL)))
    return e.select(e.eq(a, 1), np.inf, out)


def erfinv_code(e: ScalarEmitter[Value], x: Value, choose: Choose[Value] = by_selecting) -> Value:
    """The number whose error function is x."""
    if e.dtype(x) != float64:
        return e.cast(gaussian.erfinv(e, _widened(e, x), choose), e.dtype(x))
    pieces = ((0.75, _inverse_centre), (_TAIL_START, _inverse_middle), (np.inf, _inverse_tail))
    return copy_sign(e, choose(e, e.abs(x), pieces), x)


def _by_width(single: Code[Value], double: Code[Value]) -> Code[Value]:
    """Scalar code: that of float32 for narrow floats, of float64 for others."""
    return widened(lambda e, x: (single if e.dtype(x) == float32 else double)(e, x))


erf = elementwise(
    "erf",
    public=Public("The error function.", "[0.0, 1.0] -> [0.0000, 0.8427]"),
    eval=kernel(erf_code),
    partials=(lambda x: exp(-x * x) * (2 / sqrt(pi)),),
    accepts="f",
    samples=reals(1),
    scalar=_by_width(gaussian.erf, erf_code),
)
erfc = elementwise(
    "erfc",
    public=Public("1 - erf(x), accurate where that is small.", "[0.0, 5.0] -> [1.0000e+00, 1.5375e-12]"),
    eval=kernel(erfc_code),
    partials=(lambda x: exp(-x * x) * (-2 / sqrt(pi)),),
    accepts="f",
    samples=reals(1),
    scalar=_by_width(gaussian.erfc, erfc_code),
)
erfinv = elementwise(
    "erfinv",
    public=Public("The inverse of erf.", "[0.0, 0.5] -> [0.0000, 0.4769]"),
    eval=kernel(erfinv_code),
    partials=(
        lambda out: (sqrt(pi) / 2) / exp(-pow(out, np.asarray(2, out.dtype))),
    ),  # safe if out is infinite
    accepts="f",
    singular=True,
    samples=reals(1, -0.9, 0.9),
    scalar=erfinv_code,
)
