"""Schedules that cycle the rate, and the momentum against it.

Smith, "Cyclical learning rates for training neural networks", 2017; Smith and Topin, "Super-convergence",
2019.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, floor, pi
from typing import Any

from weft.errors import ArgumentError, DomainError
from weft.optim.lr_scheduler.base import LRScheduler, check_whole, checked_optimizer, for_groups
from weft.optim.optimizer import Group, Optimizer

Numbers = float | Sequence[float]


class _Cycling(LRScheduler):
    """A schedule that may move the momentum too, or the first beta where there are betas."""

    cycle_momentum: bool

    def begin_momentum(self, base_momentum: Numbers, max_momentum: Numbers) -> None:
        """Note between which values momentum moves."""
        name = type(self).__name__
        if not {"momentum", "betas"} & self.optimizer.defaults.keys():
            kind = type(self.optimizer).__name__
            raise DomainError(
                name,
                f"the optimizer must have momentum or betas, got {kind}",
                hint="set cycle_momentum=False",
            )
        lows = for_groups(name, "base_momentum", base_momentum, self.optimizer)
        highs = for_groups(name, "max_momentum", max_momentum, self.optimizer)
        for group, low, high in zip(self.optimizer.param_groups, lows, highs, strict=True):
            group["base_momentum"], group["max_momentum"] = low, high
            set_momentum(group, high)


def set_momentum(group: Group, value: float) -> None:
    """Set the momentum of a group, or its first beta."""
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(_Cycling):
    """From a low rate to a high one and back along lines, again and again; momentum the other way.

    Args:
        optimizer: whose rates it sets.
        base_lr: the low rate, or one for each group.
        max_lr: the high rate, or one for each group.
        step_size_up: the number of steps up.
        step_size_down: the number of steps down, as many as up by default.
        mode: ``"triangular"``, ``"triangular2"`` (each cycle half as high), or ``"exp_range"`` (``gamma`` to
            the power of the step as high).
        gamma: of ``"exp_range"``.
        scale_fn: gives the height of a cycle instead of ``mode``.
        scale_mode: whether ``scale_fn`` is a function of the ``"cycle"``, counted from 1, or of
            ``"iterations"``.
        cycle_momentum: move momentum too.
        base_momentum: its low value.
        max_momentum: its high value.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
    >>> schedule = weft.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.0, max_lr=1.0, step_size_up=2)
    >>> for _ in range(4):
    ...     print(schedule.get_last_lr())
    ...     schedule.step()
    [0.0]
    [0.5]
    [1.0]
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Numbers,
        max_lr: Numbers,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Numbers = 0.8,
        max_momentum: Numbers = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if scale_fn is None and mode not in _HEIGHTS:
            raise DomainError("CyclicLR", f"mode must be one of {', '.join(_HEIGHTS)}, got {mode!r}")
        check_whole("CyclicLR", "step_size_up", step_size_up)
        self.optimizer = checked_optimizer("CyclicLR", optimizer)
        self.step_size_up = step_size_up
        self.step_size_down = step_size_up if step_size_down is None else step_size_down
        check_whole("CyclicLR", "step_size_down", self.step_size_down)
        self.mode = mode
        self.gamma = gamma
        self.scale_fn = scale_fn
        self.by_cycle = mode != "exp_range" if scale_fn is None else scale_mode == "cycle"
        self.cycle_momentum = cycle_momentum
        self.max_lrs = for_groups("CyclicLR", "max_lr", max_lr, optimizer)
        if last_epoch == -1:
            lows = for_groups("CyclicLR", "base_lr", base_lr, optimizer)
            for group, low in zip(optimizer.param_groups, lows, strict=True):
                group["lr"] = group["initial_lr"] = low
            if cycle_momentum:
                self.begin_momentum(base_momentum, max_momentum)
        super().__init__(optimizer, last_epoch)

    def apply(self) -> None:
        """Set rates and momentums."""
        height = self._height()
        for group, base, high in zip(self.optimizer.param_groups, self.base_lrs, self.max_lrs, strict=True):
            group["lr"] = base + (high - base) * height
            if self.cycle_momentum:
                low, high = group["base_momentum"], group["max_momentum"]
                set_momentum(group, high - (high - low) * height)

    def _height(self) -> float:
        """Where the step is between low and high."""
        total = self.step_size_up + self.step_size_down
        cycle = floor(1 + self.last_epoch / total)
        place, top = 1.0 + self.last_epoch / total - cycle, self.step_size_up / total
        share = place / top if place <= top else (place - 1) / (top - 1)
        x = cycle if self.by_cycle else self.last_epoch
        return share * (_HEIGHTS[self.mode](x, self.gamma) if self.scale_fn is None else self.scale_fn(x))


