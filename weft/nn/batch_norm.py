"""Normalisation of channels over a batch, or over each example, with running statistics."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.errors import ShapeError
from weft.nn import init
from weft.nn.parameter import new_parameter
from weft.nn.variant import Variant


class _Running(Variant):
    """A weight and a bias for each channel, and statistics that move from batch to batch."""

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
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.register_parameter("weight", new_parameter(num_features, device, dtype, affine))
        self.register_parameter("bias", new_parameter(num_features, device, dtype, affine and bias))
        tracked = track_running_stats
        like: dict[str, Any] = {"device": device, "dtype": dtype}
        self.register_buffer("running_mean", weft.zeros(num_features, **like) if tracked else None)
        self.register_buffer("running_var", weft.ones(num_features, **like) if tracked else None)
        self.register_buffer("num_batches_tracked", weft.tensor(0, device=device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget all batches."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            self.num_batches_tracked._set(weft.tensor(0))

    def reset_parameters(self) -> None:
        """Start again: weight 1, bias 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_rank(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            allowed = " or ".join(str(r) for r in self.ranks)
            raise ShapeError(type(self).__name__, f"x must have {allowed} axes, got shape {x.shape}")

    def extra_repr(self) -> str:
        """Its settings."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Running):
    """Mean 0 and variance 1 for each channel of x (N, C, *S): of the batch in training, else running ones."""

    def forward(self, x: Tensor) -> Tensor:
        """x normalised; in training the running statistics move."""
        self._check_rank(x)
        batch = self.training or not self.track_running_stats
        momentum: Any = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked += 1
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked.astype(self.running_mean.dtype)
        return weft.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, batch, momentum, self.eps
        )


class BatchNorm1d(_BatchNorm, ranks=(2, 3)):
    """Batch normalisation of x (N, C) or (N, C, L).

    In training, statistics are those of the batch, and the running ones move towards them by ``momentum``
    (None: they are averages over all batches). Otherwise the running statistics are used.

    Args:
        num_features: channels.
        eps: added to variances.
        momentum: of the running statistics.
        affine: whether there are a weight and a bias.
        track_running_stats: whether there are running statistics; without them, those of the batch count.
        device: of the parameters.
        dtype: of the parameters.
        bias: whether there is a bias.

    >>> import weft
    >>> norm = weft.nn.BatchNorm1d(1)
    >>> norm(weft.tensor([[1.0], [3.0]])).detach()
    tensor([[-1.0000],
            [ 1.0000]])
    >>> norm.running_mean
    tensor([0.2000])
    """


class BatchNorm2d(_BatchNorm, ranks=(4,), example="(3)(weft.randn(2, 3, 4, 4)).shape -> (2, 3, 4, 4)"):
    """Batch normalisation of x (N, C, H, W); see ``BatchNorm1d``."""


class BatchNorm3d(_BatchNorm, ranks=(5,), example="(3)(weft.randn(2, 3, 4, 4, 2)).shape -> (2, 3, 4, 4, 2)"):
    """Batch normalisation of x (N, C, D, H, W); see ``BatchNorm1d``."""


class _InstanceNorm(_Running):
    """Mean 0 and variance 1 for each channel of each example of x (N, C, *S) or (C, *S)."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x normalised; in training the running statistics, if there are any, move."""
        self._check_rank(x)
        single = x.ndim == self.ranks[0]
        batch = self.training or not self.track_running_stats
        kept = (self.running_mean, self.running_var, self.weight, self.bias)
        momentum = 0.0 if self.momentum is None else self.momentum
        out = weft.instance_norm(x.unsqueeze(0) if single else x, *kept, batch, momentum, self.eps)
        return out.squeeze(0) if single else out


class InstanceNorm1d(_InstanceNorm, ranks=(2, 3)):
    """Normalisation of each channel of each example of x (N, C, L) or (C, L).

    Args:
        num_features: channels.
        eps: added to variances.
        momentum: of the running statistics.
        affine: whether there are a weight and a bias.
        track_running_stats: whether there are running statistics, which count when not training.
        device: of the parameters.
        dtype: of the parameters.
        bias: whether there is a bias.

    >>> import weft
    >>> weft.nn.InstanceNorm1d(2)(weft.tensor([[1.0, 3.0], [10.0, 30.0]]))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """


class InstanceNorm2d(
    _InstanceNorm, ranks=(3, 4), example="(3, affine=True)(weft.randn(2, 3, 4, 4)).shape -> (2, 3, 4, 4)"
):
    """Normalisation of each channel of each example of x (N, C, H, W); see ``InstanceNorm1d``."""


class InstanceNorm3d(
    _InstanceNorm, ranks=(4, 5), example="(3)(weft.randn(2, 3, 4, 4, 2)).shape -> (2, 3, 4, 4, 2)"
):
    """Normalisation of each channel of each example of x (N, C, D, H, W); see ``InstanceNorm1d``."""
