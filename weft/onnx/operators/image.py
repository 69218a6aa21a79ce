"""Images: sampling at places, grids of places, cropping to a size, channels to pixels and back."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.interop.forms.window import padded
from weft.onnx.operators.registry import Call, operator

_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@operator("GridSample")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Any:
    """The values of x at places of a grid."""
    mode = call.attribute("mode", "bilinear")
    work = x if weft.isdtype(x.dtype, "real floating") else x.astype(grid.dtype)
    padding, corners = call.attribute("padding_mode", "zeros"), bool(call.attribute("align_corners", 0))
    out = weft.grid_sample(work, grid.astype(work.dtype), _MODES.get(mode, mode), padding, corners)
    return out.astype(x.dtype)


@operator("AffineGrid")
def affine_grid(call: Call, theta: Tensor, size: Tensor) -> Any:
    """Places that transform images by matrices."""
    return weft.affine_grid(theta, call.ints(size, "size"), bool(call.attribute("align_corners", 0)))


@operator("CenterCropPad", moves=True)
def center_crop_pad(call: Call, x: Tensor, shape: Tensor) -> Any:
    """x cut or filled up with zeros on both sides of some axes to sizes."""
    axes = [a % x.ndim for a in call.attribute("axes", range(x.ndim))]
    sides: list[tuple[Any, Any]] = [(0, 0)] * x.ndim
    for axis, wanted in zip(axes, call.ints(shape, "shape"), strict=True):
        more = wanted - x.shape[axis]
        low = more // 2 if more >= 0 else -(-more // 2)
        sides[axis] = low, more - low
    return padded(x, tuple(sides))


@operator("DepthToSpace", moves=True)
def depth_to_space(call: Call, x: Tensor) -> Any:
    """Channels laid out as pixels; "CRD" takes the pixels of a channel from neighbouring ones."""
    n, channels, height, width = x.shape
    r = call.attribute("blocksize")
    if call.attribute("mode", "DCR") == "CRD":
        return weft.pixel_shuffle(x, r)
    parts = x.reshape((n, r, r, channels // (r * r), height, width))
    return weft.permute_dims(parts, (0, 3, 4, 1, 5, 2)).reshape(
        (n, channels // (r * r), height * r, width * r)
    )


@operator("SpaceToDepth", moves=True)
def space_to_depth(call: Call, x: Tensor) -> Any:
    """Blocks of pixels as channels; "CRD" keeps those of a channel together."""
    n, channels, height, width = x.shape
    r = call.attribute("blocksize")
    parts = x.reshape((n, channels, height // r, r, width // r, r))
    order = (0, 1, 3, 5, 2, 4) if call.attribute("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return weft.permute_dims(parts, order).reshape((n, channels * r * r, height // r, width // r))
