"""ATen operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.base.dtypes import bool_, kind
from weft.interop.torch.calls import Call, astype, aten
from weft.tensor.tensor import Tensor

_UNARY = (
    "abs acos acosh angle asin asinh atan atanh ceil conj cos cosh digamma erf erfc erfinv exp exp2 expm1"
    " floor hardsigmoid hardswish imag lgamma log log10 log1p log2 mish neg real reciprocal relu relu6 round"
    " rsqrt selu sigmoid sign silu sin sinh softsign sqrt square tan tanh trunc"
)
_TESTS = "isnan isinf isfinite signbit"
_BINARY = "mul:mul minimum:minimum maximum:maximum atan2:atan2 fmod:fmod remainder:remainder pow:pow"
_LOGICAL = "logical_and logical_or logical_xor"
_BITWISE = "bitwise_and bitwise_or bitwise_xor"
_COMPARE = "eq ne lt le gt ge"


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda call, x: function(call.floating(x))


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda call, x, y: function(call.cast(x), call.cast(y))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda call, *operands: function(*operands)


def _register() -> None:
    for name in _UNARY.split():
        aten(name)(_unary(getattr(weft, name)))
    for name in _TESTS.split():
        aten(name)(_plain(getattr(weft, name)))
    for pair in _BINARY.split():
        name, _, function = pair.partition(":")
        overloads = {"pow": ("Tensor_Tensor", "Tensor_Scalar", "Scalar")}.get(name, ("Tensor", "Scalar"))
        names = [name] if name in ("minimum", "maximum", "atan2") else [f"{name}.{o}" for o in overloads]
        aten(*names)(_binary(getattr(weft, function)))
    for name in _COMPARE.split():
        aten(f"{name}.Tensor", f"{name}.Scalar")(_plain(getattr(weft, name)))
    for name in _BITWISE.split():
        aten(f"{name}.Tensor", f"{name}.Scalar")(_binary(getattr(weft, name)))
    for name in _LOGICAL.split():
        aten(name)(_plain(getattr(weft, name)))


_register()
aten("logical_not")(lambda call, x: weft.logical_not(as_bool(x)))
aten("bitwise_not")(lambda call, x: weft.bitwise_not(x))
aten("__lshift__.Scalar", "bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar")(
    _binary(weft.bitwise_left_shift)
)
aten("__rshift__.Scalar", "bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar")(
    _binary(weft.bitwise_right_shift)
)


def as_bool(x: Tensor) -> Tensor:
    """Whether each element is other than zero."""
    return x if x.dtype == bool_ else x != 0


@aten("add.Tensor", "add.Scalar")
def add(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    """``x + alpha * y``."""
    return call.cast(x) + (call.cast(y) if alpha == 1 else call.cast(y) * alpha)


@aten("sub.Tensor", "sub.Scalar")
def sub(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    """``x - alpha * y``."""
    return call.cast(x) - (call.cast(y) if alpha == 1 else call.cast(y) * alpha)


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    """``y - alpha * x``."""
    return call.cast(y) - (call.cast(x) if alpha == 1 else call.cast(x) * alpha)


@aten("div.Tensor", "div.Scalar")
def div(call: Call, x: Any, y: Any) -> Any:
    """The quotient."""
    return call.cast(x) / call.cast(y)


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(call: Call, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    """The quotient, rounded down, towards zero, or not."""
    x, y = call.cast(x), call.cast(y)
    if rounding_mode is None:
        return x / y
    if rounding_mode == "floor":
        return weft.floor_divide(x, y)
    return weft.trunc(x / y) if kind(call.dtype) in "fc" else truncated_quotient(x, y)


aten("floor_divide")(lambda call, x, y: weft.floor_divide(call.cast(x), call.cast(y)))


def truncated_quotient(x: Any, y: Any) -> Any:
    """The quotient of integers, rounded towards zero."""
    down = weft.floor_divide(x, y)
    inexact = weft.logical_and(down * y != x, weft.less(x, 0) != weft.less(y, 0))
    return weft.where(inexact, down + 1, down)


@aten("clamp", "clamp.Tensor", "clip")
def clamp(call: Call, x: Any, min: Any = None, max: Any = None) -> Any:
    """x within bounds."""
    x = call.cast(x)
    x = x if min is None else weft.maximum(x, call.cast(min))
    return x if max is None else weft.minimum(x, call.cast(max))


aten("clamp_min", "clamp_min.Tensor")(lambda call, x, min: clamp(call, x, min))
aten("clamp_max", "clamp_max.Tensor")(lambda call, x, max: clamp(call, x, None, max))


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(call: Call, condition: Any, x: Any, y: Any) -> Any:
    """x where a condition holds, else y."""
    return weft.where(as_bool(condition), call.cast(x), call.cast(y))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(call: Call, x: Any, mask: Any, value: Any) -> Any:
    """x with a value where a mask holds."""
    return weft.where(mask, call.cast(value), x)


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(call: Call, x: Any, y: Any, weight: Any) -> Any:
    """On the way from x to y."""
    return x + weight * (y - x)


@aten("addcmul")
def addcmul(call: Call, x: Any, y: Any, z: Any, *, value: Any = 1) -> Any:
    """``x + value * y * z``."""
    return x + value * (y * z)


@aten("addcdiv")
def addcdiv(call: Call, x: Any, y: Any, z: Any, *, value: Any = 1) -> Any:
    """``x + value * y / z``."""
    return x + value * (y / z)


# Activations


@aten("elu")
def elu(call: Call, x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """``scale * x``, below zero ``scale * alpha * (exp(input_scale * x) - 1)``."""
    if scale == 1 and input_scale == 1:
        return weft.elu(x, float(alpha))
    return scale * weft.where(x > 0, x, alpha * weft.expm1(weft.minimum(x, 0.0) * input_scale))


aten("gelu")(lambda call, x, *, approximate="none": weft.gelu(x, approximate))
aten("leaky_relu")(lambda call, x, slope=0.01: weft.leaky_relu(x, float(slope)))
aten("softplus")(lambda call, x, beta=1, threshold=20: weft.softplus(x, float(beta), float(threshold)))
aten("glu")(lambda call, x, dim=-1: weft.glu(x, dim))
aten("prelu", "_prelu_kernel")(lambda call, x, weight: prelu(x, weight))
aten("log_sigmoid", "log_sigmoid_forward")(lambda call, x: weft.logsigmoid(x))


def prelu(x: Any, weight: Any) -> Any:
    """x, below zero times a weight: one, or one for each channel, or already in the shape of x."""
    if weight.ndim == 1 and x.ndim > 1:
        weight = weft.reshape(weight, (1, weight.shape[0], *[1] * (x.ndim - 2)))
    return weft.where(x > 0, x, x * weight)


@aten("hardtanh")
def hardtanh(call: Call, x: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    """x within bounds."""
    return clamp(call, x, min_val, max_val)


# Copies


@aten("_to_copy", "to.dtype", "to.dtype_layout", "to.device")
def to_copy(call: Call, x: Any, *places: Any, dtype: Any = None, **options: Any) -> Any:
    """x in another dtype."""
    return call.cast(x)


@aten("clone", "alias", "contiguous", "detach", "detach_", "lift_fresh", "lift_fresh_copy", "resolve_conj")
def same(call: Call, x: Any, *rest: Any, **options: Any) -> Any:
    """x as it is: tensors of weft are values."""
    return x


@aten("copy")
def copy(call: Call, x: Any, src: Any, non_blocking: bool = False) -> Any:
    """Other elements in the shape of x."""
    return weft.broadcast_to(astype(src, x.dtype), x.shape)


@aten("fill.Scalar", "fill.Tensor")
def fill(call: Call, x: Any, value: Any) -> Any:
    """One number in the shape of x."""
    if isinstance(value, Tensor):
        return weft.broadcast_to(astype(value, x.dtype), x.shape)
    return weft.full(x.shape, value, dtype=x.dtype)
