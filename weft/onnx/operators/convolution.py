"""Convolutions: plain, transposed, of integers, deformable, causal with a state, and columns to images."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.base.sizes import is_known
from weft.onnx.operators.quantize import requantize
from weft.onnx.operators.registry import Call, operator
from weft.onnx.operators.windows import (
    Ints,
    Sides,
    Windows,
    halves,
    inside,
    of_rank,
    pad_axes,
    read_pads,
    read_steps,
    read_windows,
    within,
)


@operator("Conv")
def conv(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolution; the weight is (O, C / group, *K)."""
    return _convolve(call, x, w, bias, read_windows(call, x, w.shape[2:]))


def _convolve(call: Call, x: Tensor, w: Tensor, bias: Tensor | None, windows: Windows) -> Tensor:
    function = of_rank(call, (weft.conv1d, weft.conv2d, weft.conv3d), len(windows.kernel))
    padding = windows.even
    if padding is None:
        x, padding = pad_axes(x, windows.pads), (0,) * len(windows.kernel)
    groups = call.attribute("group", 1)
    out: Tensor = function(x, w, bias, windows.strides, padding, windows.dilations, groups)
    return out


@operator("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Any:
    """The transpose of a convolution; the weight is (C, O / group, *K)."""
    rank = w.ndim - 2
    kernel = tuple(call.attribute("kernel_shape", w.shape[2:]))
    windows = Windows(kernel, *read_steps(call, rank), read_pads(call, rank))
    extra = tuple(call.attribute("output_padding", (0,) * rank))
    cut = _cut(call, x, windows, extra)
    common = tuple(max(min(pair), 0) if is_known(pair) else 0 for pair in cut)
    function = of_rank(call, (weft.conv_transpose1d, weft.conv_transpose2d, weft.conv_transpose3d), rank)
    groups = call.attribute("group", 1)
    out = function(x, w, bias, windows.strides, common, extra, groups, windows.dilations)
    return pad_axes(out, tuple((c - lo, c - hi) for c, (lo, hi) in zip(common, cut, strict=True)))


def _cut(call: Call, x: Tensor, windows: Windows, extra: Ints) -> Sides:
    """What to cut off on both sides of each axis: the pads, or what leads to sizes that are given."""
    mode, given = call.attribute("auto_pad", "NOTSET"), call.attribute("output_shape", None)
    if given is not None:
        wanted = list(given)[-len(extra) :]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(x.shape[2:], windows.strides, strict=True)]
    else:
        return windows.pads
    axes = zip(x.shape[2:], windows.strides, windows.reach, extra, strict=True)
    full = [(n - 1) * s + reach + e for n, s, reach, e in axes]
    return tuple([halves(f - n, mode) for f, n in zip(full, wanted, strict=True)])


# Integers


