"""Schedules that step inside of a compiled training step: rates and weights go the way of eager steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.optim import lr_scheduler as schedules

MADE: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: schedules.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: schedules.MultiStepLR(o, [2, 4], 0.1),
    "ConstantLR": lambda o: schedules.ConstantLR(o, 0.5, 3),
    "LinearLR": lambda o: schedules.LinearLR(o, 0.1, 1.0, 4),
    "ExponentialLR": lambda o: schedules.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: schedules.PolynomialLR(o, 5),
    "LambdaLR": lambda o: schedules.LambdaLR(o, lambda step: 1 / (1 + step)),
    "MultiplicativeLR": lambda o: schedules.MultiplicativeLR(o, lambda step: 0.9),
    "CosineAnnealingLR": lambda o: schedules.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: schedules.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "OneCycleLR": lambda o: schedules.OneCycleLR(o, 0.2, total_steps=10),
    "three phases": lambda o: schedules.OneCycleLR(o, 0.2, total_steps=10, three_phase=True),
    "SequentialLR": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, 1.0, 2), schedules.ExponentialLR(o, 0.5)], [2]
    ),
    "ChainedScheduler": lambda o: schedules.ChainedScheduler(
        [schedules.ConstantLR(o, 0.5, 3), schedules.ExponentialLR(o, 0.5)]
    ),
    "ReduceLROnPlateau": lambda o: schedules.ReduceLROnPlateau(o, patience=1),
}


def test_no_schedule_is_left_out() -> None:
    kinds = {n for n in schedules.__all__ if n != "LRScheduler"}
    assert kinds <= set(MADE)


def trained(make: Callable[[Any], Any], wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    w = weft.tensor([1.0, -2.0], requires_grad=True)
    optimizer = weft.optim.SGD([w], lr=0.1, momentum=0.9)
    schedule = make(optimizer)
    measured = isinstance(schedule, schedules.ReduceLROnPlateau)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ((w * x) ** 2).sum()
        loss.backward()
        optimizer.step()
        if measured:
            schedule.step(x.sum())
        else:
            schedule.step()
        return loss

    run = wrap(step)
    log = []
    for k in range(8):
        loss = run(weft.tensor([1.0, 0.5 + 0.125 * (k % 2)])).item()
        group = optimizer.param_groups[0]
        log.append([loss, *w.tolist(), group["lr"], group["momentum"], schedule.last_epoch])
        assert type(group["lr"]) is float
    return log, run


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", sorted(MADE))
def test_a_schedule_steps_in_a_compiled_step(name: str) -> None:
    expected, _ = trained(MADE[name], lambda f: f)
    found, run = trained(MADE[name], weft.compile)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    assert len(run.versions) <= 4


def test_too_many_steps_are_the_error_that_they_are_eagerly() -> None:
    w = weft.ones(1, requires_grad=True)
    schedule = schedules.OneCycleLR(weft.optim.SGD([w], lr=0.1), 0.2, total_steps=2)

    @weft.compile
    def step(x: Any) -> Any:
        schedule.step()
        return x

    step(weft.ones(1))
    step(weft.ones(1))
    with pytest.raises(weft.errors.DomainError, match="at most 2 steps, got step 3"):
        step(weft.ones(1))
    assert schedule.last_epoch == 2
