"""Activation functions, and the softmax family."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, operator


@operator("Relu")
def relu(call: Call, x: Tensor) -> Any:
    """0 for negative numbers."""
    return weft.relu(x)


@operator("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Any:
    """Negative numbers times a slope."""
    return weft.leaky_relu(x, call.attribute("alpha", 0.01))


@operator("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Any:
    """Negative numbers times slopes that are an input."""
    if call.version < 7 and slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape((-1, *(1,) * (x.ndim - 2)))
    return weft.where(x < 0, x * slope, x)


@operator("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Any:
    """0 for numbers up to a threshold."""
    return weft.where(x > call.attribute("alpha", 1.0), x, weft.zeros_like(x))


@operator("Elu")
def elu(call: Call, x: Tensor) -> Any:
    """Exponential for negative numbers."""
    return weft.elu(x, call.attribute("alpha", 1.0))


@operator("Celu")
def celu(call: Call, x: Tensor) -> Any:
    """Exponential for negative numbers, with a continuous slope."""
    return weft.celu(x, call.attribute("alpha", 1.0))


@operator("Selu")
def selu(call: Call, x: Tensor) -> Any:
    """Scaled and exponential for negative numbers."""
    alpha = call.attribute("alpha", 1.67326319217681884765625)
    gamma = call.attribute("gamma", 1.05070102214813232421875)
    return weft.where(x > 0, x, alpha * weft.expm1(weft.minimum(x, 0.0))) * gamma


@operator("Gelu")
def gelu(call: Call, x: Tensor) -> Any:
    """A number times the share of a normal distribution below it."""
    return weft.gelu(x, approximate=call.attribute("approximate", "none"))


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Any:
    """A line between 0 and 1."""
    return weft.clip(x * call.attribute("alpha", 0.2) + call.attribute("beta", 0.5), 0.0, 1.0)


@operator("HardSwish")
def hard_swish(call: Call, x: Tensor) -> Any:
    """A number times a line between 0 and 1."""
    return weft.hardswish(x)


@operator("Swish")
def swish(call: Call, x: Tensor) -> Any:
    """A number times its sigmoid."""
    alpha = call.attribute("alpha", 1.0)
    return weft.silu(x) if alpha == 1.0 else x * weft.sigmoid(x * alpha)


@operator("Mish")
def mish(call: Call, x: Tensor) -> Any:
    """A number times the tanh of its softplus."""
    return weft.mish(x)


@operator("Softplus")
def softplus(call: Call, x: Tensor) -> Any:
    """log(1 + exp(x))."""
    return weft.softplus(x)


@operator("Softsign")
def softsign(call: Call, x: Tensor) -> Any:
    """x / (1 + |x|)."""
    return weft.softsign(x)


@operator("Shrink")
def shrink(call: Call, x: Tensor) -> Any:
    """0 around 0, and nearer to it elsewhere."""
    bias, edge = call.attribute("bias", 0.0), call.attribute("lambd", 0.5)
    bias = int(bias) if not weft.is_floating_point(x) and float(bias).is_integer() else bias
    out = weft.where(x > edge, x - bias, weft.zeros_like(x))
    return weft.where(x < -edge, x + bias, out).astype(x.dtype, copy=False)


def _along(call: Call, x: Tensor, function: Any) -> Tensor:
    """A function along an axis; up to version 12 along all axes from one on, as one."""
    if call.version >= 13:
        out: Tensor = function(x, call.attribute("axis", -1))
        return out
    axis = call.attribute("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    rows = x.reshape((*x.shape[:axis], -1))
    out = function(rows, -1).reshape(x.shape)
    return out


@operator("Softmax")
def softmax(call: Call, x: Tensor) -> Tensor:
    """Shares of exponentials."""
    return _along(call, x, lambda rows, axis: weft.softmax(rows, axis=axis))


@operator("LogSoftmax")
def log_softmax(call: Call, x: Tensor) -> Tensor:
    """Logarithms of shares of exponentials."""
    return _along(call, x, lambda rows, axis: weft.log_softmax(rows, axis=axis))


@operator("Hardmax")
def hardmax(call: Call, x: Tensor) -> Tensor:
    """1 at the first of the largest elements, 0 elsewhere."""

    def first(rows: Tensor, axis: int) -> Any:
        places = weft.argmax(rows, axis=axis)
        return weft.moveaxis(weft.one_hot(places, rows.shape[axis], dtype=x.dtype), -1, axis)

    return _along(call, x, first)