@operator("ConvInteger")
def conv_integer(
    call: Call, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    """Convolution of integers less their zero points, in int32."""
    return _convolve_centred(call, x, w, x_zero, w_zero)


def _convolve_centred(
    call: Call, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None
) -> Tensor:
    windows = read_windows(call, x, w.shape[2:])
    x, w = x.astype(weft.int32), w.astype(weft.int32)
    if x_zero is not None:
        x = x - x_zero.astype(weft.int32)
    if w_zero is not None:
        w = w - _per_output(w_zero.astype(weft.int32), w.ndim)
    return _convolve(call, x, w, None, windows)


def _per_output(values: Tensor, rank: int) -> Tensor:
    """A number, or one for each output channel, to broadcast against a weight."""
    return values if values.ndim == 0 else values.reshape((-1, *(1,) * (rank - 1)))


@operator("QLinearConv")
def qlinear_conv(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Any:
    """Convolution of quantised numbers, quantised again; the sums in between are exact."""
    total = _convolve_centred(call, x, w, x_zero, w_zero)
    channels = (-1, *(1,) * (w.ndim - 2))
    if bias is not None:
        total = total + bias.reshape(channels)
    factor = x_scale * w_scale / y_scale
    return requantize(total, factor if factor.ndim == 0 else factor.reshape(channels), y_zero)


# With a state


@operator("CausalConvWithState")
def causal_conv_with_state(
    call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None, past: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Each channel convolved with what came before it, and the end of it for the next call."""
    keep = w.shape[2] - 1
    if past is None:
        past = weft.zeros((*x.shape[:2], keep), dtype=x.dtype)
    line = weft.concat([past, x], axis=2)
    out = weft.conv1d(line, w, bias, groups=w.shape[0])
    if call.attribute("activation", "none") in ("silu", "swish"):
        out = weft.silu(out)
    return out, line[:, :, x.shape[2] :]


# Deformable


@operator("DeformConv")
def deform_conv(
    call: Call, x: Tensor, w: Tensor, offset: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
) -> Any:
    """Convolution whose taps are moved by offsets, and read between elements."""
    windows = read_windows(call, x, w.shape[2:])
    kernel, sizes = windows.kernel, offset.shape[2:]
    rank, taps, teams = len(kernel), prod(kernel), call.attribute("offset_group", 1)
    batch, channels, groups = x.shape[0], x.shape[1], call.attribute("group", 1)
    moved = offset.reshape((batch, teams, *kernel, rank, *sizes))
    places = [
        moved[(slice(None),) * (2 + rank) + (axis,)] + _grid(windows, axis, sizes, x.dtype)
        for axis in range(rank)
    ]
    columns = _between(x.reshape((batch, teams, channels // teams, *x.shape[2:])), places)
    if mask is not None:
        columns = columns * mask.reshape((batch, teams, 1, taps * prod(sizes)))
    columns = columns.reshape((batch, groups, channels // groups * taps, prod(sizes)))
    weight = w.reshape((groups, w.shape[0] // groups, channels // groups * taps))
    out = (weight @ columns).reshape((batch, w.shape[0], *sizes))
    return out if bias is None else out + bias.reshape((-1, *(1,) * rank))


def _grid(windows: Windows, axis: int, sizes: tuple[Any, ...], dtype: Any) -> Any:
    """Where along an axis the taps of each window stand without offsets: (*kernel, *sizes) to broadcast."""
    rank = len(windows.kernel)
    taps = weft.arange(windows.kernel[axis]) * windows.dilations[axis]
    steps = weft.arange(sizes[axis]) * windows.strides[axis] - windows.pads[axis][0]
    at = taps.reshape((-1, *(1,) * (2 * rank - axis - 1))) + steps.reshape((-1, *(1,) * (rank - axis - 1)))
    return at.astype(dtype)


def _between(x: Tensor, places: list[Tensor]) -> Any:
    """The values of x (N, G, C, *S) at real places (N, G, *P) for each axis, as (N, G, C, all places)."""
    rank = len(places)
    first = [weft.floor(at) for at in places]
    out = None
    for corner in product((0, 1), repeat=rank):
        weight: Any = 1
        for at, low, k in zip(places, first, corner, strict=True):
            weight = weight * ((at - low) if k else (1 - (at - low)))
        term = _pick(x, [low + k for low, k in zip(first, corner, strict=True)], weight)
        out = term if out is None else out + term
    assert out is not None
    return out


def _pick(x: Tensor, places: list[Tensor], weight: Tensor) -> Any:
    """Elements at whole places times a weight; 0 where a place is outside."""
    batch, teams, channels, *sizes = x.shape
    flat: Any = 0
    for at, size in zip(places, sizes, strict=True):
        weight = weft.where(inside(weft, at, size), weight, 0.0)
        flat = flat * size + within(weft, at, size).astype(weft.int64)
    count = prod(flat.shape[2:])
    index = weft.broadcast_to(flat.reshape((batch, teams, 1, count)), (batch, teams, channels, count))
    values = weft.take_along_axis(x.reshape((batch, teams, channels, prod(sizes))), index, axis=3)
    return values * weight.reshape((batch, teams, 1, count))


# Columns to images


@operator("Col2Im")
def col2im(call: Call, x: Tensor, image_shape: Tensor, block_shape: Tensor) -> Any:
    """Columns of windows (N, C * taps, windows) added up where they overlap: (N, C, *image_shape)."""
    sizes, kernel = call.ints(image_shape, "image_shape"), call.ints(block_shape, "block_shape")
    rank = len(kernel)
    strides, dilations = read_steps(call, rank)
    windows = Windows(tuple(kernel), strides, dilations, read_pads(call, rank))
    if rank == 2 and windows.even is not None:
        return weft.fold(x, tuple(sizes), kernel, dilations, windows.even, strides)
    padded = [n + lo + hi for n, (lo, hi) in zip(sizes, windows.pads, strict=True)]
    channels = x.shape[1] // prod(kernel)
    flat = x.reshape((x.shape[0], channels, prod(kernel) * x.shape[2]))
    zeros = weft.zeros((*flat.shape[:2], prod(padded)), dtype=x.dtype)
    total = weft.index_add(zeros, weft.tensor(_column_places(windows, padded)), flat, axis=2)
    total = total.reshape((*flat.shape[:2], *padded))
    return pad_axes(total, tuple((-lo, -hi) for lo, hi in windows.pads))


def _column_places(windows: Windows, padded: list[int]) -> Any:
    """Where each tap of each window lies in the padded image, flattened."""
    rank = len(padded)
    places: Any = np.zeros((1,) * 2 * rank, np.int64)
    for axis, size in enumerate(padded):
        taps = np.arange(windows.kernel[axis]) * windows.dilations[axis]
        count = (size - windows.reach[axis]) // windows.strides[axis] + 1
        steps = np.arange(count) * windows.strides[axis]
        at = taps.reshape(-1, *(1,) * (2 * rank - axis - 1)) + steps.reshape(-1, *(1,) * (rank - axis - 1))
        places = places * size + at
    return places.reshape(-1)
