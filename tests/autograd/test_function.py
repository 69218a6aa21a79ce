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
