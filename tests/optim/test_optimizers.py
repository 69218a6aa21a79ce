"""Optimizers and schedules against PyTorch, and what they do with state and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.nn.expected import EXPECTED
from weft import nn, optim
from weft.optim import lr_scheduler

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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: optim.SGD([w], lr=-1.0), "lr must be in [0, inf), got -1.0"),
        (lambda w: optim.Adam([w], betas=(0.9, 1.0)), "betas[1] must be in [0, 1), got 1.0"),
        (lambda w: optim.SGD([w], nesterov=True), "nesterov needs momentum and no dampening"),
        (lambda w: optim.SGD([]), "params must not be empty"),
        (lambda w: optim.SGD(w), "params must be several tensors or dicts, got one tensor"),
        (lambda w: optim.SGD([w, w]), "a parameter must be in one group only"),
        (lambda w: optim.SGD([w * 2.0]), "params must be leaves"),
        (lambda w: optim.SGD([1.0]), "params must be tensors, got float"),
        (lambda w: lr_scheduler.StepLR(w, 2), "must be given an optimizer, got Tensor"),
    ],
)
def test_wrong_settings_are_named(make: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        make(start()[0])
    assert message in str(error.value)


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
