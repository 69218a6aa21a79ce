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


@aten("max_pool2d_with_indices_backward")
def max_pool_backward(call: Call, g: Any, x: Any, *settings: Any) -> Any:
    """The gradient of the largest elements of windows: added at the places they were at."""
    flat, rows = ((*t.shape[:-2], t.shape[-2] * t.shape[-1]) for t in (x, g))
    places = weft.reshape(settings[-1], rows)
    out = weft.scatter_add(weft.zeros(flat, dtype=g.dtype), x.ndim - 2, places, weft.reshape(g, rows))
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
    by_x = _normalised_back(g if weight is None else g * weight, normal, rstd, axes)
    others = tuple(range(x.ndim - len(shape)))
    by_weight, by_bias = (weft.sum(v, axis=others) if others else v for v in (g * normal, g))
    return _asked(mask, by_x, by_weight, by_bias)


@aten("native_group_norm_backward")
def group_norm_backward(call: Call, g: Any, x: Any, *given: Any) -> Any:
    """The gradients of a normalisation in groups of channels by input, weight and bias."""
    mean, rstd, weight, _, _, _, group, mask = given
    rows, spread = (x.shape[0], group, -1), (x.shape[0], group, 1)
    normal = (weft.reshape(x, rows) - weft.reshape(mean, spread)) * weft.reshape(rstd, spread)
    scaled = g if weight is None else g * weft.reshape(weight, (1, -1, *[1] * (x.ndim - 2)))
    by_x = _normalised_back(weft.reshape(scaled, rows), normal, weft.reshape(rstd, spread), 2)
    axes = (0, *range(2, x.ndim))
    by_weight = weft.sum(g * weft.reshape(normal, x.shape), axis=axes)
    return _asked(mask, weft.reshape(by_x, x.shape), by_weight, weft.sum(g, axis=axes))


def _normalised_back(g: Any, normal: Any, rstd: Any, axes: Any) -> Any:
    """The gradient of x by what it was normalised to along axes."""
    inner = g - weft.mean(g, axis=axes, keepdims=True)
    return rstd * (inner - normal * weft.mean(g * normal, axis=axes, keepdims=True))


def _asked(mask: Sequence[bool], *found: Any) -> tuple[Any, ...]:
    return tuple(x if wanted else None for x, wanted in zip(found, mask, strict=True))


aten.enter(
    {
        "avg_pool2d_backward": lambda call, g, x, *settings: _gradients(
            lambda x: aten["avg_pool2d"](call, x, *settings), g, (x,)
        )[0],
        "_adaptive_avg_pool2d_backward": lambda call, g, x: _gradients(
            lambda x: weft.adaptive_avg_pool2d(x, g.shape[-2:]), g, (x,)
        )[0],
        "threshold_backward": lambda call, g, x, threshold: weft.where(
            x > threshold, g, weft.zeros((), dtype=g.dtype)
        ),
        "_softmax_backward_data": lambda call, g, out, dim, dtype: (
            (g - weft.sum(g * out, axis=dim, keepdims=True)) * out
        ),
        "_log_softmax_backward_data": lambda call, g, out, dim, dtype: (
            g - weft.exp(out) * weft.sum(g, axis=dim, keepdims=True)
        ),
    }
)
