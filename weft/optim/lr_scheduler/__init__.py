"""Schedules of learning rates: each ``step()`` sets the rate of every group of an optimizer.

A training loop calls it after the optimizer's step, once for a batch or an epoch. A compiled training step
goes on as the rate changes.

>>> import weft
>>> optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)
>>> schedule = weft.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
>>> for _ in range(2):
...     optimizer.step()
...     schedule.step()
>>> schedule.get_last_lr()
[0.25]
"""

from typing import NoReturn

from weft.optim.lr_scheduler.base import LRScheduler
from weft.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from weft.optim.lr_scheduler.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from weft.optim.lr_scheduler.cycles import CyclicLR, OneCycleLR
from weft.optim.lr_scheduler.factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from weft.optim.lr_scheduler.plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)
