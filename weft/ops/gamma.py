"""The logarithm of the gamma function and its derivatives: lgamma, digamma, polygamma.

All are computed in float64, whatever the dtype. Error: a few units in the last place for x > 0; for
x < 0, where reflection subtracts, a few units of the larger term. Coefficients of the fits are our own,
as in ``weft.ops.special``; the series are DLMF 5.11.1, 5.11.2 and 25.11.28, the reflections DLMF 5.5.3,
5.5.4 and 5.15.6.
"""

from __future__ import annotations

from math import factorial, log, pi
from typing import Any

import numpy as np

from weft.base.dtypes import default_float, float64, kind
from weft.errors import DomainError, DtypeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_elementwise
from weft.ops.families import elementwise, primitive
from weft.ops.op import Array, Op, Sample, Tensor
from weft.ops.public import Public, published
from weft.ops.samples import real_array, reals
from weft.ops.scalar import NUMPY, Choose, ScalarEmitter, Value, by_selecting, kernel, polynomial, rational
from weft.ops.select import cast, select

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B_2, B_4, ...
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1))
_DIGAMMA_SERIES = tuple(-b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))

# lgamma(1 + u) / (u (u - 1)) - 0.5 for -0.3 <= u <= 2, in u + 0.5; error 2^-55.1
_LGAMMA_NEAR = (
    (
        0.2631532572219998, 1.0301557973166953, 1.013266883828789, -0.5876495593194074,
        -1.534645239347337, -0.8916206869283381, -0.20201601710326525, -0.01679164176982297,
        -0.00035533472865364335,
    ),
    (
        1.0, 6.1298645104530385, 14.701580747792825, 17.596349405634257, 11.15833441329378,
        3.696672206642457, 0.5939050566655479, 0.03928244754482897, 0.0007218220557166696,
    ),
)  # fmt: skip
# digamma(1 + u) / (u - root) - 0.75 for 0 <= u <= 2; error 2^-56.1
_DIGAMMA_NEAR = (
    (
        0.5003801375034054, 0.2935963463620024, -0.2513143167346208, -0.24529731352925568,
        -0.07167686466522846, -0.008795539185485144, -0.00042857761691746153, -5.843922508892646e-06,
    ),
    (
        1.0, 2.29483470845398, 1.913739831376011, 0.7556531312740375, 0.15095656053586376,
        0.014827420515966885, 0.0006267200895171244, 7.851454379058064e-06,
    ),
)  # fmt: skip
_DIGAMMA_ROOT = (0.46163214496836236, -1.5522348162858677e-17)  # of digamma(1 + u), in two parts


def _from_integer(e: ScalarEmitter[Value], x: Value) -> Value:
    """How far x lies from the nearest integer, exactly."""
    return e.sub(x, e.round(x))


def _steps_down(e: ScalarEmitter[Value], x: Value) -> tuple[Value, list[Value]]:
    """For 3 <= x < 10, x moved into [2, 3) and the numbers passed on the way, 1 where none was."""
    passed = [e.select(e.le(k + 2.0, x), e.sub(x, k), 1) for k in range(1, 8)]
    return e.sub(x, e.sub(e.floor(x), 2)), passed


# lgamma


def _lgamma_near(e: ScalarEmitter[Value], u: Value) -> Value:
    """lgamma(1 + u), with its two zeros as factors."""
    return e.mul(e.mul(u, e.sub(u, 1)), e.add(rational(e, e.add(u, 0.5), _LGAMMA_NEAR), 0.5))


def _lgamma_between(e: ScalarEmitter[Value], x: Value) -> Value:
    base, passed = _steps_down(e, x)
    product = passed[0]
    for factor in passed[1:]:
        product = e.mul(product, factor)
    return e.add(e.log(product), _lgamma_near(e, e.sub(base, 1)))


