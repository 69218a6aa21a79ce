"""Optimizers and schedules against PyTorch, and what they do with state and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.nn.expected import EXPECTED
from weft import nn, optim
from weft.optim import lr_scheduler
from weft.optim import lr_scheduler as s
from weft.optim.line_search import Point, strong_wolfe

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "dampened": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, lr=0.05, weight_decay=0.1),
    "amsgrad": lambda p: optim.Adam(p, lr=0.05, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2),
}

SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda i: 1 / (1 + i)),
    "step": lambda o: lr_scheduler.StepLR(o, 3, gamma=0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 5, eta_min=0.01),
    "linear": lambda o: lr_scheduler.LinearLR(o, 0.25, total_iters=4),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.25, total_iters=4), lr_scheduler.CosineAnnealingLR(o, 5)], [4]
    ),
}


def start(dtype: Any = weft.float64) -> list[Any]:
    w = weft.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=dtype, requires_grad=True)
    return [w, weft.tensor([0.1, -0.2], dtype=dtype, requires_grad=True)]


def loss_of(w: Any, b: Any, i: int) -> Any:
    """In step 3 b has no gradient."""
    return (w * w).sum() * 0.5 + (w.sum(0) * b).sin().sum() if i != 3 else (w**4).sum() * 0.1


def train(optimizer: Any, w: Any, b: Any, steps: range) -> list[Any]:
    path = []
    for i in steps:
        optimizer.zero_grad()
        loss_of(w, b, i).backward()
        optimizer.step()
        path.append(np.concatenate([w.detach().numpy().ravel(), b.detach().numpy()]))
    return path


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_goes_the_way_that_pytorchs_goes(name: str) -> None:
    w, b = start()
    path = train(OPTIMIZERS[name]([w, b]), w, b, range(8))
    np.testing.assert_allclose(np.stack(path), EXPECTED[f"optimizer/{name}"], rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_that_is_saved_and_loaded_goes_on_as_if_nothing_happened(name: str) -> None:
    w, b = start()
    optimizer = OPTIMIZERS[name]([w, b])
    train(optimizer, w, b, range(4))
    state = optimizer.state_dict()
    copies = [p.detach().clone().requires_grad_() for p in (w, b)]
    loaded = OPTIMIZERS[name](copies)
    loaded.load_state_dict(state)
    expected = train(optimizer, w, b, range(4, 8))
    np.testing.assert_array_equal(np.stack(train(loaded, *copies, range(4, 8))), np.stack(expected))


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_parameters_keep_their_dtype(name: str) -> None:
    for dtype in (weft.float32, weft.bfloat16, weft.float16):
        w, b = start(dtype)
        optimizer = OPTIMIZERS[name]([w, b])
        for i in range(2):
            optimizer.zero_grad()
            loss_of(w, b, i).backward()
            optimizer.step()
        assert w.dtype == dtype


def test_groups_have_settings_of_their_own() -> None:
    w, b = start()
    optimizer = optim.SGD([{"params": [w], "lr": 1.0}, {"params": b}], lr=0.0)
    (w.sum() + b.sum()).backward()
    optimizer.step()
    assert (w.detach() == weft.tensor([[0.0, -3.0], [-0.5, 2.0]], dtype=weft.float64)).all()
    assert b.detach().numpy().tolist() == [0.1, -0.2]
    assert "lr: 1.0" in repr(optimizer)


def test_zero_grad_forgets_or_sets_zeros() -> None:
    w, b = start()
    optimizer = optim.SGD([w, b], lr=0.1)
    (w.sum() + b.sum()).backward()
    optimizer.zero_grad(set_to_none=False)
    assert (w.grad == 0).all()
    optimizer.zero_grad()
    assert [w.grad, b.grad] == [None, None]


def test_closure_is_called_and_its_loss_returned() -> None:
    w, b = start()
    optimizer = optim.SGD([w, b], lr=0.1)

    def closure() -> Any:
        loss = (w * w).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 14.25


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_is_that_of_pytorch(name: str) -> None:
    optimizer = optim.SGD([weft.ones(1, requires_grad=True)], lr=0.4)
    schedule = SCHEDULES[name](optimizer)
    rates = []
    for _ in range(10):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    np.testing.assert_allclose(rates, EXPECTED[f"schedule/{name}"], rtol=1e-12, atol=1e-15)


def test_schedule_goes_on_from_its_state() -> None:
    optimizer = optim.SGD([weft.ones(1, requires_grad=True)], lr=0.4)
    schedule = lr_scheduler.StepLR(optimizer, 2)
    schedule.step()
    state, groups = schedule.state_dict(), optimizer.state_dict()
    other = optim.SGD([weft.ones(1, requires_grad=True)], lr=0.4)
    resumed = lr_scheduler.StepLR(other, 2)
    other.load_state_dict(groups)
    resumed.load_state_dict(state)
    resumed.step()
    schedule.step()
    assert resumed.get_last_lr() == schedule.get_last_lr() == [pytest.approx(0.04)]


def test_clipping_by_norm_scales_all_gradients_alike() -> None:
    w, b = start()
    (w * 3.0).sum().backward()
    (b * 4.0).sum().backward()
    before = [p.grad.numpy() for p in (w, b)]
    norm = optim.clip_grad_norm_([w, b], 2.0)
    assert norm.item() == pytest.approx((4 * 9 + 2 * 16) ** 0.5)
    for p, g in zip((w, b), before, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), g * 2.0 / (norm.item() + 1e-6))
    small = optim.clip_grad_norm_([w, b], 100.0)
    assert small.item() == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize(("power", "expected"), [(float("inf"), 4.0), (1.0, 20.0)])
def test_other_norms(power: float, expected: float) -> None:
    w, b = start()
    ((w * 3.0).sum() + (b * 4.0).sum()).backward()
    assert optim.clip_grad_norm_([w, b], 1.0, norm_type=power).item() == pytest.approx(expected)


def test_norm_that_is_not_finite_is_an_error_if_asked() -> None:
    w, _ = start()
    (w * weft.inf).sum().backward()
    with pytest.raises(weft.errors.GradientError, match="the norm must be finite, got inf"):
        optim.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)


def test_clipping_by_value() -> None:
    w, b = start()
    (w * weft.tensor([[1.0, -9.0], [9.0, 0.5]], dtype=weft.float64)).sum().backward()
    optim.clip_grad_value_([w, b], 2.0)
    assert w.grad.numpy().tolist() == [[1.0, -2.0], [2.0, 0.5]]


def load_swapped(kind: Any) -> None:
    w, b = start()
    optimizer = kind([w, b])
    train(optimizer, w, b, range(1))
    kind([b, w]).load_state_dict(optimizer.state_dict())


def load_shorter() -> None:
    w, b = start()
    state = optim.LBFGS([w, b]).state_dict()
    optim.LBFGS([w, b]).load_state_dict({**state, "state": {0: {"d": weft.ones(2)}}})


def test_groups_are_added_before_a_schedule_is_made() -> None:
    w, b = start()
    optimizer = optim.SGD([w], lr=0.1)
    schedule = lr_scheduler.StepLR(optimizer, 2)
    optimizer.add_param_group({"params": [b]})
    with pytest.raises(weft.errors.DomainError, match="must have 1 groups as at the start, got 2"):
        schedule.step()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: optim.SGD([w], lr=-1.0), "lr must be in [0, inf), got -1.0"),
        (lambda w: optim.SGD([w], lr="0.1"), "lr must be a number, got str"),
        (lambda w: optim.SGD([w], lr=float("nan")), "lr must be in [0, inf), got nan"),
        (lambda w: optim.SGD([{"params": [w], "lr": -2.0}], lr=1.0), "lr must be in [0, inf), got -2.0"),
        (lambda w: optim.Adam([w], betas=(0.9, 1.0)), "betas[1] must be in [0, 1), got 1.0"),
        (lambda w: optim.Adam([w], betas=(0.9,)), "betas must be two numbers, got 1"),
        (lambda w: optim.RMSprop([w], alpha=1.5), "alpha must be in [0, 1), got 1.5"),
        (lambda w: optim.Adadelta([w], rho=2.0), "rho must be in [0, 1), got 2.0"),
        (lambda w: optim.Lion([w], weight_decay=-1.0), "weight_decay must be in [0, inf), got -1.0"),
        (lambda w: optim.SGD([w], nesterov=True), "nesterov needs momentum and no dampening"),
        (lambda w: optim.SGD([]), "params must not be empty"),
        (lambda w: optim.SGD(w), "params must be several tensors or dicts, got one tensor"),
        (lambda w: optim.SGD([w, w]), "a parameter must be in one group only"),
        (lambda w: optim.SGD([{"lr": 1.0}]), "a group must be a dict with params"),
        (lambda w: optim.SGD([w * 2.0]), "params must be leaves"),
        (lambda w: optim.SGD([1.0]), "params must be tensors, got float"),
        (lambda w: optim.SGD([weft.ones(2, dtype=weft.int64)]), "params must be floating, got int64"),
        (lambda w: optim.LBFGS([w]).step(), "step needs a closure"),
        (lambda w: optim.LBFGS([w], line_search_fn="armijo"), 'must be "strong_wolfe" or None'),
        (lambda w: optim.LBFGS([w], max_iter=0), "max_iter must be in [1, inf), got 0"),
        (lambda w: optim.LBFGS([{"params": [w]}, {"params": [w]}]), "params must be in one group"),
        (lambda w: optim.SGD([w]).load_state_dict({}), "must have state and param_groups"),
        (
            lambda w: optim.Adam([w]).load_state_dict(optim.SGD([w]).state_dict()),
            "groups of Adam must have amsgrad, betas, eps",
        ),
        (
            lambda w: optim.SGD([w, start()[1]]).load_state_dict(optim.SGD([w]).state_dict()),
            "groups must have [2] parameters, got [1]",
        ),
        (
            lambda w: load_swapped(optim.Adam),
            "exp_avg must have the shape of its parameter, got (2, 2) for (2,)",
        ),
        (lambda w: load_shorter(), "d must have one element for each of 6, got (2,)"),
    ],
)
def test_wrong_settings_are_named(make: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        make(start()[0])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda o: s.StepLR(start()[0], 2), "must be given an optimizer, got Tensor"),
        (lambda o: s.StepLR(o, 0), "step_size must be at least 1, got 0"),
        (lambda o: s.StepLR(o, 2.5), "step_size must be an int, got float"),
        (lambda o: s.StepLR(o, 2, last_epoch=3), "groups must have an initial_lr to go on from a step"),
        (lambda o: s.LambdaLR(o, [abs, abs]), "lr_lambda must be one or one for each of 1 groups, got 2"),
        (lambda o: s.LambdaLR(o, 0.5), "lr_lambda must be a function"),
        (lambda o: s.LinearLR(o, 2.0), "factors must be in 0..1 and the first above 0"),
        (lambda o: s.ConstantLR(o, 0.0), "factor must be in 0..1 and above 0, got 0.0"),
        (lambda o: s.CosineAnnealingLR(o, 0), "T_max must be at least 1, got 0"),
        (lambda o: s.CosineAnnealingWarmRestarts(o, 5, T_mult=0), "T_mult must be at least 1, got 0"),
        (lambda o: s.OneCycleLR(o, 0.1), "must be given total_steps, or epochs and steps_per_epoch"),
        (lambda o: s.OneCycleLR(o, 0.1, 10, pct_start=2.0), "pct_start must be in 0..1, got 2.0"),
        (
            lambda o: s.OneCycleLR(o, 0.1, 10, anneal_strategy="x"),
            "anneal_strategy must be one of cos, linear",
        ),
        (
            lambda o: s.CyclicLR(o, 0.1, 1.0, mode="x"),
            "mode must be one of triangular, triangular2, exp_range",
        ),
        (lambda o: s.CyclicLR(o, 0.1, [1.0, 2.0]), "max_lr must be one or one for each of 1 groups, got 2"),
        (
            lambda o: s.CyclicLR(optim.Adagrad([start()[0]]), 0.1, 1.0),
            "must have momentum or betas, got Adagrad",
        ),
        (lambda o: s.ReduceLROnPlateau(o, "lowest"), "mode must be min or max, got 'lowest'"),
        (lambda o: s.ReduceLROnPlateau(o, factor=1.0), "factor must be in [0, 1), got 1.0"),
        (lambda o: s.ReduceLROnPlateau(o).step(), "step needs the metric, got none"),
        (lambda o: s.SequentialLR(o, [s.StepLR(o, 2)], [5]), "one milestone less than schedulers"),
        (lambda o: s.SequentialLR(o, [], []), "must be given at least one schedule"),
        (lambda o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]), "schedulers must need no metric"),
        (
            lambda o: s.ChainedScheduler([s.StepLR(o, 2), s.StepLR(optim.SGD([start()[1]]), 2)]),
            "schedulers must be of one optimizer, got those of several",
        ),
        (lambda o: s.StepLR(o, 2).load_state_dict({"x": 1}), "the state of StepLR must have"),
    ],
)
def test_wrong_schedules_are_named(make: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        make(optim.SGD([start()[0]], lr=0.1))
    assert message in str(error.value)


def test_one_cycle_ends_with_its_steps() -> None:
    optimizer = optim.SGD([start()[0]], lr=0.1, momentum=0.9)
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3)
    for _ in range(3):
        schedule.step()
    with pytest.raises(weft.errors.DomainError, match="at most 3 steps, got step 4"):
        schedule.step()


def test_lbfgs_takes_a_compiled_closure() -> None:
    found = []
    for compiled in (False, True):
        w, b = start()
        optimizer = optim.LBFGS([w, b], line_search_fn="strong_wolfe")

        def closure(w: Any = w, b: Any = b, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = ((w - 1.0) ** 4).sum() + (w.sum(0) * b).sin().sum() + (b * b).sum()
            loss.backward()
            return loss

        run = weft.compile(closure) if compiled else closure
        losses = [optimizer.step(run).item() for _ in range(3)]
        found.append((losses, w.detach().numpy()))
        assert losses[-1] < losses[0]
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-9)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-6)
    assert len(run.versions) <= 2  # type: ignore[attr-defined] # with gradients at first, or without


def test_lbfgs_finds_the_lowest_point_of_a_valley() -> None:
    w = weft.tensor([-1.5, 2.0], dtype=weft.float64, requires_grad=True)
    optimizer = optim.LBFGS([w], max_iter=100, tolerance_change=1e-14, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (1.0 - w[0]) ** 2 + 100.0 * (w[1] - w[0] ** 2) ** 2
        loss.backward()
        return loss

    optimizer.step(closure)
    np.testing.assert_allclose(w.detach().numpy(), [1.0, 1.0], atol=1e-6)


def test_lbfgs_in_a_capture_is_an_error_that_says_what_to_do() -> None:
    w, _ = start()
    optimizer = optim.LBFGS([w])

    @weft.compile
    def step() -> Any:
        return optimizer.step(lambda: (w * w).sum())

    with pytest.raises(weft.errors.CaptureError, match="compile the closure instead"):
        step()


@given(st.floats(-3, 3), st.floats(0.2, 5), st.floats(0.0, 2.0), st.floats(1e-2, 20.0), st.floats(0.3, 3.0))
@settings(max_examples=60, deadline=None)
def test_line_search_ends_where_the_strong_wolfe_conditions_hold(
    x: float, bend: float, wave: float, first: float, pace: float
) -> None:
    def value(t: float) -> float:
        return bend * (x - t) ** 2 + wave * np.sin(pace * t)

    def slope(t: float) -> float:
        return -2 * bend * (x - t) + wave * pace * np.cos(pace * t)

    side = -np.sign(slope(0.0)) or 1.0
    look = lambda t: Point(t, value(side * t), None, side * slope(side * t))  # noqa: E731 - short
    begin = look(0.0)
    if begin.slope > -1e-6:
        return
    found, looks = strong_wolfe(look, begin, first, size=1.0, tolerance=1e-12, most=60)
    assert found.value <= begin.value + 1e-4 * found.at * begin.slope + 1e-12
    assert abs(found.slope) <= 0.9 * abs(begin.slope) + 1e-9
    assert looks <= 61


def test_state_that_was_taken_does_not_change_as_training_goes_on() -> None:
    w, b = start()
    optimizer = optim.Adam([w, b], lr=0.1)

    @weft.compile
    def step() -> None:
        optimizer.zero_grad()
        loss_of(w, b, 0).backward()
        optimizer.step()

    step()
    state = optimizer.state_dict()["state"]
    held = {i: {k: v.numpy().copy() for k, v in part.items()} for i, part in state.items()}
    for _ in range(3):
        step()
    for i, part in state.items():
        for k, v in part.items():
            np.testing.assert_array_equal(v.numpy(), held[i][k])


def test_counts_that_are_equal_are_one_again_after_loading() -> None:
    w, b = start()
    optimizer = optim.Adam([w, b], lr=0.1)
    train(optimizer, w, b, range(3))
    state = optimizer.state_dict()
    copied = {i: {k: v.clone() for k, v in part.items()} for i, part in state["state"].items()}
    other = optim.Adam([w, b])
    other.load_state_dict({**state, "state": copied})
    assert other.state[w]["step"] is other.state[b]["step"]
    assert other.state[w]["step"].item() == 3.0


def test_states_go_through_files(tmp_path: Any) -> None:
    for name, make in OPTIMIZERS.items():
        w, b = start()
        optimizer = make([w, b])
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, 20, cycle_momentum=False)
        train(optimizer, w, b, range(3))
        schedule.step()
        path = tmp_path / f"{name}.safetensors"
        weft.save({"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, path)
        copies = [p.detach().clone().requires_grad_() for p in (w, b)]
        other = make(copies)
        resumed = lr_scheduler.OneCycleLR(other, 0.1, 20, cycle_momentum=False)
        state = weft.load(path)
        other.load_state_dict(state["optimizer"])
        resumed.load_state_dict(state["schedule"])
        schedule.step()
        resumed.step()
        expected = train(optimizer, w, b, range(3, 6))
        np.testing.assert_array_equal(np.stack(train(other, *copies, range(3, 6))), np.stack(expected))


def test_momentum_that_a_schedule_moves_is_no_reason_to_compile_again() -> None:
    w, b = start()
    optimizer = optim.SGD([w, b], lr=0.1, momentum=0.9)

    @weft.compile
    def step() -> None:
        optimizer.zero_grad()
        loss_of(w, b, 0).backward()
        optimizer.step()

    step()
    schedule = lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=3)
    for _ in range(5):
        step()
        schedule.step()
    assert len(step.versions) == 2  # without the schedule, and with it


def test_a_network_learns() -> None:
    weft.manual_seed(0)
    x = weft.randn(64, 2)
    target = (x[:, 0] * x[:, 1] > 0).astype(weft.int64)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(x), target)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
