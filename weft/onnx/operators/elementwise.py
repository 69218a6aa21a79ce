"""Arithmetic, mathematical functions, comparison, logic and bits, element by element; activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import weft
from weft import Tensor
from weft.base.dtypes import kind, result_dtype
from weft.base.sizes import Size
from weft.interop.forms.elements import clamped, lowest, numbers_below, whole_quotient
from weft.onnx.operators.registry import Call, Handler, enter_handlers, operator

# Functions that weft has under the same name, or under another one

_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish IsNaN Log Mish Neg Reciprocal"
    " Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh"
)
_BINARY = {name: name.lower() for name in ("Add", "Sub", "Mul", "Equal", "Greater", "Less")}
_BINARY |= {"GreaterOrEqual": "greater_equal", "LessOrEqual": "less_equal"}
_BINARY |= {name: f"logical_{name.lower()}" for name in ("And", "Or", "Xor")}
_BINARY |= {f"Bitwise{name}": f"bitwise_{name.lower()}" for name in ("And", "Or", "Xor")}


def _unary(function: Callable[[Any], Any]) -> Handler:
    return lambda call, x: function(x)


def _binary(function: Callable[[Any, Any], Any]) -> Handler:
    return lambda call, a, b: function(a, aligned(call, a, b))


def _several(function: Callable[[Any, Any], Any]) -> Handler:
    return lambda call, *inputs: reduce(function, inputs)


def aligned(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The second operand as it is broadcast: up to version 6 an attribute told along which axes."""
    if call.version > 6 or not call.attribute("broadcast", 0) or not call.has("axis"):
        return b
    axis = call.attribute("axis") % a.ndim
    return b.reshape((*b.shape, *(1,) * (a.ndim - axis - b.ndim)))


@operator("Div")
def div(call: Call, a: Tensor, b: Tensor) -> Any:
    """A quotient; of integers, rounded towards 0."""
    b = aligned(call, a, b)
    return whole_quotient(a, b) if kind(a.dtype) in "iu" else weft.div(a, b)


@operator("Pow")
def power(call: Call, a: Tensor, b: Tensor) -> Any:
    """A power, in the dtype of the base."""
    b = aligned(call, a, b)
    if a.dtype == b.dtype:
        return weft.pow(a, b)
    wide = result_dtype("pow", a.dtype, b.dtype)
    out = weft.pow(a.astype(wide, copy=False), b.astype(wide, copy=False))
    return out.astype(a.dtype, copy=False)


@operator("Clip")
def clip(call: Call, x: Tensor, low: Any = None, high: Any = None) -> Any:
    """A number brought between two others; where these cross, the upper one."""
    low = call.attribute("min") if low is None else low
    return clamped(x, low, call.attribute("max") if high is None else high)


@operator("IsInf")
def is_infinite(call: Call, x: Tensor, *, detect_positive: int = 1, detect_negative: int = 1) -> Any:
    """Whether a number is infinite, of a sign that is asked for."""
    out = weft.isinf(x) if detect_positive else weft.logical_and(weft.isinf(x), x < 0)
    return out if detect_negative else weft.logical_and(out, x > 0)


enter_handlers({name: _unary(getattr(weft, name.lower())) for name in _UNARY.split()})
enter_handlers({name: _binary(getattr(weft, own)) for name, own in _BINARY.items()})
enter_handlers({"Identity": lambda call, x: x}, moves=True)
enter_handlers(
    {
        "BitwiseNot": _unary(weft.bitwise_invert),
        "Not": _unary(weft.logical_not),
        "Max": _several(weft.maximum),
        "Min": _several(weft.minimum),
        "Sum": _several(weft.add),
        "Mean": lambda call, *inputs: reduce(weft.add, inputs) / len(inputs),
        "Mod": lambda call, a, b, *, fmod=0: weft.fmod(a, b) if fmod else weft.remainder(a, b),
        "BitShift": lambda call, x, count, *, direction: (
            weft.bitwise_left_shift if direction == "LEFT" else weft.bitwise_right_shift
        )(x, count),
        "Where": lambda call, condition, a, b: weft.where(condition, a, b),
    }
)


# Activation functions that have settings


@operator("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Any:
    """Negative numbers times slopes that are an input."""
    if call.version < 7 and slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape((-1, *(1,) * (x.ndim - 2)))
    return weft.where(x < 0, x * slope, x)


@operator("Shrink")
def shrink(call: Call, x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    """0 around 0, and nearer to it elsewhere."""
    bias = int(bias) if not weft.is_floating_point(x) and float(bias).is_integer() else bias
    out = weft.where(x > lambd, x - bias, weft.zeros_like(x))
    return weft.where(x < -lambd, x + bias, out).astype(x.dtype, copy=False)


enter_handlers(
    {
        "LeakyRelu": lambda call, x, *, alpha=0.01: weft.leaky_relu(x, alpha),
        "ThresholdedRelu": lambda call, x, *, alpha=1.0: weft.where(x > alpha, x, weft.zeros_like(x)),
        "Elu": lambda call, x, *, alpha=1.0: weft.elu(x, alpha),
        "Celu": lambda call, x, *, alpha=1.0: weft.celu(x, alpha),
        "Selu": lambda call, x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875: (
            weft.where(x > 0, x, alpha * weft.expm1(weft.minimum(x, 0.0))) * gamma
        ),
        "Gelu": lambda call, x, *, approximate="none": weft.gelu(x, approximate=approximate),
        "HardSigmoid": lambda call, x, *, alpha=0.2, beta=0.5: weft.clip(x * alpha + beta, 0.0, 1.0),
        "Swish": lambda call, x, *, alpha=1.0: weft.silu(x) if alpha == 1.0 else x * weft.sigmoid(x * alpha),
    }
)

# Along an axis; up to version 12 along all axes from one on, as one


def _along(function: Callable[[Tensor, int], Any]) -> Handler:
    def handler(call: Call, x: Tensor) -> Any:
        if call.version >= 13:
            return function(x, call.attribute("axis", -1))
        axis = call.attribute("axis", 1)
        rows = x.reshape((*x.shape[: axis + x.ndim if axis < 0 else axis], -1))
        return function(rows, -1).reshape(x.shape)

    return handler


def _first_largest(x: Tensor, axis: int) -> Any:
    """1 at the first of the largest elements, 0 elsewhere."""
    axis %= x.ndim
    size, after = x.shape[axis], x.ndim - 1 - axis
    if isinstance(size, Size):  # which may be 0: one more then has a largest element
        least = weft.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), lowest(x.dtype), dtype=x.dtype)
        x = weft.concat([x, least], axis=axis)
    places = weft.argmax(x, axis=axis, keepdims=True)
    return (numbers_below(size, after) == places).astype(x.dtype)


enter_handlers(
    {
        "Softmax": _along(lambda x, axis: weft.softmax(x, axis=axis)),
        "LogSoftmax": _along(lambda x, axis: weft.log_softmax(x, axis=axis)),
        "Hardmax": _along(_first_largest),
    }
)
