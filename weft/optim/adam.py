"""Adam and its relatives: steps by averages of gradients and of their squares.

Kingma and Ba, "Adam: a method for stochastic optimization", 2015; Loshchilov and Hutter, "Decoupled weight
decay regularization", 2019; Dozat, "Incorporating Nesterov momentum into Adam", 2016; Liu and others, "On the
variance of the adaptive learning rate and beyond", 2020.
"""

from __future__ import annotations

from typing import Any, ClassVar

import weft
from weft.optim.counted import CountedOptimizer, in_wide, one_minus_power
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


class Adamax(CountedOptimizer):
    """Adam that divides by the largest gradient, slowly forgotten, instead of the average square.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        lr: the learning rate.
        betas: how slowly the average and the largest gradient move.
        eps: added to the size of gradients.
        weight_decay: times each parameter, added to its gradient.
        maximize: go up instead of down.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.Adamax([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.9000, 1.9000])
    """

    limits: ClassVar = LIMITS

    def __init__(
        self,
        params: object,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def zeros(self, group: Group) -> tuple[str, ...]:
        """The average, and the largest."""
        return "exp_avg", "exp_inf"

    def factors(self, settings: Group, step: object) -> dict[str, Any]:
        """The size of the step."""
        return {"size": settings["lr"] / one_minus_power(settings["beta1"], step)}

    @classmethod
    def rule(cls, settings: Group, p: Any, g: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter."""
        g, mean = directed(settings, p, g), state["exp_avg"]
        mean = mean + (g - mean) * (1 - settings["beta1"])
        largest = weft.maximum(state["exp_inf"] * settings["beta2"], weft.abs(g) + settings["eps"])
        return p - mean / largest * settings["size"], {"exp_avg": mean, "exp_inf": largest}


class _Decoupling(CountedOptimizer):
    """What NAdam and RAdam share: the averages of Adam, and weight decay of either kind."""

    limits: ClassVar = LIMITS

    def zeros(self, group: Group) -> tuple[str, ...]:
        """The averages of gradients and of their squares."""
        return "exp_avg", "exp_avg_sq"

    @staticmethod
    def after_decay(settings: Group, p: object, g: object) -> tuple[Any, Any]:
        """The parameter and its gradient, after weight decay of one or the other."""
        decoupled = settings["decoupled_weight_decay"]
        return decayed(settings, p) if decoupled else p, directed(settings, p, g, decay=not decoupled)


class NAdam(_Decoupling):
    """Adam with Nesterov's momentum.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        lr: the learning rate.
        betas: how slowly the averages of gradients and of their squares move.
        eps: added to the root of the average square.
        weight_decay: times each parameter, added to its gradient.
        momentum_decay: how fast the momentum grows to its full size.
        decoupled_weight_decay: let weight decay act on the parameters themselves.
        maximize: go up instead of down.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.NAdam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.8944, 1.8944])
    """

    def __init__(
        self,
        params: object,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    limits: ClassVar = {**LIMITS, "momentum_decay": NOT_NEGATIVE}

    def prepare(self, group: Group, params: list[Any]) -> None:
        """The product of momentums so far, beside the averages."""
        super().prepare(group, params)
        for p in params:
            if "mu_product" not in self.state[p]:
                self.state[p]["mu_product"] = weft.ones((), dtype=weft.float64)
                self.generation += 1

    def factors(self, settings: Group, step: Any) -> dict[str, Any]:
        """The root of how much of the squares is there; the momentum now and in the next step."""
        decay = settings["momentum_decay"]
        now, following = (
            (1.0 - 0.96**pace * 0.5) * settings["beta1"] for pace in (step * decay, (step + 1.0) * decay)
        )
        return {
            "root": weft.sqrt(one_minus_power(settings["beta2"], step)),
            "now": now,
            "following": following,
        }

    @classmethod
    def rule(cls, settings: Group, p: Any, g: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter."""
        value, g = cls.after_decay(settings, p, g)
        new, lr, following = averages(settings, g, state), settings["lr"], settings["following"]
        new["mu_product"] = product = state["mu_product"] * settings["now"]
        scale = weft.sqrt(new["exp_avg_sq"]) / settings["root"] + settings["eps"]
        ahead = in_wide(lr * (1.0 - settings["now"]) / (1.0 - product), p.dtype)
        along = in_wide(lr * following / (1.0 - product * following), p.dtype)
        return value - g / scale * ahead - new["exp_avg"] / scale * along, new


class RAdam(_Decoupling):
    """Adam whose first steps are plain momentum, until the average square can be relied on.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        lr: the learning rate.
        betas: how slowly the averages of gradients and of their squares move.
        eps: added to the root of the average square.
        weight_decay: times each parameter, added to its gradient.
        decoupled_weight_decay: let weight decay act on the parameters themselves.
        maximize: go up instead of down.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.RAdam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.8000, 1.6000])
    """

    def __init__(
        self,
        params: object,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def factors(self, settings: Group, step: object) -> dict[str, Any]:
        """The size of a plain step, whether the squares count, and the size of a step where they do."""
        first, second = (one_minus_power(settings[name], step) for name in ("beta1", "beta2"))
        plain = settings["lr"] / first
        longest = 2.0 / (1.0 - settings["beta2"]) - 1.0
        length = longest - step * (1.0 - second) * 2.0 / second  # of the average that has been seen
        rectified = (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)
        counts = length > 5.0
        size = plain * weft.sqrt(weft.where(counts, rectified * second, 1.0))
        return {"plain": plain, "counts": counts, "size": size}

    @classmethod
    def rule(cls, settings: Group, p: object, g: object, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter."""
        value, g = cls.after_decay(settings, p, g)
        new = averages(settings, g, state)
        scaled = new["exp_avg"] / (weft.sqrt(new["exp_avg_sq"]) + settings["eps"]) * settings["size"]
        return value - weft.where(settings["counts"], scaled, new["exp_avg"] * settings["plain"]), new
