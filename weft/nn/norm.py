"""Normalisation over the features of each example; that over a batch is in ``weft.nn.batch_norm``."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.base.shapes import ShapeLike
from weft.errors import DomainError
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import new_parameter


def _shape(normalized_shape: ShapeLike) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class _Scaled(Module):
    """A normalisation with a weight that starts as ones and a bias that starts as zeros."""

    weight: Any
    bias: Any

    def _add_parameters(
        self, shape: ShapeLike, weight: bool, bias: bool, device: DeviceLike | None, dtype: DTypeLike | None
    ) -> None:
        self.register_parameter("weight", new_parameter(shape, device, dtype, weight))
        self.register_parameter("bias", new_parameter(shape, device, dtype, bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class LayerNorm(_Scaled):
    """Mean 0 and variance 1 over the last axes, then a weight and a bias for each feature.

    Args:
        normalized_shape: sizes of the last axes; a number for one.
        eps: added to the variance.
        elementwise_affine: whether there are a weight and a bias.
        bias: whether there is a bias.
        device: of the parameters.
        dtype: of the parameters.

    >>> import weft
    >>> weft.nn.LayerNorm(2)(weft.tensor([1.0, 3.0])).detach()
    tensor([-1.0000,  1.0000])
    """

    def __init__(
        self,
        normalized_shape: ShapeLike,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        has_bias = elementwise_affine and bias
        self._add_parameters(self.normalized_shape, elementwise_affine, has_bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x normalised."""
        return weft.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Its settings."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """A mean square of 1 over the last axes, then a weight for each feature.

    Args:
        normalized_shape: sizes of the last axes; a number for one.
        eps: added to the mean square; by default the smallest step from 1 in x's dtype.
        elementwise_affine: whether there is a weight.
        device: of the weight.
        dtype: of the weight.

    >>> import weft
    >>> weft.nn.RMSNorm(2)(weft.tensor([3.0, 3.0])).detach()
    tensor([1., 1.])
    """

    weight: Any

    def __init__(
        self,
        normalized_shape: ShapeLike,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = new_parameter(self.normalized_shape, device, dtype, elementwise_affine)
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x normalised."""
        return weft.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Its settings."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Scaled):
    """Mean 0 and variance 1 over each group of channels of x (N, C, *S), then a weight and a bias for each.

    Args:
        num_groups: must divide num_channels.
        num_channels: of x.
        eps: added to the variance.
        affine: whether there are a weight and a bias.
        device: of the parameters.
        dtype: of the parameters.
        bias: whether there is a bias.

    >>> import weft
    >>> weft.nn.GroupNorm(2, 4)(weft.randn(3, 4, 5)).shape
    (3, 4, 5)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            got = f"{num_channels} and {num_groups}"
            raise DomainError("GroupNorm", f"num_channels must be divisible by num_groups, got {got}")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._add_parameters(num_channels, affine, affine and bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x normalised."""
        return weft.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Its settings."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Module):
    """Each element of x (N, C, *S) divided by a power of the mean square of neighbouring channels.

    Args:
        size: channels that count.
        alpha: factor of the mean square.
        beta: the power.
        k: added to it.

    >>> import weft
    >>> weft.nn.LocalResponseNorm(3)(weft.ones((1, 4, 2))).shape
    (1, 4, 2)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, x: Tensor) -> Tensor:
        """x normalised."""
        return weft.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Its settings."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
