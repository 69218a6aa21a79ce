"""Schedules along cosine waves (Loshchilov and Hutter, "SGDR", 2017)."""

from __future__ import annotations

from math import cos, pi

from weft.optim.lr_scheduler.base import LRScheduler, check_whole
from weft.optim.optimizer import Group, Optimizer


class CosineAnnealingLR(LRScheduler):
    """From the rate at the start to ``eta_min`` along half a cosine wave, in ``T_max`` steps, and back.

    Args:
        optimizer: whose rates it sets.
        T_max: the number of steps.
        eta_min: the least rate.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803 - as people know it
        check_whole("CosineAnnealingLR", "T_max", T_max)
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        """By the change of the wave, so that another schedule may have its part in the rate."""
        step, low = self.last_epoch, self.eta_min
        if step == 0:
            return float(group["lr"])
        if (step - 1 - self.T_max) % (2 * self.T_max) == 0:  # the wave was at its lowest
            return float(group["lr"] + (base - low) * (1 - cos(pi / self.T_max)) / 2)
        return float((group["lr"] - low) * self._height(step) / self._height(step - 1) + low)

    def _height(self, step: int) -> float:
        return 1 + cos(pi * step / self.T_max)


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the rate at the start to ``eta_min`` along half a cosine wave, again and again.

    Args:
        optimizer: whose rates it sets.
        T_0: the number of steps of the first wave.
        T_mult: how many times longer each wave is than the one before.
        eta_min: the least rate.
        last_epoch: the number of the last step; -1 to start.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> for _ in range(3):
    ...     print(schedule.get_last_lr())
    ...     schedule.step()
    [1.0]
    [0.5]
    [1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803 - as people know it
        T_mult: int = 1,  # noqa: N803 - as people know it
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        check_whole("CosineAnnealingWarmRestarts", "T_0", T_0)
        check_whole("CosineAnnealingWarmRestarts", "T_mult", T_mult)
        self.T_0 = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        """By the place in the wave."""
        done, length = self._place()
        return self.eta_min + (base - self.eta_min) * (1 + cos(pi * done / length)) / 2

    def _place(self) -> tuple[int, int]:
        """How many steps of the wave are done, and how long it is."""
        done, length = self.last_epoch, self.T_0
        while done >= length:
            done, length = done - length, length * self.T_mult
            if self.T_mult == 1:
                return done % length, length
        return done, length
