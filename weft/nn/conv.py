"""Convolutions and their transposes, along one, two or three axes."""

from __future__ import annotations

from math import sqrt
from typing import Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.base.shapes import PerAxis
from weft.errors import DomainError, ShapeError
from weft.nn import init
from weft.nn.parameter import new_parameter
from weft.nn.variant import Variant

_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def numbers(value: Any, rank: int) -> tuple[int, ...]:
    """One number for each axis, from one for all or from several.

    >>> numbers(3, 2), numbers([1, 2], 2)
    ((3, 3), (1, 2))
    """
    return (value,) * rank if isinstance(value, int) else tuple(value)


class _Conv(Variant):
    """What convolutions and their transposes share: settings, parameters, and where these start."""

    is_transposed = False
    bias: Any
    padding: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        name, rank = type(self).__name__, self.rank
        if groups < 1 or in_channels % groups or out_channels % groups:
            got = f"{in_channels} and {out_channels} in {groups}"
            raise DomainError(name, f"channels must be divisible by groups, got {got}")
        if padding_mode not in (["zeros"] if self.is_transposed else _MODES):
            raise DomainError(name, f"padding_mode must be one of {', '.join(_MODES)}, got {padding_mode!r}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = numbers(kernel_size, rank)
        self.stride = numbers(stride, rank)
        self.padding = padding if isinstance(padding, str) else numbers(padding, rank)
        self.dilation = numbers(dilation, rank)
        self.groups = groups
        self.padding_mode = padding_mode
        sides = (in_channels, out_channels) if self.is_transposed else (out_channels, in_channels)
        shape = (sides[0], sides[1] // groups, *self.kernel_size)
        self.weight = new_parameter(shape, device, dtype)
        self.register_parameter("bias", new_parameter(out_channels, device, dtype, bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: uniform in ±1/sqrt of the number of inputs of an output."""
        init.kaiming_uniform_(self.weight, a=sqrt(5))
        if self.bias is not None:
            bound = 1 / sqrt(max(init.fans(self.weight)[0], 1))
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """Its settings, those that are not the default."""
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        ]
        defaults = {
            "padding": (0,) * self.rank,
            "dilation": (1,) * self.rank,
            "output_padding": (0,) * self.rank,
            "groups": 1,
            "padding_mode": "zeros",
        }
        for name, default in defaults.items():
            if getattr(self, name, default) != default:
                parts.append(f"{name}={getattr(self, name)!r}")
        if self.bias is None:
            parts.append("bias=False")
        return ", ".join(parts)


class _Forward(_Conv):
    def forward(self, x: Tensor) -> Tensor:
        """x (N, in_channels, *sizes) or (in_channels, *sizes) to out_channels."""
        function = (weft.conv1d, weft.conv2d, weft.conv3d)[self.rank - 1]
        padding = self.padding
        if self.padding_mode != "zeros":
            x, padding = weft.pad(x, self._border(x.ndim), mode=_MODES[self.padding_mode]), 0
        return function(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _border(self, ndim: int) -> list[tuple[int, int]]:
        """What is added before and after each axis of x, where it is not zeros."""
        return [(0, 0)] * (ndim - self.rank) + self._sides()

    def _sides(self) -> list[tuple[int, int]]:
        if self.padding == "valid":
            return [(0, 0)] * self.rank
        if self.padding == "same":
            reach = [(k - 1) * d for k, d in zip(self.kernel_size, self.dilation, strict=True)]
            return [(r // 2, r - r // 2) for r in reach]
        return [(p, p) for p in self.padding]


class Conv1d(_Forward, rank=1, example='(3, 8, 5, padding="same")(weft.ones((2, 3, 9))).shape -> (2, 8, 9)'):
    """A convolution of x (N, C, L), with a weight (out, in / groups, kernel).

    Args:
        in_channels: of x.
        out_channels: of the result.
        kernel_size: a number, or a tuple of one.
        stride: likewise.
        padding: likewise, or "same" or "valid".
        dilation: likewise.
        groups: into which channels are divided.
        bias: whether there is one.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        device: of the parameters.
        dtype: of the parameters.
    """


class Conv2d(_Forward, rank=2, example="(3, 8, 3, padding=1)(weft.ones((2, 3, 5, 5))).shape -> (2, 8, 5, 5)"):
    """A convolution of x (N, C, H, W), with a weight (out, in / groups, *kernel).

    Args:
        in_channels: of x.
        out_channels: of the result.
        kernel_size: a number or a pair.
        stride: likewise.
        padding: likewise, or "same" or "valid".
        dilation: a number or a pair.
        groups: into which channels are divided.
        bias: whether there is one.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        device: of the parameters.
        dtype: of the parameters.
    """


class Conv3d(
    _Forward, rank=3, example="(2, 4, 3, stride=2)(weft.ones((1, 2, 5, 5, 7))).shape -> (1, 4, 2, 2, 3)"
):
    """A convolution of x (N, C, D, H, W), with a weight (out, in / groups, *kernel).

    The arguments are those of ``Conv2d``, with triples instead of pairs.
    """


class _Transposed(_Conv):
    is_transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        output_padding: PerAxis = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: PerAxis = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip
        self.output_padding = numbers(output_padding, self.rank)

    def forward(self, x: Tensor, output_size: PerAxis | None = None) -> Tensor:
        """x (N, in_channels, *sizes) to out_channels; ``output_size`` chooses among possible sizes."""
        function = (weft.conv_transpose1d, weft.conv_transpose2d, weft.conv_transpose3d)[self.rank - 1]
        extra = self.output_padding if output_size is None else self._missing(x, output_size)
        return function(
            x, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _missing(self, x: Tensor, output_size: PerAxis) -> tuple[int, ...]:
        """The output padding that gives an output size."""
        wanted = numbers(output_size, self.rank)[-self.rank :]
        given = zip(
            x.shape[-self.rank :], self.kernel_size, self.stride, self.padding, self.dilation, strict=True
        )
        least = [(n - 1) * s - 2 * p + (k - 1) * d + 1 for n, k, s, p, d in given]
        extra = tuple(w - n for w, n in zip(wanted, least, strict=True))
        if any(not 0 <= e < s for e, s in zip(extra, self.stride, strict=True)):
            most = tuple(n + s - 1 for n, s in zip(least, self.stride, strict=True))
            raise ShapeError(
                type(self).__name__, f"output_size must be in {tuple(least)}..{most}, got {wanted}"
            )
        return extra


class ConvTranspose1d(
    _Transposed, rank=1, example="(3, 4, 4, stride=2, padding=1)(weft.ones((2, 3, 5))).shape -> (2, 4, 10)"
):
    """The transpose of ``Conv1d``, with a weight (in, out / groups, kernel).

    Args:
        in_channels: of x.
        out_channels: of the result.
        kernel_size: a number, or a tuple of one for each axis.
        stride: likewise.
        padding: likewise; how much the result is cut on both sides.
        output_padding: likewise; how much is added on one side.
        groups: into which channels are divided.
        bias: whether there is one.
        dilation: likewise.
        padding_mode: only "zeros".
        device: of the parameters.
        dtype: of the parameters.
    """


class ConvTranspose2d(_Transposed, rank=2):
    """The transpose of ``Conv2d``, with a weight (in, out / groups, *kernel); see ``ConvTranspose1d``.

    >>> import weft
    >>> up = weft.nn.ConvTranspose2d(3, 4, 3, stride=2)
    >>> up(weft.ones((2, 3, 5, 5))).shape, up(weft.ones((2, 3, 5, 5)), output_size=12).shape
    ((2, 4, 11, 11), (2, 4, 12, 12))
    """


class ConvTranspose3d(
    _Transposed, rank=3, example="(2, 1, 2, stride=2)(weft.ones((1, 2, 3, 3, 3))).shape -> (1, 1, 6, 6, 6)"
):
    """The transpose of ``Conv3d``, with a weight (in, out / groups, *kernel); see ``ConvTranspose1d``."""
