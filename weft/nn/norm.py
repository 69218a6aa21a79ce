"""Normalisation: over the features of each example, and over a batch."""

from __future__ import annotations

from typing import Any

import weft
from weft.errors import ShapeError
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter


def _shape(normalized_shape: Any) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes, then a weight and a bias for each feature.

    Args:
        normalized_shape: sizes of the last axes; a number for one.
        eps: added to the variance.
        elementwise_affine: whether there are a weight and a bias.
        bias: whether there is a bias.
        dtype: of the parameters.

    >>> import weft
    >>> weft.nn.LayerNorm(2)(weft.tensor([1.0, 3.0])).detach()
    tensor([-1.0000,  1.0000])
    """

    weight: Any
    bias: Any

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        has_bias = elementwise_affine and bias
        self.register_parameter(
            "weight", Parameter(weft.ones(shape, dtype=dtype)) if elementwise_affine else None
        )
        self.register_parameter("bias", Parameter(weft.zeros(shape, dtype=dtype)) if has_bias else None)

    def forward(self, x: Any) -> Any:
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
        dtype: of the weight.
    """

    weight: Any

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter(
            "weight", Parameter(weft.ones(shape, dtype=dtype)) if elementwise_affine else None
        )

    def forward(self, x: Any) -> Any:
        """x normalised."""
        return weft.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Its settings."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _BatchNorm(Module):
    """Mean 0 and variance 1 for each channel of x (N, C, *S): of the batch in training, else running ones."""

    ranks: tuple[int, ...] = ()
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name in ("weight", "bias"):
            self.register_parameter(
                name, Parameter(weft.empty(num_features, dtype=dtype)) if affine else None
            )
        tracked = track_running_stats
        self.register_buffer("running_mean", weft.zeros(num_features, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", weft.ones(num_features, dtype=dtype) if tracked else None)
        self.register_buffer("num_batches_tracked", weft.tensor(0) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget all batches."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            self.num_batches_tracked.data = weft.tensor(0)

    def reset_parameters(self) -> None:
        """Start again: weight 1, bias 0."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, x: Any) -> Any:
        """x normalised; in training the running statistics move."""
        if x.ndim not in self.ranks:
            allowed = " or ".join(str(r) for r in self.ranks)
            raise ShapeError(type(self).__name__, f"x must have {allowed} axes, got shape {x.shape}")
        batch = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked += 1
            if self.momentum is None:
                momentum = 1.0 / int(self.num_batches_tracked)
        return weft.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, batch, momentum, self.eps
        )

    def extra_repr(self) -> str:
        """Its settings."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of x (N, C) or (N, C, L).

    In training, statistics are those of the batch, and the running ones move towards them by ``momentum``
    (None: they are averages over all batches). Otherwise the running statistics are used.

    >>> import weft
    >>> norm = weft.nn.BatchNorm1d(1)
    >>> norm(weft.tensor([[1.0], [3.0]])).detach()
    tensor([[-1.0000],
            [ 1.0000]])
    >>> norm.running_mean
    tensor([0.2000])
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of x (N, C, H, W).

    >>> import weft
    >>> weft.nn.BatchNorm2d(3)(weft.randn(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    ranks = (4,)
