"""Modules that change shapes: flattening, windows as columns, resizing, channels to pixels and back."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.base.shapes import PerAxis
from weft.nn.variant import Variant


class Flatten(Variant, example="()(weft.ones((2, 3, 4))).shape -> (2, 12)"):
    """The axes from one to another made one; all but the first by default."""

    _shown = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Tensor) -> Tensor:
        """x with fewer axes."""
        return weft.flatten(x, self.start_dim, self.end_dim)


class Unflatten(Variant, example="(1, (3, -1))(weft.ones((2, 12))).shape -> (2, 3, 4)"):
    """One axis made several.

    Args:
        dim: the axis.
        unflattened_size: the sizes it is to have; one of them may be -1.
    """

    _shown = ("dim", "unflattened_size")

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """x with more axes."""
        return weft.unflatten(x, self.dim, self.unflattened_size)


class Unfold(Variant, example="(2)(weft.ones((1, 3, 4, 4))).shape -> (1, 12, 9)"):
    """The windows of x (N, C, H, W) as columns (N, C * window, number of windows).

    Args:
        kernel_size: of the window; a number or a pair, as all that follows.
        dilation: between the elements of a window.
        padding: zeros on both sides.
        stride: from window to window.
    """

    _shown = ("kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """The columns."""
        return weft.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Variant, example="((4, 4), 2)(weft.ones((1, 12, 9))).shape -> (1, 3, 4, 4)"):
    """Columns (N, C * window, number of windows) added up to x (N, C, *output_size)."""

    _shown = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self,
        output_size: PerAxis,
        kernel_size: PerAxis,
        dilation: PerAxis = 1,
        padding: PerAxis = 0,
        stride: PerAxis = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """The sums of the windows."""
        window = (self.kernel_size, self.dilation, self.padding, self.stride)
        return weft.fold(x, self.output_size, *window)


class Upsample(
    Variant, example="(scale_factor=2)(weft.tensor([[[1.0, 2.0]]])) -> tensor([[[1., 1., 2., 2.]]])"
):
    """x (N, C, *S) in another size.

    Args:
        size: of the result.
        scale_factor: by which sizes are multiplied, instead of a size.
        mode: "nearest", "linear", "bilinear", "bicubic" or "trilinear".
        align_corners: whether the corners of input and output lie on each other.
        recompute_scale_factor: whether the factor is computed again from the rounded size.
    """

    _shown = ("size", "scale_factor", "mode", "align_corners")

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        """x resized."""
        settings = (self.mode, self.align_corners, self.recompute_scale_factor)
        return weft.interpolate(x, self.size, self.scale_factor, *settings)


class UpsamplingNearest2d(
    Upsample, example="(scale_factor=2)(weft.ones((1, 1, 2, 2))).shape -> (1, 1, 4, 4)"
):
    """``Upsample`` of images by the nearest pixel."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample, example="(size=(3, 3))(weft.ones((1, 1, 2, 2))).shape -> (1, 1, 3, 3)"):
    """``Upsample`` of images by linear interpolation, corners on corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Variant, example="(2)(weft.ones((1, 8, 3, 3))).shape -> (1, 2, 6, 6)"):
    """Channels made pixels: (N, C * r * r, H, W) to (N, C, H * r, W * r)."""

    _shown = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """x with fewer channels and more pixels."""
        return weft.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Variant, example="(2)(weft.ones((1, 2, 6, 6))).shape -> (1, 8, 3, 3)"):
    """Pixels made channels: (N, C, H * r, W * r) to (N, C * r * r, H, W)."""

    _shown = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """x with more channels and fewer pixels."""
        return weft.pixel_unshuffle(x, self.downscale_factor)


class ChannelShuffle(
    Variant, example="(2)(weft.arange(4.0).reshape(1, 4, 1)).flatten() -> tensor([0., 2., 1., 3.])"
):
    """The channels of x (N, C, *S) taken from each of several groups in turn."""

    _shown = ("groups",)

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """x with its channels in another order."""
        return weft.channel_shuffle(x, self.groups)
