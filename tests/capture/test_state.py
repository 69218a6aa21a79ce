"""What compiled code changes outside: parameters, gradients and generators, in whole training steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

BOTH = pytest.mark.parametrize("capture", ["source", "trace"])


class Linear:
    def __init__(self, ins: int, outs: int) -> None:
        self.w = (weft.randn(ins, outs) / ins**0.5).requires_grad_()
        self.b = weft.zeros(outs, requires_grad=True)

    def __call__(self, x: Any) -> Any:
        return x @ self.w + self.b


class Model:
    def __init__(self) -> None:
        self.first = Linear(3, 8)
        self.second = Linear(8, 1)
        self.training = True

    def parameters(self) -> list[Any]:
        return [self.first.w, self.first.b, self.second.w, self.second.b]

    def __call__(self, x: Any) -> Any:
        hidden = weft.tanh(self.first(x))
        if self.training:
            hidden = weft.dropout(hidden, 0.25)
        return self.second(hidden)


class SGD:
    """With momentum, as an optimizer will be: state in a dict, the learning rate read at each call."""

    def __init__(self, params: list[Any], lr: float, momentum: float = 0.9) -> None:
        self.params = params
        self.lr = lr
        self.momentum = momentum
        self.velocity: dict[int, Any] = {}
        self.steps = weft.tensor(0)

    def zero_grad(self) -> None:
        for p in self.params:
            p.zero_grad()

    def step(self) -> None:
        lr = weft.jit.dynamic(lambda: self.lr)
        with weft.no_grad():
            self.steps += 1
            for i, p in enumerate(self.params):
                if i not in self.velocity:
                    self.velocity[i] = weft.zeros_like(p)
                self.velocity[i] = self.momentum * self.velocity[i] + p.grad
                p -= lr * self.velocity[i]


def data() -> tuple[Any, Any]:
    weft.manual_seed(7)
    return weft.randn(16, 3), weft.randn(16, 1)


def seeded(make: Callable[[], Any]) -> Any:
    weft.manual_seed(3)
    return make()


def snapshot(tensors: list[Any]) -> list[Any]:
    return [t.detach().numpy().copy() for t in tensors]


def assert_close(a: list[Any], b: list[Any], tolerance: float = 1e-6) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def grads_of(tensors: list[Any]) -> list[Any]:
    return [None if t.grad is None else t.grad.numpy() for t in tensors]


# Whole training steps


@BOTH
def test_training_step_follows_the_eager_trajectory(capture: str) -> None:
    x, y = data()

    def trajectory(wrap: Callable[[Any], Any]) -> Any:
        model = seeded(Model)
        optimizer = SGD(model.parameters(), 0.05)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        weft.manual_seed(11)
        losses = []
        for i in range(6):
            if i == 4:
                optimizer.lr = 0.01
            losses.append(run(x, y).item())
        end = snapshot(model.parameters()), grads_of(model.parameters()), optimizer.steps.item()
        return losses, end, weft.get_rng_state().tolist(), run

    losses, (params, grads, steps), state, _ = trajectory(lambda f: f)
    got = trajectory(lambda f: weft.compile(f, capture=capture))
    assert_close(got[0], losses)
    assert_close(got[1][0], params)
    assert_close(got[1][1], grads)
    assert (got[1][2], got[2]) == (steps, state)
    assert len(got[3].versions) == 2  # the first call finds no momentum, the others do; the rate is read


def test_step_written_by_hand_is_the_eager_one() -> None:
    x, y = data()

    def run(wrap: Callable[[Any], Any]) -> Any:
        layer = seeded(lambda: Linear(3, 1))

        def step(x: Any, y: Any) -> Any:
            for p in (layer.w, layer.b):
                p.grad = None
            loss = weft.mse_loss(layer(x), y)
            loss.backward()
            with weft.no_grad():
                for p in (layer.w, layer.b):
                    p -= 0.1 * p.grad
            return loss

        step = wrap(step)
        return [step(x, y).item() for _ in range(4)], snapshot([layer.w, layer.b])

    eager, interpreted = run(lambda f: f), run(lambda f: weft.compile(f, passes=[], backend="interpret"))
    assert eager[0] == interpreted[0]
    assert_close(eager[1], interpreted[1], 0.0)
    losses, parameters = run(lambda f: weft.compile(f, passes=[]))
    np.testing.assert_allclose(losses, eager[0], rtol=2e-6)
    assert_close(eager[1], parameters, 2e-6)


def test_gradients_accumulate_over_calls() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    @weft.compile
    def add(x: Any) -> None:
        (w * x).sum().backward()

    for k in range(1, 4):
        add(weft.ones(2))
        assert w.grad.tolist() == [float(k)] * 2
    assert len(add.versions) == 2  # with and without a gradient to add to
    (w * 10.0).sum().backward()
    add(weft.ones(2))
    assert w.grad.tolist() == [14.0, 14.0]
    w.zero_grad()
    add(weft.ones(2))
    assert w.grad.tolist() == [1.0, 1.0]
    assert len(add.versions) == 2


def test_gradient_that_is_cleared_first_needs_no_guard() -> None:
    w = weft.tensor([1.0], requires_grad=True)

    @weft.compile
    def step(x: Any) -> None:
        w.zero_grad()
        (w * x).sum().backward()

    step(weft.ones(1))
    step(weft.ones(1))
    w.grad = None
    step(weft.ones(1))
    assert (w.grad.item(), len(step.versions)) == (1.0, 1)  # type: ignore[attr-defined]


def test_gradient_of_before_stays_as_it_was() -> None:
    w = weft.tensor([1.0], requires_grad=True)

    @weft.compile
    def step(x: Any) -> None:
        (w * x).sum().backward()

    step(weft.ones(1))
    first = w.grad
    step(weft.ones(1))
    assert (first.item(), w.grad.item()) == (1.0, 2.0)


def test_zero_grad_alone_clears_gradients() -> None:
    w = weft.tensor([1.0], requires_grad=True)
    clear = weft.compile(lambda x: (w.zero_grad(), x * 2.0)[1])
    for _ in range(2):
        (w * 2.0).sum().backward()
        assert clear(weft.ones(1)).item() == 2.0
        assert w.grad is None


@BOTH
def test_clipping_by_norm_and_a_schedule(capture: str) -> None:
    x, y = data()

    def run(wrap: Callable[[Any], Any]) -> Any:
        model = seeded(Model)
        model.training = False
        optimizer = SGD(model.parameters(), 0.5)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).sum()
            loss.backward()
            norm = sum((p.grad * p.grad).sum() for p in model.parameters()).sqrt()
            scale = weft.minimum(1.0 / (norm + 1e-6), weft.tensor(1.0))
            for p in model.parameters():
                p.grad = p.grad * scale
            optimizer.step()
            return loss, norm

        step = wrap(step)
        out = []
        for i in range(5):
            optimizer.lr = 0.5 / (i + 1)
            out.append([t.item() for t in step(x, y)])
        return out, snapshot(model.parameters())

    eager, compiled = run(lambda f: f), run(lambda f: weft.compile(f, capture=capture))
    np.testing.assert_allclose(eager[0], compiled[0], rtol=1e-5)
    assert_close(eager[1], compiled[1], 1e-5)


def test_train_and_eval_switch_and_mixed_eager_and_compiled_use() -> None:
    x, y = data()

    def run(wrap: Callable[[Any], Any]) -> Any:
        model = seeded(Model)
        optimizer = SGD(model.parameters(), 0.05)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled, forward = wrap(step), wrap(model)
        weft.manual_seed(5)
        out = []
        for i in range(6):
            model.training = i % 2 == 0
            out.append((step if i == 3 else compiled)(x, y).item())
            model.training = False
            out.append(forward(x).sum().item())
        return out, snapshot(model.parameters())

    eager, mixed = run(lambda f: f), run(weft.compile)
    np.testing.assert_allclose(eager[0], mixed[0], rtol=1e-5)
    assert_close(eager[1], mixed[1], 1e-5)


def test_several_models_in_one_step() -> None:
    x, _ = data()

    def run(wrap: Callable[[Any], Any]) -> Any:
        one, two = seeded(lambda: (Linear(3, 2), Linear(2, 3)))
        params = [one.w, one.b, two.w, two.b]

        def step(x: Any) -> Any:
            for p in params:
                p.zero_grad()
            code = one(x)
            loss = ((two(weft.tanh(code)) - x) ** 2).mean()
            other = (code**2).mean()
            loss.backward(retain_graph=True)
            other.backward()
            with weft.no_grad():
                for p in params:
                    p -= 0.1 * p.grad
            return loss, other

        step = wrap(step)
        return [[t.item() for t in step(x)] for _ in range(4)], snapshot(params)

    eager, compiled = run(lambda f: f), run(weft.compile)
    np.testing.assert_allclose(eager[0], compiled[0], rtol=1e-5)
    assert_close(eager[1], compiled[1])


def test_gradient_penalty_inside_a_step() -> None:
    w = weft.tensor([1.0, -2.0], requires_grad=True)

    def loss(x: Any) -> Any:
        w.zero_grad()
        x = x.detach().requires_grad_()
        out = weft.sin(x * w).sum()
        (g,) = weft.autograd.grad(out, x, create_graph=True)
        total = out + (g * g).sum()
        total.backward()
        return total

    x = weft.tensor([0.5, 0.25])
    expected, grad = loss(x), w.grad
    w.zero_grad()
    got = weft.compile(loss)(x)
    np.testing.assert_allclose(got.item(), expected.item(), rtol=1e-6)
    np.testing.assert_allclose(w.grad.numpy(), grad.numpy(), rtol=1e-6)


# Random generators


def test_random_numbers_are_those_of_eager_code() -> None:
    own = weft.Generator(5)

    def f(x: Any) -> Any:
        return x + weft.rand(3), weft.rand(2, generator=own), weft.dropout(x, 0.5), weft.randn(2)

    def draws(function: Any) -> Any:
        weft.manual_seed(1)
        own.manual_seed(5)
        runs = [function(weft.ones(3)) for _ in range(3)]
        exact = [[t.tolist() for t in run[:3]] for run in runs]
        states = weft.get_rng_state().tolist(), own.get_state().tolist()
        return (exact, *states), [run[3].tolist() for run in runs]

    compiled = weft.compile(f)
    (found, normal), (expected, expected_normal) = draws(compiled), draws(f)
    assert found == expected
    np.testing.assert_allclose(normal, expected_normal, rtol=2e-6)
    assert len(compiled.versions) == 1


def test_seeding_and_forking_inside_compiled_code() -> None:
    def f(x: Any) -> Any:
        weft.manual_seed(3)
        a = weft.rand(2)
        with weft.fork_rng():
            b = weft.rand(2)
        return a + x, b, weft.rand(2)

    def run(function: Any) -> Any:
        weft.manual_seed(1)
        return [t.tolist() for _ in range(2) for t in function(weft.zeros(2))], weft.get_rng_state().tolist()

    assert run(weft.compile(f)) == run(f)


def test_random_numbers_in_a_loop_of_the_graph_are_those_of_eager_code() -> None:
    def f(x: Any) -> Any:
        for _ in range(5):
            x = x + weft.rand(2)
        return x

    def run(function: Any) -> Any:
        weft.manual_seed(1)
        return function(weft.zeros(2)).tolist(), weft.get_rng_state().tolist()

    assert run(weft.compile(f)) == run(f)


# Numbers read at each call


def test_dynamic_number_keeps_the_precision_and_dtype_of_python_numbers() -> None:
    settings = {"lr": 0.1, "n": 2}

    def f(x: Any) -> Any:
        lr, n = weft.jit.dynamic(lambda: settings["lr"]), weft.jit.dynamic(lambda: settings["n"])
        return x * lr, (1.0 - lr) ** n * x, x + n

    compiled = weft.compile(f)
    for dtype in (weft.float32, weft.float64, weft.int64):
        for lr in (0.1, 0.3):
            settings["lr"] = lr
            for a, b in zip(f(weft.ones(2, dtype=dtype)), compiled(weft.ones(2, dtype=dtype)), strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-7)
    assert len(compiled.versions) == 3
    settings["n"] = 0.5  # type: ignore[assignment]
    with pytest.raises(weft.errors.CaptureError, match=r"dynamic: a number must stay an int, got 0\.5"):
        compiled(weft.ones(2))


def test_dynamic_needs_a_function() -> None:
    with pytest.raises(weft.errors.ArgumentError, match="takes a function that gives a number, got float"):
        weft.jit.dynamic(0.1)
