"""What people type first, after the tutorials of PyTorch: loops by hand, by modules and by optimizers.

Each program trains at once and compiled; both must go the same way, and the loss must fall.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn, optim

RNG = np.random.default_rng(3)


def test_gradients_of_a_first_graph() -> None:
    x = weft.ones(2, 2, requires_grad=True)
    y = x + 2
    out = (y * y * 3).mean()
    out.backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.full((2, 2), 4.5))
    assert not y.detach().requires_grad
    with weft.no_grad():
        assert not (x**2).requires_grad


def run_both(make: Callable[[], tuple[Callable[..., Any], list[Any]]], steps: int, *args: Any) -> None:
    """Train by a step at once and compiled: the losses and the weights go the same way, downwards."""
    losses, weights = [], []
    for wrap in (lambda f: f, weft.compile):
        weft.manual_seed(1)
        step, trained = make()
        step = wrap(step)
        losses.append([float(step(*args)) for _ in range(steps)])
        weights.append([w.detach().numpy() for w in trained])
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)
    assert losses[0][-1] < 0.9 * losses[0][0]
    for eager, compiled in zip(*weights, strict=True):
        np.testing.assert_allclose(eager, compiled, rtol=2e-2, atol=1e-4)


POINTS = weft.linspace(-math.pi, math.pi, 500)
WAVE = weft.sin(POINTS)


def gradients_by_hand() -> tuple[Callable[..., Any], list[Any]]:
    a, b, c, d = (weft.tensor(v) for v in (0.3, -0.2, 0.1, 0.4))

    def step(x: Any, y: Any) -> Any:
        nonlocal a, b, c, d
        predicted = a + b * x + c * x**2 + d * x**3
        loss = ((predicted - y) ** 2).sum()
        slope = 2.0 * (predicted - y)
        a -= 1e-6 * slope.sum()
        b -= 1e-6 * (slope * x).sum()
        c -= 1e-6 * (slope * x**2).sum()
        d -= 1e-6 * (slope * x**3).sum()
        return loss

    return step, [a, b, c, d]


def gradients_by_backward() -> tuple[Callable[..., Any], list[Any]]:
    weights = [weft.tensor(v, requires_grad=True) for v in (0.3, -0.2, 0.1, 0.4)]
    a, b, c, d = weights

    def step(x: Any, y: Any) -> Any:
        loss = (a + b * x + c * x**2 + d * x**3 - y).pow(2).sum()
        loss.backward()
        with weft.no_grad():
            for w in weights:
                w -= 1e-6 * w.grad
                w.grad = None
        return loss.detach()

    return step, weights


def data_attribute() -> tuple[Callable[..., Any], list[Any]]:
    weights = [weft.tensor(v, requires_grad=True) for v in (0.3, -0.2)]

    def step(x: Any, y: Any) -> Any:
        loss = (weights[0] + weights[1] * x - y).pow(2).mean()
        loss.backward()
        for w in weights:
            w.data.sub_(0.05 * w.grad.data)
            w.grad.zero_()
        return loss.detach()

    return step, weights


class Cubic(nn.Module):
    """A polynomial that uses its last weight once more, or not, as the data say."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(weft.tensor(0.3))
        self.b = nn.Parameter(weft.tensor(-0.2))
        self.d = nn.Parameter(weft.tensor(0.1))

    def forward(self, x: Any) -> Any:
        y = self.a + self.b * x + self.d * x**3
        if x.sum() > 0.0:
            y = y + self.d * x**5 * 1e-3
        return y


def module_and_optimizer() -> tuple[Callable[..., Any], list[Any]]:
    model = Cubic()
    optimizer = optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    criterion = nn.MSELoss(reduction="sum")

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, list(model.parameters())


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    "make", [gradients_by_hand, gradients_by_backward, data_attribute, module_and_optimizer]
)
def test_a_polynomial_is_fitted(make: Callable[[], Any]) -> None:
    run_both(make, 60, POINTS, WAVE)


class Net(nn.Module):
    """A small network of convolutions for images of 20 by 20."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 5)
        self.conv2 = nn.Conv2d(4, 6, 3)
        self.fc1 = nn.Linear(6 * 3 * 3, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = weft.flatten(x, 1)
        return self.fc2(F.relu(self.fc1(x)))


def update_by_hand() -> tuple[Callable[..., Any], list[Any]]:
    net = Net()
    criterion = nn.MSELoss()

    def step(images: Any, wanted: Any) -> Any:
        net.zero_grad()
        loss = criterion(net(images), wanted)
        loss.backward()
        for f in net.parameters():
            f.data.sub_(f.grad.data * 0.05)
        return loss.detach()

    return step, list(net.parameters())


def test_a_network_of_convolutions_is_trained_by_hand() -> None:
    images = weft.tensor(RNG.standard_normal((2, 1, 20, 20)).astype("f4"))
    wanted = weft.tensor(RNG.standard_normal((2, 10)).astype("f4"))
    run_both(update_by_hand, 12, images, wanted)


PIXELS = weft.tensor(RNG.standard_normal((64, 30)).astype("f4"))
DIGITS = weft.tensor(np.argmax(PIXELS.numpy() @ RNG.standard_normal((30, 5)), axis=1))


def log_softmax_by_hand() -> tuple[Callable[..., Any], list[Any]]:
    weights = weft.randn(30, 5) / math.sqrt(30)
    weights.requires_grad_()
    bias = weft.zeros(5, requires_grad=True)

    def model(x: Any) -> Any:
        x = x @ weights + bias
        return x - x.exp().sum(-1).log().unsqueeze(-1)

    def step(x: Any, y: Any) -> Any:
        total = weft.tensor(0.0)
        for i in range((len(x) - 1) // 16 + 1):
            xb, yb = x[i * 16 : i * 16 + 16], y[i * 16 : i * 16 + 16]
            loss = -model(xb)[weft.arange(yb.shape[0]), yb].mean()
            loss.backward()
            with weft.no_grad():
                weights.sub_(weights.grad * 0.5)
                bias.sub_(bias.grad * 0.5)
                weights.grad.zero_()
                bias.grad.zero_()
                total += loss
        return total

    return step, [weights, bias]


class Logistic(nn.Module):
    """The same by parts that are there."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(30, 5)

    def forward(self, x: Any) -> Any:
        return self.lin(x)


def parameters_by_hand() -> tuple[Callable[..., Any], list[Any]]:
    model = Logistic()

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with weft.no_grad():
            for p in model.parameters():
                p -= p.grad * 0.5
            model.zero_grad()
        return loss.detach()

    return step, list(model.parameters())


@pytest.mark.parametrize("make", [log_softmax_by_hand, parameters_by_hand])
def test_digits_are_told_apart(make: Callable[[], Any]) -> None:
    run_both(make, 10, PIXELS, DIGITS)
