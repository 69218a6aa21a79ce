"""Training steps as one graph: the same way as eager, captured once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.optim import lr_scheduler


def make(optimizer: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Without a bias before the normalisation: its gradient is rounding alone, which Adam makes large."""
    weft.manual_seed(1)
    first = nn.Linear(3, 8, bias=False)
    model = nn.Sequential(first, nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))
    return model, optimizer(model.parameters())


def step_of(model: Any, optimizer: Any, *, clip: float | None = 1.0) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = weft.cross_entropy(model(x), y)
        loss.backward()
        if clip is not None:
            optim.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss

    return step


def data(i: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(i)
    return weft.tensor(rng.normal(size=(6, 3)).astype(np.float32)), weft.tensor(rng.integers(0, 2, 6))


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "dampened": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: optim.Adam(p, lr=0.05, weight_decay=0.1),
    "amsgrad": lambda p: optim.Adam(p, lr=0.05, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.05),
}


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-4, atol=2e-6)


def same_state(a: Any, b: Any) -> None:
    for (name, x), (other, y) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        assert name == other
        close(x, y)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_step_goes_the_way_of_the_eager_step(name: str) -> None:
    eager_model, eager_optimizer = make(OPTIMIZERS[name])
    model, optimizer = make(OPTIMIZERS[name])
    eager, compiled = step_of(eager_model, eager_optimizer), weft.compile(step_of(model, optimizer))
    for run, schedule in (
        (eager, lr_scheduler.StepLR(eager_optimizer, 2, 0.5)),
        (compiled, lr_scheduler.StepLR(optimizer, 2, 0.5)),
    ):
        weft.manual_seed(3)
        for i in range(6):
            run(*data(i))
            schedule.step()
    same_state(eager_model, model)
    assert len(compiled.versions) == 1


def test_settings_other_than_the_rate_are_guarded() -> None:
    model, optimizer = make(OPTIMIZERS["momentum"])
    compiled = weft.compile(step_of(model, optimizer))
    compiled(*data(0))
    optimizer.param_groups[0]["momentum"] = 0.5
    compiled(*data(1))
    assert len(compiled.versions) == 2


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_state_that_is_loaded_is_noticed(name: str) -> None:
    model, optimizer = make(OPTIMIZERS[name])
    compiled = weft.compile(step_of(model, optimizer))
    for i in range(3):
        compiled(*data(i))
    twin_model, twin = make(OPTIMIZERS[name])
    twin_compiled = weft.compile(step_of(twin_model, twin))
    twin_compiled(*data(0))
    twin_model.load_state_dict(model.state_dict())
    twin.load_state_dict(optimizer.state_dict())
    for run in (compiled, twin_compiled):
        weft.manual_seed(9)
        run(*data(4))
    same_state(model, twin_model)


def test_eager_and_compiled_steps_mix() -> None:
    expected_model, expected_optimizer = make(OPTIMIZERS["adam"])
    model, optimizer = make(OPTIMIZERS["adam"])
    eager = step_of(expected_model, expected_optimizer)
    plain = step_of(model, optimizer)
    compiled = weft.compile(plain)
    weft.manual_seed(4)
    for i in range(6):
        eager(*data(i))
    weft.manual_seed(4)
    for i in range(6):
        (compiled if i % 2 else plain)(*data(i))
    same_state(expected_model, model)


def test_train_and_eval_switch_between_versions() -> None:
    model, optimizer = make(OPTIMIZERS["sgd"])
    compiled = weft.compile(step_of(model, optimizer))
    for mode in (True, False, True, False):
        model.train(mode)
        compiled(*data(0))
    assert len(compiled.versions) == 2
    assert model[1].num_batches_tracked.item() == 2


def test_gradients_accumulate_over_compiled_calls() -> None:
    eager_model, _ = make(OPTIMIZERS["sgd"])
    model, _ = make(OPTIMIZERS["sgd"])

    def accumulate(model: Any) -> Callable[..., None]:
        def run(x: Any, y: Any) -> None:
            (weft.cross_entropy(model(x), y) / 3.0).backward()

        return run

    for run in (accumulate(eager_model), weft.compile(accumulate(model))):
        weft.manual_seed(2)
        for i in range(3):
            run(*data(i))
    for a, b in zip(eager_model.parameters(), model.parameters(), strict=True):
        close(a.grad, b.grad)


