"""Leaves that captured code makes itself, of detached tensors: attacks on inputs, inner loops of learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.both_ways import check
from weft.errors import CaptureError

P = weft.tensor([0.5, 0.25, -0.5]).requires_grad_()


def leaf_of(x: Any) -> Any:
    return (x * 1.0).detach().requires_grad_()


def in_a_loop(x: Any) -> Any:
    w = leaf_of(x)
    y = w * 1.0
    for i in range(3):
        y = y * w[i]
    y.sum().backward()
    return w.grad


def in_a_loop_beside_a_parameter(x: Any) -> Any:
    w, y = leaf_of(x), P * 1.0
    for i in range(3):
        y = y * w[i]
    return weft.autograd.grad(y.sum(), (w, P))


def in_a_branch(x: Any) -> Any:
    w, y = leaf_of(x), P * 1.0
    if x.sum() > 0:
        y = y * w
    return weft.autograd.grad((y * w).sum(), (w, P))


def changed_in_a_loop(x: Any) -> Any:
    w = leaf_of(x)
    y = w * 1.0
    for i in range(3):
        y[i] = y[i] * w[i]
    y.sum().backward()
    return w.grad


def of_what_has_a_gradient(x: Any) -> Any:
    q = P * x
    w, y = q.detach().requires_grad_(), q * 1.0
    for _ in range(2):
        y = y * w
    return weft.autograd.grad(y.sum(), (w, P))


def made_in_a_branch(x: Any) -> Any:
    q = P * x
    out = q * 0.0
    if x.sum() > 0:
        w = q.detach().requires_grad_()
        of_leaf, of_parameter = weft.autograd.grad((q * w * w).sum(), (w, P))
        out = of_leaf + of_parameter
    return out


def made_in_a_loop(x: Any) -> Any:
    found = weft.zeros(3)
    for _ in range(3):
        z = found.detach().requires_grad_()
        (g,) = weft.autograd.grad((((x + z) ** 2) * P).sum(), (z,))
        found = found + 0.1 * weft.sign(g)
    return found


def made_in_a_loop_used_in_a_branch(x: Any) -> Any:
    found = weft.zeros(3)
    for _ in range(3):
        z, y = found.detach().requires_grad_(), P * 1.0
        if x.sum() > 0:
            y = y * z
        else:
            y = y * z * z
        (g,) = weft.autograd.grad(y.sum(), (z,))
        found = found + g
    return found


def steps_that_are_differentiated(x: Any) -> Any:
    w = leaf_of(x)
    fast = w
    for _ in range(3):
        (g,) = weft.autograd.grad(((fast * P) ** 2).sum(), (fast,), create_graph=True)
        fast = fast - 0.1 * g
    return weft.autograd.grad((fast**2).sum(), (w, P))


FORMS: list[Callable[[Any], Any]] = [
    *(in_a_loop, in_a_loop_beside_a_parameter, in_a_branch, changed_in_a_loop, of_what_has_a_gradient),
    *(made_in_a_branch, made_in_a_loop, made_in_a_loop_used_in_a_branch, steps_that_are_differentiated),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_gradients_are_those_of_eager_code(form: Callable[[Any], Any]) -> None:
    compiled = weft.compile(form, backend="interpret")
    for numbers in ([1.0, 2.0, 3.0], [-1.0, 0.5, -2.0], [0.5, 0.25, 2.0]):
        x = weft.tensor(numbers)
        found, expected = weft.tree_leaves(compiled(x)), weft.tree_leaves(form(x))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_leaf_of_a_loop_that_a_branch_inside_uses_is_refused_where_the_loop_cannot_be_written_out() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        found = weft.zeros(3)
        while found.sum() < 3.0:
            z, y = found.detach().requires_grad_(), x * 1.0
            if x.sum() > 0:
                y = y * z
            (g,) = weft.autograd.grad(y.sum(), (z,))
            found = found + g
        return found

    with pytest.raises(CaptureError, match="its gradient would be lost"):
        f(weft.ones(3))


def test_whether_gradients_are_asked_for_stays_after_a_call() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    @weft.compile
    def step(x: Any, ask: bool) -> Any:
        w.requires_grad_(ask)
        return w.detach() * x

    for ask in (False, True, False):
        step(weft.ones(2), ask)
        assert w.requires_grad is ask


def test_gradients_that_a_call_begins_to_ask_for() -> None:
    def attack(x: Any, w: Any) -> Any:
        x.requires_grad_()
        (w * x * x).sum().backward()
        return x.grad * 2.0

    def lost(x: Any, w: Any) -> Any:
        x.requires_grad_()
        return w * x * x

    w = weft.tensor([1.0, 2.0], requires_grad=True)
    compiled = weft.compile(attack)
    for _ in range(2):
        x, y = weft.tensor([3.0, 4.0]), weft.tensor([3.0, 4.0])
        assert compiled(x, w).tolist() == attack(y, w).tolist()
        assert x.requires_grad
    with pytest.raises(CaptureError, match="must ask for gradients before a call"):
        weft.compile(lost)(weft.tensor([3.0, 4.0]), w)


@pytest.mark.parametrize("change", [lambda w: w.requires_grad_(False), lambda w: w.detach_()])
def test_whether_gradients_are_asked_for_is_decided_by_value(change: Callable[[weft.Tensor], object]) -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    @weft.compile
    def step(x: Any) -> Any:
        if x.sum() > 0:
            change(w)
        return w * x

    assert step(-weft.ones(2)).requires_grad
    assert w.requires_grad
    assert not step(weft.ones(2)).requires_grad
    assert not w.requires_grad


def test_in_a_graph_of_types_whether_gradients_are_asked_for_is_refused() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    def step(x: Any) -> Any:
        if x.sum() > 0:
            w.requires_grad_(False)
        return w * x

    with pytest.raises(CaptureError, match=r"requires_grad_: whether gradients of a tensor are asked for"):
        weft.make_graph(step)(weft.ones(2))
    assert w.requires_grad


def gives_a_leaf(x: Any) -> Any:
    w = leaf_of(x)
    (w * w).sum().backward()
    return w


def gives_a_leaf_on_one_way(x: Any) -> Any:
    w = leaf_of(x)
    if x > 2:
        (w * w).sum().backward()
    return w


def gives_one_of_two_leaves(x: Any) -> Any:
    v, w = leaf_of(x), leaf_of(x * 2.0)
    (v * v * w).sum().backward()
    return v if x > 2 else w


def gives_a_leaf_and_its_gradient(x: Any) -> Any:
    w = leaf_of(x)
    for i in range(3):
        (w * w * i).sum().backward()
    return {"w": w, "g": w.grad, "same": w.grad is w.grad}


def gives_what_has_an_assigned_gradient(x: Any) -> Any:
    y = x.clone()
    y.grad = x * 3.0
    return y


def gives_leaf_of_a_branch(x: Any) -> Any:
    v = leaf_of(x)
    if x > 2:
        v = (v * 2.0).detach().requires_grad_()
    (v * v * x).sum().backward()
    return v.is_leaf, v


def gives_leaf_of_a_loop(x: Any) -> Any:
    v = leaf_of(x)
    for _ in range(3):
        v = (v * x + 1.0).detach().requires_grad_()
    (v * v).sum().backward()
    return v


def gives_leaf_of_a_while(x: Any) -> Any:
    v = leaf_of(x)
    while v < 9.0:
        v = (v * 2.0).detach().requires_grad_()
    (v * x).sum().backward()
    return v


def hangs_on_a_leaf_by_a_branch(x: Any) -> Any:
    v = weft.ones((), requires_grad=True)
    if x > 2:
        return v * x
    return x


def hangs_on_a_leaf_of_a_turn(x: Any) -> Any:
    for _ in range(2):
        x = leaf_of(x) * 2.0
    return x


def attacks_by_signs(x: Any) -> Any:
    d = weft.zeros(()).requires_grad_()
    for _ in range(4):
        loss = (x + d - 3.0) ** 2
        (g,) = weft.autograd.grad(loss, [d])
        d = (d + 0.1 * g.sign()).detach().requires_grad_()
    return d


GIVING = [
    gives_a_leaf,
    gives_a_leaf_on_one_way,
    gives_one_of_two_leaves,
    gives_a_leaf_and_its_gradient,
    gives_what_has_an_assigned_gradient,
    gives_leaf_of_a_branch,
    gives_leaf_of_a_loop,
    gives_leaf_of_a_while,
    hangs_on_a_leaf_by_a_branch,
    hangs_on_a_leaf_of_a_turn,
    attacks_by_signs,
]


@pytest.mark.parametrize("program", GIVING, ids=lambda f: f.__name__)
def test_leaf_leaves_as_in_eager_code(program: Callable[..., Any]) -> None:
    check(lambda: program, (1.0,), (3.0,), (2.5,))


def test_gradient_of_a_leaf_that_is_stored_is_there() -> None:
    def make() -> Any:
        state: dict[str, Any] = {}

        def f(x: Any) -> Any:
            w = leaf_of(x)
            loss = (w * w).sum()
            loss.backward()
            state["w"], state["g"] = w, w.grad
            return loss.detach()

        return f, state

    check(make, (1.0,), (3.0,))


def test_gradient_of_a_leaf_is_the_very_tensor_that_leaves_beside_it() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        w = leaf_of(x)
        (w * w).sum().backward()
        return w, w.grad

    w, g = f(weft.tensor([1.0, 2.0]))
    assert w.grad is g
    np.testing.assert_array_equal(g.numpy(), [2.0, 4.0])


def test_tensor_that_retains_its_gradient_has_it() -> None:
    def f(x: Any) -> Any:
        z = leaf_of(x) * 2.0
        z.retain_grad()
        (z * z).sum().backward()
        return z

    eager, ours = f(weft.tensor([1.0, 2.0])), weft.compile(f)(weft.tensor([1.0, 2.0]))
    np.testing.assert_array_equal(ours.grad.numpy(), eager.grad.numpy())


def test_argument_that_is_to_retain_its_gradient_is_refused() -> None:
    def f(x: Any) -> Any:
        x.retain_grad()
        return (x * x).sum()

    w = weft.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(CaptureError, match=r"retain_grad: .* on tensors that it makes"):
        weft.compile(f)(w * 2.0)
    assert weft.compile(f)(w).item() == 5.0  # a leaf keeps its gradient anyway


def picked_by_an_if(x: Any) -> Any:
    a = leaf_of(x)
    y = a * 2.0 if x > 2 else a
    z = y if x > 1 else x * 1.0
    return y.is_leaf, y.requires_grad, z.is_leaf, z.requires_grad


def test_what_an_if_picks_is_a_leaf_where_the_one_is() -> None:
    check(lambda: picked_by_an_if, (1.0,), (3.0,), (-1.0,), (2.0,))
