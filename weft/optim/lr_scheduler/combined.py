"""Several schedules as one: one after another, or together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from weft.errors import ArgumentError, DomainError
from weft.optim.lr_scheduler.base import LRScheduler, checked_optimizer
from weft.optim.lr_scheduler.plateau import ReduceLROnPlateau
from weft.optim.optimizer import Optimizer


class _Combined(LRScheduler):
    """Schedules of one optimizer."""

    schedulers: list[LRScheduler]

    def __init__(self, optimizer: Any, schedulers: Sequence[LRScheduler]) -> None:
        name = type(self).__name__
        self.schedulers = list(schedulers)
        if not self.schedulers:
            raise ArgumentError(name, "must be given at least one schedule")
        for schedule in self.schedulers:
            if not isinstance(schedule, LRScheduler):
                raise ArgumentError(name, f"schedulers must be schedules, got {type(schedule).__name__}")
            if isinstance(schedule, ReduceLROnPlateau):
                raise DomainError(name, "schedulers must need no metric, got ReduceLROnPlateau")
        self.optimizer = self.schedulers[0].optimizer if optimizer is None else optimizer
        if any(schedule.optimizer is not self.optimizer for schedule in self.schedulers):
            raise DomainError(name, "schedulers must be of one optimizer, got those of several")

    def state_dict(self) -> dict[str, Any]:
        """The states of the schedules, and its own."""
        own = super().state_dict()
        return {**own, "schedulers": [schedule.state_dict() for schedule in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave; the rates themselves are in the optimizer's state."""
        kept, states = self.schedulers, state_dict.get("schedulers", [])
        if len(states) != len(kept):
            raise DomainError("load_state_dict", f"there must be {len(kept)} schedules, got {len(states)}")
        super().load_state_dict(state_dict)
        self.schedulers = kept
        for schedule, state in zip(kept, states, strict=True):
            schedule.load_state_dict(state)


class SequentialLR(_Combined):
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
        super().__init__(checked_optimizer("SequentialLR", optimizer), schedulers)
        if len(milestones) != len(schedulers) - 1:
            got = f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            raise DomainError("SequentialLR", f"there must be one milestone less than schedulers, got {got}")
        if sorted(milestones) != list(milestones):
            raise DomainError("SequentialLR", f"milestones must be in order, got {list(milestones)}")
        self.milestones = list(milestones)
        self.restart()

    def restart(self) -> None:
        """Begin at step 0, with the schedule that is on there."""
        self.last_epoch = 0
        self._begin(bisect_right(self.milestones, 0))

    def step(self) -> None:
        """Go to the next step."""
        self.last_epoch += 1
        number = bisect_right(self.milestones, self.last_epoch)
        if number and self.last_epoch == self.milestones[number - 1]:
            self._begin(number)
        else:
            self.schedulers[number].step()

    def _begin(self, number: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        self.schedulers[number].restart()


class ChainedScheduler(_Combined):
    """Schedules together: each changes the rate that the one before leaves.

    Args:
        schedulers: of one optimizer.
        optimizer: theirs, if it is to be said.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> warm = weft.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> fall = weft.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> schedule = weft.optim.lr_scheduler.ChainedScheduler([warm, fall])
    >>> for _ in range(3):
    ...     print(schedule.get_last_lr())
    ...     schedule.step()
    [0.5]
    [0.25]
    [0.25]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        super().__init__(optimizer, schedulers)
        self.last_epoch = self.schedulers[0].last_epoch

    def restart(self) -> None:
        """Begin at step 0, from the rates as they are now."""
        for schedule in self.schedulers:
            schedule.restart()
        self.last_epoch = 0

    def step(self) -> None:
        """Go to the next step."""
        for schedule in self.schedulers:
            schedule.step()
        self.last_epoch += 1
