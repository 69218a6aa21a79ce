"""ATen operators of neural networks: convolution, pooling, normalisation, attention, resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.interop.torch.calls import Call, astype, aten

# Convolution


@aten("convolution", "_convolution")
def convolution(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *rest: Any,
) -> Any:
    """A convolution, or its transpose, over one to three axes."""
    rank = weight.ndim - 2
    batched = x if x.ndim == weight.ndim else weft.expand_dims(x, axis=0)
    given = [_sizes(v, rank) for v in (stride, padding, output_padding, dilation)]
    if transposed:
        transposes = (weft.conv_transpose1d, weft.conv_transpose2d, weft.conv_transpose3d)
        function: Callable[..., Any] = transposes[rank - 1]
        out = function(batched, weight, bias, *given[:3], groups, given[3])
    else:
        function = (weft.conv1d, weft.conv2d, weft.conv3d)[rank - 1]
        out = function(batched, weight, bias, given[0], given[1], given[3], groups)
    return out if x.ndim == weight.ndim else weft.squeeze(out, axis=0)


def _sizes(value: Any, rank: int) -> tuple[Any, ...]:
    items = tuple(value) if isinstance(value, list | tuple) else (value,)
    return items * rank if len(items) == 1 else items


# Pooling


@aten("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices")
def max_pool(
    call: Call,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """The largest elements of windows, and their places."""
    rank = int(call.target.partition("max_pool")[2][0])
    function: Callable[..., Any] = (weft.max_pool1d, weft.max_pool2d, weft.max_pool3d)[rank - 1]
    given = [_sizes(v, rank) for v in (kernel, stride or kernel, padding, dilation)]
    return tuple(function(x, *given, ceil_mode, return_indices=True))


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    call: Call,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The means of windows."""
    rank = int(call.target.partition("avg_pool")[2][0])
    given = [_sizes(v, rank) for v in (kernel, stride or kernel, padding)]
    function: Callable[..., Any] = (weft.avg_pool1d, weft.avg_pool2d, weft.avg_pool3d)[rank - 1]
    divisor = () if rank == 1 else (divisor_override,)
    return function(x, *given, ceil_mode, count_include_pad, *divisor)


@aten("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d")
def adaptive_avg_pool(call: Call, x: Any, output_size: Any) -> Any:
    """The means of as many windows as are asked for."""
    rank = int(call.target.partition("avg_pool")[2][0])
    function = (weft.adaptive_avg_pool1d, weft.adaptive_avg_pool2d, weft.adaptive_avg_pool3d)[rank - 1]
    return function(x, _sizes(output_size, rank))


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(call: Call, x: Any, output_size: Any) -> Any:
    """The largest elements of as many windows as are asked for, and their places."""
    rank = int(call.target.partition("max_pool")[2][0])
    function = (weft.adaptive_max_pool1d, weft.adaptive_max_pool2d, weft.adaptive_max_pool3d)[rank - 1]
    return tuple(function(x, _sizes(output_size, rank), return_indices=True))


# Normalisation


def _channels(x: Any, values: Any) -> Any:
    """One value for each channel, so that it meets the axis of channels."""
    return weft.reshape(values, (1, values.shape[0], *[1] * (x.ndim - 2)))


def _scaled(x: Any, mean: Any, variance: Any, weight: Any, bias: Any, eps: float) -> Any:
    scale = weft.rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return x * _channels(x, scale) + _channels(x, shift)


