"""A schedule that looks at a metric."""

from __future__ import annotations

from math import inf
from typing import Any

from weft.errors import ArgumentError, DomainError
from weft.optim.lr_scheduler.base import LRScheduler, check_whole, checked_optimizer, for_groups
from weft.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """The rate times ``factor`` when a metric has not become better for some time.

    Args:
        optimizer: whose rates it sets.
        mode: whether better is ``"min"``, lower, or ``"max"``, higher.
        factor: what the rate is multiplied by.
        patience: how many steps without a better metric are let pass.
        threshold: how much better counts.
        threshold_mode: whether that is ``"rel"``, relative to the best, or ``"abs"``.
        cooldown: how many steps after a change are not counted.
        min_lr: the least rate, or one for each group.
        eps: smaller changes of the rate are not made.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        name = "ReduceLROnPlateau"
        if not 0 <= factor < 1:
            raise DomainError(name, f"factor must be in [0, 1), got {factor}")
        if mode not in ("min", "max"):
            raise DomainError(name, f"mode must be min or max, got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise DomainError(name, f"threshold_mode must be rel or abs, got {threshold_mode!r}")
        check_whole(name, "patience", patience, 0)
        check_whole(name, "cooldown", cooldown, 0)
        self.optimizer = checked_optimizer(name, optimizer)
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs = for_groups(name, "min_lr", min_lr, optimizer)
        self.eps = eps
        self.last_epoch = 0
        self.best = inf if mode == "min" else -inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0

    def step(self, metrics: Any = None) -> None:
        """Look at the metric of one more step.

        Args:
            metrics: a number, or a tensor of one.
        """
        if metrics is None:
            raise ArgumentError("ReduceLROnPlateau", "step needs the metric, got none", hint="step(loss)")
        value = float(metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            lower = max(group["lr"] * self.factor, least)
            if group["lr"] - lower > self.eps:
                group["lr"] = lower

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "abs":
            return value * sign > self.best * sign + self.threshold
        return value * sign > self.best * (1 + sign * self.threshold) * sign