def _lgamma_far(e: ScalarEmitter[Value], x: Value) -> Value:
    inverse = e.div(1, x)
    series = e.mul(inverse, polynomial(e, e.mul(inverse, inverse), _STIRLING))
    main = e.mul(e.sub(x, 0.5), e.sub(e.log(x), 1))
    return e.add(main, e.add(series, 0.5 * log(2 * pi) - 0.5))


def lgamma_code(e: ScalarEmitter[Value], x: Value, choose: Choose[Value] = by_selecting) -> Value:
    """log |gamma(x)|."""
    wide = e.cast(x, float64)
    pieces = (
        (0.7, lambda e, a: e.sub(_lgamma_near(e, a), e.log(a))),
        (3.0, lambda e, a: _lgamma_near(e, e.sub(a, 1))),
        (10.0, _lgamma_between),
        (np.inf, _lgamma_far),
    )
    out = choose(e, e.abs(wide), pieces)
    sine = e.abs(e.mul(wide, e.sin(e.mul(_from_integer(e, wide), pi))))
    reflected = e.sub(e.log(e.div(pi, sine)), out)
    out = e.select(e.eq(wide, -np.inf), np.inf, e.select(e.lt(wide, 0), reflected, out))
    return e.cast(out, e.dtype(x))


# digamma


def _digamma_near(e: ScalarEmitter[Value], u: Value) -> Value:
    """digamma(1 + u), with its zero as a factor."""
    high, low = _DIGAMMA_ROOT
    return e.mul(e.sub(e.sub(u, high), low), e.add(rational(e, u, _DIGAMMA_NEAR), 0.75))


def _digamma_between(e: ScalarEmitter[Value], x: Value) -> Value:
    base, passed = _steps_down(e, x)
    out = _digamma_near(e, e.sub(base, 1))
    for k, step in enumerate(passed, 1):
        out = e.add(out, e.select(e.le(k + 2.0, x), e.div(1, step), 0))
    return out


def _digamma_far(e: ScalarEmitter[Value], x: Value) -> Value:
    inverse = e.div(1, x)
    square = e.mul(inverse, inverse)
    series = e.mul(square, polynomial(e, square, _DIGAMMA_SERIES))
    return e.add(e.sub(e.log(x), e.mul(inverse, 0.5)), series)


def digamma_code(e: ScalarEmitter[Value], x: Value, choose: Choose[Value] = by_selecting) -> Value:
    """The derivative of lgamma."""
    wide = e.cast(x, float64)
    pieces = (
        (1.0, lambda e, a: e.sub(_digamma_near(e, a), e.div(1, a))),
        (3.0, lambda e, a: _digamma_near(e, e.sub(a, 1))),
        (10.0, _digamma_between),
        (np.inf, _digamma_far),
    )
    negative = e.lt(wide, 0)
    out = choose(e, e.select(negative, e.sub(1, wide), wide), pieces)
    rest = e.mul(_from_integer(e, wide), pi)
    cotangent = e.div(e.cos(rest), e.sin(rest))
    reflected = e.sub(out, e.mul(cotangent, pi))
    reflected = e.select(e.eq(rest, 0), np.nan, reflected)
    return e.cast(e.select(negative, reflected, out), e.dtype(x))


# polygamma


def _hurwitz_zeta(e: ScalarEmitter[Value], s: int, x: Value) -> Value:
    """The sum over k of (x + k)**-s for x > 0, by Euler and Maclaurin's formula."""
    terms = 12 + s
    far = e.add(x, terms)
    power, inverse = e.pow(far, -s), e.div(1, far)
    series, rising = [], float(s)
    for k, b in enumerate(_BERNOULLI, 1):
        series.append(b * rising / factorial(2 * k))
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    total = e.mul(e.mul(power, inverse), polynomial(e, e.mul(inverse, inverse), series))
    total = e.add(e.add(total, e.mul(power, 0.5)), e.div(e.pow(far, 1 - s), s - 1))
    for k in range(terms - 1, -1, -1):  # small terms first
        total = e.add(total, e.pow(e.add(x, k), -s))
    return total


