"""Products that sum: matrix products, and convolutions."""

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
from weft.onnx.operators.pooling import halves, need_rank, plain_windows, read_windows
from weft.onnx.operators.quantize import requantize
from weft.onnx.operators.registry import Call, enter_handlers, operator
from weft.onnx.operators.resize import corners


@operator("Gemm")
def gemm(
    call: Call, a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0
) -> Tensor:
    """``alpha * a @ b + beta * c``, with a or b transposed if asked."""
    a = weft.permute_dims(a, (1, 0)) if call.attribute("transA", 0) else a
    b = weft.permute_dims(b, (1, 0)) if call.attribute("transB", 0) else b
    if c is not None and alpha == beta == 1.0 and a.dtype.itemsize == 2:  # half precision is rounded once
        return weft.addmm(c, a, b)
    out = _scaled(weft.matmul(a, b), alpha)
    return out if c is None else out + _scaled(c, beta)


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else (x * factor).astype(x.dtype, copy=False)


enter_handlers(
    {
        "MatMul": lambda call, a, b: weft.matmul(a, b),
        "Einsum": lambda call, *inputs, equation: weft.einsum(equation, *inputs),
        "Det": lambda call, x: weft.linalg.det(x),
    }
)


# Convolutions


@operator("Conv")
def conv(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None, *, group: int = 1) -> Any:
    """Convolution; the weight is (O, C / group, *K)."""
    windows = read_windows(call, x, w.shape[2:])
    need_rank(call, len(windows.kernel))
    return convolved(x, w, bias, windows, group)


@operator("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None, *, group: int = 1) -> Any:
    """The transpose of a convolution; the weight is (C, O / group, *K)."""
    rank = w.ndim - 2
    need_rank(call, rank)
    windows = plain_windows(call, tuple(call.attribute("kernel_shape", w.shape[2:])))
    extra = tuple(call.attribute("output_padding", (0,) * rank))
    cut = _cut(call, x, windows, extra)
    common = tuple(max(min(pair), 0) if is_known(pair) else 0 for pair in cut)
    steps = windows.stride, common, extra, group, windows.dilation
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
    """Convolution of integers less their zero points, in int32; those of weights may be one a channel."""
    x, w = x.astype(weft.int32), w.astype(weft.int32)
    if x_zero is not None:
        x = x - x_zero.astype(weft.int32)
    if w_zero is not None:
        zero = w_zero.astype(weft.int32)
        w = w - (zero if zero.ndim == 0 else zero.reshape((-1, *(1,) * (w.ndim - 1))))
    return conv(call, x, w, group=call.attribute("group", 1))


@operator("QLinearConv")
def qlinear_conv(call: Call, *given: Any) -> Any:
    """Convolution of quantised numbers, quantised again; the sums in between are exact."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = given
    total = conv_integer(call, x, w, x_zero, w_zero)
    channels = (-1, *(1,) * (w.ndim - 2))
    if bias and bias[0] is not None:
        total = total + bias[0].reshape(channels)
    factor = x_scale * w_scale / y_scale
    return requantize(total, factor if factor.ndim == 0 else factor.reshape(channels), y_zero)


# Deformable


@operator("DeformConv")
def deform_conv(
    call: Call, x: Tensor, w: Tensor, offset: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
) -> Any:
    """Convolution whose taps are moved by offsets, and read between elements."""
    teams, groups = call.attribute("offset_group", 1), call.attribute("group", 1)
    windows = read_windows(call, x, w.shape[2:])
    kernel, sizes = windows.kernel, offset.shape[2:]
    rank, taps, batch, channels = len(kernel), prod(kernel), *x.shape[:2]
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