def test_a_frozen_parameter_stays() -> None:
    model, optimizer = make(OPTIMIZERS["adam"])
    compiled = weft.compile(step_of(model, optimizer))
    compiled(*data(0))
    model[0].weight.requires_grad_(False)
    before = model[0].weight.numpy().copy()
    steps = [optimizer.state[p]["step"].item() for p in model.parameters()]
    compiled(*data(1))
    np.testing.assert_array_equal(model[0].weight.numpy(), before)
    assert [optimizer.state[p]["step"].item() for p in model.parameters()] == [
        steps[0],
        *[2.0] * (len(steps) - 1),
    ]


def test_several_models_in_one_step() -> None:
    results = []
    for capture in (False, True):
        weft.manual_seed(0)
        one, two = nn.Linear(3, 3), nn.Linear(3, 1)
        first, second = optim.SGD(one.parameters(), lr=0.1), optim.Adam(two.parameters(), lr=0.1)

        def step(x: Any, one=one, two=two, first=first, second=second) -> Any:
            first.zero_grad()
            second.zero_grad()
            loss = (two(one(x).tanh()) ** 2).mean()
            loss.backward()
            first.step()
            second.step()
            return loss

        run = weft.compile(step) if capture else step
        losses = [run(data(i)[0]).item() for i in range(4)]
        results.append(losses)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_inputs_of_the_graph_are_named_after_what_they_are() -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    step = weft.compile(step_of(model, optimizer, clip=None))
    step(*data(0))
    names = [v.name for v in step.graph.inputs]
    assert names[:4] == ["x", "y", "model.weight", "model.bias"]
    assert {"model.weight.exp_avg", "model.bias.exp_avg_sq", "lr"} <= set(names)
    assert "" not in names


def test_arguments_of_a_module_have_the_names_of_its_forward() -> None:
    graph = weft.make_graph(nn.Sequential(nn.Linear(3, 2)))(weft.ones((1, 3)))
    assert [v.name for v in graph.inputs] == ["x", "0.weight", "0.bias"]
    assert weft.parse_graph(graph.to_text()).same(graph)


def _in_a_loop(optimizer: Any, p: Any, q: Any, x: Any, n: Any) -> None:
    optimizer.step()
    p.grad = None
    for _ in range(n):
        optimizer.step()


def _in_a_branch_of_a_loop(optimizer: Any, p: Any, q: Any, x: Any, n: Any) -> None:
    for i in range(n):
        optimizer.step()
        if i > 0:
            q.grad = None


def _with_gradients_of_the_loop(optimizer: Any, p: Any, q: Any, x: Any, n: Any) -> None:
    optimizer.step()
    i = n * 0
    while i < n:
        p.grad, q.grad = None, x * 1.0
        optimizer.step()
        i += 1
    optimizer.step()


@pytest.mark.parametrize("body", [_in_a_loop, _in_a_branch_of_a_loop, _with_gradients_of_the_loop])
@pytest.mark.parametrize("kind", [weft.optim.Adam, weft.optim.NAdam, weft.optim.Adamax])
def test_counts_of_steps_that_part_in_a_loop(body: Any, kind: Any) -> None:
    """Some parameters step where others have no gradient: from there on each has a count of its own."""

    def left(wrap: Any) -> list[Any]:
        p, q = (weft.ones(3, requires_grad=True) for _ in range(2))
        optimizer = kind([p, q], lr=0.01)

        def step(x: Any, n: Any) -> None:
            optimizer.zero_grad()
            ((p * x).sum() + (q * x * x).sum()).backward()
            body(optimizer, p, q, x, n)

        run, found = wrap(step), []
        for n in (1, 2, 0, 3):
            run(weft.tensor([2.0, 1.0, 0.5]), weft.tensor(n))
            found += [p.tolist(), q.tolist()]
        return found

    expected = left(lambda f: f)
    np.testing.assert_allclose(left(lambda f: weft.compile(f, backend="interpret")), expected, rtol=1e-5)
