"""Normalisation: over batches, features, groups, channels and single examples."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.interop.forms.statistics import moments
from weft.onnx.operators.registry import Call, enter_handlers, operator

_FLOAT = 1  # ONNX's code of float32


@operator("BatchNormalization")
def batch_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Any:
    """Each channel by given statistics; in training by those of x, and the given ones moved towards them."""
    eps = call.attribute("epsilon", 1e-5)
    if not call.attribute("training_mode", 0):
        return weft.batch_norm(x, mean, var, scale, bias, eps=eps)
    keep, axes = call.attribute("momentum", 0.9), (0, *range(2, x.ndim))
    wide = x.astype(mean.dtype)
    own_mean, own_var = weft.mean(wide, axis=axes), weft.var(wide, axis=axes)
    out = weft.batch_norm(x, own_mean, own_var, scale, bias, eps=eps)
    return out, mean * keep + own_mean * (1 - keep), var * keep + own_var * (1 - keep)


@operator("GroupNormalization")
def group_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Any:
    """Groups of channels of each example; before version 21 there is one scale for each group."""
    groups, eps = call.attribute("num_groups"), call.attribute("epsilon", 1e-5)
    if call.version < 21:
        scale, bias = (weft.repeat(p, x.shape[1] // groups, axis=0) for p in (scale, bias))
    dtype = _stash(call, x)
    out = weft.group_norm(x.astype(dtype), groups, scale.astype(dtype), bias.astype(dtype), eps)
    return out.astype(x.dtype)


@operator("LayerNormalization")
def layer_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    """The axes from one on; also the mean and one over the spread, if they are used."""
    first, eps = call.attribute("axis", -1) % x.ndim, call.attribute("epsilon", 1e-5)
    sizes, dtype = x.shape[first:], _stash(call, x)
    wide = x.astype(dtype)
    if scale.shape == sizes and (bias is None or bias.shape == sizes) and dtype == x.dtype:
        out = weft.layer_norm(x, sizes, scale, bias, eps)
    else:
        out = weft.layer_norm(wide, sizes, eps=eps).astype(x.dtype) * scale
        out = out if bias is None else out + bias
    if not any(call.outputs[1:]):
        return out
    return out, *moments(wide, tuple(range(first, x.ndim)), eps)


@operator("RMSNormalization")
def rms_normalization(call: Call, x: Tensor, scale: Tensor) -> Any:
    """The axes from one on, divided by the root of their mean square."""
    first, eps = call.attribute("axis", -1) % x.ndim, call.attribute("epsilon", 1e-5)
    sizes, dtype = x.shape[first:], _stash(call, x)
    if scale.shape == sizes and dtype == x.dtype:
        return weft.rms_norm(x, sizes, scale, eps)
    return weft.rms_norm(x.astype(dtype), sizes, eps=eps).astype(scale.dtype) * scale


def _stash(call: Call, x: Tensor) -> Any:
    """The dtype that statistics are computed in."""
    asked = call.dtype(call.attribute("stash_type", _FLOAT))
    return x.dtype if x.dtype == weft.float64 else asked


@operator("LRN")
def lrn(call: Call, x: Tensor) -> Any:
    """Each element by the squares of neighbouring channels; of an even number one more after it."""
    size, alpha = call.attribute("size"), call.attribute("alpha", 1e-4)
    beta, k = call.attribute("beta", 0.75), call.attribute("bias", 1.0)
    if size % 2:
        return weft.local_response_norm(x, size, alpha, beta, k)
    return weft.flip(weft.local_response_norm(weft.flip(x, axis=1), size, alpha, beta, k), axis=1)


@operator("LpNormalization")
def lp_normalization(call: Call, x: Tensor) -> Any:
    """x divided by its norm along an axis; 0 where that is 0."""
    axis, p = call.attribute("axis", -1), call.attribute("p", 2)
    norm = weft.linalg.vector_norm(x, axis=axis, keepdims=True, ord=p)
    return weft.where(norm == 0, 0.0, x / weft.where(norm == 0, 1.0, norm))


@operator("MeanVarianceNormalization")
def mean_variance_normalization(call: Call, x: Tensor) -> Any:
    """x with mean 0 and variance 1 over axes."""
    axes = tuple(call.attribute("axes", (0, 2, 3)))
    centred = x - weft.mean(x, axis=axes, keepdims=True)
    spread = weft.sqrt(weft.mean(centred * centred, axis=axes, keepdims=True))
    return centred / (spread + 1e-9)


enter_handlers(
    {
        "InstanceNormalization": lambda call, x, scale, bias: weft.group_norm(
            x, x.shape[1], scale, bias, call.attribute("epsilon", 1e-5)
        )
    }
)
