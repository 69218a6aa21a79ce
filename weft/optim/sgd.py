"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any, ClassVar

import weft
from weft.errors import DomainError
from weft.optim.optimizer import NOT_NEGATIVE, Group, Optimizer, arguments, directed, is_used


class SGD(Optimizer):
    """Gradient descent, with momentum if wanted.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        lr: the learning rate.
        momentum: how much of the last step goes into the next.
        dampening: how much less of the gradient does.
        weight_decay: times each parameter, added to its gradient.
        nesterov: look ahead by the momentum.
        maximize: go up instead of down.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.8000, 1.6000])
    """

    limits: ClassVar = {"lr": NOT_NEGATIVE, "momentum": NOT_NEGATIVE, "weight_decay": NOT_NEGATIVE}

    def __init__(
        self,
        params: object,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def check(self, settings: Group) -> None:
        """Nesterov's way looks ahead by the whole momentum."""
        super().check(settings)
        momentum, dampening = settings["momentum"], settings["dampening"]
        if settings["nesterov"] and (momentum <= 0 or dampening != 0):
            got = f"{momentum} and {dampening}"
            raise DomainError("SGD", f"nesterov needs momentum and no dampening, got {got}")

    def prepare(self, group: Group, params: list[Any]) -> None:
        """Zeros for the momentum, and whether there was a first step, which dampening leaves alone."""
        for p in params:
            if group["momentum"]:
                self.add_zeros(p, "momentum_buffer")
            if group["momentum"] and group["dampening"] and "started" not in self.state[p]:
                self.state[p]["started"] = weft.tensor(False)
                self.generation += 1

    @classmethod
    def rule(cls, settings: Group, p: object, g: object, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter."""
        d, momentum, new = directed(settings, p, g), settings["momentum"], {}
        if is_used(momentum):
            share = 1 - settings["dampening"]
            if settings["dampening"]:
                share = weft.where(state["started"], share, 1.0)
                new["started"] = weft.ones_like(state["started"])
            new["momentum_buffer"] = buffer = state["momentum_buffer"] * momentum + d * share
            d = d + buffer * momentum if settings["nesterov"] else buffer
        return p - d * settings["lr"], new
