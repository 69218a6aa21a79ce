"""ATen operators that are gradients of others: weft differentiates the operator itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.interop.torch.aten import network
from weft.interop.torch.calls import Call, aten


def _gradients(
    function: Any, g: Any, inputs: Sequence[Any], wanted: Sequence[bool] | None = None
) -> tuple[Any, ...]:
    """The gradients of some inputs of a function; None for the others, and for inputs that are None."""
    asked = [x is not None and (wanted is None or wanted[i]) for i, x in enumerate(inputs)]
    places = [i for i, yes in enumerate(asked) if yes]

    def of_asked(*given: Any) -> Any:
        full = list(inputs)
        for i, x in zip(places, given, strict=True):
            full[i] = x
        return function(*full)

    if not places:
        return (None,) * len(inputs)
    _, pull = weft.vjp(of_asked, *[inputs[i] for i in places])
    found = dict(zip(places, pull(g), strict=True))
    return tuple(found.get(i) for i in range(len(inputs)))


@aten("convolution_backward")
def convolution_backward(
    call: Call, g: Any, x: Any, weight: Any, bias_sizes: Any, *rest: Any
) -> tuple[Any, ...]:
    """The gradients of a convolution by input, weight and bias."""
    *attributes, mask = rest
    by_x, by_weight, _ = _gradients(
        lambda x, w, b: network.convolution(call, x, w, b, *attributes), g, (x, weight, None), mask
    )
    by_bias = weft.sum(g, axis=(0, *range(2, g.ndim))) if mask[2] else None
    return by_x, by_weight, by_bias


@aten("avg_pool2d_backward")
def avg_pool_backward(call: Call, g: Any, x: Any, *attributes: Any) -> Any:
    """The gradient of means of windows."""
    return _gradients(lambda x: network.avg_pool(call, x, *attributes), g, (x,))[0]


@aten("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool_backward(call: Call, g: Any, x: Any) -> Any:
    """The gradient of means of as many windows as were asked for."""
    return _gradients(lambda x: network.adaptive_avg_pool(call, x, g.shape[-2:]), g, (x,))[0]


@aten("max_pool2d_with_indices_backward")
def max_pool_backward(
    call: Call,
    g: Any,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    """The gradient of the largest elements of windows: added at the places they were at."""
    flat = (*x.shape[:-2], x.shape[-2] * x.shape[-1])
    zeros = weft.zeros(flat, dtype=g.dtype)
    rows = (*g.shape[:-2], g.shape[-2] * g.shape[-1])
    out = weft.scatter_add(zeros, x.ndim - 2, weft.reshape(indices, rows), weft.reshape(g, rows))
    return weft.reshape(out, x.shape)


@aten("embedding_dense_backward")
def embedding_backward(
    call: Call, g: Any, indices: Any, num_weights: Any, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """The gradient of rows of a table."""
    if scale_grad_by_freq:
        raise call.error("must not scale gradients by frequency", "use scale_grad_by_freq=False")
    width = g.shape[-1]
    flat, rows = weft.reshape(indices, (-1,)), weft.reshape(g, (-1, width))
    rows = weft.where(weft.expand_dims(flat == padding_idx, axis=1), weft.zeros((), dtype=g.dtype), rows)
    return weft.index_add(weft.zeros((num_weights, width), dtype=g.dtype), flat, rows, axis=0)


@aten("native_layer_norm_backward")
def layer_norm_backward(
    call: Call, g: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:
    """The gradients of a normalisation along the last axes by input, weight and bias."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    normal = (x - mean) * rstd
    scaled = g if weight is None else g * weight
    inner = scaled - weft.mean(scaled, axis=axes, keepdims=True)
    by_x = rstd * (inner - normal * weft.mean(scaled * normal, axis=axes, keepdims=True))
    others = tuple(range(x.ndim - len(shape)))
    by_weight = weft.sum(g * normal, axis=others) if mask[1] and others else g * normal
    by_bias = weft.sum(g, axis=others) if mask[2] and others else g
    return by_x if mask[0] else None, by_weight if mask[1] else None, by_bias if mask[2] else None


@aten("native_group_norm_backward")
def group_norm_backward(
    call: Call,
    g: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    n: Any,
    c: Any,
    hw: Any,
    group: int,
    mask: Any,
) -> Any:
    """The gradients of a normalisation in groups of channels by input, weight and bias."""
    rows = (x.shape[0], group, -1)
    spread = (x.shape[0], group, 1)
    normal = (weft.reshape(x, rows) - weft.reshape(mean, spread)) * weft.reshape(rstd, spread)
    scaled = g if weight is None else g * weft.reshape(weight, (1, -1, *[1] * (x.ndim - 2)))
    scaled = weft.reshape(scaled, rows)
    inner = scaled - weft.mean(scaled, axis=2, keepdims=True)
    by_x = weft.reshape(rstd, spread) * (inner - normal * weft.mean(scaled * normal, axis=2, keepdims=True))
    axes = (0, *range(2, x.ndim))
    by_weight = weft.sum(g * weft.reshape(normal, x.shape), axis=axes)
    by_bias = weft.sum(g, axis=axes)
    return (
        weft.reshape(by_x, x.shape) if mask[0] else None,
        by_weight if mask[1] else None,
        by_bias if mask[2] else None,
    )


@aten("threshold_backward")
def threshold_backward(call: Call, g: Any, x: Any, threshold: Any) -> Any:
    """The gradient where x is above a threshold."""
    return weft.where(x > threshold, g, weft.zeros((), dtype=g.dtype))


@aten("_softmax_backward_data")
def softmax_backward(call: Call, g: Any, out: Any, dim: int, dtype: Any) -> Any:
    """The gradient of softmax."""
    return (g - weft.sum(g * out, axis=dim, keepdims=True)) * out


@aten("_log_softmax_backward_data")
def log_softmax_backward(call: Call, g: Any, out: Any, dim: int, dtype: Any) -> Any:
    """The gradient of the logarithm of softmax."""
    return g - weft.exp(out) * weft.sum(g, axis=dim, keepdims=True)
