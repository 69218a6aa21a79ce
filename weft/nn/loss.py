"""Losses as modules: of numbers, of probabilities and of classes; margins are in ``weft.nn.loss_margin``.

``reduction`` is "mean", "sum" or "none" everywhere.
"""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.errors import DomainError
from weft.nn.functional import ctc_loss
from weft.nn.variant import Variant


class Loss(Variant):
    """What all losses share: how the elements are made one number."""

    reductions: tuple[str, ...] = ("none", "mean", "sum")

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in self.reductions:
            known = ", ".join(self.reductions)
            raise DomainError(type(self).__name__, f"reduction must be one of {known}, got {reduction!r}")
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Its settings, and the reduction if it is not the mean."""
        own = super().extra_repr()
        return (
            own
            if self.reduction == "mean"
            else ", ".join([*([own] if own else []), f"reduction={self.reduction!r}"])
        )


class L1Loss(Loss, example="()(weft.tensor([1.0, 3.0]), weft.tensor([1.0, 1.0])) -> tensor(1.)"):
    """Absolute differences."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of x."""
        return weft.l1_loss(x, target, reduction=self.reduction)


class MSELoss(Loss, example="()(weft.tensor([1.0, 3.0]), weft.tensor([1.0, 1.0])) -> tensor(2.)"):
    """Squared differences."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of x."""
        return weft.mse_loss(x, target, reduction=self.reduction)


class HuberLoss(
    Loss, example='(reduction="none")(weft.tensor([0.5, 3.0]), weft.zeros(2)) -> tensor([0.1250, 2.5000])'
):
    """Half of squared differences where they are below ``delta``, and linear beyond."""

    _shown = ("delta",)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of x."""
        return weft.huber_loss(x, target, self.reduction, self.delta)


class SmoothL1Loss(
    Loss, example='(reduction="none")(weft.tensor([0.5, 3.0]), weft.zeros(2)) -> tensor([0.1250, 2.5000])'
):
    """``HuberLoss`` divided by its bend ``beta``."""

    _shown = ("beta",)

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of x."""
        return weft.smooth_l1_loss(x, target, self.reduction, self.beta)


class PoissonNLLLoss(Loss, example="()(weft.tensor([0.0]), weft.tensor([2.0])) -> tensor(1.)"):
    """The negative log-likelihood of counts under a Poisson distribution.

    Args:
        log_input: whether x is the logarithm of the rate.
        full: whether the term that depends on the target alone is added, by Stirling's formula.
        eps: added to a rate before its logarithm is taken.
        reduction: of the elements.
    """

    _shown = ("log_input", "full")

    def __init__(
        self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of x."""
        return weft.poisson_nll_loss(x, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(Loss, example="()(weft.zeros(2), weft.ones(2), weft.ones(2)) -> tensor(0.5000)"):
    """The negative log-likelihood of targets under normal distributions.

    Args:
        full: whether the constant term is added.
        eps: the least variance that counts.
        reduction: of the elements.
    """

    _shown = ("full", "eps")

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full = full
        self.eps = eps

    def forward(self, x: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """The loss of means x and variances."""
        return weft.gaussian_nll_loss(x, target, var, self.full, self.eps, self.reduction)


class KLDivLoss(Loss):
    """The divergence of log-probabilities x from a target distribution.

    Args:
        reduction: "batchmean" too, which gives the divergence of distributions.
        log_target: whether the target is logarithms as well.

    >>> import weft
    >>> loss = weft.nn.KLDivLoss(reduction="batchmean")
    >>> loss(weft.log(weft.tensor([[0.5, 0.5]])), weft.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """

    reductions = ("none", "mean", "sum", "batchmean")
    _shown = ("log_target",)

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of x."""
        return weft.kl_div(x, target, self.reduction, self.log_target)


class _Weighted(Loss):
    """A loss with factors, which are a buffer."""

    weight: Any

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)


class BCELoss(_Weighted, example="()(weft.tensor([0.5]), weft.tensor([1.0])) -> tensor(0.6931)"):
    """Cross entropy of yes or no, of the probabilities of yes.

    Args:
        weight: factors of the elements.
        reduction: of the elements.
    """

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of probabilities x."""
        return weft.binary_cross_entropy(x, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_Weighted, example="()(weft.tensor([0.0]), weft.tensor([1.0])) -> tensor(0.6931)"):
    """Cross entropy of yes or no, of the logits of yes.

    Args:
        weight: factors of the elements.
        reduction: of the elements.
        pos_weight: factors of the positive part.
    """

    pos_weight: Any

    def __init__(
        self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(weight, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of logits x."""
        weights = {"weight": self.weight, "pos_weight": self.pos_weight}
        return weft.binary_cross_entropy_with_logits(x, target, reduction=self.reduction, **weights)


class NLLLoss(
    _Weighted, example="()(weft.log(weft.tensor([[0.5, 0.5]])), weft.tensor([1])) -> tensor(0.6931)"
):
    """The negative log-likelihood of classes, of log-probabilities (N, C, *S) or (C,).

    Args:
        weight: of each class.
        ignore_index: a target that does not count.
        reduction: of the elements; a mean is weighted.
    """

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of log-probabilities x."""
        return weft.nll_loss(x, target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(
    _Weighted, example="()(weft.tensor([[0.0, 0.0]]), weft.tensor([1])) -> tensor(0.6931)"
):
    """Cross entropy of classes, of logits (N, C, *S) or (C,) and targets that are numbers or probabilities.

    Args:
        weight: of each class.
        ignore_index: a target that does not count.
        reduction: of the elements; a mean is weighted.
        label_smoothing: how much of the target goes to all classes alike.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction)
        if not 0 <= label_smoothing <= 1:
            raise DomainError("CrossEntropyLoss", f"label_smoothing must be in 0..1, got {label_smoothing}")
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of logits x."""
        settings = (self.weight, self.ignore_index, self.reduction, self.label_smoothing)
        return weft.cross_entropy(x, target, *settings)


class CTCLoss(Loss):
    """How unlikely a sequence of labels is, whatever way it is spread over longer log-probabilities.

    Args:
        blank: the class that stands for no label.
        reduction: of the sequences; a mean divides each loss by the length of its target first.
        zero_infinity: whether infinite losses, of targets that do not fit, and their gradients are zero.

    >>> import weft
    >>> even = weft.zeros((2, 1, 2)).log_softmax(axis=-1)
    >>> weft.nn.CTCLoss()(even, weft.tensor([[1]]), weft.tensor([2]), weft.tensor([1]))
    tensor(0.2877)
    """

    _shown = ("blank",)

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """The loss of log-probabilities (T, N, C); see ``nn.functional.ctc_loss``."""
        return ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
