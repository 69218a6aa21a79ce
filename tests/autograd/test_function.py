"""``weft.Function``: contexts, several outputs, other arguments, errors, and derivatives of derivatives."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DtypeError, FreedGraphError, GradientError, ShapeError


def leaf(*values: float) -> weft.Tensor:
    return weft.tensor(list(values), dtype=weft.float64, requires_grad=True)


class Cube(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3.0 * x * x


def test_backward_of_the_user_is_the_gradient() -> None:
    x = leaf(2.0, 3.0)
    y = Cube.apply(x)
    assert repr(y.grad_fn) == "<CubeBackward>"
    assert y.tolist() == [8.0, 27.0]
    y.sum().backward()
    assert x.grad.tolist() == [12.0, 27.0]


def test_derivatives_to_any_order_when_backward_is_written_in_ops() -> None:
    x = leaf(2.0)
    y = Cube.apply(x)
    for expected in (12.0, 12.0, 6.0):
        (y,) = weft.autograd.grad(y, x, create_graph=True)
        assert y.item() == expected
    assert weft.testing.gradcheck(Cube.apply, leaf(2.0, -1.0))
    assert weft.testing.gradgradcheck(Cube.apply, leaf(2.0, -1.0))


def test_saved_output_stays_differentiable() -> None:
    class Exp(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.out = weft.exp(x)
            return ctx.out

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.out

    assert weft.testing.gradgradcheck(Exp.apply, leaf(0.5, -1.0))


def test_forward_does_not_record_and_may_use_arrays() -> None:
    modes: list[bool] = []

    class Sine(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            modes.append(weft.is_grad_enabled())
            ctx.cosine = np.cos(x.numpy())
            return weft.tensor(np.sin(x.numpy()))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            modes.append(weft.is_grad_enabled())
            return weft.tensor(g.numpy() * ctx.cosine)

    x = leaf(0.5)
    Sine.apply(x).backward()
    assert x.grad.tolist() == [np.cos(0.5)]
    assert modes == [False, False]


class Affine(weft.Function):
    """Several tensors, and arguments that are none."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: float, w: Any, name: str) -> Any:
        ctx.save_for_backward(x, w)
        ctx.factor, ctx.name = factor, name
        return x * factor * w, name, w + x

    @staticmethod
    def backward(ctx: Any, g: Any, nothing: Any, h: Any) -> Any:
        assert nothing is None
        assert ctx.name == "affine"
        x, w = ctx.saved_tensors
        by_x = g * ctx.factor * w + h if ctx.needs_input_grad[0] else None
        by_w = g * ctx.factor * x + h if ctx.needs_input_grad[2] else None
        return by_x, None, by_w, None


def test_several_outputs_and_arguments_that_are_no_tensors() -> None:
    x, w = leaf(2.0), leaf(5.0)
    product, name, total = Affine.apply(x, 3.0, w, "affine")
    assert (product.item(), name, total.item()) == (30.0, "affine", 7.0)
    (product + 10.0 * total).backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([25.0], [16.0])


def test_output_without_gradient_gets_zeros() -> None:
    x, w = leaf(2.0), leaf(5.0)
    _, _, total = Affine.apply(x, 3.0, w, "affine")
    total.backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([1.0], [1.0])


