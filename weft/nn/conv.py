"""Convolutions."""

from __future__ import annotations

from math import sqrt
from typing import Any

import weft
from weft.errors import DomainError
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


class Conv2d(Module):
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
        dtype: of the parameters.

    >>> import weft
    >>> weft.nn.Conv2d(3, 8, 3, padding=1)(weft.ones((2, 3, 5, 5))).shape
    (2, 8, 5, 5)
    """

    bias: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            got = f"{in_channels} and {out_channels} in {groups}"
            raise DomainError("Conv2d", f"channels must be divisible by groups, got {got}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = padding if isinstance(padding, str) else _pair(padding)
        self.dilation = _pair(dilation)
        self.groups = groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(weft.empty(shape, dtype=dtype))
        self.register_parameter("bias", Parameter(weft.empty(out_channels, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: uniform in ±1/sqrt of the number of inputs of an output."""
        init.kaiming_uniform_(self.weight, a=sqrt(5))
        if self.bias is not None:
            bound = 1 / sqrt(max(init.fans(self.weight)[0], 1))
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Any) -> Any:
        """x (N, C, H, W) to (N, out_channels, H', W')."""
        return weft.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        """Its settings, those that are not the default."""
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        ]
        if self.padding != (0, 0):
            parts.append(f"padding={self.padding}")
        if self.dilation != (1, 1):
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        return ", ".join(parts)


class MaxPool2d(Module):
    """The largest value in each window of x (N, C, H, W)."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, x: Any) -> Any:
        """x with fewer rows and columns."""
        return weft.max_pool2d(x, self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        """Its window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
