"""Moving averages of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.optim import problem
from tests.optim.expected import EXPECTED
from weft import nn, optim

X, Y = weft.tensor(problem.X), weft.tensor(problem.Y)


def start() -> tuple[list[Any], Any]:
    params = [weft.tensor(p, requires_grad=True) for p in problem.START]
    return params, optim.SGD(params, lr=0.1)


def change(params: list[Any], optimizer: Any, ema: Any) -> None:
    optimizer.zero_grad()
    problem.loss_of(params, X, Y).backward()
    optimizer.step()
    ema.update()


def flat(tensors: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([t.detach().numpy().ravel() for t in tensors])


def test_averages_are_those_of_pytorch() -> None:
    params, optimizer = start()
    ema = optim.EMA(params, decay=0.9)
    for _ in range(20):
        change(params, optimizer, ema)
    np.testing.assert_allclose(flat(ema.state_dict()["averages"].values()), EXPECTED["average"], rtol=1e-9)


def test_compiled_updates_are_one_graph_and_give_the_same_averages() -> None:
    found = []
    for compiled in (False, True):
        params, optimizer = start()
        ema = optim.EMA(params, decay=0.9, warmup=True)

        def step(params: Any = params, optimizer: Any = optimizer, ema: Any = ema) -> None:
            change(params, optimizer, ema)

        run = weft.compile(step) if compiled else step
        for i in range(12):
            ema.decay = 0.5 + 0.04 * i
            run()
        found.append(flat(ema.state_dict()["averages"].values()))
        assert ema.state_dict()["updates"] == 12
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    assert len(run.versions) == 1  # type: ignore[attr-defined]


def test_warmup_keeps_less_at_the_start() -> None:
    w = weft.zeros(1)
    ema = optim.EMA([w], decay=0.99, warmup=True)
    expected = 0.0
    for n in range(1, 6):
        w.data = weft.full((1,), float(n))
        ema.update()
        kept = min(0.99, (1 + n) / (10 + n))
        expected = expected * kept + n * (1 - kept)
    assert ema.state_dict()["averages"]["0"].item() == pytest.approx(expected, rel=1e-5)


def test_applied_averages_are_in_the_model_until_the_block_ends() -> None:
    model = nn.Linear(2, 2)
    ema = optim.EMA(model, decay=0.0)
    before = model.weight.detach().numpy().copy()
    nn.init.constant_(model.weight, 3.0)
    with ema.applied():
        np.testing.assert_array_equal(model.weight.detach().numpy(), before)
        with pytest.raises(weft.errors.DomainError, match="must have its own values, got the averages"):
            ema.update()
    assert (model.weight == 3.0).all()


def test_applied_averages_leave_when_the_block_fails() -> None:
    w = weft.ones(2)
    ema = optim.EMA([w], decay=0.5)
    w.data = weft.zeros(2)
    with pytest.raises(RuntimeError), ema.applied():
        raise RuntimeError
    assert (w == 0.0).all()


def test_swapping_twice_changes_nothing_even_in_half_precision() -> None:
    w = weft.tensor([1.0, 2.0], dtype=weft.bfloat16)
    ema = optim.EMA([w], decay=0.9)
    w.data = weft.tensor([1.5, -3.0], dtype=weft.bfloat16)
    ema.update()
    average = ema.state_dict()["averages"]["0"].numpy().copy()
    ema.swap()
    assert w.dtype == weft.bfloat16
    np.testing.assert_allclose(w.float().numpy(), average, rtol=1e-2)
    ema.swap()
    assert w.float().numpy().tolist() == [1.5, -3.0]
    np.testing.assert_array_equal(ema.state_dict()["averages"]["0"].numpy(), average)
    np.testing.assert_allclose(average, [1.05, 1.5], rtol=1e-6)


def test_averages_go_into_another_model_with_its_buffers() -> None:
    make = lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))  # noqa: E731 - short
    model, other = make(), make()
    ema = optim.EMA(model, decay=0.5)
    model(weft.randn(8, 2))
    ema.update()
    ema.copy_to(other)
    assert (other[1].running_mean == model[1].running_mean).all()
    assert other[1].num_batches_tracked.item() == 1
    assert (other[0].weight == model[0].weight).all()


def test_state_loaded_in_mid_run_goes_on_bitwise() -> None:
    params, optimizer = start()
    ema = optim.EMA(params, decay=0.9, warmup=True)
    for _ in range(5):
        change(params, optimizer, ema)
    state = ema.state_dict()
    held = {name: t.numpy().copy() for name, t in state["averages"].items()}
    other = optim.EMA(params, decay=0.1, warmup=True)
    other.load_state_dict(state)
    for _ in range(5):
        change(params, optimizer, ema)
        other.update()
    for name, t in ema.state_dict()["averages"].items():
        np.testing.assert_array_equal(other.state_dict()["averages"][name].numpy(), t.numpy())
        np.testing.assert_array_equal(state["averages"][name].numpy(), held[name])


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: optim.EMA([weft.ones(1)], decay=1.0), "decay must be in [0, 1), got 1.0"),
        (lambda: optim.EMA([], decay=0.5), "the model must have parameters, got none"),
        (lambda: optim.EMA([1.0]), "takes a module or tensors, got float"),
        (lambda: optim.EMA([weft.ones(1)]).load_state_dict({}), "must have decay, updates and averages"),
        (
            lambda: optim.EMA([weft.ones(1)]).copy_to([weft.ones(2)]),
            "shapes of 0 must agree, got (2,) and (1,)",
        ),
        (lambda: optim.EMA([weft.ones(1)]).copy_to([]), "missing ['0']"),
    ],
)
def test_wrong_arguments_are_named(run: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        run()
    assert message in str(error.value)
