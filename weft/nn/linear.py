"""Linear and bilinear maps, and the module that does nothing."""

from __future__ import annotations

from math import sqrt
from typing import Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import new_parameter


class Identity(Module):
    """Gives back what it is given; further arguments of the constructor are ignored.

    >>> from weft import nn
    >>> nn.Identity("of any", kind=True)(5)
    5
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """x itself."""
        return x


class Linear(Module):
    """``x @ weight.T + bias``, with a weight (out_features, in_features).

    Args:
        in_features: size of the last axis of x.
        out_features: size of the last axis of the result.
        bias: whether there is one.
        device: of the parameters.
        dtype: of the parameters.

    >>> import weft
    >>> from weft import nn
    >>> nn.Linear(4, 3)(weft.ones((2, 4))).shape
    (2, 3)
    """

    bias: Any

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = new_parameter((out_features, in_features), device, dtype)
        self.register_parameter("bias", new_parameter(out_features, device, dtype, bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: uniform in ±1/sqrt(in_features)."""
        init.kaiming_uniform_(self.weight, a=sqrt(5))
        if self.bias is not None:
            bound = 1 / sqrt(self.in_features) if self.in_features > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) to (..., out_features)."""
        return weft.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Its sizes."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class Bilinear(Module):
    """``x1 @ weight[k] @ x2`` for each output k, plus a bias; the weight is (out, in1, in2).

    Args:
        in1_features: size of the last axis of x1.
        in2_features: size of the last axis of x2.
        out_features: size of the last axis of the result.
        bias: whether there is one.
        device: of the parameters.
        dtype: of the parameters.

    >>> import weft
    >>> from weft import nn
    >>> nn.Bilinear(4, 3, 5)(weft.ones((2, 4)), weft.ones((2, 3))).shape
    (2, 5)
    """

    bias: Any

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = new_parameter((out_features, in1_features, in2_features), device, dtype)
        self.register_parameter("bias", new_parameter(out_features, device, dtype, bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: uniform in ±1/sqrt(in1_features)."""
        bound = 1 / sqrt(self.in1_features)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """x1 (..., in1) and x2 (..., in2) to (..., out)."""
        return weft.bilinear(x1, x2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Its sizes."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
