"""Convolutions: plain, transposed, of integers, deformable, causal with a state, and columns to images."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.base.sizes import is_known
from weft.interop.forms.elements import along
from weft.interop.forms.window import Ints, Sides, Windows, convolved, of_rank, padded
from weft.onnx.operators.quantize import requantize
from weft.onnx.operators.registry import Call, operator
from weft.onnx.operators.sampling import corners
from weft.onnx.operators.windows import halves, need_rank, plain_windows, read_windows


@operator("Conv")
def conv(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Any:
    """Convolution; the weight is (O, C / group, *K)."""
    return _convolve(call, x, w, bias, read_windows(call, x, w.shape[2:]))


def _convolve(call: Call, x: Tensor, w: Tensor, bias: Tensor | None, windows: Windows) -> Any:
    need_rank(call, len(windows.kernel))
    return convolved(x, w, bias, windows, call.attribute("group", 1))


@operator("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Any:
    """The transpose of a convolution; the weight is (C, O / group, *K)."""
    rank = w.ndim - 2
    need_rank(call, rank)
    kernel = tuple(call.attribute("kernel_shape", w.shape[2:]))
    windows = plain_windows(call, kernel)
    extra = tuple(call.attribute("output_padding", (0,) * rank))
    cut = _cut(call, x, windows, extra)
    common = tuple(max(min(pair), 0) if is_known(pair) else 0 for pair in cut)
    steps = windows.stride, common, extra, call.attribute("group", 1), windows.dilation
    out = of_rank("conv_transpose", rank)(x, w, bias, *steps)
    return padded(out, tuple((c - lo, c - hi) for c, (lo, hi) in zip(common, cut, strict=True)))


def _cut(call: Call, x: Tensor, windows: Windows, extra: Ints) -> Sides:
    """What to cut off on both sides of each axis: the pads, or what leads to sizes that are given."""
    mode, given = call.attribute("auto_pad", "NOTSET"), call.attribute("output_shape", None)
    if given is not None:
        wanted = list(given)[-len(extra) :]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(x.shape[2:], windows.stride, strict=True)]
    else:
        return windows.padding
    axes = zip(x.shape[2:], windows.stride, windows.reach, extra, strict=True)
    full = [(n - 1) * s + reach + e for n, s, reach, e in axes]
    return tuple([halves(f - n, mode) for f, n in zip(full, wanted, strict=True)])


# Integers


@operator("ConvInteger")
def conv_integer(
    call: Call, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Any:
    """Convolution of integers less their zero points, in int32."""
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
    total = conv_integer(call, x, w, x_zero, w_zero)
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
    places = [moved[along(2 + rank, axis)] + _grid(windows, axis, sizes, x.dtype) for axis in range(rank)]
    examples = (batch * teams, channels // teams, *x.shape[2:])
    flat = [at.reshape((batch * teams, taps * prod(sizes))) for at in places]
    columns = reduce(weft.add, corners(x.reshape(examples), flat))
    if mask is not None:
        columns = columns * mask.reshape((batch * teams, 1, taps * prod(sizes)))
    columns = columns.reshape((batch, groups, channels // groups * taps, prod(sizes)))
    weight = w.reshape((groups, w.shape[0] // groups, channels // groups * taps))
    out = (weight @ columns).reshape((batch, w.shape[0], *sizes))
    return out if bias is None else out + bias.reshape((-1, *(1,) * rank))


def _grid(windows: Windows, axis: int, sizes: tuple[Any, ...], dtype: Any) -> Any:
    """Where along an axis the taps of each window stand without offsets: (*kernel, *sizes) to broadcast."""
    rank = len(windows.kernel)
    taps = weft.arange(windows.kernel[axis]) * windows.dilation[axis]
    steps = weft.arange(sizes[axis]) * windows.stride[axis] - windows.padding[axis][0]
    at = taps.reshape((-1, *(1,) * (2 * rank - axis - 1))) + steps.reshape((-1, *(1,) * (rank - axis - 1)))
    return at.astype(dtype)


# Columns to images


@operator("Col2Im")
def col2im(call: Call, x: Tensor, image_shape: Tensor, block_shape: Tensor) -> Any:
    """Columns of windows (N, C * taps, windows) added up where they overlap: (N, C, *image_shape)."""
    sizes, kernel = call.ints(image_shape, "image_shape"), call.ints(block_shape, "block_shape")
    windows = plain_windows(call, kernel)
    if len(kernel) == 2 and windows.even is not None:
        return weft.fold(x, tuple(sizes), kernel, windows.dilation, windows.even, windows.stride)
    wide = [n + lo + hi for n, (lo, hi) in zip(sizes, windows.padding, strict=True)]
    channels = x.shape[1] // prod(kernel)
    flat = x.reshape((x.shape[0], channels, prod(kernel) * x.shape[2]))
    zeros = weft.zeros((*flat.shape[:2], prod(wide)), dtype=x.dtype)
    total = weft.index_add(zeros, weft.tensor(_column_places(windows, wide)), flat, axis=2)
    total = total.reshape((*flat.shape[:2], *wide))
    return padded(total, tuple((-lo, -hi) for lo, hi in windows.padding))


def _column_places(windows: Windows, sizes: list[int]) -> Any:
    """Where each tap of each window lies in the padded image, flattened."""
    rank = len(sizes)
    places: Any = np.zeros((1,) * 2 * rank, np.int64)
    for axis, size in enumerate(sizes):
        taps = np.arange(windows.kernel[axis]) * windows.dilation[axis]
        count = (size - windows.reach[axis]) // windows.stride[axis] + 1
        steps = np.arange(count) * windows.stride[axis]
        at = taps.reshape(-1, *(1,) * (2 * rank - axis - 1)) + steps.reshape(-1, *(1,) * (rank - axis - 1))
        places = places * size + at
    return places.reshape(-1)