def _cotangent_derivative(n: int) -> list[float]:
    """The n-th derivative of cot as a polynomial in cot: each step is -(1 + c^2) d/dc."""
    coefficients = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(coefficients)][1:]
        coefficients = [-a for a in np.convolve(slope, [1.0, 0.0, 1.0]).tolist()]
    return coefficients


def polygamma_code(e: ScalarEmitter[Value], x: Value, n: int, choose: Choose[Value] = by_selecting) -> Value:
    """The n-th derivative of digamma, n >= 1."""
    wide = e.cast(x, float64)
    left = e.le(wide, 0)
    sign = 1.0 if n % 2 else -1.0
    out = e.mul(_hurwitz_zeta(e, n + 1, e.select(left, e.sub(1, wide), wide)), sign * factorial(n))
    rest = e.mul(_from_integer(e, wide), pi)
    cotangent = e.div(e.cos(rest), e.sin(rest))
    turned = e.mul(polynomial(e, cotangent, _cotangent_derivative(n)), -(pi ** (n + 1)))
    return e.cast(e.select(left, e.sub(turned, e.mul(out, sign)), out), e.dtype(x))


lgamma: Op = elementwise(
    "lgamma",
    public=Public("The logarithm of the size of the gamma function.", "[0.5, 5.0] -> [0.5724, 3.1781]"),
    eval=kernel(lgamma_code),
    partials=(lambda x: digamma(x),),
    accepts="f",
    singular=True,
    samples=reals(1, 0.1, 4.0),
    scalar=lgamma_code,
)
digamma: Op = elementwise(
    "digamma",
    public=Public("The derivative of lgamma.", "[0.5, 5.0] -> [-1.9635,  1.5061]"),
    eval=kernel(digamma_code),
    partials=(lambda x: polygamma_op(x, n=1),),
    accepts="f",
    singular=True,
    samples=reals(1, 0.2, 4.0),
    scalar=digamma_code,
)


def _polygamma_type(x: TensorType, *, n: int) -> TensorType:
    if kind(x.dtype) != "f":
        raise DtypeError("polygamma", f"dtype must be floating, got {x.dtype.name}")
    return x


def _polygamma(x: Array, *, n: int) -> Any:
    with np.errstate(all="ignore"):
        return polygamma_code(NUMPY, np.asarray(x), n)


polygamma_op: Op = primitive(
    "polygamma",
    type_rule=_polygamma_type,
    eval=_polygamma,
    vjp=(lambda g, x, n: select(g == 0, g, g * polygamma_op(x, n=n + 1)),),  # infinite at a pole
    batch=batch_elementwise,
    samples=lambda: [
        Sample((real_array((3, 4), 0.5, 4.0),), {"n": 1}),
        Sample((real_array((4, 3), 0.5, 4.0).T,), {"n": 2}),
        Sample((real_array((), 0.5, 4.0),), {"n": 3}),
        Sample((real_array((5,), -3.0, 0.0),), {"n": 1}),
        Sample((real_array((5,), -3.0, 0.0),), {"n": 2}, smooth=False),
        Sample((real_array((0, 3)),), {"n": 1}),
        Sample((np.array([0.0, np.inf, np.nan, 1e30]),), {"n": 1}, smooth=False),
    ],
    scalar=polygamma_code,
    declared_cost=100,  # it has an attribute, so nothing counts its code
)


@published("(1, weft.tensor([1.0, 2.0])) -> tensor([1.6449, 0.6449])")
def polygamma(n: int, x: Tensor, /) -> Tensor:
    """The n-th derivative of the digamma function."""
    if not isinstance(n, int) or n < 0:
        raise DomainError("polygamma", f"n must be an integer >= 0, got {n}")
    if kind(x.dtype) in "biu":
        x = cast(x, dtype=default_float())
    return polygamma_op(x, n=n) if n else digamma(x)
