"""Lion: steps by the sign of a momentum.

Chen and others, "Symbolic discovery of optimization algorithms", 2023.
"""

from __future__ import annotations

from typing import Any, ClassVar

import weft
from weft.optim.adam import decayed
from weft.optim.optimizer import FRACTION, NOT_NEGATIVE, Group, Optimizer, arguments, directed


class Lion(Optimizer):
    """Lion: every element moves by the learning rate, in the direction of the momentum.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        lr: the learning rate, some 3 to 10 times smaller than Adam's.
        betas: how much momentum goes into a step, and how slowly it moves.
        weight_decay: acts on the parameters themselves.
        maximize: go up instead of down.

    >>> import weft
    >>> w = weft.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = weft.optim.Lion([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([ 0.9000, -1.9000])
    """

    limits: ClassVar = {"lr": NOT_NEGATIVE, "betas": FRACTION, "weight_decay": NOT_NEGATIVE}

    def __init__(
        self,
        params: object,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def prepare(self, group: Group, params: list[Any]) -> None:
        """Zeros for the momentum."""
        for p in params:
            self.add_zeros(p, "exp_avg")

    @classmethod
    def rule(cls, settings: Group, p: object, g: object, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter."""
        g, mean, beta1, beta2 = (
            directed(settings, p, g, decay=False),
            state["exp_avg"],
            settings["beta1"],
            settings["beta2"],
        )
        direction = weft.sign(mean * beta1 + g * (1 - beta1))
        value = decayed(settings, p) - direction * settings["lr"]
        return value, {"exp_avg": mean * beta2 + g * (1 - beta2)}
