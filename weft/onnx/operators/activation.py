"""Activation functions that have settings, and the softmax family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, Handler, enter_handlers, operator


@operator("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Any:
    """Negative numbers times slopes that are an input."""
    if call.version < 7 and slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape((-1, *(1,) * (x.ndim - 2)))
    return weft.where(x < 0, x * slope, x)


@operator("Selu")
def selu(call: Call, x: Tensor) -> Any:
    """Scaled and exponential for negative numbers."""
    alpha = call.attribute("alpha", 1.67326319217681884765625)
    gamma = call.attribute("gamma", 1.05070102214813232421875)
    return weft.where(x > 0, x, alpha * weft.expm1(weft.minimum(x, 0.0))) * gamma


@operator("Shrink")
def shrink(call: Call, x: Tensor) -> Any:
    """0 around 0, and nearer to it elsewhere."""
    bias, edge = call.attribute("bias", 0.0), call.attribute("lambd", 0.5)
    bias = int(bias) if not weft.is_floating_point(x) and float(bias).is_integer() else bias
    out = weft.where(x > edge, x - bias, weft.zeros_like(x))
    return weft.where(x < -edge, x + bias, out).astype(x.dtype, copy=False)


def swish(x: Tensor, alpha: float) -> Any:
    """A number times the sigmoid of a multiple of it."""
    return weft.silu(x) if alpha == 1.0 else x * weft.sigmoid(x * alpha)


enter_handlers(
    {
        "LeakyRelu": lambda call, x: weft.leaky_relu(x, call.attribute("alpha", 0.01)),
        "ThresholdedRelu": lambda call, x: weft.where(
            x > call.attribute("alpha", 1.0), x, weft.zeros_like(x)
        ),
        "Elu": lambda call, x: weft.elu(x, call.attribute("alpha", 1.0)),
        "Celu": lambda call, x: weft.celu(x, call.attribute("alpha", 1.0)),
        "Gelu": lambda call, x: weft.gelu(x, approximate=call.attribute("approximate", "none")),
        "HardSigmoid": lambda call, x: weft.clip(
            x * call.attribute("alpha", 0.2) + call.attribute("beta", 0.5), 0.0, 1.0
        ),
        "Swish": lambda call, x: swish(x, call.attribute("alpha", 1.0)),
        "SwiGLU": lambda call, gate, x: swish(gate, call.attribute("alpha", 1.0)) * x,
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
    places = weft.argmax(x, axis=axis)
    return weft.moveaxis(weft.one_hot(places, x.shape[axis], dtype=x.dtype), -1, axis)


enter_handlers(
    {
        "Softmax": _along(lambda x, axis: weft.softmax(x, axis=axis)),
        "LogSoftmax": _along(lambda x, axis: weft.log_softmax(x, axis=axis)),
        "Hardmax": _along(_first_largest),
    }
)
