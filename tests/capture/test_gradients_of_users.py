"""Gradients that ops do not tell hold where compiled code is transformed: of users, and beside changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import GradientError

Loss = Callable[[Any], Any]


class Odd(weft.Function):
    """A square whose gradient is said to be ten times its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 10.0 * x


def by_function(x: Any) -> Any:
    return (Odd.apply(x) * x).sum()


def by_hook(x: Any) -> Any:
    y = x * x
    y.register_hook(lambda g: g * 5.0)
    return (y * y).sum()


def by_hook_on_a_node(x: Any) -> Any:
    y = x * x
    y.grad_fn.register_hook(lambda into, out: tuple(None if g is None else g * 3.0 for g in into))
    return y.sum()


def beside_a_change_under_no_grad(x: Any) -> Any:
    y = x * 2.0
    with weft.no_grad():
        y.mul_(3.0)
        y[0] = 1.0
    return (y * x).sum()


def beside_a_change_of_data(x: Any) -> Any:
    y = x * 1.5
    y.data.add_(1.0)
    return (y * y).sum()


def beside_a_change_of_what_is_detached(x: Any) -> Any:
    y = x * x
    y.detach().mul_(2.0)
    return (y * x).sum()


UNTOLD = [
    by_function,
    by_hook,
    by_hook_on_a_node,
    beside_a_change_under_no_grad,
    beside_a_change_of_data,
    beside_a_change_of_what_is_detached,
]
WAYS: dict[str, Callable[[Loss], Any]] = {
    "grad": lambda f: weft.grad(f)(weft.tensor([1.0, -2.0])),
    "vmap of grad": lambda f: weft.vmap(weft.grad(f))(weft.tensor([[1.0, -2.0], [0.5, 3.0]])),
    "vmap of value_and_grad": lambda f: weft.vmap(weft.value_and_grad(f))(weft.tensor([[1.0, -2.0]]))[1],
    "jacrev": lambda f: weft.jacrev(f)(weft.tensor([1.0, -2.0])),
    "vjp": lambda f: weft.vjp(f, weft.tensor([1.0, -2.0]))[1](weft.tensor(2.0)),
    "with a graph": lambda f: _with_graph(f),
    "compiled": lambda f: weft.compile(weft.grad(f))(weft.tensor([1.0, -2.0])),
}


def _with_graph(f: Loss) -> Any:
    x = weft.tensor([1.0, -2.0], requires_grad=True)
    (g,) = weft.autograd.grad(f(x), x, create_graph=True)
    return g.detach()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("f", UNTOLD, ids=lambda f: f.__name__)
def test_gradient_is_that_of_eager_code(f: Loss, way: str) -> None:
    eager, compiled = (WAYS[way](g) for g in (f, weft.compile(f)))
    for x, y in zip(weft.tree_leaves(eager), weft.tree_leaves(compiled), strict=True):
        np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=1e-6)


def test_forward_mode_is_that_of_eager_code() -> None:
    given = ((weft.tensor([1.0, -2.0]),), (weft.tensor([1.0, 0.5]),))
    for x, y in zip(weft.jvp(by_function, *given), weft.jvp(weft.compile(by_function), *given), strict=True):
        np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=1e-6)


@pytest.mark.parametrize("f", [by_function, by_hook], ids=lambda f: f.__name__)
def test_second_gradients_are_refused(f: Loss) -> None:
    x = weft.tensor([1.0, -2.0], requires_grad=True)
    (g,) = weft.autograd.grad(weft.compile(f)(x), x, create_graph=True)
    with pytest.raises(GradientError, match="must be differentiated once, got twice"):
        g.sum().backward()


def test_hooks_around_a_backward_of_the_code_itself_are_in_its_graph() -> None:
    def f(x: Any) -> Any:
        w = x.detach().requires_grad_()
        y = w * w
        y.register_hook(lambda g: g * 5.0)
        y.sum().backward()
        return (w.grad * x).sum()

    x = weft.tensor([1.0, -2.0], requires_grad=True)
    for run in (f, weft.compile(f)):
        (g,) = weft.autograd.grad(run(x), x, create_graph=True)
        np.testing.assert_allclose(g.detach().numpy(), [10.0, -20.0], rtol=1e-6)


@pytest.mark.parametrize("f", UNTOLD[3:], ids=lambda f: f.__name__)
def test_second_gradients_beside_changes_are_those_of_eager_code(f: Loss) -> None:
    found = []
    for run in (f, weft.compile(f), weft.aot(f, weft.TensorType((2,), weft.float32))):
        x = weft.tensor([1.0, -2.0], requires_grad=True)
        (g,) = weft.autograd.grad(run(x), x, create_graph=True)
        found.append(weft.autograd.grad((g * g).sum(), x)[0].numpy())
    for second in found[1:]:
        np.testing.assert_allclose(second, found[0], rtol=1e-6)


def test_gradients_after_a_parameter_was_changed_are_those_of_eager_code() -> None:
    def left(way: Callable[[Any], Any]) -> Any:
        p = weft.tensor([1.0, 2.0], requires_grad=True)

        def f(x: Any) -> Any:
            with weft.no_grad():
                p.mul_(3.0)
            return (p * p * x).sum()

        run = way(f)
        run(weft.tensor([1.0, -1.0])).backward()
        found = [p.grad.numpy(), weft.vmap(run)(weft.tensor([[1.0, 0.0], [0.0, 1.0]])).detach().numpy()]
        return [*found, p.detach().numpy()]

    for found, expected in zip(left(weft.compile), left(lambda f: f), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
