"""Adam and AdamW: steps by averages of gradients and of their squares.

Kingma and Ba, "Adam: a method for stochastic optimization", 2015; Loshchilov and Hutter, "Decoupled weight
decay regularization", 2019.
"""

from __future__ import annotations

from typing import Any, ClassVar

import weft
from weft.optim.counted import CountedOptimizer, one_minus_power
from weft.optim.optimizer import FRACTION, NOT_NEGATIVE, Group, arguments, directed

LIMITS = {"lr": NOT_NEGATIVE, "betas": FRACTION, "eps": NOT_NEGATIVE, "weight_decay": NOT_NEGATIVE}


class Adam(CountedOptimizer):
    """Adam.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        lr: the learning rate.
        betas: how slowly the averages of gradients and of their squares move.
        eps: added to the root of the average square.
        weight_decay: times each parameter, added to its gradient.
        amsgrad: divide by the largest average square so far.
        maximize: go up instead of down.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.Adam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.9000, 1.9000])
    """

    limits: ClassVar = LIMITS
    decoupled = False  # whether weight decay acts on parameters directly

    def __init__(
        self,
        params: object,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def zeros(self, group: Group) -> tuple[str, ...]:
        """The averages, and the largest of the second if asked."""
        return ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else []))

    def factors(self, settings: Group, step: object) -> dict[str, Any]:
        """The size of the step, and the root of how much of the squares is there.

        The size is the learning rate, larger at the start, when the average of gradients is still small.
        """
        first, second = (one_minus_power(settings[name], step) for name in ("beta1", "beta2"))
        return {"size": settings["lr"] / first, "root": weft.sqrt(second)}

    @classmethod
    def rule(cls, settings: Group, p: object, g: object, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter."""
        g = directed(settings, p, g, decay=not cls.decoupled)
        new = averages(settings, g, state)
        square = new["exp_avg_sq"]
        if settings["amsgrad"]:
            new["max_exp_avg_sq"] = square = weft.maximum(state["max_exp_avg_sq"], square)
        step = new["exp_avg"] / (weft.sqrt(square) / settings["root"] + settings["eps"]) * settings["size"]
        return (decayed(settings, p) if cls.decoupled else p) - step, new


def averages(settings: Group, g: Any, state: dict[str, Any]) -> dict[str, Any]:
    """The averages of gradients and of their squares, with one more."""
    mean, square, beta2 = state["exp_avg"], state["exp_avg_sq"], settings["beta2"]
    return {
        "exp_avg": mean + (g - mean) * (1 - settings["beta1"]),
        "exp_avg_sq": square * beta2 + g * g * (1 - beta2),
    }


def decayed(settings: Group, p: object) -> Any:
    """What weight decay leaves of a parameter, where it acts on that itself."""
    return p * settings["kept"] if settings["weight_decay"] else p


class AdamW(Adam):
    """Adam with weight decay that acts on the parameters themselves.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.AdamW([w], lr=0.1, weight_decay=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.8500, 1.8000])
    """

    decoupled = True

    def __init__(
        self,
        params: object,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
