"""A whole training step, written as everyone writes it, is one graph and follows the eager trajectory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim


class Net(nn.Module):
    """A small network with everything that makes capture hard: dropout, running statistics, a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16, bias=False)  # behind it, its gradient would be rounding alone
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.25)
        self.second = nn.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        h = weft.relu(self.norm(self.first(x)))
        if weft.abs(h).max() > 4:
            h = h * 0.5
        return self.second(self.drop(h))


def batches(count: int) -> list[tuple[weft.Tensor, weft.Tensor]]:
    rng = np.random.default_rng(0)
    return [
        (weft.tensor(rng.normal(size=(8, 6)).astype(np.float32)), weft.tensor(rng.integers(0, 3, 8)))
        for _ in range(count)
    ]


Build = Callable[[Any], Any]


def train(wrap: Build, make_optimizer: Callable[[Any], Any], steps: int = 8) -> tuple[list[float], Any, Any]:
    """Losses, the network and the step function, after training with the step wrapped."""
    weft.manual_seed(0)
    net = Net()
    optimizer = make_optimizer(net.parameters())
    schedule = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = weft.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss

    run = wrap(step)
    losses = []
    for x, y in batches(steps):
        losses.append(run(x, y).item())
        schedule.step()
    return losses, net, run


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_compiled_training_follows_the_eager_trajectory(name: str) -> None:
    losses, net, _ = train(lambda step: step, OPTIMIZERS[name])
    compiled_losses, compiled_net, _ = train(weft.compile, OPTIMIZERS[name])
    np.testing.assert_allclose(compiled_losses, losses, rtol=2e-5)
    for (key, eager), other in zip(net.state_dict().items(), compiled_net.state_dict().values(), strict=True):
        np.testing.assert_allclose(other.numpy(), eager.numpy(), rtol=2e-4, atol=2e-6, err_msg=key)


def test_gradients_and_random_state_are_as_after_eager_steps() -> None:
    _, net, _ = train(lambda step: step, OPTIMIZERS["adam"])
    state = weft.get_rng_state()
    _, compiled, _ = train(weft.compile, OPTIMIZERS["adam"])
    assert weft.get_rng_state().tolist() == state.tolist()
    for p, q in zip(net.parameters(), compiled.parameters(), strict=True):
        np.testing.assert_allclose(q.grad.numpy(), p.grad.numpy(), rtol=2e-4, atol=2e-6)


def test_learning_rate_schedule_does_not_capture_again() -> None:
    _, _, step = train(weft.compile, OPTIMIZERS["adam"], steps=10)
    assert len(step.versions) <= 2  # the first step may create the optimizer's state


def test_step_is_one_graph_with_updates() -> None:
    _, net, step = train(weft.compile, OPTIMIZERS["sgd"], steps=2)
    graph = step.graph
    graph.verify()
    assert len(graph.updates) >= len(list(net.parameters())) + 2


def test_eval_switch_is_noticed() -> None:
    weft.manual_seed(1)
    net = Net()
    predict = weft.compile(lambda x: net(x))
    (x, _), *_ = batches(1)
    training = predict(x)
    net.eval()
    np.testing.assert_allclose(predict(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert not np.allclose(training.detach().numpy(), predict(x).detach().numpy())


def test_gradient_accumulation_over_two_compiled_calls() -> None:
    w = weft.ones(3, requires_grad=True)

    @weft.compile
    def accumulate(x: Any) -> Any:
        loss = (w * x).sum()
        loss.backward()
        return loss

    for k in (1.0, 2.0, 4.0):
        accumulate(weft.full((3,), k))
    assert w.grad.tolist() == [7, 7, 7]


def test_two_models_in_one_step() -> None:
    def run(wrap: Build) -> list[Any]:
        weft.manual_seed(3)
        one, two = nn.Linear(4, 4), nn.Linear(4, 1)
        first, second = optim.SGD(one.parameters(), lr=0.1), optim.Adam(two.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            first.zero_grad()
            second.zero_grad()
            loss = (two(weft.tanh(one(x))) ** 2).mean()
            loss.backward()
            first.step()
            second.step()
            return loss

        run = wrap(step)
        return [run(weft.ones((2, 4)) * k).item() for k in range(5)]

    np.testing.assert_allclose(run(weft.compile), run(lambda f: f), rtol=1e-5)
