"""The primitives of activation functions.

Their kernels have no branches: NumPy selects ten times slower than it computes.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np

from weft.base.dtypes import float32
from weft.ops import exponent, gaussian
from weft.ops.arithmetic import minimum
from weft.ops.elementary import widened
from weft.ops.exponential import exp, expm1, sigmoid
from weft.ops.families import elementwise
from weft.ops.logarithm import log1p_of_positive
from weft.ops.op import Array, Sample, Tensor
from weft.ops.samples import real_array, reals
from weft.ops.scalar import ScalarEmitter, Value
from weft.ops.select import weight
from weft.ops.special import erfc, erfc_code

rectify = elementwise(
    "relu",
    eval=lambda x: np.maximum(x, np.zeros((), x.dtype)),
    partials=(lambda out: weight(out > 0, out),),
    accepts="iuf",
    samples=reals(1),
    scalar=lambda e, x: e.max(x, 0),
)


leaky = elementwise(
    "prelu",
    eval=lambda x, y: np.maximum(x, np.zeros((), x.dtype)) + y * np.minimum(x, np.zeros((), x.dtype)),
    partials=(lambda x, y: weight(x > 0, x) + y * weight(x <= 0, x), lambda x: _negative_part(x)),
    accepts="f",
    samples=reals(2, edges=False),
    scalar=lambda e, x, y: e.add(e.max(x, 0), e.mul(y, e.min(x, 0))),
)


def _negative_part(x: Tensor) -> Tensor:
    return minimum(x, np.zeros((), x.dtype))


def _elu(x: Array, y: Array) -> Array:
    zero = np.zeros((), x.dtype)
    out: Array = np.maximum(x, zero) + y * np.expm1(np.minimum(x, zero))
    return out


exponential_linear = elementwise(
    "elu",
    eval=_elu,
    partials=(
        lambda x, y: weight(x > 0, x) + y * exp(_negative_part(x)) * weight(x <= 0, x),
        lambda x: expm1(_negative_part(x)),
    ),
    accepts="f",
    samples=reals(2, edges=False),
    scalar=widened(lambda e, x, y: e.select(e.lt(x, 0), e.mul(y, exponent.expm1(e, x)), x)),
)

hard_clip = elementwise(
    "hardtanh",
    eval=lambda x, y, z: np.minimum(np.maximum(x, y), z),
    partials=(
        lambda x, y, z: weight((x > y) & (x < z), x),
        lambda x, y, z: weight((x <= y) & (y < z), x),
        lambda x, y, z: weight((x >= z) | (y >= z), x),
    ),
    accepts="f",
    samples=lambda: [Sample((real_array((3, 4)), np.array([[-0.5]]), np.array(0.5)))],
    scalar=lambda e, x, y, z: e.min(e.max(x, y), z),
)


def _softplus(x: Array) -> Array:
    out: Array = np.maximum(x, np.zeros((), x.dtype)) + np.log1p(np.exp(-np.abs(x)))
    return out


def _softplus_code(e: ScalarEmitter[Value], x: Value) -> Value:
    tail = log1p_of_positive(e, e.exp(e.neg(e.abs(x))))
    return e.add(e.select(e.lt(x, 0), 0, x), tail)


soft_rectify = elementwise(
    "softplus",
    eval=_softplus,
    partials=(lambda x: sigmoid(x),),
    accepts="f",
    samples=reals(1),
    scalar=widened(_softplus_code),
)

# The normal distribution function. For float32, Φ(-a) = exp(-a²/2) P(a) / Q(a) with a rational function
# fitted to Mills' ratio on [0, 15] by iteratively reweighted least squares: relative error 6.3e-9.
_MILLS_P = (0.00415322436, 0.0408810862, 0.183969007, 0.439283239, 0.500000003)
_MILLS_Q = (0.0104104779, 0.102479803, 0.471408352, 1.20554771, 1.67645148, 1.0)
_CDF_BLOCK = 1 << 15  # elements that are worked on together, so that they stay in the cache


def _horner(x: Array, coefficients: tuple[float, ...]) -> Array:
    out: Array = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        out *= x
        out += np.float32(c)
    return out


def _cdf_block(x: Array, out: Array) -> None:
    a = np.minimum(np.abs(x), np.float32(15))
    tail = _horner(a, _MILLS_P)
    tail /= _horner(a, _MILLS_Q)
    a *= a
    a *= np.float32(-0.5)
    tail *= np.exp(a, out=a)
    np.subtract(~np.signbit(x), np.copysign(tail, x), out=out)


def _normal_cdf(x: Array) -> Any:
    if x.dtype == np.float64:
        return erfc.eval(x * -sqrt(0.5)) * 0.5
    flat = x.astype(float32, copy=False).reshape(-1)
    out = np.empty(flat.shape, float32)
    for i in range(0, flat.size, _CDF_BLOCK):
        _cdf_block(flat[i : i + _CDF_BLOCK], out[i : i + _CDF_BLOCK])
    return out.reshape(x.shape).astype(x.dtype, copy=False)


def _normal_cdf_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if e.dtype(x) == float32:
        return gaussian.normal_cdf(e, x)
    return e.mul(erfc_code(e, e.mul(x, -sqrt(0.5))), 0.5)


normal_cdf = elementwise(
    "normal_cdf",
    eval=_normal_cdf,
    partials=(lambda x: exp(x * x * -0.5) * (1 / sqrt(2 * pi)),),
    accepts="f",
    samples=reals(1),
    scalar=widened(_normal_cdf_code),
)
