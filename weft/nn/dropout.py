"""Dropout as modules: parts of the input go in training, and nothing happens otherwise."""

from __future__ import annotations

import weft
from weft import Tensor
from weft.errors import DomainError
from weft.nn.variant import Variant


class _Dropout(Variant):
    _shown = ("p",)

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise DomainError(type(self).__name__, f"p must be in 0..1, got {p}")
        self.p = p


class Dropout(_Dropout, example="(0.5).eval()(weft.ones(3)) -> tensor([1., 1., 1.])"):
    """In training, zero each element with probability p and scale the rest by 1 / (1 - p)."""

    def forward(self, x: Tensor) -> Tensor:
        """x, some of it dropped in training."""
        return weft.dropout(x, self.p, self.training)


class _ChannelDropout(_Dropout):
    def forward(self, x: Tensor) -> Tensor:
        """x, some of its channels dropped in training."""
        function = (weft.dropout1d, weft.dropout2d, weft.dropout3d)[self.rank - 1]
        return function(x, self.p, self.training)


class Dropout1d(_ChannelDropout, rank=1, example="(1.0)(weft.ones((1, 2, 3))).sum() -> tensor(0.)"):
    """In training, zero whole channels of x (N, C, L) with probability p and scale the rest."""


class Dropout2d(_ChannelDropout, rank=2, example="(1.0)(weft.ones((1, 2, 3, 3))).sum() -> tensor(0.)"):
    """In training, zero whole channels of x (N, C, H, W) with probability p and scale the rest."""


class Dropout3d(_ChannelDropout, rank=3, example="(1.0)(weft.ones((1, 2, 3, 3, 3))).sum() -> tensor(0.)"):
    """In training, zero whole channels of x (N, C, D, H, W) with probability p and scale the rest."""


class AlphaDropout(_Dropout, example="(0.2)(weft.randn(10, 10)).shape -> (10, 10)"):
    """Dropout for networks of ``SELU``: dropped elements saturate, and mean and variance stay."""

    def forward(self, x: Tensor) -> Tensor:
        """x, some of it dropped in training."""
        return weft.alpha_dropout(x, self.p, self.training)


class FeatureAlphaDropout(_Dropout, example="(0.2)(weft.randn(2, 10, 5)).shape -> (2, 10, 5)"):
    """``AlphaDropout`` of whole channels of x (N, C, *S)."""

    def forward(self, x: Tensor) -> Tensor:
        """x, some of it dropped in training."""
        return weft.feature_alpha_dropout(x, self.p, self.training)
