"""Loss scaling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.optim import problem
from tests.optim.expected import EXPECTED
from weft import nn, optim


def scaled_steps(compiled: bool) -> tuple[list[float], list[Any], Any, Any]:
    """The scale and the parameter after each step, some of which have infinite gradients."""
    w = weft.ones(2, requires_grad=True)
    optimizer = optim.Adam([w], lr=0.1)
    scaler = optim.GradScaler(init_scale=8.0, growth_interval=3)

    def step(factor: Any) -> None:
        optimizer.zero_grad()
        scaler.scale((w * w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    run = weft.compile(step) if compiled else step
    scales, path = [], []
    for factor in problem.FACTORS:
        run(weft.tensor(factor))
        scales.append(scaler.get_scale())
        path.append(w.detach().numpy().copy())
    return scales, path, optimizer.state[w]["step"], run


@pytest.mark.parametrize("compiled", [False, True])
def test_scales_and_skipped_steps_are_those_of_pytorch(compiled: bool) -> None:
    scales, path, steps, run = scaled_steps(compiled)
    np.testing.assert_array_equal(scales, EXPECTED["scales"])
    np.testing.assert_allclose(np.stack(path), EXPECTED["scaled"], rtol=1e-6)
    assert steps.item() == np.isfinite(problem.FACTORS).sum()
    assert not compiled or len(run.versions) == 1


def test_small_gradients_of_half_precision_survive() -> None:
    grads = []
    for scale in (1.0, 2.0**14):
        w = weft.tensor([[1.0]], requires_grad=True)
        optimizer = optim.SGD([w], lr=0.0)
        scaler = optim.GradScaler(init_scale=scale)
        with weft.autocast(weft.float16):
            loss = ((weft.full((1, 1), 1e-4) @ w) * 1e-4).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        grads.append(w.grad.item())
    assert grads[0] == 0.0
    assert grads[1] == pytest.approx(1e-8, rel=0.01)


def model_step(compiled: bool) -> Any:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = optim.AdamW(model.parameters(), lr=0.05)
    scaler = optim.GradScaler(init_scale=256.0, growth_interval=4)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with weft.autocast(weft.bfloat16):
            loss = weft.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        optim.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss

    run: Callable[..., Any] = weft.compile(step) if compiled else step
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(10):
        x = rng.normal(size=(6, 3)).astype(np.float32)
        losses.append(run(weft.tensor(x), weft.tensor((x[:, 0] > 0).astype(np.int64))).item())
    return losses, model, scaler.get_scale(), run


def test_a_whole_step_with_clipping_and_autocast_is_one_graph() -> None:
    expected, eager, scale, _ = model_step(compiled=False)
    found, model, compiled_scale, run = model_step(compiled=True)
    np.testing.assert_allclose(found, expected, rtol=2e-2)
    for p, q in zip(model.parameters(), eager.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), atol=2e-2)
        assert p.dtype == p.grad.dtype == weft.float32
    assert compiled_scale == scale == 1024.0
    assert len(run.versions) == 1


@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_a_compiled_function_may_unscale_alone(wrap: Any) -> None:
    w = weft.ones(2, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.1)
    scaler = optim.GradScaler(init_scale=4.0, growth_interval=2)

    @wrap
    def gradients(x: Any) -> None:
        optimizer.zero_grad()
        scaler.scale((w * x).sum()).backward()
        scaler.unscale_(optimizer)

    for x in (3.0, 2.0, float("inf"), 1.0):
        gradients(weft.tensor(x))
        scaler.step(optimizer)
        scaler.update()
    np.testing.assert_allclose(w.detach().numpy(), [0.4, 0.4], rtol=1e-6)
    assert scaler.get_scale() == 4.0  # doubled after two steps, halved by the third


def test_several_optimizers_and_losses() -> None:
    a, b = weft.ones(1, requires_grad=True), weft.ones(1, requires_grad=True)
    first, second = optim.SGD([a], lr=0.1), optim.SGD([b], lr=0.1)
    scaler = optim.GradScaler(init_scale=4.0)
    losses = scaler.scale([a.sum(), (b * weft.inf).sum()])
    for loss in losses:
        loss.backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert a.item() == pytest.approx(0.9)
    assert b.item() == 1.0
    assert scaler.get_scale() == 2.0


def test_disabled_does_nothing() -> None:
    w = weft.ones(1, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.1)
    scaler = optim.GradScaler(enabled=False)
    loss = w.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert (w.item(), scaler.get_scale(), scaler.is_enabled()) == (pytest.approx(0.9), 1.0, False)


def test_state_is_numbers_and_goes_on() -> None:
    scaler = optim.GradScaler(init_scale=8.0, growth_interval=2)
    w = weft.ones(1, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.0)

    def run(scaler: Any) -> None:
        optimizer.zero_grad()
        scaler.scale(w.sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    run(scaler)
    other = optim.GradScaler()
    other.load_state_dict(scaler.state_dict())
    for s in (scaler, other):
        run(s)
    assert other.state_dict() == scaler.state_dict()
    assert other.get_scale() == 16.0


def step_twice() -> None:
    w = weft.ones(1, requires_grad=True)
    optimizer, scaler = optim.SGD([w], lr=0.1), optim.GradScaler()
    w.sum().backward()
    scaler.step(optimizer)
    scaler.step(optimizer)


def unscale_twice() -> None:
    w = weft.ones(1, requires_grad=True)
    optimizer, scaler = optim.SGD([w], lr=0.1), optim.GradScaler()
    w.sum().backward()
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def without_gradients() -> None:
    optim.GradScaler().step(optim.SGD([weft.ones(1, requires_grad=True)], lr=0.1))


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (step_twice, "there must be one step between updates, got another"),
        (unscale_twice, "gradients must be fresh, got some that were unscaled already"),
        (without_gradients, "the optimizer's parameters must have gradients"),
        (lambda: optim.GradScaler().update(), "update must follow a step"),
        (lambda: optim.GradScaler().step(1), "takes an optimizer, got int"),
        (lambda: optim.GradScaler(init_scale=0.0), "init_scale must be in"),
        (lambda: optim.GradScaler(growth_interval=0), "growth_interval must be in [1, inf), got 0"),
        (lambda: optim.GradScaler().load_state_dict({}), "must have _growth_tracker"),
    ],
)
def test_wrong_use_is_named(run: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        run()
    assert message in str(error.value)
