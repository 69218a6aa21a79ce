"""RMSprop: steps divided by the root of an average square of gradients (Hinton's lecture 6e, 2012)."""

from __future__ import annotations

from typing import Any, ClassVar

import weft
from weft.optim.optimizer import FRACTION, NOT_NEGATIVE, Group, Optimizer, arguments, directed, is_used


class RMSprop(Optimizer):
    """RMSprop.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        lr: the learning rate.
        alpha: how slowly the average square moves.
        eps: added to its root.
        weight_decay: times each parameter, added to its gradient.
        momentum: how much of the last step goes into the next.
        centered: divide by the deviation from the average gradient instead.
        maximize: go up instead of down.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.RMSprop([w], lr=0.05)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.5000, 1.5000])
    """

    limits: ClassVar = {
        "lr": NOT_NEGATIVE,
        "alpha": FRACTION,
        "eps": NOT_NEGATIVE,
        "weight_decay": NOT_NEGATIVE,
        "momentum": NOT_NEGATIVE,
    }

    def __init__(
        self,
        params: object,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def prepare(self, group: Group, params: list[Any]) -> None:
        """Zeros for the averages and for the momentum."""
        names = ["square_avg"]
        names += ["momentum_buffer"] if group["momentum"] else []
        names += ["grad_avg"] if group["centered"] else []
        for p in params:
            self.add_zeros(p, *names)

    @classmethod
    def rule(cls, settings: Group, p: Any, g: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter."""
        g, alpha = directed(settings, p, g), settings["alpha"]
        square = state["square_avg"] * alpha + g * g * (1 - alpha)
        new = {"square_avg": square}
        if settings["centered"]:
            new["grad_avg"] = mean = state["grad_avg"] + (g - state["grad_avg"]) * (1 - alpha)
            square = weft.clip(square - mean * mean, min=0.0)  # rounding may take it below
        step = g / (weft.sqrt(square) + settings["eps"])
        if is_used(settings["momentum"]):
            new["momentum_buffer"] = step = state["momentum_buffer"] * settings["momentum"] + step
        return p - step * settings["lr"], new