_HEIGHTS: dict[str, Callable[[float, float], float]] = {
    "triangular": lambda cycle, gamma: 1.0,
    "triangular2": lambda cycle, gamma: 1 / 2.0 ** (cycle - 1),
    "exp_range": lambda step, gamma: gamma**step,
}


class OneCycleLR(_Cycling):
    """From a low rate to a high one and then far down, in a known number of steps; momentum the other way.

    Args:
        optimizer: whose rates it sets.
        max_lr: the high rate, or one for each group.
        total_steps: the number of steps; or ``epochs`` and ``steps_per_epoch``.
        epochs: the number of epochs.
        steps_per_epoch: the number of steps of each.
        pct_start: the part of the steps in which the rate goes up.
        anneal_strategy: ``"cos"`` or ``"linear"``.
        cycle_momentum: move momentum too.
        base_momentum: its low value.
        max_momentum: its high value.
        div_factor: how many times lower than the high rate the first one is.
        final_div_factor: how many times lower than the first rate the last one is.
        three_phase: go down as long as up, and then on to the last rate.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
    >>> schedule = weft.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> rates = []
    >>> for _ in range(10):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step()
    ...     schedule.step()
    >>> [round(rate, 2) for rate in rates]
    [0.04, 0.52, 1.0, 0.95, 0.81, 0.61, 0.39, 0.19, 0.05, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Numbers,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Numbers = 0.85,
        max_momentum: Numbers = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = checked_optimizer("OneCycleLR", optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise DomainError("OneCycleLR", f"pct_start must be in 0..1, got {pct_start}")
        if anneal_strategy not in _WAYS:
            raise DomainError(
                "OneCycleLR", f"anneal_strategy must be one of {', '.join(_WAYS)}, got {anneal_strategy!r}"
            )
        self.pct_start = float(pct_start)
        self.anneal_strategy = anneal_strategy
        self.three_phase = three_phase
        self.cycle_momentum = cycle_momentum
        if last_epoch == -1:
            highs = for_groups("OneCycleLR", "max_lr", max_lr, optimizer)
            for group, high in zip(optimizer.param_groups, highs, strict=True):
                group["initial_lr"], group["max_lr"] = high / div_factor, high
                group["min_lr"] = group["initial_lr"] / final_div_factor
            if cycle_momentum:
                self.begin_momentum(base_momentum, max_momentum)
        super().__init__(optimizer, last_epoch)

    def apply(self) -> None:
        """Set rates and momentums."""
        if self.last_epoch > self.total_steps:
            raise DomainError(
                "OneCycleLR",
                f"there must be at most {self.total_steps} steps, got step {self.last_epoch}",
                hint="make it with as many total_steps as there are",
            )
        for group in self.optimizer.param_groups:
            group["lr"] = self._value(group, 0)
            if self.cycle_momentum:
                set_momentum(group, self._value(group, 2))

    def _value(self, group: Group, first: int) -> float:
        """What the rate or the momentum is now: the settings of the phase say between what it moves."""
        way, start = _WAYS[self.anneal_strategy], 0.0
        *phases, (last, names) = self._phases()
        for end, these in phases:
            if self.last_epoch <= end:
                return way(
                    group[these[first]], group[these[first + 1]], (self.last_epoch - start) / (end - start)
                )
            start = end
        return way(group[names[first]], group[names[first + 1]], (self.last_epoch - start) / (last - start))

    def _phases(self) -> list[tuple[float, tuple[str, ...]]]:
        """The last step of each phase, and what moves from where to where."""
        top, end = self.pct_start * self.total_steps - 1, self.total_steps - 1.0
        up = ("initial_lr", "max_lr", "max_momentum", "base_momentum")
        if not self.three_phase:
            return [(top, up), (end, ("max_lr", "min_lr", "base_momentum", "max_momentum"))]
        return [
            (top, up),
            (2 * self.pct_start * self.total_steps - 2, ("max_lr", "initial_lr", *reversed(up[2:]))),
            (end, ("initial_lr", "min_lr", "max_momentum", "max_momentum")),
        ]


def _total_steps(total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total_steps is not None:
        check_whole("OneCycleLR", "total_steps", total_steps)
        return int(total_steps)
    if epochs is None or steps_per_epoch is None:
        raise ArgumentError("OneCycleLR", "must be given total_steps, or epochs and steps_per_epoch")
    check_whole("OneCycleLR", "epochs", epochs)
    check_whole("OneCycleLR", "steps_per_epoch", steps_per_epoch)
    return int(epochs * steps_per_epoch)


_WAYS: dict[str, Callable[[float, float, float], float]] = {
    "cos": lambda start, end, done: end + (start - end) / 2 * (1 + cos(pi * done)),
    "linear": lambda start, end, done: start + (end - start) * done,
}
