"""Activation functions, element by element: ops, and functions of them; softmax is apart.

The kernels of the ops have no branches: NumPy selects ten times slower than it computes.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np

from weft.base.dtypes import float32
from weft.base.shapes import normalize_axis
from weft.errors import DomainError, ShapeError
from weft.ops import exponent, gaussian
from weft.ops.arithmetic import minimum
from weft.ops.complex import absolute
from weft.ops.elementary import widened
from weft.ops.exponential import exp, expm1, sigmoid
from weft.ops.families import elementwise
from weft.ops.logarithm import log1p_of_positive
from weft.ops.op import Array, Operand, Sample, Tensor, composite, plain_number, type_of
from weft.ops.public import example, published
from weft.ops.samples import call, joined, real_array, reals
from weft.ops.scalar import ScalarEmitter, Value
from weft.ops.select import same_dtype, select, weight
from weft.ops.special import erfc, erfc_code
from weft.ops.statistics import as_floating
from weft.ops.trigonometric import tanh
from weft.ops.view.primitives import reshape
from weft.ops.view.slices import slice_axis

rectify = elementwise(
    "relu",
    eval=lambda x: np.maximum(x, np.zeros((), x.dtype)),
    partials=(lambda out: (out > 0, None),),
    gated=True,
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
        lambda x, y, z: ((x > y) & (x < z), None),
        lambda x, y, z: ((x <= y) & (y < z), None),
        lambda x, y, z: ((x >= z) | (y >= z), None),
    ),
    gated=True,
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


# Rectifiers


def _number(op: str, name: str, value: Operand) -> float:
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DomainError(op, f"{name} must be a number, got {value!r}")
    return value


@published("(weft.tensor([-1.0, 0.0, 2.0])) -> tensor([0., 0., 2.])")
def relu(x: Tensor, /) -> Tensor:
    """The positive part: x where it is above 0, else 0."""
    return rectify(x)


@composite(samples=reals(1, -10.0, 10.0))
@example("(weft.tensor([-1.0, 3.0, 8.0])) -> tensor([0., 3., 6.])")
def relu6(x: Tensor, /) -> Tensor:
    """x cut to the range from 0 to 6."""
    return hardtanh(x, 0.0, 6.0)


@composite(samples=reals(1))
@example("(weft.tensor([-1.0, 2.0]), 0.1) -> tensor([-0.1000,  2.0000])")
def leaky_relu(x: Tensor, /, negative_slope: float = 0.01) -> Tensor:
    """x where it is above 0, else ``negative_slope`` times x."""
    x = as_floating(x)
    return leaky(x, np.asarray(_number("leaky_relu", "negative_slope", negative_slope), x.dtype))


@composite(
    "prelu_channels",
    samples=lambda: [
        Sample((real_array((2, 3, 4)), real_array((3,), 0.1, 0.5, seed=1))),
        Sample((real_array((4,)), real_array((1,), 0.1, 0.5, seed=1))),
        Sample((real_array((2, 3)), real_array((3,), 0.1, 0.5, seed=1))),
        Sample((real_array((2, 3)), real_array((), 0.1, 0.5, seed=1))),
    ],
)
@example("(weft.tensor([[-1.0, -1.0]]), weft.tensor([0.1, 0.5])) -> tensor([[-0.1000, -0.5000]])")
def prelu(x: Tensor, weight: Tensor, /) -> Tensor:
    """x where it is above 0, else x times a weight: one for all, or one for each channel (axis 1)."""
    x, weight = same_dtype("prelu", x, weight)
    if weight.ndim > 1:
        raise ShapeError("prelu", f"the weight must have at most one axis, got {type_of(weight)}")
    if weight.size != 1:
        if x.ndim < 2 or x.shape[1] != weight.shape[0]:
            expected = f"as many channels as the weight, {weight.shape[0]}"
            raise ShapeError("prelu", f"x must have {expected}, got {type_of(x)}")
        return leaky(x, reshape(weight, shape=(*weight.shape, *(1,) * (x.ndim - 2))))
    return leaky(x, reshape(weight, shape=()))


@composite(
    samples=joined(
        call((3, 4), threshold=0.5, value=-3.0),
        lambda: [
            Sample((np.array([np.nan, np.inf, -np.inf]),), {"threshold": 0.0, "value": 1.0}, smooth=False)
        ],
    )
)
@example("(weft.tensor([0.5, 1.5]), 1.0, -1.0) -> tensor([-1.0000,  1.5000])")
def threshold(x: Tensor, /, threshold: float, value: float) -> Tensor:
    """x where it is above a threshold, else a value."""
    return select(x <= threshold, np.asarray(value, x.dtype), x)  # which keeps NaN


@published("(weft.tensor([-2.0, 0.5, 2.0])) -> tensor([-1.0000,  0.5000,  1.0000])")
def hardtanh(x: Tensor, /, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x cut to a range; outside of it and on its ends the gradient is 0."""
    low, high = _number("hardtanh", "min_val", min_val), _number("hardtanh", "max_val", max_val)
    if low > high:
        raise DomainError("hardtanh", f"min_val must not be above max_val, got {min_val} and {max_val}")
    x = as_floating(x)
    return hard_clip(x, np.asarray(low, x.dtype), np.asarray(high, x.dtype))


