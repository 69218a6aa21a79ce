"""Adagrad and Adadelta: steps divided by what gradients have been so far.

Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011; Zeiler, "ADADELTA", 2012.
"""

from __future__ import annotations

from typing import Any, ClassVar

import weft
from weft.optim.counted import CountedOptimizer
from weft.optim.optimizer import FRACTION, NOT_NEGATIVE, Group, Optimizer, arguments, directed


class Adagrad(CountedOptimizer):
    """Adagrad: steps divided by the root of the sum of all squares.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        lr: the learning rate.
        lr_decay: how fast the rate falls with the number of the step.
        weight_decay: times each parameter, added to its gradient.
        initial_accumulator_value: what the sum begins with.
        eps: added to its root.
        maximize: go up instead of down.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.Adagrad([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.9000, 1.9000])
    """

    limits: ClassVar = {
        "lr": NOT_NEGATIVE,
        "lr_decay": NOT_NEGATIVE,
        "weight_decay": NOT_NEGATIVE,
        "initial_accumulator_value": NOT_NEGATIVE,
        "eps": NOT_NEGATIVE,
    }

    def __init__(
        self,
        params: object,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def zeros(self, group: Group) -> tuple[str, ...]:
        """The sum is made by ``prepare``, as it may begin with another number."""
        return ()

    def prepare(self, group: Group, params: list[Any]) -> None:
        """The sum of squares."""
        super().prepare(group, params)
        for p in params:
            if "sum" not in self.state[p]:
                self.state[p]["sum"] = weft.full(
                    p.shape, group["initial_accumulator_value"], dtype=p.dtype, device=p.device
                )
                self.generation += 1

    def factors(self, settings: Group, step: Any) -> dict[str, Any]:
        """The rate at this step."""
        return {"rate": settings["lr"] / (1.0 + (step - 1.0) * settings["lr_decay"])}

    @classmethod
    def rule(cls, settings: Group, p: Any, g: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter."""
        g = directed(settings, p, g)
        total = state["sum"] + g * g
        return p - g / (weft.sqrt(total) + settings["eps"]) * settings["rate"], {"sum": total}


class Adadelta(Optimizer):
    """Adadelta: steps as large as steps have been, over what gradients have been.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        lr: the learning rate.
        rho: how slowly the averages move.
        eps: added to the averages.
        weight_decay: times each parameter, added to its gradient.
        maximize: go up instead of down.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.Adadelta([w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.9968, 1.9968])
    """

    limits: ClassVar = {
        "lr": NOT_NEGATIVE,
        "rho": FRACTION,
        "eps": NOT_NEGATIVE,
        "weight_decay": NOT_NEGATIVE,
    }

    def __init__(
        self,
        params: object,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def prepare(self, group: Group, params: list[Any]) -> None:
        """Zeros for the averages."""
        for p in params:
            self.add_zeros(p, "square_avg", "acc_delta")

    @classmethod
    def rule(cls, settings: Group, p: Any, g: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter."""
        g, rho, eps = directed(settings, p, g), settings["rho"], settings["eps"]
        square, steps = state["square_avg"] * rho + g * g * (1 - rho), state["acc_delta"]
        step = weft.sqrt(steps + eps) / weft.sqrt(square + eps) * g
        new = {"square_avg": square, "acc_delta": steps * rho + step * step * (1 - rho)}
        return p - step * settings["lr"], new
