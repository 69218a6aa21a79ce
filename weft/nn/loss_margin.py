"""Losses as modules that ask for a margin: between scores, or between distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.nn.loss import Loss


class _Margin(Loss):
    _shown = ("margin",)

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin


class MarginRankingLoss(_Margin):
    """How far x1 is from being above x2 (target 1), or below it (target -1), by a margin.

    >>> import weft
    >>> loss = weft.nn.MarginRankingLoss(margin=0.5)
    >>> loss(weft.tensor([1.0]), weft.tensor([3.0]), weft.tensor([1.0]))
    tensor(2.5000)
    """

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        """The loss of two scores."""
        return weft.margin_ranking_loss(x1, x2, target, self.margin, self.reduction)


class HingeEmbeddingLoss(
    _Margin, example="()(weft.tensor([0.25, 0.25]), weft.tensor([1.0, -1.0])) -> tensor(0.5000)"
):
    """x where the target is 1, and how far x is below the margin where it is -1."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(margin, reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of x."""
        return weft.hinge_embedding_loss(x, target, self.margin, self.reduction)


class CosineEmbeddingLoss(_Margin):
    """``1 - cos`` where the target is 1, and the cosine above a margin where it is -1.

    >>> import weft
    >>> same = weft.tensor([[1.0, 0.0]])
    >>> weft.nn.CosineEmbeddingLoss(margin=0.25)(same, same, weft.tensor([-1.0]))
    tensor(0.7500)
    """

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        """The loss of pairs of vectors."""
        return weft.cosine_embedding_loss(x1, x2, target, self.margin, self.reduction)


class SoftMarginLoss(Loss, example="()(weft.tensor([0.0]), weft.tensor([1.0])) -> tensor(0.6931)"):
    """``log(1 + exp(-target * x))`` for targets 1 and -1."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of x."""
        return weft.soft_margin_loss(x, target, self.reduction)


class MultiMarginLoss(_Margin, example="()(weft.tensor([[0.0, 0.5, 2.0]]), weft.tensor([2])) -> tensor(0.)"):
    """How far the score of the target class is from being above every other by a margin, over x (N, C).

    Args:
        p: 1, or 2 for squares.
        margin: that is asked for.
        weight: of each class.
        reduction: of the examples.
    """

    weight: Any

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(margin, reduction)
        self.p = p
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of scores x."""
        return weft.multi_margin_loss(x, target, self.p, self.margin, self.weight, self.reduction)


class MultiLabelMarginLoss(
    Loss, example="()(weft.tensor([[0.0, 0.5, 2.0]]), weft.tensor([[2, -1, 0]])) -> tensor(0.)"
):
    """How far the scores of several target classes are from being above every other by 1, over x (N, C).

    A target (N, C) lists classes; the first -1 ends the list.
    """

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of scores x."""
        return weft.multilabel_margin_loss(x, target, self.reduction)


class MultiLabelSoftMarginLoss(
    Loss, example="()(weft.zeros((1, 3)), weft.tensor([[1.0, 0.0, 1.0]])) -> tensor(0.6931)"
):
    """The mean over classes of the binary cross entropy of logits x (N, C) with labels 0 and 1.

    Args:
        weight: of each class.
        reduction: of the examples.
    """

    weight: Any

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of logits x."""
        return weft.multilabel_soft_margin_loss(x, target, self.weight, self.reduction)


class TripletMarginLoss(_Margin):
    """How far the negative is from being farther from the anchor than the positive by a margin.

    Args:
        margin: that is asked for.
        p: of the norm.
        eps: added to each difference.
        swap: whether the distance of positive and negative counts instead, where it is smaller.
        reduction: of the triplets.

    >>> import weft
    >>> a, p, n = weft.zeros((1, 2)), weft.zeros((1, 2)), weft.tensor([[0.0, 0.25]])
    >>> weft.nn.TripletMarginLoss()(a, p, n)
    tensor(0.7500)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, reduction)
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of triplets of vectors."""
        settings = (self.margin, self.p, self.eps, self.swap, self.reduction)
        return weft.triplet_margin_loss(anchor, positive, negative, *settings)


class TripletMarginWithDistanceLoss(_Margin):
    """``TripletMarginLoss`` with a distance of the user's.

    Args:
        distance_function: of two tensors; ``nn.PairwiseDistance`` by default.
        margin: that is asked for.
        swap: whether the distance of positive and negative counts instead, where it is smaller.
        reduction: of the triplets.

    >>> import weft
    >>> a, p, n = weft.zeros((1, 2)), weft.zeros((1, 2)), weft.tensor([[0.0, 0.25]])
    >>> city = lambda x, y: abs(x - y).sum(axis=-1)
    >>> weft.nn.TripletMarginWithDistanceLoss(distance_function=city)(a, p, n)
    tensor(0.7500)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, reduction)
        self.distance_function = distance_function
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of triplets."""
        return weft.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
