"""Arithmetic, mathematical functions, comparison, logic and bits, element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import weft
from weft import Tensor
from weft.base.dtypes import kind, result_dtype
from weft.interop.forms.elements import clamped, whole_quotient
from weft.onnx.operators.registry import Call, Handler, enter_handlers, operator

# Functions that weft has under the same name, or under another one

_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish IsNaN Log Mish Neg Reciprocal"
    " Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh"
)
_BINARY = {
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


enter_handlers({name: _unary(getattr(weft, name.lower())) for name in _UNARY.split()})
enter_handlers({name: _binary(function) for name, function in _BINARY.items()})
enter_handlers({"Identity": lambda call, x: x}, moves=True)
enter_handlers(
    {
        "BitwiseNot": _unary(weft.bitwise_invert),
        "Not": _unary(weft.logical_not),
        "Max": _several(weft.maximum),
        "Min": _several(weft.minimum),
        "Sum": _several(weft.add),
        "Mean": lambda call, *inputs: reduce(weft.add, inputs) / len(inputs),
        "Mod": lambda call, a, b: weft.fmod(a, b) if call.attribute("fmod", 0) else weft.remainder(a, b),
        "Where": lambda call, condition, a, b: weft.where(condition, a, b),
    }
)
