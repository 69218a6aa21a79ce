"""Schedules that multiply the rate: by functions, in steps, and along lines and powers.

Each but ``LambdaLR`` changes the rate as it finds it, so that several may work on one optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.errors import DomainError
from weft.optim.lr_scheduler.base import LRScheduler, check_whole, for_groups
from weft.optim.optimizer import Group, Optimizer, check_range

Factor = Callable[[int], float]


class _ByFunction(LRScheduler):
    """A function of the number of the step for each group."""

    lr_lambdas: list[Factor]

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1
    ) -> None:
        name = type(self).__name__
        self.lr_lambdas = for_groups(name, "lr_lambda", lr_lambda, optimizer)
        if not all(map(callable, self.lr_lambdas)):
            raise DomainError(name, "lr_lambda must be a function of the number of the step")
        super().__init__(optimizer, last_epoch)

    def factor(self, group: Group) -> float:
        """What the function of a group gives at this step."""
        number = next(i for i, g in enumerate(self.optimizer.param_groups) if g is group)
        return self.lr_lambdas[number](self.last_epoch)


class LambdaLR(_ByFunction):
    """The rate at the start times a function of the number of the step.

    Args:
        optimizer: whose rates it sets.
        lr_lambda: the function, or one for each group.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def rate(self, group: Group, base: float) -> float:
        """By the function of the group."""
        return base * self.factor(group)


class MultiplicativeLR(_ByFunction):
    """The rate times a function of the number of the step, at each step.

    Args:
        optimizer: whose rates it sets.
        lr_lambda: the function, or one for each group.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.5)
    >>> schedule.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def rate(self, group: Group, base: float) -> float:
        """By the function of the group, from step 1 on."""
        return float(group["lr"] * self.factor(group) if self.last_epoch > 0 else group["lr"])


class StepLR(LRScheduler):
    """The rate times ``gamma`` after every ``step_size`` steps.

    Args:
        optimizer: whose rates it sets.
        step_size: after how many steps the rate changes.
        gamma: the factor.
        last_epoch: the number of the last step; -1 to start.

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
        check_whole("StepLR", "step_size", step_size)
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        """Another one if the number of the step is a multiple of the size."""
        due = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return float(group["lr"] * self.gamma if due else group["lr"])


class MultiStepLR(LRScheduler):
    """The rate times ``gamma`` at each of some steps.

    Args:
        optimizer: whose rates it sets.
        milestones: the numbers of these steps; one given twice counts twice.
        gamma: the factor.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
    >>> for _ in range(3):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        for step in milestones:
            check_whole("MultiStepLR", "milestones", step, 0)
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        """Another one at the milestones."""
        return float(group["lr"] * self.gamma ** self.milestones.count(self.last_epoch))


class ExponentialLR(LRScheduler):
    """The rate times ``gamma`` at each step.

    Args:
        optimizer: whose rates it sets.
        gamma: the factor.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        """Another one from step 1 on."""
        return float(group["lr"] * self.gamma if self.last_epoch > 0 else group["lr"])


class _ByCurve(LRScheduler):
    """The rate times a factor that is a function of the step.

    The rate now is multiplied by the change of the factor, so that another schedule may have its part in it.
    """

    total_iters: int

    def factor(self, step: int) -> float:
        """The factor at a step, ``total_iters`` at most."""
        raise NotImplementedError  # each schedule says it

    def rate(self, group: Group, base: float) -> float:
        """By the change of the factor."""
        now, last = (min(step, self.total_iters) for step in (self.last_epoch, self.last_epoch - 1))
        if self.last_epoch == 0:
            return float(group["lr"] * self.factor(0))
        return float(group["lr"] if now == last else group["lr"] * self.factor(now) / self.factor(last))


class LinearLR(_ByCurve):
    """A warm-up: the rate times a factor that goes from one to another in ``total_iters`` steps.

    Args:
        optimizer: whose rates it sets.
        start_factor: the factor at the start.
        end_factor: the factor at the end.
        total_iters: the number of steps between them.
        last_epoch: the number of the last step; -1 to start.

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
        check_whole("LinearLR", "total_iters", total_iters)
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """On the line between the two."""
        return self.start_factor + (self.end_factor - self.start_factor) * step / self.total_iters


class ConstantLR(_ByCurve):
    """The rate times a factor for ``total_iters`` steps.

    Args:
        optimizer: whose rates it sets.
        factor: the factor.
        total_iters: for how many steps.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=1)
    >>> schedule.get_last_lr()
    [0.5]
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [1.0]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 < factor <= 1:
            raise DomainError("ConstantLR", f"factor must be in 0..1 and above 0, got {factor}")
        check_whole("ConstantLR", "total_iters", total_iters)
        self.start_factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """The factor, and 1 after it."""
        return self.start_factor if step < self.total_iters else 1.0


class PolynomialLR(_ByCurve):
    """The rate down to 0 in ``total_iters`` steps, by a power of what is left of them.

    Args:
        optimizer: whose rates it sets.
        total_iters: the number of steps.
        power: the power; 1 is a line.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=2, power=2.0)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        check_whole("PolynomialLR", "total_iters", total_iters)
        check_range("PolynomialLR", power=(power, 0, float("inf")))
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """The power of what is left."""
        left: Any = 1.0 - step / self.total_iters
        return float(left**self.power)
