"""Optimizers and schedules go the way that PyTorch's go, over 100 steps of a fixed problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
from tests.optim import problem
from tests.optim.expected import EXPECTED
from weft import optim
from weft.optim import lr_scheduler

X, Y = weft.tensor(problem.X), weft.tensor(problem.Y)


def parameters() -> list[Any]:
    return [weft.tensor(p, requires_grad=True) for p in problem.START]


class Run:
    """A way through the problem, step by step."""

    def __init__(self, way: problem.Way, params: Sequence[Any]) -> None:
        self.way = way
        self.params = params
        self.optimizer = problem.make_optimizer(optim, way, params)
        self.schedule = way.schedule(lr_scheduler, self.optimizer) if way.schedule else None

    def closure(self) -> Any:
        self.optimizer.zero_grad()
        loss = problem.loss_of(self.params, X, Y)
        loss.backward()
        return loss

    def change(self) -> None:
        """One step without the schedule: what can be compiled."""
        self.closure()
        if self.way.clip:
            getattr(optim, f"clip_grad_{self.way.clip[0]}_")(self.params, self.way.clip[1])
        self.optimizer.step()

    def step(self) -> None:
        if self.way.kind == "LBFGS":
            self.optimizer.step(self.closure)
        else:
            self.change()
        if self.schedule is not None:
            self.schedule.step()

    def place(self) -> np.ndarray[Any, Any]:
        return np.concatenate([p.detach().numpy().ravel() for p in self.params])

    def state(self) -> dict[str, Any]:
        schedule = None if self.schedule is None else self.schedule.state_dict()
        return {"optimizer": self.optimizer.state_dict(), "schedule": schedule}

    def load(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", problem.WAYS)
def test_a_hundred_steps_lead_where_pytorchs_do(name: str) -> None:
    way = problem.WAYS[name]
    run = Run(way, parameters())
    rows = []
    for i in range(1, way.steps + 1):
        run.step()
        if i in problem.KEPT:
            rows.append(run.place())
    np.testing.assert_allclose(np.stack(rows), EXPECTED[f"way/{name}"], rtol=1e-6, atol=1e-9)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", problem.WAYS)
def test_state_loaded_in_mid_run_goes_on_bitwise(name: str) -> None:
    run = Run(problem.WAYS[name], parameters())
    for _ in range(7):
        run.step()
    state = run.state()
    other = Run(problem.WAYS[name], [p.detach().clone().requires_grad_() for p in run.params])
    other.load(state)
    for _ in range(7):
        run.step()
        other.step()
    np.testing.assert_array_equal(other.place(), run.place())
    assert repr(other.optimizer) == repr(run.optimizer)


COMPILED = [name for name, way in problem.WAYS.items() if way.kind != "LBFGS"]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_steps_are_one_graph_and_lead_to_the_same_place(name: str) -> None:
    run, compiled = Run(problem.WAYS[name], parameters()), Run(problem.WAYS[name], parameters())
    change = weft.compile(compiled.change)
    compiled.change = change  # type: ignore[method-assign]
    for _ in range(12):
        run.step()
        compiled.step()
    np.testing.assert_allclose(compiled.place(), run.place(), rtol=1e-9, atol=1e-12)
    assert len(change.versions) == 1


def rates_of(name: str, steps: range, schedule: Any, optimizer: Any) -> list[list[float]]:
    found = []
    for i in steps:
        found.append([g[k] for g in optimizer.param_groups for k in ("lr", "momentum")])
        optimizer.step()
        schedule.step(*([problem.METRICS[i]] if name.startswith("plateau") else []))
    return found


def two_groups() -> Any:
    groups = [{"params": [weft.ones(1, requires_grad=True)], "lr": lr} for lr in (0.4, 0.1)]
    return optim.SGD(groups, momentum=0.9)


@pytest.mark.parametrize("name", problem.SCHEDULES)
def test_rates_and_momentums_are_those_of_pytorch(name: str) -> None:
    optimizer = two_groups()
    schedule = problem.SCHEDULES[name](lr_scheduler, optimizer)
    found = rates_of(name, range(problem.SCHEDULE_STEPS), schedule, optimizer)
    np.testing.assert_allclose(found, EXPECTED[f"schedule/{name}"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", problem.SCHEDULES)
def test_schedule_loaded_in_mid_run_goes_on_exactly(name: str) -> None:
    optimizer, other = two_groups(), two_groups()
    schedule, loaded = (problem.SCHEDULES[name](lr_scheduler, o) for o in (optimizer, other))
    rates_of(name, range(23), schedule, optimizer)
    other.load_state_dict(optimizer.state_dict())
    loaded.load_state_dict(schedule.state_dict())
    rest = range(23, 45)
    assert rates_of(name, rest, loaded, other) == rates_of(name, rest, schedule, optimizer)


def test_lion_goes_by_its_published_rule() -> None:
    settings: list[dict[str, Any]] = [
        {"lr": 0.01},
        {"lr": 0.003, "betas": (0.95, 0.98), "weight_decay": 0.1},
        {"lr": 0.002, "maximize": True},
    ]
    for given in settings:
        run = Run(problem.Way("Lion", given), parameters())
        expected = [p.copy() for p in problem.START]
        momentum = [np.zeros_like(p) for p in expected]
        (b1, b2), decay = given.get("betas", (0.9, 0.99)), given.get("weight_decay", 0.0)
        for _ in range(problem.STEPS):
            run.change()
            for i, p in enumerate(run.params):
                g = p.grad.numpy() * (-1 if given.get("maximize") else 1)
                direction = np.sign(b1 * momentum[i] + (1 - b1) * g)
                expected[i] = expected[i] - given["lr"] * (direction + decay * expected[i])
                momentum[i] = b2 * momentum[i] + (1 - b2) * g
        np.testing.assert_allclose(run.place(), np.concatenate([e.ravel() for e in expected]), rtol=1e-9)
