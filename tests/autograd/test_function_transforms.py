"""Functions of the user under transforms: their own derivatives, in both modes, and batched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.autograd.test_function import make
from weft.errors import ArgumentError, GradientError

# Transforms


def plain(x: Any, y: Any) -> Any:
    return x * x * x * y + 2.0 * (y + x)


class CubeProduct(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        ctx.square = x * x
        return x * x * x * y, y + x

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * 3.0 * x * x * y + h, g * x * x * x + h


def custom(x: Any, y: Any) -> Any:
    product, total = CubeProduct.apply(x, y)
    return product + 2.0 * total


X = weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64)
Y = weft.tensor([0.5, 1.5, -1.0], dtype=weft.float64)
V = weft.tensor([1.0, -1.0, 2.0], dtype=weft.float64)


def summed(f: Any) -> Any:
    return lambda *xs: f(*xs).sum()


def over_x(f: Any) -> Any:
    return weft.vmap(f, in_axes=(0, None))


TRANSFORMS: dict[str, Any] = {
    "jvp": lambda f: weft.jvp(f, (X, Y), (V, V)),
    "vmap": lambda f: weft.vmap(f)(X, Y),
    "vmap of one argument": lambda f: over_x(f)(X, Y[0]),
    "grad": lambda f: weft.grad(summed(f), argnums=(0, 1))(X, Y),
    "vmap of grad": lambda f: weft.vmap(weft.grad(f, argnums=(0, 1)))(X, Y),
    "vmap of grad of one argument": lambda f: over_x(weft.grad(f, argnums=(0, 1)))(X, Y[0]),
    "grad of vmap": lambda f: weft.grad(summed(over_x(f)), argnums=(0, 1))(X, Y[0]),
    "jvp of vmap": lambda f: weft.jvp(weft.vmap(f), (X, Y), (V, V)),
    "vmap of jvp": lambda f: weft.vmap(lambda x, y, v: weft.jvp(f, (x, y), (v, v)))(X, Y, V),
    "hessian": lambda f: weft.hessian(lambda x: f(x, Y).sum())(X),
    "jvp of grad of vmap": lambda f: weft.jvp(weft.grad(summed(over_x(f))), (X, Y[0]), (V, V[0])),
    "grad of grad of vmap": lambda f: weft.grad(lambda x: (weft.grad(summed(over_x(f)))(x, Y[0]) * V).sum())(
        X
    ),
    "vmap of vmap": lambda f: weft.vmap(over_x(f), in_axes=(None, 0))(X, Y),
    "grad of vmap of vmap": lambda f: weft.grad(
        lambda x, y: (weft.vmap(over_x(f), in_axes=(None, 0))(x, y) ** 2).sum(), argnums=(0, 1)
    )(X, Y),
    "vmap of jvp of grad of vmap": lambda f: weft.vmap(
        lambda y: weft.jvp(lambda x: weft.grad(summed(over_x(f)))(x, y), (X,), (V,))
    )(Y),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_function_under_transforms_is_as_its_ops_would_be(name: str) -> None:
    run = TRANSFORMS[name]
    actual, expected = weft.tree_leaves(run(custom)), weft.tree_leaves(run(plain))
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=1e-12)


class StraightThrough(weft.Function):
    """Its derivative is not that of the ops in forward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return weft.round(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


@pytest.mark.parametrize("mapped", [False, True])
def test_transforms_use_the_derivative_of_the_user_not_of_the_ops(mapped: bool) -> None:
    f = weft.vmap(StraightThrough.apply) if mapped else StraightThrough.apply
    value, tangent = weft.jvp(f, (X + 0.2,), (V,))
    assert (value.tolist(), tangent.tolist()) == ([1.0, 2.0, 3.0], V.tolist())
    assert weft.grad(summed(f))(X).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("mapped", [False, True])
def test_jvp_of_the_user_is_used_in_forward_mode(mapped: bool) -> None:
    class Sine(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return weft.sin(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * weft.cos(ctx.saved_tensors[0])

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:  # type: ignore[override]
            return t * weft.cos(ctx.saved_tensors[0]) * 1000.0  # to be told from the transposed backward

    f = weft.vmap(Sine.apply) if mapped else Sine.apply
    _, tangent = weft.jvp(f, (X,), (V,))
    np.testing.assert_allclose(tangent.numpy(), 1000.0 * V.numpy() * np.cos(X.numpy()), rtol=1e-12)


def test_backward_that_leaves_the_graph_is_an_error_in_forward_mode() -> None:
    f = make(lambda ctx, x: x * 2.0, lambda ctx, g: weft.tensor(g.detach().numpy() * 2.0))
    with pytest.raises(GradientError, match="forward mode needs a backward written in weft's functions"):
        weft.jvp(f.apply, (X,), (V,))


def test_forward_on_arrays_is_an_error_under_vmap() -> None:
    f = make(lambda ctx, x: weft.tensor(np.sin(x.numpy())), lambda ctx, g: g)
    with pytest.raises(GradientError, match="needs a concrete tensor, got one inside vmap"):
        weft.vmap(f.apply)(X)


@pytest.mark.parametrize(
    ("jvp", "words"),
    [
        (lambda ctx, t: (t, t), "one tangent for each of 1 outputs, got 2"),
        (lambda ctx, t: t.sum(), r"a tangent of type f64\[3\], got f64\[\]"),
        (lambda ctx, t: 3.0, "got float"),
    ],
)
def test_wrong_tangent_is_an_error(jvp: Any, words: str) -> None:
    f = make(lambda ctx, x: x * 2.0, lambda ctx, g: g)
    f.jvp = staticmethod(jvp)
    with pytest.raises(ArgumentError, match=words):
        weft.jvp(f.apply, (X,), (V,))
