"""ATen operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.base.dtypes import kind
from weft.interop.forms.elements import as_bool, astype, clamped, whole_quotient
from weft.interop.rules import Rule, plain
from weft.interop.torch.calls import Call, aten
from weft.tensor.tensor import Tensor


def _floating(function: Callable[[Any], Any]) -> Rule:
    return lambda call, x: function(call.floating(x))


def _cast(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda call, x, y: function(call.cast(x), call.cast(y))


_UNARY = (
    "abs acos acosh angle asin asinh atan atanh ceil conj cos cosh digamma erf erfc erfinv exp exp2 expm1"
    " floor hardsigmoid hardswish imag lgamma log log10 log1p log2 mish neg real reciprocal relu relu6 round"
    " rsqrt selu sigmoid sign silu sin sinh softsign sqrt square tan tanh trunc"
)
_PLAIN = "isnan isinf isfinite signbit bitwise_not logical_and logical_or logical_xor complex"
_COMPARISONS = "eq ne lt le gt ge"
_BINARY = "mul fmod remainder bitwise_and bitwise_or bitwise_xor"
aten.enter({name: _floating(getattr(weft, name)) for name in _UNARY.split()})
aten.enter({name: plain(getattr(weft, name)) for name in _PLAIN.split()})
aten.enter({f"{n}.Tensor {n}.Scalar": plain(getattr(weft, n)) for n in _COMPARISONS.split()})
aten.enter({f"{n}.Tensor {n}.Scalar": _cast(getattr(weft, n)) for n in _BINARY.split()})


def _scaled(call: Call, x: Any, factor: Any) -> Any:
    x = call.cast(x)
    return x if factor == 1 else x * factor


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(call: Call, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    """The quotient, rounded down, towards zero, or not."""
    x, y = call.cast(x), call.cast(y)
    if rounding_mode is None:
        return x / y
    if rounding_mode == "floor":
        return weft.floor_divide(x, y)
    return weft.trunc(x / y) if kind(call.dtype) in "fc" else whole_quotient(x, y)


def _clamp(call: Call, x: Any, min: Any = None, max: Any = None) -> Any:
    return clamped(call.cast(x), call.cast(min), call.cast(max))


aten.enter(
    {
        "minimum": _cast(weft.minimum),
        "maximum": _cast(weft.maximum),
        "atan2": _cast(weft.atan2),
        "floor_divide": _cast(weft.floor_divide),
        "pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar": _cast(weft.pow),
        "__lshift__.Scalar bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar": _cast(
            weft.bitwise_left_shift
        ),
        "__rshift__.Scalar bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar": _cast(
            weft.bitwise_right_shift
        ),
        "div.Tensor div.Scalar": lambda call, x, y: call.cast(x) / call.cast(y),
        "add.Tensor add.Scalar": lambda call, x, y, alpha=1: call.cast(x) + _scaled(call, y, alpha),
        "sub.Tensor sub.Scalar": lambda call, x, y, alpha=1: call.cast(x) - _scaled(call, y, alpha),
        "rsub.Tensor rsub.Scalar": lambda call, x, y, alpha=1: call.cast(y) - _scaled(call, x, alpha),
        "addcmul": lambda call, x, y, z, *, value=1: x + value * (y * z),
        "addcdiv": lambda call, x, y, z, *, value=1: x + value * (y / z),
        "lerp.Scalar lerp.Tensor": lambda call, x, y, weight: x + weight * (y - x),
        "logical_not": lambda call, x: weft.logical_not(as_bool(x)),
        "clamp clamp.Tensor clip": _clamp,
        "clamp_min clamp_min.Tensor": lambda call, x, min: _clamp(call, x, min),
        "clamp_max clamp_max.Tensor": lambda call, x, max: _clamp(call, x, None, max),
        "hardtanh": lambda call, x, min=-1, max=1: _clamp(call, x, min, max),
        "where.self where.ScalarOther where.ScalarSelf where.Scalar": lambda call, condition, x, y: (
            weft.where(as_bool(condition), call.cast(x), call.cast(y))
        ),
        "masked_fill.Scalar masked_fill.Tensor": lambda call, x, mask, value: weft.where(
            mask, call.cast(value), x
        ),
    }
)

# Activations


@aten("elu")
def elu(call: Call, x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """``scale * x``, below zero ``scale * alpha * (exp(input_scale * x) - 1)``."""
    if scale == 1 and input_scale == 1:
        return weft.elu(x, float(alpha))
    return scale * weft.where(x > 0, x, alpha * weft.expm1(weft.minimum(x, 0.0) * input_scale))


@aten("prelu", "_prelu_kernel")
def prelu(call: Call, x: Any, weight: Any) -> Any:
    """x, below zero times a weight: one, or one for each channel, or already in the shape of x."""
    if weight.ndim == 1 and x.ndim > 1:
        weight = weft.reshape(weight, (1, weight.shape[0], *[1] * (x.ndim - 2)))
    return weft.where(x > 0, x, x * weight)


aten.enter(
    {
        "gelu": lambda call, x, *, approximate="none": weft.gelu(x, approximate),
        "leaky_relu": lambda call, x, slope=0.01: weft.leaky_relu(x, float(slope)),
        "softplus": lambda call, x, beta=1, threshold=20: weft.softplus(x, float(beta), float(threshold)),
        "glu": lambda call, x, dim=-1: weft.glu(x, dim),
        "log_sigmoid log_sigmoid_forward": lambda call, x: weft.logsigmoid(x),
    }
)

# Copies: tensors of weft are values


def _filled(call: Call, x: Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        return weft.broadcast_to(astype(value, x.dtype), x.shape)
    return weft.full(x.shape, value, dtype=x.dtype)


aten.enter(
    {
        "_to_copy to.dtype to.dtype_layout to.device": lambda call, x, *places, **options: call.cast(x),
        "clone alias contiguous detach detach_ lift_fresh lift_fresh_copy resolve_conj": (
            lambda call, x, *rest, **options: x
        ),
        "copy": lambda call, x, src, non_blocking=False: _filled(call, x, src),
        "fill.Scalar fill.Tensor": _filled,
    }
)
