"""Steps of optimizers on many elements: one compiled function, against ops one by one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft import optim

SHAPES = [(300, 200), (200,), (200, 40), (40,)]


@pytest.fixture(autouse=True)
def kernels_are_on() -> Iterator[None]:
    weft.set_eager_kernels(True)
    yield
    weft.set_eager_kernels(True)


def parameters() -> list[Any]:
    rng = np.random.default_rng(0)
    return [weft.tensor(rng.standard_normal(s).astype("f4"), requires_grad=True) for s in SHAPES]


def train(make: Any, steps: int = 4, kernels: bool = True) -> list[Any]:
    """The parameters after steps in which the rate changes, and one of them has no gradient at times."""
    weft.set_eager_kernels(kernels)
    params = parameters()
    optimizer = make(params)
    for step in range(steps):
        optimizer.zero_grad()
        sum((weft.tanh(p) ** 2).sum() for p in params[: 4 - (step == 2)]).backward()
        optimizer.param_groups[0]["lr"] *= 0.9
        optimizer.step()
    weft.set_eager_kernels(True)
    return [p.detach().numpy() for p in params]


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1),
        lambda p: optim.AdamW([{"params": p[:2]}, {"params": p[2:], "lr": 0.1}], lr=0.01),
        lambda p: optim.RMSprop(p, lr=0.01),
    ],
)
def test_a_compiled_step_changes_parameters_as_ops_do(make: Any) -> None:
    for got, expected in zip(train(make), train(make, kernels=False), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_an_optimizer_that_is_not_ours_runs_as_it_is_written() -> None:
    class Counting(optim.SGD):
        steps = 0

        def move_all(self, group: Any, params: Any) -> None:
            self.steps += 1
            super().move_all(group, params)

    params = parameters()
    optimizer = Counting(params, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        params[0].sum().backward()
        optimizer.step()
    assert optimizer.steps == 3


def test_a_copy_steps_on_its_own() -> None:
    params = parameters()
    optimizer = optim.Adam(params, lr=0.1)
    params[0].sum().backward()
    optimizer.step()
    other = copy.deepcopy(optimizer)
    before = params[0].detach().numpy().copy()
    other.step()
    np.testing.assert_array_equal(params[0].detach().numpy(), before)


def test_state_loads_into_an_optimizer_that_has_stepped() -> None:
    params, twins = parameters(), parameters()
    first, second = optim.Adam(params, lr=0.1), optim.Adam(twins, lr=0.1)
    for optimizer, own in ((first, params), (second, twins)):
        sum((p * p).sum() for p in own).backward()
        optimizer.step()
    second.load_state_dict(first.state_dict())
    for optimizer in (first, second):
        optimizer.step()
    for p, twin in zip(params, twins, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), twin.detach().numpy())