def test_output_without_gradient_gets_none_if_asked_for() -> None:
    seen: list[Any] = []

    class Pair(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2.0, x * 3.0

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.append((a is None, b is None))
            return b * 3.0

    x = leaf(1.0)
    Pair.apply(x)[1].backward()
    assert seen == [(True, False)]
    assert x.grad.tolist() == [3.0]


def test_needs_input_grad_in_forward_and_backward() -> None:
    seen: list[Any] = []

    class Both(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: int) -> Any:
            seen.append(ctx.needs_input_grad)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return g, g, None

    Both.apply(leaf(1.0), weft.ones(1, dtype=weft.float64), 3).backward()
    assert seen == [(True, False, False)] * 2


def test_output_marked_as_constant_has_no_graph() -> None:
    class Largest(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            where = weft.argmax(x)
            rounded = weft.round(x)
            ctx.mark_non_differentiable(rounded)
            return weft.max(x), where, rounded

        @staticmethod
        def backward(ctx: Any, g: Any, where: Any, rounded: Any) -> Any:
            return g * weft.ones(3, dtype=weft.float64)

    value, where, rounded = Largest.apply(leaf(1.0, 3.2, 2.0))
    assert (value.requires_grad, where.requires_grad, rounded.requires_grad) == (True, False, False)
    value.backward()


def test_input_returned_as_it_is_gets_a_node_of_its_own() -> None:
    class Reverse(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return -g

    x = leaf(2.0)
    y = Reverse.apply(x)
    assert y is not x
    assert not y.is_leaf
    (y * 3.0).backward()
    assert x.grad.tolist() == [-3.0]


def test_nothing_is_recorded_without_need() -> None:
    assert Cube.apply(weft.ones(2)).grad_fn is None
    with weft.no_grad():
        assert Cube.apply(leaf(1.0)).grad_fn is None


def test_setup_context_apart_from_forward() -> None:
    class Square(weft.Function):
        @staticmethod
        def forward(x: Any, k: float) -> Any:  # type: ignore[override]
            return x * x * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, ctx.k = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2.0 * ctx.saved_tensors[0] * ctx.k, None

    x = leaf(3.0)
    Square.apply(x, 10.0).backward()
    assert x.grad.tolist() == [60.0]


def test_in_place_change_in_forward_does_not_reach_the_argument() -> None:
    class Twice(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x *= 2.0
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            assert ctx.saved_tensors[0].tolist() == [6.0]
            return g * 2.0

    x = leaf(3.0)
    y = Twice.apply(x)
    y.backward()
    assert (x.tolist(), y.tolist(), x.grad.tolist()) == ([3.0], [6.0], [2.0])


def test_saved_values_do_not_change_with_the_tensor() -> None:
    x = leaf(2.0)
    y = Cube.apply(x)
    with weft.no_grad():
        x *= 100.0
    y.backward()
    assert x.grad.tolist() == [12.0]


def test_context_is_new_in_each_backward_so_threads_and_retained_graphs_do_not_meet() -> None:
    class Leaky(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.count = 0
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            ctx.count += 1
            return g * float(ctx.count)

    x = leaf(1.0)
    y = Leaky.apply(x)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [2.0]


def test_second_backward_is_an_error_and_the_context_is_freed() -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf(2.0)
        y = Cube.apply(x * 1.0)
        saved = weakref.ref(y.grad_fn.saved[1])
        y.backward()
        assert saved() is None
        with pytest.raises(FreedGraphError, match="second backward through Cube"):
            y.backward()
    finally:
        gc.enable()


def test_context_attributes_make_no_cycle() -> None:
    class Keep(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.out = x * 2.0
            ctx.middle = x * 3.0
            ctx.save_for_backward(x, ctx.out, None)
            return ctx.out

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, out, nothing = ctx.saved_tensors
            assert nothing is None
            assert (x.tolist(), out.tolist(), ctx.out.tolist(), ctx.middle.tolist()) == (
                [2.0],
                [4.0],
                [4.0],
                [6.0],
            )
            return g * 2.0

    gc.collect()
    gc.disable()
    try:
        x = leaf(2.0)
        y = Keep.apply(x)
        dead = weakref.ref(y)
        y.backward()
        del y
        assert dead() is None
        assert x.grad.tolist() == [2.0]
    finally:
        gc.enable()


# Mistakes


def make(forward: Any, backward: Any) -> Any:
    return type(
        "Mistake", (weft.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    )


@pytest.mark.parametrize(
    ("backward", "error", "words"),
    [
        (lambda ctx, g: (g, g), GradientError, "one gradient for each of 1 arguments, got 2"),
        (lambda ctx, g: (), GradientError, "for each of 1 arguments, got 0"),
        (lambda ctx, g: weft.ones(3), ShapeError, r"of type f64\[2\] for argument 0, got f32\[3\]"),
        (lambda ctx, g: g.sum(), ShapeError, r"got f64\[\]"),
        (lambda ctx, g: 3.0, ArgumentError, "got float"),
        (lambda ctx, g: np.ones(2), ArgumentError, "got ndarray"),
        (lambda ctx, g: g * 1j, DtypeError, r"got c128\[2\]"),
    ],
)
def test_wrong_gradient_is_an_error(backward: Any, error: type[Exception], words: str) -> None:
    x = leaf(1.0, 2.0)
    y = make(lambda ctx, x: x * 2.0, backward).apply(x)
    with pytest.raises(error, match=words) as caught:
        y.sum().backward()
    assert str(caught.value).startswith("Mistake: backward must return")
    assert x.grad is None


def test_gradient_for_what_is_no_tensor_is_an_error() -> None:
    x = leaf(1.0)
    y = make(lambda ctx, x, k: x * k, lambda ctx, g: (g, g)).apply(x, 2.0)
    with pytest.raises(GradientError, match="got a gradient of argument 1"):
        y.backward()


def test_gradient_of_another_float_is_cast_and_none_means_none() -> None:
    x, w = leaf(1.0), leaf(1.0)
    f = make(lambda ctx, x, w: x * w, lambda ctx, g: (g.astype(weft.float32), None))
    f.apply(x, w).backward()
    assert (x.grad.dtype, w.grad) == (weft.float64, None)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (np.ones(2), "got an array"),
        (3.0, "must return a tensor, got float"),
        ((), "got nothing"),
        (None, "NoneType"),
    ],
)
def test_wrong_result_of_forward_is_an_error(result: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        make(lambda ctx, x: result, lambda ctx, g: g).apply(leaf(1.0))


def test_other_mistakes_are_errors() -> None:
    x = leaf(1.0)
    with pytest.raises(ArgumentError, match=r"use Cube.apply\(...\)"):
        Cube()
    with pytest.raises(ArgumentError, match="takes no keywords, got 'x'"):
        Cube.apply(x=x)
    with pytest.raises(ArgumentError, match="must be arguments themselves, got a list"):
        Cube.apply([x])
    with pytest.raises(ArgumentError, match="takes tensors and None, got float at 1"):
        make(lambda ctx, x: ctx.save_for_backward(x, 3.0), None).apply(x)


def test_missing_forward_or_backward_says_so() -> None:
    class Nothing(weft.Function):
        pass

    class OnlyForward(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

    with pytest.raises(GradientError, match="Nothing: forward must be defined"):
        Nothing.apply(leaf(1.0))
    y = OnlyForward.apply(leaf(1.0))
    with pytest.raises(GradientError, match="OnlyForward: backward must be defined"):
        y.backward()


def test_once_differentiable_refuses_to_be_differentiated() -> None:
    class Double(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        @weft.autograd.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            assert not weft.is_grad_enabled()
            return weft.tensor(g.numpy() * 2.0)

    x = leaf(3.0)
    Double.apply(x).backward()
    assert x.grad.tolist() == [2.0]
    y = Double.apply(x * x)
    (first,) = weft.autograd.grad(y, x, create_graph=True)
    assert first.tolist() == [12.0]
    with pytest.raises(GradientError, match="Double: backward must be differentiable"):
        first.backward()


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
