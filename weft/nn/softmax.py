"""Softmax and its relatives, and gated linear units: functions along an axis as modules."""

from __future__ import annotations

import weft
from weft import Tensor
from weft.nn.variant import Variant


class GLU(Variant, example="()(weft.tensor([2.0, 0.0])) -> tensor([1.])"):
    """One half of x times the sigmoid of the other half, along an axis."""

    _shown = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Along the axis."""
        return weft.glu(x, self.dim)


class _Softmax(Variant):
    _shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def _axis(self, x: Tensor) -> int:
        """The axis to normalise along; without one, the first of x with 0, 1 or 3 axes, else the second."""
        return self.dim if self.dim is not None else 0 if x.ndim in (0, 1, 3) else 1


class Softmax(_Softmax, example="(dim=-1)(weft.tensor([1.0, 1.0])) -> tensor([0.5000, 0.5000])"):
    """Positive numbers that sum to 1 along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Along the axis."""
        return weft.softmax(x, axis=self._axis(x))


class Softmin(_Softmax, example="(dim=-1)(weft.tensor([1.0, 1.0])) -> tensor([0.5000, 0.5000])"):
    """The softmax of ``-x``."""

    def forward(self, x: Tensor) -> Tensor:
        """Along the axis."""
        return weft.softmin(x, axis=self._axis(x))


class LogSoftmax(_Softmax, example="(dim=-1)(weft.tensor([1.0, 1.0])) -> tensor([-0.6931, -0.6931])"):
    """The logarithm of the softmax, without overflow."""

    def forward(self, x: Tensor) -> Tensor:
        """Along the axis."""
        return weft.log_softmax(x, axis=self._axis(x))


class Softmax2d(Variant, example="()(weft.zeros((4, 1, 1))).sum() -> tensor(1.)"):
    """The softmax over the channels of x (N, C, H, W) or (C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        """Over the channels."""
        return weft.softmax(x, axis=-3)