# Exponential and smooth


@published("(weft.tensor([-1.0, 2.0])) -> tensor([-0.6321,  2.0000])")
def elu(x: Tensor, /, alpha: float = 1.0) -> Tensor:
    """x where it is above 0, else ``alpha * (exp(x) - 1)``."""
    x = as_floating(x)
    return exponential_linear(x, np.asarray(_number("elu", "alpha", alpha), x.dtype))


_SELU_ALPHA = 1.6732632423543772848170429916717  # Klambauer et al., Self-Normalizing Neural Networks, 2017
_SELU_SCALE = 1.0507009873554804934193349852946


@composite(samples=reals(1), single=True)
@example("(weft.tensor([-1.0, 2.0])) -> tensor([-1.1113,  2.1014])")
def selu(x: Tensor, /) -> Tensor:
    """The self-normalising ``scale * elu(x, alpha)``."""
    return elu(x, _SELU_ALPHA) * _SELU_SCALE


@composite(samples=reals(1), single=True)
def celu(x: Tensor, /, alpha: float = 1.0) -> Tensor:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``: an elu whose slope is continuous for every alpha.

    >>> import weft
    >>> weft.celu(weft.tensor([-1.0, 2.0]), 2.0)
    tensor([-0.7869,  2.0000])
    """
    alpha = _number("celu", "alpha", alpha)
    if alpha == 0:
        raise DomainError("celu", "alpha must not be 0")
    return elu(x * (1.0 / alpha)) * alpha


_TANH_SLOPE = 2 * sqrt(
    2 / pi
)  # of the logit of Φ at 0; Hendrycks and Gimpel, Gaussian Error Linear Units, 2016
_TANH_CUBIC = 0.044715 * _TANH_SLOPE


@composite(samples=lambda: [s if k == 0 else Sample(s.inputs, {"approximate": "tanh"}, s.smooth)
                            for s in reals(1)() for k in (0, 1)],
    whole=("x",), single=True,
)  # fmt: skip
@example("(weft.tensor([-1.0, 0.0, 2.0])) -> tensor([-0.1587,  0.0000,  1.9545])")
def gelu(x: Tensor, /, approximate: str = "none") -> Tensor:
    """``x * Φ(x)`` with the normal distribution function Φ, or its approximation by ``"tanh"``."""
    x = as_floating(x)
    if approximate == "none":
        return x * normal_cdf(x)
    if approximate != "tanh":
        raise DomainError("gelu", f"approximate must be 'none' or 'tanh', got {approximate!r}")
    return x * sigmoid(x * (x * x * _TANH_CUBIC + _TANH_SLOPE))


@composite(samples=reals(1), whole=("x",), single=True)
@example("(weft.tensor([-1.0, 0.0, 2.0])) -> tensor([-0.2689,  0.0000,  1.7616])")
def silu(x: Tensor, /) -> Tensor:
    """``x * sigmoid(x)``, also known as swish."""
    x = as_floating(x)
    return x * sigmoid(x)


_LINEAR_FROM = 20.0  # where log(1 + exp(x)) and x have been the same number in float32 for long


@composite("softplus_scaled", samples=joined(reals(1), call((3, 4), beta=2.0, threshold=1.0)), single=True)
@example("(weft.tensor([-1000.0, 0.0, 10.0])) -> tensor([ 0.0000,  0.6931, 10.0000])")
def softplus(x: Tensor, /, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` is above a threshold."""
    x = as_floating(x)
    beta = _number("softplus", "beta", beta)
    if beta == 0:
        raise DomainError("softplus", "beta must not be 0")
    out = soft_rectify(x) if beta == 1 else soft_rectify(x * beta) * (1.0 / beta)
    return out if threshold >= _LINEAR_FROM else select(x * beta > threshold, x, out)


