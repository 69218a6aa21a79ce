"""Convolutions in half precision as a library of a device computes them: channels come last.

The passes ``convolutions_by_library`` and ``channels_last`` put them into graphs. Images are (batch, height,
width, channels), weights (outputs, height, width, inputs); stride, padding and dilation are those of the
convolution that is meant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base.shapes import size_of
from weft.ir.types import TensorType
from weft.ops.conv.kernel import Ints, Padding, convolve, output_size
from weft.ops.families import lowered
from weft.ops.op import Array

_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # where channels go


def _size(n: int, k: int, stride: int, pads: tuple[int, int], dilation: int) -> int:
    return int(output_size(n, k, stride, *pads, dilation, 1))


def _conv_type(x: TensorType, w: TensorType, *, stride: Ints, padding: Padding, dilation: Ints) -> TensorType:
    axes = zip(x.shape[1:3], w.shape[1:3], stride, padding, dilation, strict=True)
    return TensorType((x.shape[0], *[_size(*axis) for axis in axes], w.shape[0]), x.dtype)


def _conv(x: Array, w: Array, *, stride: Ints, padding: Padding, dilation: Ints) -> Array:
    images, weights = x.transpose(_FIRST), w.transpose(_FIRST)
    found = convolve(
        images, weights, stride=stride, padding=padding, dilation=dilation, input_dilation=(1, 1), groups=1
    )
    return np.ascontiguousarray(found.transpose(_LAST))


library_conv = lowered(
    "library_conv",
    type_rule=_conv_type,
    eval=_conv,
    products=lambda x, w: size_of(w[1:]),
)
"""The convolution of images with weights."""


def _biased(x: Array, w: Array, z: Array, *, stride: Ints, padding: Padding, dilation: Ints) -> Array:
    wide = x.astype(np.float32), w.astype(np.float32)
    sums = _conv(*wide, stride=stride, padding=padding, dilation=dilation)
    return (sums + z.astype(np.float32)).astype(x.dtype)


library_conv_add = lowered(
    "library_conv_add",
    type_rule=lambda x, w, z, **attrs: _conv_type(x, w, **attrs),
    eval=_biased,
    products=lambda x, w, z: size_of(w[1:]),
)
"""The same with a number added for each output channel, rounded once."""


def _placed(
    x: Array, w: tuple[int, ...], stride: Ints, padding: Padding, dilation: Ints
) -> Sequence[tuple[tuple[int, ...], Array, tuple[slice, ...]]]:
    """For each tap of the weights, the part of padded images that it meets at all positions, and its key."""
    pads = [(0, 0), *padding, (0, 0)]
    wide = np.pad(np.asarray(x).astype(np.float32), pads)
    axes = zip(x.shape[1:3], w[1:3], stride, padding, dilation, strict=True)
    counts = [_size(*axis) for axis in axes]
    found = []
    for tap in np.ndindex(*w[1:3]):
        first = [t * d for t, d in zip(tap, dilation, strict=True)]
        ends = [f + (n - 1) * s + 1 for f, n, s in zip(first, counts, stride, strict=True)]
        key = tuple(slice(f, e, s) for f, e, s in zip(first, ends, stride, strict=True))
        found.append((tap, wide[:, key[0], key[1]], key))
    return found


def _by_input_type(
    g: TensorType, w: TensorType, *, stride: Ints, padding: Padding, dilation: Ints, size: Ints
) -> TensorType:
    return TensorType((g.shape[0], *size, w.shape[3]), g.dtype)


def _by_input(g: Array, w: Array, *, stride: Ints, padding: Padding, dilation: Ints, size: Ints) -> Array:
    empty = np.zeros((g.shape[0], *size, w.shape[3]), np.float32)
    total = np.pad(empty, [(0, 0), *padding, (0, 0)])
    for (i, j), _, key in _placed(empty, w.shape, stride, padding, dilation):
        total[:, key[0], key[1]] += g.astype(np.float32) @ w[:, i, j].astype(np.float32)
    inside = [slice(lo, lo + n) for (lo, _), n in zip(padding, size, strict=True)]
    return np.ascontiguousarray(total[:, inside[0], inside[1]]).astype(g.dtype)


library_conv_input = lowered(
    "library_conv_input",
    type_rule=_by_input_type,
    eval=_by_input,
)
"""The gradient of a convolution by its images, which are of height and width ``size``."""


def _by_input_biased(
    g: Array, w: Array, z: Array, *, stride: Ints, padding: Padding, dilation: Ints, size: Ints
) -> Array:
    sums = _by_input(g.astype(np.float32), w, stride=stride, padding=padding, dilation=dilation, size=size)
    return (sums + z.astype(np.float32)).astype(g.dtype)


library_conv_input_add = lowered(
    "library_conv_input_add",
    type_rule=lambda g, w, z, **attrs: _by_input_type(g, w, **attrs),
    eval=_by_input_biased,
)
"""The same, which is a transposed convolution, with a number added for each channel, rounded once."""


def _by_weight_type(
    x: TensorType, g: TensorType, *, stride: Ints, padding: Padding, dilation: Ints, size: Ints
) -> TensorType:
    return TensorType((g.shape[3], *size, x.shape[3]), x.dtype)


def _by_weight(x: Array, g: Array, *, stride: Ints, padding: Padding, dilation: Ints, size: Ints) -> Array:
    shape = (g.shape[3], *size, x.shape[3])
    total = np.zeros(shape, np.float32)
    rows = g.astype(np.float32).reshape(-1, g.shape[3])
    for (i, j), part, _ in _placed(x, shape, stride, padding, dilation):
        total[:, i, j] = rows.T @ part.reshape(-1, x.shape[3])
    return total.astype(x.dtype)


library_conv_weight = lowered(
    "library_conv_weight",
    type_rule=_by_weight_type,
    eval=_by_weight,
    products=lambda x, g: size_of(g[:3]),
)
"""The gradient of a convolution by its weights, which are of height and width ``size``."""
