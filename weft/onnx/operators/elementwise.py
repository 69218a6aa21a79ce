"""Arithmetic, mathematical functions, comparison, logic and bits, element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import weft
from weft import Tensor
from weft.base.dtypes import kind, result_dtype
from weft.onnx.operators.registry import Call, operator

_UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": weft.abs,
    "Acos": weft.acos,
    "Acosh": weft.acosh,
    "Asin": weft.asin,
    "Asinh": weft.asinh,
    "Atan": weft.atan,
    "Atanh": weft.atanh,
    "BitwiseNot": weft.bitwise_invert,
    "Ceil": weft.ceil,
    "Cos": weft.cos,
    "Cosh": weft.cosh,
    "Erf": weft.erf,
    "Exp": weft.exp,
    "Floor": weft.floor,
    "IsNaN": weft.isnan,
    "Log": weft.log,
    "Neg": weft.neg,
    "Not": weft.logical_not,
    "Reciprocal": weft.reciprocal,
    "Round": weft.round,
    "Sigmoid": weft.sigmoid,
    "Sign": weft.sign,
    "Sin": weft.sin,
    "Sinh": weft.sinh,
    "Sqrt": weft.sqrt,
    "Tan": weft.tan,
    "Tanh": weft.tanh,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": weft.add,
    "And": weft.logical_and,
    "BitwiseAnd": weft.bitwise_and,
    "BitwiseOr": weft.bitwise_or,
    "BitwiseXor": weft.bitwise_xor,
    "Equal": weft.equal,
    "Greater": weft.greater,
    "GreaterOrEqual": weft.greater_equal,
    "Less": weft.less,
    "LessOrEqual": weft.less_equal,
    "Mul": weft.mul,
    "Or": weft.logical_or,
    "Sub": weft.sub,
    "Xor": weft.logical_xor,
}


@operator(*_UNARY)
def unary(call: Call, x: Tensor) -> Tensor:
    """A function of one number, which weft has under another name."""
    out: Tensor = _UNARY[call.op](x)
    return out


@operator(*_BINARY)
def binary(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """A function of two numbers, which weft has under another name."""
    out: Tensor = _BINARY[call.op](a, aligned(call, a, b))
    return out


def aligned(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The second operand as it is broadcast: up to version 6 an attribute told along which axes."""
    if call.version > 6 or not call.attribute("broadcast", 0) or not call.has("axis"):
        return b
    axis = call.attribute("axis") % a.ndim
    return b.reshape((*b.shape, *(1,) * (a.ndim - axis - b.ndim)))


@operator("Identity", moves=True)
def identity(call: Call, x: Any) -> Any:
    """The input itself."""
    return x


@operator("Div")
def div(call: Call, a: Tensor, b: Tensor) -> Any:
    """A quotient; of integers, rounded towards 0."""
    b = aligned(call, a, b)
    if kind(a.dtype) not in "iu":
        return weft.div(a, b)
    if kind(a.dtype) == "u":
        return weft.floor_divide(a, b)
    quotient = weft.floor_divide(a, b)
    inexact = weft.logical_and(quotient < 0, quotient * b != a)
    return quotient + inexact.astype(a.dtype)


@operator("Mod")
def mod(call: Call, a: Tensor, b: Tensor) -> Any:
    """A remainder: with the sign of the divisor, or, if asked, of the dividend."""
    return weft.fmod(a, b) if call.attribute("fmod", 0) else weft.remainder(a, b)


@operator("Pow")
def power(call: Call, a: Tensor, b: Tensor) -> Any:
    """A power, in the dtype of the base."""
    b = aligned(call, a, b)
    if a.dtype == b.dtype:
        return weft.pow(a, b)
    wide = result_dtype("pow", a.dtype, b.dtype)
    out = weft.pow(a.astype(wide, copy=False), b.astype(wide, copy=False))
    return out.astype(a.dtype, copy=False)


@operator("Max")
def maximum(call: Call, *inputs: Tensor) -> Tensor:
    """The largest of several."""
    return reduce(weft.maximum, inputs)


@operator("Min")
def minimum(call: Call, *inputs: Tensor) -> Tensor:
    """The smallest of several."""
    return reduce(weft.minimum, inputs)


@operator("Sum")
def total(call: Call, *inputs: Tensor) -> Tensor:
    """The sum of several."""
    return reduce(weft.add, inputs)


@operator("Mean")
def mean(call: Call, *inputs: Tensor) -> Tensor:
    """The mean of several."""
    return reduce(weft.add, inputs) / len(inputs)


@operator("Clip")
def clip(call: Call, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """A number brought between two others; where these cross, the upper one."""
    low = call.attribute("min") if low is None else low
    high = call.attribute("max") if high is None else high
    x = x if low is None else weft.maximum(x, low)
    return x if high is None else weft.minimum(x, high)


@operator("IsInf")
def is_infinite(call: Call, x: Tensor) -> Any:
    """Whether a number is infinite, of a sign that is asked for."""
    out = weft.isinf(x)
    if not call.attribute("detect_positive", 1):
        out = weft.logical_and(out, x < 0)
    if not call.attribute("detect_negative", 1):
        out = weft.logical_and(out, x > 0)
    return out


@operator("BitShift")
def shift(call: Call, x: Tensor, count: Tensor) -> Any:
    """Bits moved to the left or to the right; those that fall out are lost."""
    function = weft.bitwise_left_shift if call.attribute("direction") == "LEFT" else weft.bitwise_right_shift
    return function(x, count)


@operator("Where", moves=False)
def where(call: Call, condition: Tensor, a: Tensor, b: Tensor) -> Any:
    """One of two numbers, as a third says."""
    return weft.where(condition, a, b)
