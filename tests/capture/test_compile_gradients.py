"""Gradients through compiled functions, and compiled functions inside and around transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.agree import assert_same
from weft.errors import FreedGraphError, GradientError


def gradients(f: Any, *xs: Any) -> list[Any]:
    given = [x.detach().requires_grad_() for x in xs]
    out = f(*given)
    out.sum().backward()
    return [g.grad for g in given]


def test_gradients_of_arguments_and_outside_tensors_are_those_of_eager_code() -> None:
    weft.manual_seed(1)
    w = weft.randn(3, 3, requires_grad=True)

    def f(x: Any, y: Any) -> Any:
        return weft.tanh(x @ w) * y + x.detach() * y

    x, y = weft.randn(4, 3), weft.randn(4, 3)
    compiled = weft.compile(f)
    expected = gradients(f, x, y)
    expected_w, w.grad = w.grad, None
    assert_same(gradients(compiled, x, y), expected, 1e-6)
    assert_same(w.grad, expected_w, 1e-6)
    assert compiled(x, y).grad_fn is not None


def test_non_leaf_arguments_and_outside_tensors_pass_gradients_on() -> None:
    a = weft.tensor([2.0, 3.0], requires_grad=True)
    hidden = a * a

    @weft.compile
    def f(x: Any) -> Any:
        return x * hidden

    f(hidden * 1.0).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), 4 * np.array([8.0, 27.0]))


def test_several_outputs_of_which_some_have_no_gradient() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        return x * 2.0, (x > 0), x.detach() * 3.0, x * x

    x = weft.tensor([1.0, -2.0], requires_grad=True)
    doubled, mask, cut, squared = f(x)
    assert [t.requires_grad for t in (doubled, mask, cut, squared)] == [True, False, False, True]
    squared.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [2.0, -4.0]
    (doubled.sum() + squared.sum()).backward()
    assert x.grad.tolist() == [6.0, -6.0]


def test_hooks_retain_grad_and_freed_graphs() -> None:
    f = weft.compile(lambda x: x * x)
    x = weft.tensor([3.0], requires_grad=True)
    handle = x.register_hook(lambda g: g * 10.0)
    y = f(x)
    seen: list[float] = []
    y.register_hook(lambda g: seen.append(g.item()))
    y.retain_grad()
    y.backward(retain_graph=True)
    assert (x.grad.item(), y.grad.item(), seen) == (60.0, 1.0, [1.0])
    y.backward()
    assert x.grad.item() == 120.0
    with pytest.raises(FreedGraphError):
        y.backward()
    handle.remove()


def test_double_backward_through_a_compiled_function() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        return (x**3 * x.detach()).sum()

    x = weft.tensor([2.0, 3.0], requires_grad=True)
    (first,) = weft.autograd.grad(f(x), x, create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), 3 * np.array([8.0, 27.0]))
    (second,) = weft.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), 6 * np.array([4.0, 9.0]))


def test_gradcheck_through_a_compiled_function() -> None:
    f = weft.compile(lambda x, y: weft.softmax(x @ y).cumsum(axis=0))
    weft.manual_seed(0)
    x, y = weft.randn(3, 2, dtype=weft.float64), weft.randn(2, 3, dtype=weft.float64)
    weft.testing.gradcheck(f, (x, y))


@pytest.mark.parametrize("capture", ["source", "trace"])
def test_compiled_functions_inside_transforms(capture: str) -> None:
    def f(x: Any) -> Any:
        return (weft.sin(x) * x.detach()).sum() * 2.0

    compiled = weft.compile(f, capture=capture)
    xs = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert_same(weft.vmap(compiled)(xs), weft.vmap(f)(xs), 1e-6)
    assert_same(weft.grad(compiled)(xs[0]), weft.grad(f)(xs[0]), 1e-6)
    assert_same(weft.vmap(weft.grad(compiled))(xs), weft.vmap(weft.grad(f))(xs), 1e-6)
    assert_same(weft.jvp(compiled, (xs[0],), (xs[1],)), weft.jvp(f, (xs[0],), (xs[1],)), 1e-6)
    assert_same(weft.hessian(compiled)(xs[0]), weft.hessian(f)(xs[0]), 1e-6)


def test_transforms_inside_compiled_functions() -> None:
    def f(x: Any) -> Any:
        return weft.vmap(weft.grad(lambda v: (v**3).sum()))(x), weft.jvp(weft.sin, (x,), (x,))[1]

    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert_same(weft.compile(f)(x), f(x), 1e-6)


def test_compiled_function_inside_another_capture_is_one_call() -> None:
    @weft.compile
    def inner(x: Any) -> Any:
        return weft.sin(x) * 2.0 + 1.0

    graph = weft.make_graph(lambda x: inner(x) * 3.0)(weft.ones(2))
    assert [n.op.name for n in graph.nodes] == ["call", "mul"]
    assert "inner(x=%x)" in str(graph)
    outer = weft.compile(lambda x: inner(x) * 3.0)
    assert_same(outer(weft.ones(2)), inner(weft.ones(2)) * 3.0, 1e-6)


def test_compiled_function_made_inside_a_transform_uses_its_tensors() -> None:
    def outer(h: Any) -> Any:
        return weft.compile(lambda x: x * h)(weft.ones(2))

    h = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert_same(weft.vmap(outer)(h), h)


def test_custom_functions_and_checkpoints_keep_their_gradients() -> None:
    class Tripled(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3.0 * x

    def f(x: Any) -> Any:
        return Tripled.apply(x) + weft.checkpoint(lambda t: weft.sin(t) * t, x)

    x = weft.tensor([0.5, 2.0])
    assert_same(gradients(weft.compile(f), x), gradients(f, x), 1e-6)


def test_sparse_tensors_are_used_and_returned() -> None:
    sparse = weft.to_sparse(weft.eye(3) * 2.0)
    x = weft.ones(3, 2)
    assert weft.compile(lambda x: sparse @ x)(x).tolist() == [[2.0, 2.0]] * 3
    assert weft.compile(lambda s, x: s @ x)(sparse, x).tolist() == [[2.0, 2.0]] * 3
    doubled: Any = weft.compile(lambda x: sparse + sparse)(x)
    assert doubled.to_dense().tolist() == (weft.eye(3) * 4.0).tolist()


class _Cube(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3.0 * x * x * g


def test_gradient_with_a_graph_has_that_of_a_custom_function_once() -> None:
    def f(x: Any) -> Any:
        y = weft.tanh(x)
        return _Cube.apply(y) * weft.exp(x) + y.detach() * x

    x = weft.tensor([0.5, 1.0, 1.5], dtype=weft.float64, requires_grad=True)
    expected, found = (
        weft.autograd.grad(g(x).sum(), [x], create_graph=True)[0] for g in (f, weft.compile(f))
    )
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-12)
    with pytest.raises(GradientError, match="must be differentiated once, got twice"):
        weft.autograd.grad(found.sum(), [x])
