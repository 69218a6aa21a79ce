"""Stochastic gradient descent."""

from __future__ import annotations

from math import inf
from typing import Any

import weft
from weft.errors import DomainError
from weft.optim.optimizer import Group, Optimizer, assign, check_range


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

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        check_range("SGD", lr=(lr, 0, inf), momentum=(momentum, 0, inf), weight_decay=(weight_decay, 0, inf))
        if nesterov and (momentum <= 0 or dampening != 0):
            raise DomainError(
                "SGD", f"nesterov needs momentum and no dampening, got {momentum} and {dampening}"
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
            },
        )

    def prepare(self, group: Group, params: list[Any]) -> None:
        """Zeros for the momentum, and whether there was a first step, which dampening leaves alone."""
        for p in params:
            if group["momentum"]:
                self.add_zeros(p, "momentum_buffer")
            if group["momentum"] and group["dampening"] and "started" not in self.state[p]:
                self.state[p]["started"] = weft.tensor(False)

    def update(self, group: Group, params: list[Any]) -> None:
        """One step of a group."""
        for p in params:
            d = -p.grad if group["maximize"] else p.grad
            if group["weight_decay"]:
                d = d + p.detach() * group["weight_decay"]
            if group["momentum"]:
                d = self._with_momentum(group, self.state[p], d)
            assign(p, p.detach() - d * group["lr"])

    def _with_momentum(self, group: Group, state: dict[str, Any], d: Any) -> Any:
        buffer, share = state["momentum_buffer"], 1 - group["dampening"]
        if group["dampening"]:
            share = weft.where(state["started"], share, 1.0)
            assign(state["started"], weft.ones_like(state["started"]))
        assign(buffer, buffer * group["momentum"] + d * share)
        return d + buffer * group["momentum"] if group["nesterov"] else buffer
