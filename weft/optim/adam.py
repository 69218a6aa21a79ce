"""Adam and AdamW: steps by averages of gradients and of their squares.

Kingma and Ba, "Adam: a method for stochastic optimization", 2015; Loshchilov and Hutter, "Decoupled weight
decay regularization", 2019.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf, log
from typing import Any

import weft
from weft.optim.optimizer import Group, Optimizer, assign, check_range


class Adam(Optimizer):
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

    decoupled = False  # whether weight decay acts on parameters directly

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        name = type(self).__name__
        check_range(name, lr=(lr, 0, inf), eps=(eps, 0, inf), weight_decay=(weight_decay, 0, inf))
        check_range(name, **{f"betas[{i}]": (beta, 0, 1) for i, beta in enumerate(betas)})
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
            },
        )

    def prepare(self, group: Group, params: list[Any]) -> None:
        """Zeros for the averages, and counts of steps: parameters that always step together share one."""
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
        new = [p for p in params if "step" not in self.state[p]]
        self._share_step(new, weft.zeros((), dtype=weft.float64))
        for p in params:
            self.add_zeros(p, *names[: 3 if group["amsgrad"] else 2])
        holders: defaultdict[int, int] = defaultdict(int)
        for held in self.state.values():
            holders[id(held["step"])] += 1
        for members in self._by_step(params):
            step = self.state[members[0]]["step"]
            if holders[id(step)] > len(members):  # the others do not step now
                self._share_step(members, step.clone())

    def _share_step(self, params: list[Any], step: Any) -> None:
        for p in params:
            self.state[p]["step"] = step
            self.generation += 1

    def _by_step(self, params: list[Any]) -> list[list[Any]]:
        """The parameters, those together that share a count."""
        found: defaultdict[int, list[Any]] = defaultdict(list)
        for p in params:
            found[id(self.state[p]["step"])].append(p)
        return list(found.values())

    def update(self, group: Group, params: list[Any]) -> None:
        """One step of a group."""
        kept = 1.0 - group["lr"] * group["weight_decay"]  # of each parameter, if weight decay is decoupled
        for members in self._by_step(params):
            step = self.state[members[0]]["step"]
            assign(step, step + 1.0)
            first, second = (_one_minus_power(beta, step) for beta in group["betas"])
            size, root = group["lr"] / first, weft.sqrt(second)
            dtypes = {_wide(p.dtype) for p in members}
            factors = {dtype: (size.astype(dtype), root.astype(dtype)) for dtype in dtypes}
            for p in members:
                self._change(group, p, kept, *factors[_wide(p.dtype)])

    def _change(self, group: Group, p: Any, kept: Any, size: Any, root: Any) -> None:
        """One step of a parameter.

        Args:
            group: its settings.
            p: the parameter.
            kept: how much of it weight decay leaves.
            size: the learning rate, larger at the start, when the average of gradients is still small.
            root: of how much of the average of squares is there at the start.
        """
        beta1, beta2 = group["betas"]
        state = self.state[p]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        g, value = -p.grad if group["maximize"] else p.grad, p.detach()
        if group["weight_decay"] and self.decoupled:
            value = value * kept
        elif group["weight_decay"]:
            g = g + value * group["weight_decay"]
        assign(mean, mean + (g - mean) * (1 - beta1))
        assign(square, square * beta2 + g * g * (1 - beta2))
        if group["amsgrad"]:
            square, average = state["max_exp_avg_sq"], square
            assign(square, weft.maximum(square, average))
        assign(p, value - mean / (weft.sqrt(square) / root + group["eps"]) * size)


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
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


def _wide(dtype: Any) -> Any:
    """The dtype to step in: at least float32."""
    return dtype if dtype.itemsize >= 4 else weft.float32


def _one_minus_power(beta: float, step: Any) -> Any:
    """``1 - beta ** step`` without the loss of digits near 1."""
    return weft.ones_like(step) if beta == 0 else -weft.expm1(step * log(beta))
