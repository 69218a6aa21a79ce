"""Schedules of learning rates: each ``step()`` sets the rate of every group of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi
from typing import Any

from weft.errors import ArgumentError, DomainError
from weft.optim.optimizer import Group, Optimizer


class LRScheduler:
    """A schedule of learning rates; subclasses define ``rate``.

    Args:
        optimizer: whose rates it sets.
        last_epoch: the number of the last step; -1 to start.

    Attributes:
        last_epoch: how often ``step`` was called.
        base_lrs: the rates at the start.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(
                type(self).__name__, f"must be given an optimizer, got {type(optimizer).__name__}"
            )
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise DomainError(type(self).__name__, "groups must have an initial_lr to go on from a step")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, group: Group, base: float) -> float:
        """The rate of a group at ``last_epoch``, from its rate now and that at the start."""
        raise NotImplementedError  # each schedule says it

    def step(self) -> None:
        """Go to the next step."""
        self.last_epoch += 1
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = self.rate(group, base)

    def get_last_lr(self) -> list[float]:
        """The rates of the groups now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not _has_function(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self.__dict__.update(state_dict)


def _has_function(value: Any) -> bool:
    return callable(value) or (isinstance(value, list) and any(map(callable, value)))


class LambdaLR(LRScheduler):
    """The rate at the start times a function of the number of the step.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise DomainError("LambdaLR", f"must be given {count} functions, got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        """By the function of the group."""
        number = next(i for i, g in enumerate(self.optimizer.param_groups) if g is group)
        return base * self.lr_lambdas[number](self.last_epoch)


class StepLR(LRScheduler):
    """The rate times ``gamma`` after every ``step_size`` steps.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        """Smaller if the number of the step is a multiple of the size."""
        due = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return float(group["lr"] * self.gamma if due else group["lr"])


class CosineAnnealingLR(LRScheduler):
    """From the rate at the start to ``eta_min`` along half a cosine wave, in ``T_max`` steps, and back.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803 - as people know it
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        """By the cosine."""
        return self.eta_min + (base - self.eta_min) * (1 + cos(pi * self.last_epoch / self.T_max)) / 2


class LinearLR(LRScheduler):
    """A warm-up: the rate times a factor that goes from one to another in ``total_iters`` steps.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            got = f"{start_factor} and {end_factor}"
            raise DomainError("LinearLR", f"factors must be in 0..1 and the first above 0, got {got}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float:
        done = min(step, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done

    def rate(self, group: Group, base: float) -> float:
        """The rate now times the change of the factor, so that another schedule may have its part in it."""
        before = 1.0 if self.last_epoch == 0 else self._factor(self.last_epoch - 1)
        return float(group["lr"] * self._factor(self.last_epoch) / before)


class SequentialLR:
    """Schedules one after another, such as a warm-up and then a cosine.

    Args:
        optimizer: whose rates they set.
        schedulers: of that optimizer, made in this order.
        milestones: the steps at which each but the first begins.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> warm = weft.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> rest = weft.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> schedule = weft.optim.lr_scheduler.SequentialLR(optimizer, [warm, rest], milestones=[2])
    >>> for _ in range(3):
    ...     print(schedule.get_last_lr())
    ...     schedule.step()
    [0.5]
    [0.75]
    [1.0]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            got = f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            raise DomainError("SequentialLR", f"there must be one milestone less than schedulers, got {got}")
        self.optimizer = optimizer
        self.schedulers = list(schedulers)
        self.milestones = list(milestones)
        self.last_epoch = -1
        for schedule in self.schedulers:
            schedule.last_epoch = -1
        self._begin(self.schedulers[0])
        self.last_epoch = 0

    def _begin(self, schedule: LRScheduler) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        schedule.last_epoch = -1
        schedule.step()

    def step(self) -> None:
        """Go to the next step."""
        self.last_epoch += 1
        number = sum(self.last_epoch >= m for m in self.milestones)
        if number and self.last_epoch == self.milestones[number - 1]:
            self._begin(self.schedulers[number])
        else:
            self.schedulers[number].step()

    def get_last_lr(self) -> list[float]:
        """The rates of the groups now."""
        return [group["lr"] for group in self.optimizer.param_groups]