@aten("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    call: Call, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    """Normalised by running statistics."""
    empty = weft.zeros((0,), dtype=x.dtype)
    return weft.batch_norm(x, mean, variance, weight, bias, False, momentum, eps), empty, empty


@aten("_native_batch_norm_legit_functional", "native_batch_norm", "_native_batch_norm_legit")
def batch_norm(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalised by the statistics of the batch; the last two results are the new running ones."""
    if not training:
        return (
            *batch_norm_inference(call, x, weight, bias, running_mean, running_var, momentum, eps),
            running_mean,
            running_var,
        )
    out, mean, rstd, variance = _by_batch(x, weight, bias, eps)
    if running_mean is None:
        return out, mean, rstd
    count = weft.zeros((), dtype=x.dtype) + _count(x)
    unbiased = variance * (count / (count - 1.0))
    means = running_mean * (1.0 - momentum) + mean * momentum
    variances = running_var * (1.0 - momentum) + unbiased * momentum
    return out, mean, rstd, astype(means, running_mean.dtype), astype(variances, running_var.dtype)


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    call: Call, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Normalised by the statistics of the batch."""
    return _by_batch(x, weight, bias, eps)[:3]


def _by_batch(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    axes = (0, *range(2, x.ndim))
    mean, variance = weft.mean(x, axis=axes), weft.var(x, axis=axes)
    return _scaled(x, mean, variance, weight, bias, eps), mean, weft.rsqrt(variance + eps), variance


def _count(x: Any) -> Any:
    total = x.shape[0]
    for size in x.shape[2:]:
        total = total * size
    return total


@aten("native_layer_norm")
def native_layer_norm(call: Call, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Normalised along the last axes; with the means and the reciprocal deviations."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    mean = weft.mean(x, axis=axes, keepdims=True)
    rstd = weft.rsqrt(weft.var(x, axis=axes, keepdims=True) + eps)
    return weft.layer_norm(x, tuple(shape), weight, bias, eps), mean, rstd


@aten("layer_norm")
def layer_norm(
    call: Call,
    x: Any,
    shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> Any:
    """Normalised along the last axes."""
    return weft.layer_norm(x, tuple(shape), weight, bias, eps)


@aten("rms_norm")
def rms_norm(call: Call, x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """Divided by the root of the mean square along the last axes."""
    return weft.rms_norm(x, tuple(shape), weight, eps)


@aten("native_group_norm")
def native_group_norm(
    call: Call, x: Any, weight: Any, bias: Any, n: Any, c: Any, hw: Any, group: int, eps: float
) -> Any:
    """Normalised in groups of channels; with the means and the reciprocal deviations."""
    rows = weft.reshape(x, (x.shape[0], group, -1))
    mean, rstd = weft.mean(rows, axis=2), weft.rsqrt(weft.var(rows, axis=2) + eps)
    return weft.group_norm(x, group, weight, bias, eps), mean, rstd


@aten("group_norm")
def group_norm(
    call: Call,
    x: Any,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> Any:
    """Normalised in groups of channels."""
    return weft.group_norm(x, groups, weight, bias, eps)


# Attention


@aten("scaled_dot_product_attention")
def attention(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention of queries to keys."""
    return weft.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )


# Resizing


def _resized(mode: str, rank: int) -> Any:
    def rule(call: Call, x: Any, output_size: Any, *rest: Any) -> Any:
        align = bool(rest[0]) if rest and isinstance(rest[0], bool) else False
        factors = next((r for r in rest if isinstance(r, list | tuple)), None)
        smooth = {"align_corners": align} if mode in ("bilinear", "linear", "trilinear", "bicubic") else {}
        if output_size is not None:
            return weft.interpolate(x, size=tuple(output_size), mode=mode, **smooth)
        return weft.interpolate(x, scale_factor=tuple(factors or ()), mode=mode, **smooth)

    return rule


for _mode, _rank, _name in (
    ("nearest", 1, "upsample_nearest1d"),
    ("nearest", 2, "upsample_nearest2d"),
    ("nearest", 3, "upsample_nearest3d"),
    ("linear", 1, "upsample_linear1d"),
    ("bilinear", 2, "upsample_bilinear2d"),
    ("trilinear", 3, "upsample_trilinear3d"),
    ("bicubic", 2, "upsample_bicubic2d"),
):
    aten(_name, f"{_name}.vec")(_resized(_mode, _rank))


@aten("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def grid_sampler(
    call: Call, x: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """x at places that a grid tells."""
    mode = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    return weft.grid_sample(x, grid, mode, ("zeros", "border", "reflection")[padding_mode], align_corners)


# Dropout


@aten("native_dropout")
def native_dropout(call: Call, x: Any, p: float, train: bool | None) -> Any:
    """x with elements set to zero at random, and which ones stayed."""
    if train is False or p == 0:
        return x, weft.ones(x.shape, dtype=weft.bool)
    mask = weft.rand(*x.shape) >= p
    return weft.where(mask, x / (1.0 - p) if p < 1 else x, weft.zeros((), dtype=x.dtype)), mask


aten("dropout")(lambda call, x, p, train: weft.dropout(x, p, train))
aten("feature_dropout")(lambda call, x, p, train: weft.dropout2d(x, p, train) if train else x)
