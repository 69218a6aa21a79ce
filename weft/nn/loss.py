"""Losses as modules."""

from __future__ import annotations

from typing import Any

import weft
from weft.nn.module import Module


class _Loss(Module):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def extra_repr(self) -> str:
        """How the elements are made one number."""
        return "" if self.reduction == "mean" else f"reduction={self.reduction!r}"


class MSELoss(_Loss):
    """The mean of squared differences.

    >>> import weft
    >>> weft.nn.MSELoss()(weft.tensor([1.0, 3.0]), weft.tensor([1.0, 1.0]))
    tensor(2.)
    """

    def forward(self, x: Any, target: Any) -> Any:
        """The loss of x."""
        return weft.mse_loss(x, target, reduction=self.reduction)


class L1Loss(_Loss):
    """The mean of absolute differences."""

    def forward(self, x: Any, target: Any) -> Any:
        """The loss of x."""
        return weft.l1_loss(x, target, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Cross entropy of yes or no, of the logits of yes."""

    def forward(self, x: Any, target: Any) -> Any:
        """The loss of logits x."""
        return weft.binary_cross_entropy_with_logits(x, target, reduction=self.reduction)


class CrossEntropyLoss(_Loss):
    """Cross entropy of classes, of logits (N, C, *S) or (C,) and targets that are numbers or probabilities.

    Args:
        weight: of each class.
        ignore_index: a target that does not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: how much of the target goes to all classes alike.

    >>> import weft
    >>> weft.nn.CrossEntropyLoss()(weft.tensor([[0.0, 0.0]]), weft.tensor([1]))
    tensor(0.6931)
    """

    weight: Any

    def __init__(
        self,
        weight: Any = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, x: Any, target: Any) -> Any:
        """The loss of logits x."""
        return weft.cross_entropy(
            x,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
