"""Transforms in compiled code over functions that change tensors in place; compiled code in checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

T = weft.tensor
X, V = T([1.0, 2.0, 3.0]), T([1.0, 0.0, 2.0])


def changed(x: Any) -> Any:
    y = x * 1
    y += x
    y[0] = x[1] * 3
    return y * y


def total(x: Any) -> Any:
    return changed(x).sum()


def element(v: Any) -> Any:
    v = v * 1
    v += 1
    v *= v
    return v


def branching(x: Any) -> Any:
    if x.sum() > 0:
        return (x * x * x).sum()
    return (x * x * 3).sum()


def changed_in_branch(x: Any) -> Any:
    y = x * 1
    if x.sum() > 0:
        y *= x
    else:
        y += 2
    return (y * y).sum()


def by_view(x: Any) -> Any:
    y = x * 2
    y[1:].add_(x[0])
    return (y * y).sum()


def in_loop(x: Any) -> Any:
    y = x * 1
    for _ in range(3):
        y *= x
    return y.sum()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda x: weft.vmap(element)(x),
    "vmap of rows": lambda x: weft.vmap(changed)(weft.stack([x, x * 2])),
    "jvp": lambda x: weft.jvp(total, (x,), (V,))[1],
    "jvp of rows": lambda x: weft.jvp(changed, (x,), (V,))[1],
    "jacfwd": lambda x: weft.jacfwd(changed)(x),
    "jacrev": lambda x: weft.jacrev(changed)(x),
    "hessian": lambda x: weft.hessian(total)(x),
    "grad": lambda x: weft.grad(total)(x),
    "vmap of grad": lambda x: weft.vmap(weft.grad(total))(weft.stack([x, x * 2])),
    "grad of vmap": lambda x: weft.grad(lambda z: weft.vmap(element)(z).sum())(x),
    "jvp of a view": lambda x: weft.jvp(by_view, (x,), (V,))[1],
    "hessian of a view": lambda x: weft.hessian(by_view)(x),
    "jvp of a branch": lambda x: weft.jvp(branching, (x,), (V,))[1],
    "jacfwd of a branch": lambda x: weft.jacfwd(branching)(x),
    "hessian of a branch": lambda x: weft.hessian(branching)(x),
    "jvp of a change in a branch": lambda x: weft.jvp(changed_in_branch, (x,), (V,))[1],
    "hessian of a change in a branch": lambda x: weft.hessian(changed_in_branch)(x),
    "jvp of a loop": lambda x: weft.jvp(in_loop, (x,), (V,))[1],
    "hessian of a loop": lambda x: weft.hessian(in_loop)(x),
    "vmap of a loop": lambda x: weft.vmap(in_loop)(weft.stack([x, x * 2])),
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_changes_in_place_inside_transforms(name: str, capture: str) -> None:
    f = PROGRAMS[name]
    compiled = weft.compile(f, capture=capture)
    for scale in (1.0, -2.0, 0.5):
        given = X * scale
        np.testing.assert_allclose(compiled(given).numpy(), f(given).numpy(), rtol=1e-4, atol=1e-5)
        assert given.tolist() == (X * scale).tolist()


def smooth(x: Any) -> Any:
    return weft.tanh(x) * x


def dropped(x: Any) -> Any:
    return weft.dropout(x, 0.5) * x


def chosen(x: Any) -> Any:
    if x.sum() > 0:
        return x * x
    return x * 3


@pytest.mark.parametrize("f", [smooth, dropped, chosen, changed], ids=lambda f: f.__name__)
def test_a_compiled_function_inside_a_checkpoint(f: Callable[[Any], Any]) -> None:
    compiled = weft.compile(f)
    found = []
    for g in (f, compiled, lambda z: compiled(z * 1) * 1):
        w = T([1.0, 2.0, 3.0], requires_grad=True)
        weft.manual_seed(0)
        for scale in (1.0, -2.0, 0.5):
            weft.checkpoint(g, X * scale * w).sum().backward()
        found.append(w.grad.numpy())
    for one in found[1:]:
        np.testing.assert_allclose(one, found[0], rtol=1e-5)


def test_a_checkpoint_sees_state_of_a_compiled_function_as_that_of_a_plain_one() -> None:
    def run(compile: Callable[..., Any]) -> list[Any]:
        state = weft.zeros(3)
        w = T([1.0, 2.0, 3.0], requires_grad=True)

        def f(x: Any) -> Any:
            state.add_(x.detach())
            return x * state

        g = compile(f)
        for scale in (1.0, 2.0):
            weft.checkpoint(g, X * scale * w).sum().backward()
        return [state.tolist(), w.grad.tolist()]

    assert run(weft.compile) == run(lambda f: f)


OUTSIDE = weft.tensor([0.5, -1.0])


def test_gradient_by_a_tensor_from_outside_is_not_zero() -> None:
    """The variable of a transform is the tensor that the captured function found outside."""

    def by_grad(x):
        return weft.grad(lambda v: (x * v * v).sum())(OUTSIDE)

    def by_vjp(x):
        return weft.vjp(lambda v: x * v * v, OUTSIDE)[1](weft.ones(2))[0]

    def by_value_and_grad(x):
        return weft.value_and_grad(lambda v: (x * v * v).sum())(OUTSIDE)[1]

    def twice(x):
        return weft.grad(lambda v: weft.grad(lambda u: (x * u * u * u).sum())(v).sum())(OUTSIDE)

    x = weft.tensor([3.0, 4.0])
    expected = 2 * x.numpy() * OUTSIDE.numpy()
    for capture in ("source", "trace"):
        for f in (by_grad, by_vjp, by_value_and_grad):
            np.testing.assert_allclose(weft.compile(f, capture=capture)(x).numpy(), expected)
        np.testing.assert_allclose(weft.compile(twice, capture=capture)(x).numpy(), 3 * expected)