@composite(samples=reals(1), single=True)
@example("(weft.tensor([-100.0, 0.0])) -> tensor([-100.0000,   -0.6931])")
def logsigmoid(x: Tensor, /) -> Tensor:
    """The logarithm of ``sigmoid(x)``, without underflow."""
    return -soft_rectify(-as_floating(x))


@composite(samples=reals(1), whole=("x",), single=True)
@example("(weft.tensor([-1.0, 2.0])) -> tensor([-0.3034,  1.9440])")
def mish(x: Tensor, /) -> Tensor:
    """``x * tanh(softplus(x))``."""
    x = as_floating(x)
    return x * tanh(soft_rectify(x))


@composite(samples=reals(1, edges=False), single=True)
@example("(weft.tensor([-1.0, 3.0])) -> tensor([-0.5000,  0.7500])")
def softsign(x: Tensor, /) -> Tensor:
    """``x / (1 + |x|)``."""
    x = as_floating(x)
    return x / (absolute(x) + 1)


@composite(samples=reals(1), single=True)
@example("(weft.tensor([0.0, 1.0])) -> tensor([0.0000, 0.2384])")
def tanhshrink(x: Tensor, /) -> Tensor:
    """``x - tanh(x)``."""
    x = as_floating(x)
    return x - tanh(x)


# Piecewise linear


@composite(samples=reals(1, -5.0, 5.0), single=True)
@example("(weft.tensor([-4.0, 0.0, 4.0])) -> tensor([0.0000, 0.5000, 1.0000])")
def hardsigmoid(x: Tensor, /) -> Tensor:
    """A sigmoid of three straight pieces: ``relu6(x + 3) / 6``."""
    return relu6(x + 3) * (1 / 6)


@composite(samples=reals(1, -5.0, 5.0), single=True)
@example("(weft.tensor([-4.0, 1.0, 4.0])) -> tensor([-0.0000,  0.6667,  4.0000])")
def hardswish(x: Tensor, /) -> Tensor:
    """``x * hardsigmoid(x)``."""
    x = as_floating(x)
    return x * hardsigmoid(x)


@composite(samples=reals(1), single=True)
@example("(weft.tensor([-2.0, 0.25, 2.0])) -> tensor([-1.5000,  0.0000,  1.5000])")
def softshrink(x: Tensor, /, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by ``lambd``, and 0 where it is nearer than that."""
    lambd = _number("softshrink", "lambd", lambd)
    if lambd < 0:
        raise DomainError("softshrink", f"lambd must not be negative, got {lambd}")
    return relu(x - lambd) - relu(-x - lambd)


@composite(samples=reals(1))
@example("(weft.tensor([-2.0, 0.25, 2.0])) -> tensor([-2.,  0.,  2.])")
def hardshrink(x: Tensor, /, lambd: float = 0.5) -> Tensor:
    """x, and 0 where it is nearer to 0 than ``lambd``."""
    return select(absolute(x) <= lambd, np.zeros((), x.dtype), x)


# Gates


@composite(samples=joined(call((3, 4)), call((4, 3), axis=0), call((2, 0))), single=True)
@example("(weft.tensor([1.0, 2.0, 0.0, 100.0])) -> tensor([0.5000, 2.0000])")
def glu(x: Tensor, /, axis: int = -1) -> Tensor:
    """The first half along an axis times the sigmoid of the second."""
    where = normalize_axis("glu", axis, x.ndim)
    size = x.shape[where]
    if size % 2 != 0:
        raise ShapeError("glu", f"the size along axis {where} must be even, got {type_of(x)}")
    return slice_axis(x, where, 0, size // 2) * sigmoid(slice_axis(x, where, size // 2, size))
