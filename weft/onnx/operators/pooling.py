"""Pools: over windows, over all of an image, and a max pool undone.

Pools whose windows weft's own functions do not know (uneven or named padding, the last windows of
``ceil_mode``) run on an input that is padded first.
"""

from __future__ import annotations

from math import prod
from typing import Any

import weft
from weft import Tensor
from weft.base.size_bounds import size_max
from weft.onnx.operators.registry import Call, operator
from weft.onnx.operators.windows import Ints, Sides, Windows, of_rank, pad_axes, read_windows

_MAX = (weft.max_pool1d, weft.max_pool2d, weft.max_pool3d)
_AVERAGE = (weft.avg_pool1d, weft.avg_pool2d, weft.avg_pool3d)


def _covered(call: Call, x: Tensor, windows: Windows) -> Sides:
    """What to pad so that whole windows cover what the operator pools."""
    if not call.attribute("ceil_mode", 0):
        return windows.pads
    axes = zip(x.shape[2:], windows.strides, windows.reach, windows.pads, strict=True)
    return tuple([(lo, _after(n, s, reach, lo, hi)) for n, s, reach, (lo, hi) in axes])


def _after(size: Any, stride: int, reach: int, lo: Any, hi: Any) -> Any:
    """What to pad after an axis for the last window, which must not start in that padding."""
    last = (size + lo + min(hi - reach + stride - 1, -1)) // stride
    total = last * stride + reach - size - lo
    if reach >= stride:
        return total  # never negative, which a named size may not be able to tell
    return size_max(total, 0)


def _own_padding(windows: Windows, sides: Sides) -> Ints | None:
    """The padding, if weft's own pools can do it: even, known, and not more than half a window."""
    padding = windows.even
    if padding is None or sides != windows.pads:
        return None
    return padding if all(2 * p <= k for p, k in zip(padding, windows.kernel, strict=True)) else None


def _lowest(dtype: Any) -> Any:
    return -weft.inf if weft.isdtype(dtype, "real floating") else int(weft.iinfo(dtype).min)


# Largest elements


@operator("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
    """The largest element of each window, and where it is."""
    windows = read_windows(call, x)
    sides, zeros = _covered(call, x, windows), (0,) * len(windows.kernel)
    indexed = len(call.outputs) > 1 and call.outputs[1]
    padding = _own_padding(windows, sides)
    given = pad_axes(x, sides, _lowest(x.dtype)) if padding is None else x
    function = of_rank(call, _MAX, len(windows.kernel))
    steps = windows.strides, padding or zeros, windows.dilations
    found = function(given, windows.kernel, *steps, False, indexed)
    if not indexed:
        return found
    lows = [lo for lo, _ in sides] if padding is None else list(zeros)
    return found[0], _flat_places(found[1], x, given, lows, call.attribute("storage_order", 0))


def _flat_places(places: Tensor, x: Tensor, padded: Tensor, lows: list[Any], columns: int) -> Any:
    """Places in each padded channel as places in all of x, flattened; the last axis first if ``columns``."""
    sizes, at = x.shape[2:], []
    for size in reversed(padded.shape[2:]):
        at.append(places % size)
        places = places // size
    coordinates = [c - lo for c, lo in zip(reversed(at), lows, strict=True)]
    ordered = list(zip(coordinates, sizes, strict=True))
    flat: Any = 0
    for c, size in reversed(ordered) if columns else ordered:
        flat = flat * size + c
    channels = weft.arange(x.shape[0] * x.shape[1]).reshape((*x.shape[:2], *(1,) * len(sizes)))
    return flat + channels * prod(sizes)


@operator("MaxUnpool")
def max_unpool(call: Call, x: Tensor, places: Tensor, output_shape: Tensor | None = None) -> Any:
    """What a max pool kept, put back to where it was in a tensor of zeros."""
    windows = read_windows(call, x)
    axes = zip(x.shape[2:], windows.strides, windows.reach, windows.pads, strict=True)
    shape = (*x.shape[:2], *[(n - 1) * s + reach - lo - hi for n, s, reach, (lo, hi) in axes])
    flat = weft.zeros(prod(shape), dtype=x.dtype)
    out = weft.put_along_axis(flat, places.reshape(-1), x.reshape(-1), axis=0).reshape(shape)
    if output_shape is None:
        return out
    wanted = call.ints(output_shape, "output_shape")
    return pad_axes(out, tuple((0, n - m) for n, m in zip(wanted, shape, strict=True)))


# Averages and norms


def _windows_mean(call: Call, x: Tensor, windows: Windows) -> Tensor:
    """The mean of each window of x, which has been padded."""
    if all(d == 1 for d in windows.dilations):
        function = of_rank(call, _AVERAGE, len(windows.kernel))
        out: Tensor = function(x, windows.kernel, windows.strides)
        return out
    first = x.ndim - len(windows.kernel)
    fields = zip(windows.kernel, windows.strides, windows.dilations, strict=True)
    for axis, (k, s, d) in enumerate(fields, first):
        count = (x.shape[axis] - (k - 1) * d - 1) // s + 1
        taps = [_strided(x, axis, tap * d, count, s) for tap in range(k)]
        x = sum(taps[1:], taps[0])
    return x / prod(windows.kernel)


def _strided(x: Tensor, axis: int, start: int, count: Any, step: int) -> Tensor:
    return x[(slice(None),) * axis + (slice(start, start + (count - 1) * step + 1, step),)]


@operator("AveragePool")
def average_pool(call: Call, x: Tensor) -> Any:
    """The mean of each window, with or without the padding."""
    windows = read_windows(call, x)
    sides, included = _covered(call, x, windows), bool(call.attribute("count_include_pad", 0))
    padding = _own_padding(windows, sides)
    if padding is not None and all(d == 1 for d in windows.dilations):
        function = of_rank(call, _AVERAGE, len(windows.kernel))
        return function(x, windows.kernel, windows.strides, padding, False, included)
    mean = _windows_mean(call, pad_axes(x, sides), windows)
    own = windows.pads if included else ((0, 0),) * len(sides)
    if own == sides:
        return mean
    return mean / _counted(call, x, windows, sides, own)


def _counted(call: Call, x: Tensor, windows: Windows, sides: Sides, own: Sides) -> Any:
    """Which part of each window counts, if only so much of what is padded does; it is a product over axes."""
    out: Any = 1
    for axis, ((lo, hi), (before, after)) in enumerate(zip(sides, own, strict=True)):
        size = x.shape[2 + axis]
        line = weft.arange(lo + size + hi)
        counts = weft.greater_equal(line, lo - before) & weft.less(line, lo + size + after)
        share = _windows_mean(call, counts.astype(x.dtype)[None, None], windows.along(axis))
        out = out * share.reshape((-1, *(1,) * (len(sides) - axis - 1)))
    return out


@operator("LpPool")
def lp_pool(call: Call, x: Tensor) -> Any:
    """The p-norm of each window."""
    windows, p = read_windows(call, x), call.attribute("p", 2)
    padded = pad_axes(x, _covered(call, x, windows))
    mean = _windows_mean(call, weft.abs(padded) ** p, windows)
    return (mean * prod(windows.kernel)) ** (1 / p)


@operator("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Any:
    """The mean of each channel."""
    return weft.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Any:
    """The largest element of each channel."""
    return weft.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Any:
    """The p-norm of each channel."""
    p = call.attribute("p", 2)
    return weft.sum(weft.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)
