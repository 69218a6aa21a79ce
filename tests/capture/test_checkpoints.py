"""Checkpoints in compiled functions that run backward themselves: less memory, the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn

Call = Callable[..., Any]
ROWS, WIDTH = 512, 64


def weights(count: int = 8) -> list[weft.Tensor]:
    rng = np.random.default_rng(0)
    made = [(rng.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32) for _ in range(count)]
    return [weft.tensor(w, requires_grad=True) for w in made]


def block(x: Any, w: Any, v: Any) -> Any:
    return weft.tanh(weft.exp(-(weft.gelu(x @ w) ** 2)) @ v)


def plainly(function: Call, *args: Any) -> Any:
    return function(*args)


def deep(call: Call, x: Any, w: Any) -> Any:
    x = call(block, x, w[0], w[1])
    x = call(block, x, w[2], w[3])
    x = call(block, x, w[4], w[5])
    return (call(block, x, w[6], w[7]) ** 2).sum()


def step(call: Call, w: list[weft.Tensor]) -> Any:
    def run(x: Any) -> Any:
        loss = deep(call, x, w)
        loss.backward()
        return loss

    return weft.compile(run)


def rows(requires_grad: bool = False) -> weft.Tensor:
    x = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    return weft.tensor(x, requires_grad=requires_grad)


def products(f: Any) -> int:
    return sum(node.op.name == "matmul" for node in f.lowered.nodes)


def test_training_step_takes_less_memory_and_gives_the_same_gradients() -> None:
    found = []
    for call in (plainly, weft.checkpoint):
        w = weights()
        f = step(call, w)
        loss = f(rows())
        found.append((float(loss), [t.grad.numpy() for t in w], f.lowered.memory().peak, products(f)))
    (loss, grads, memory, count), (again_loss, again_grads, less, more) = found
    assert again_loss == pytest.approx(loss, rel=1e-6)
    for a, b in zip(again_grads, grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert less < 0.75 * memory
    assert more == count + 8  # each product of the forward pass again


def test_gradient_of_a_compiled_function_takes_less_memory() -> None:
    def memory(call: Call) -> int:
        w = [t.detach() for t in weights()]
        f = weft.compile(weft.grad(lambda w, x: deep(call, x, w)))
        f(w, rows())
        peak: int = f.lowered.memory().peak
        return peak

    assert memory(weft.checkpoint) < 0.75 * memory(plainly)


def test_call_on_leaves_alone_is_computed_again() -> None:
    w = weights(2)

    def run(x: Any) -> Any:
        loss = (weft.checkpoint(block, x, w[0], w[1]) ** 2).sum()
        loss.backward()
        return loss

    f = weft.compile(run)
    x = rows(requires_grad=True)
    f(x)
    found = [t.grad.numpy().copy() for t in (x, *w)]
    for t in (x, *w):
        t.grad = None
    run(x)
    for a, t in zip(found, (x, *w), strict=True):
        np.testing.assert_allclose(a, t.grad.numpy(), rtol=1e-4, atol=1e-4)
    assert products(f) > 5


@pytest.mark.parametrize("keyword", [False, True])
def test_arguments_from_outside_are_read_at_each_call(keyword: bool) -> None:
    w, x = weights(2), rows(requires_grad=True)

    def run(x: Any) -> Any:
        given = {"w": w[0], "v": w[1]}
        made = weft.checkpoint(block, x, **given) if keyword else weft.checkpoint(block, x, w[0], w[1])
        loss = (made**2).sum()
        loss.backward()
        return loss

    def gradients(call: Call) -> list[Any]:
        for t in (x, *w):
            t.grad = None
        return [call(x).item(), *[t.grad.numpy().copy() for t in (x, *w)]]

    f = weft.compile(run)
    for _ in range(3):
        for a, b in zip(gradients(f), gradients(run), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        with weft.no_grad():
            for t in w:
                t.mul_(0.5)
    assert all(a.size == 1 for a in f.graph.constants.values())
    assert len(f.versions) == 1


@pytest.mark.parametrize("create_graph", [False, True])
def test_orders_of_gradients(create_graph: bool) -> None:
    def f(x: Any) -> Any:
        y = weft.checkpoint(lambda t: weft.exp(weft.sin(t)) * t, x)
        (g,) = weft.autograd.grad(y.sum(), [x], create_graph=create_graph)
        return weft.autograd.grad((g * g).sum(), [x])[0] if create_graph else g

    x = np.linspace(-1.0, 1.0, 5)
    compiled = weft.compile(f)(weft.tensor(x, requires_grad=True)).numpy()
    eager = f(weft.tensor(x, requires_grad=True)).numpy()
    np.testing.assert_allclose(compiled, eager, rtol=1e-12)
    first = np.exp(np.sin(x)) * (1 + x * np.cos(x))
    if not create_graph:
        np.testing.assert_allclose(compiled, first, rtol=1e-12)


def test_random_draws_are_the_same_the_second_time() -> None:
    layer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), nn.Tanh(), nn.Linear(WIDTH, 1))

    def run(x: Any) -> Any:
        loss = weft.checkpoint(layer, x).sum()
        loss.backward()
        return loss

    found = []
    for f in (run, weft.compile(run)):
        weft.manual_seed(0)
        layer.zero_grad()
        loss = float(f(rows()))
        found.append((loss, [p.grad.numpy().copy() for p in layer.parameters()]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transform", ["vmap", "jvp"])
def test_under_transforms(transform: str) -> None:
    def gradient(x: Any) -> Any:
        return weft.grad(lambda x: weft.checkpoint(lambda t: weft.tanh(t * t), x).sum())(x)

    x = np.linspace(-1.0, 1.0, 6).reshape(2, 3)
    if transform == "vmap":
        f = weft.compile(lambda x: weft.vmap(gradient)(x))
        expected = 2 * x / np.cosh(x * x) ** 2
    else:
        f = weft.compile(lambda x: weft.jvp(gradient, (x,), (weft.ones_like(x),))[1])
        expected = 2 / np.cosh(x * x) ** 2 - 8 * x * x * np.tanh(x * x) / np.cosh(x * x) ** 2
    np.testing.assert_allclose(f(weft.tensor(x)).numpy(), expected, rtol=1e-10)
