"""Checkpoints: the same gradients and draws with less memory, in closures, nested, and to higher order."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DomainError, FreedGraphError, GradientError


def leaf(*values: float) -> weft.Tensor:
    return weft.tensor(list(values), dtype=weft.float64, requires_grad=True)


def block(x: Any, w: Any) -> Any:
    return weft.tanh(x * w) * x + weft.exp(w * 0.1)


def gradients(function: Callable[..., Any], *leaves: Any) -> list[Any]:
    for t in leaves:
        t.grad = None
    function(*leaves).sum().backward()
    return [None if t.grad is None else t.grad.tolist() for t in leaves]


def test_gradients_are_the_same_bits_as_without() -> None:
    x, w = leaf(0.5, 1.5), leaf(2.0, -1.0)
    plain = gradients(block, x, w)
    assert gradients(lambda x, w: weft.checkpoint(block, x, w), x, w) == plain


def test_value_is_the_same_and_the_function_runs_again_only_in_backward() -> None:
    runs: list[bool] = []

    def function(t: Any) -> Any:
        runs.append(weft.is_grad_enabled())
        return t * t

    x = leaf(3.0)
    y = weft.checkpoint(function, x)
    assert (y.item(), runs, y.requires_grad) == (9.0, [True], True)
    y.backward()
    assert (x.grad.tolist(), runs) == ([6.0], [True, True])


def test_closure_over_a_parameter_gets_its_gradient() -> None:
    x, w = leaf(0.5), leaf(2.0)
    weft.checkpoint(lambda x: block(x, w), x).backward()
    assert [x.grad.tolist(), w.grad.tolist()] == gradients(block, x, w)


def test_closure_over_a_tensor_of_the_graph_outside() -> None:
    x = leaf(0.5)

    def function(checkpoint: bool) -> Any:
        outside = x * x
        inner = lambda t: weft.tanh(t * outside)  # noqa: E731
        return weft.checkpoint(inner, x) if checkpoint else inner(x)

    assert gradients(lambda x: function(True), x) == gradients(lambda x: function(False), x)


def test_arguments_that_do_not_require_grad_and_a_parameter_that_does() -> None:
    data, w = weft.tensor([1.0, 2.0], dtype=weft.float64), leaf(2.0, -1.0)
    assert gradients(lambda w: weft.checkpoint(lambda d: block(d, w), data), w) == gradients(
        lambda w: block(data, w), w
    )


def test_several_outputs_other_arguments_and_keywords() -> None:
    def function(x: Any, power: int, *, scale: Any, names: list[str]) -> dict[str, Any]:
        return {names[0]: x**power, names[1]: [x * scale, "kept"]}

    def total(checkpoint: bool) -> Callable[..., Any]:
        def run(x: Any, scale: Any) -> Any:
            call: Any = weft.checkpoint if checkpoint else lambda f, *a, **k: f(*a, **k)
            out = call(function, x, 3, scale=scale, names=["a", "b"])
            assert out["b"][1] == "kept"
            return out["a"] + 2.0 * out["b"][0]

        return run

    x, scale = leaf(2.0), leaf(5.0)
    assert gradients(total(True), x, scale) == gradients(total(False), x, scale) == [[22.0], [4.0]]


def test_only_one_of_several_outputs_is_used() -> None:
    x = leaf(2.0)
    a, _ = weft.checkpoint(lambda t: (t * t, t * t * t), x)
    a.backward()
    assert x.grad.tolist() == [4.0]


def test_nested_checkpoints() -> None:
    x, w = leaf(0.5, 1.5), leaf(2.0, -1.0)

    def nested(depth: int, x: Any) -> Any:
        if depth == 0:
            return block(x, w)
        return weft.checkpoint(lambda t: nested(depth - 1, nested(depth - 1, t)), x)

    def plain(depth: int, x: Any) -> Any:
        return block(x, w) if depth == 0 else plain(depth - 1, plain(depth - 1, x))

    assert gradients(lambda x, w: nested(3, x), x, w) == gradients(lambda x, w: plain(3, x), x, w)


def test_inner_checkpoint_runs_once_more_for_each_level_around_it() -> None:
    runs: list[int] = []

    def inner(t: Any) -> Any:
        runs.append(1)
        return weft.tanh(t) * t

    x = leaf(0.5)
    weft.checkpoint(lambda t: weft.checkpoint(inner, t) * t, x).backward()
    assert len(runs) == 3  # forward, the outer once more, the inner once more


@pytest.mark.parametrize("order", [1, 2, 3])
def test_higher_order_gradients(order: int) -> None:
    def derivative(function: Callable[..., Any]) -> list[float]:
        x, w = leaf(0.5), leaf(2.0)
        y = function(x, w)
        for _ in range(order):
            (y,) = weft.autograd.grad(y, x, create_graph=True)
        y.backward()
        return [x.grad.item(), w.grad.item()]

    np.testing.assert_allclose(
        derivative(lambda x, w: weft.checkpoint(block, x, w)), derivative(block), rtol=1e-12
    )


def test_grad_by_a_tensor_inside_and_by_one_input_only() -> None:
    x, w = leaf(0.5), leaf(2.0)
    (by_w,) = weft.autograd.grad(weft.checkpoint(block, x, w), w)
    (expected,) = weft.autograd.grad(block(x, w), w)
    assert by_w.tolist() == expected.tolist()


def test_retained_graph_runs_again_in_each_backward() -> None:
    runs: list[int] = []
    x = leaf(3.0)
    y = weft.checkpoint(lambda t: runs.append(1) or t * t, x)
    y.backward(retain_graph=True)
    y.backward()
    assert (x.grad.tolist(), len(runs)) == ([12.0], 3)
    with pytest.raises(FreedGraphError):
        y.backward()


def test_random_draws_are_the_same_the_second_time() -> None:
    masks: list[list[float]] = []

    def function(t: Any) -> Any:
        mask = weft.rand(64) * 1.0
        masks.append(mask.tolist())
        return t * mask

    weft.manual_seed(7)
    x = weft.tensor(np.ones(64, np.float32), requires_grad=True)
    y = weft.checkpoint(function, x)
    after_forward = weft.rand(4).tolist()
    y.sum().backward()
    assert masks[0] == masks[1]
    assert x.grad.tolist() == masks[0]
    weft.manual_seed(7)
    assert weft.rand(64).tolist() == masks[0]  # and as without a checkpoint
    assert weft.rand(4).tolist() == after_forward  # nor did running again move the generator


def test_generator_among_the_arguments_draws_the_same_again() -> None:
    drawn: list[list[float]] = []

    def function(t: Any, generator: Any) -> Any:
        mask = weft.rand(8, generator=generator)
        drawn.append(mask.tolist())
        return t * mask

    x = weft.tensor(np.ones(8, np.float32), requires_grad=True)
    generator = weft.Generator(3)
    y = weft.checkpoint(function, x, generator)
    state = generator.get_state().tolist()
    y.sum().backward()
    assert drawn[0] == drawn[1]
    assert generator.get_state().tolist() == state


def test_without_preserve_rng_state_draws_are_new() -> None:
    drawn: list[list[float]] = []
    x = weft.tensor(np.ones(8, np.float32), requires_grad=True)
    y = weft.checkpoint(lambda t: t * _keep(drawn, weft.rand(8)), x, preserve_rng_state=False)
    y.sum().backward()
    assert drawn[0] != drawn[1]


def _keep(drawn: list[list[float]], t: Any) -> Any:
    drawn.append(t.tolist())
    return t


def test_draws_of_another_thread_in_between_are_noticed() -> None:
    others = [threading.Thread(target=lambda: weft.rand(4))]

    def function(t: Any) -> Any:
        first = weft.rand(4)
        if others:
            other = others.pop()
            other.start()
            other.join()
        return t * first * weft.rand(4)

    x = weft.tensor(np.ones(4, np.float32), requires_grad=True)
    y = weft.checkpoint(function, x)
    with pytest.raises(GradientError, match="must draw the same random numbers"):
        y.sum().backward()
    assert x.grad is None


def test_parameter_changed_before_backward_is_noticed() -> None:
    x, w = leaf(0.5), leaf(2.0)
    y = weft.checkpoint(lambda t: block(t, w), x)
    with weft.no_grad():
        w -= 1.0
    with pytest.raises(GradientError, match=r"must not change before backward, got another value of a leaf"):
        y.backward()
    assert (x.grad, w.grad) == (None, None)


def test_argument_changed_before_backward_counts_as_it_was() -> None:
    x, w = leaf(0.5), leaf(2.0)
    expected = gradients(block, x, w)
    x.grad = w.grad = None
    y = weft.checkpoint(block, x, w)
    with weft.no_grad():
        w -= 1.0
        x[0] = 9.0
    y.backward()
    assert [x.grad.tolist(), w.grad.tolist()] == expected  # type: ignore[attr-defined]


def test_argument_changed_in_place_by_the_function() -> None:
    def function(t: Any) -> Any:
        t *= 2.0
        return t * t

    x = leaf(3.0)
    y = x * 1.0
    weft.checkpoint(function, y).backward()
    assert (x.grad.tolist(), y.tolist()) == ([24.0], [6.0])


@pytest.mark.parametrize(
    "second", [lambda t: weft.exp(t), lambda t: t * 2.0 * 3.0, lambda t: t, lambda t: t * leaf(1.0)]
)
def test_function_that_does_something_else_the_second_time_is_noticed(second: Callable[..., Any]) -> None:
    x, w = leaf(3.0), leaf(3.0)
    functions = [lambda t: t * w, second]
    y = weft.checkpoint(lambda t: functions.pop(0)(t), x)
    with pytest.raises(GradientError, match="must do the same when it runs again"):
        y.backward()
    assert x.grad is None


@pytest.mark.parametrize("create_graph", [False, True])
def test_function_may_run_backward_itself(create_graph: bool) -> None:
    def function(t: Any) -> Any:
        energy = (t * t * t).sum()
        (slope,) = weft.autograd.grad(energy, t, create_graph=create_graph)
        return slope * t

    x = leaf(2.0)
    assert gradients(lambda x: weft.checkpoint(function, x), x) == gradients(function, x)


def test_without_recording_it_is_a_plain_call() -> None:
    x = leaf(3.0)
    with weft.no_grad():
        assert not weft.checkpoint(lambda t: t * t, x).requires_grad
    assert weft.checkpoint(lambda: 3) == 3


def test_hooks_and_retained_gradients_inside() -> None:
    seen: list[Any] = []

    def function(t: Any) -> Any:
        middle = t * t
        middle.register_hook(lambda g: seen.append(g.tolist()))
        return middle * 3.0

    x = leaf(2.0)
    weft.checkpoint(function, x).backward()
    assert (seen, x.grad.tolist()) == ([[3.0]], [12.0])


def test_function_of_the_user_inside() -> None:
    class Square(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2.0 * ctx.saved_tensors[0]

    x = leaf(3.0)
    weft.checkpoint(lambda t: weft.tanh(Square.apply(t) * 0.1), x).backward()
    assert x.grad.tolist() == gradients(lambda t: weft.tanh(t * t * 0.1), x)[0]


@pytest.mark.parametrize("transform", ["vmap", "grad", "vmap of grad", "grad of vmap", "jvp", "hessian"])
def test_transforms_of_a_checkpoint(transform: str) -> None:
    def function(x: Any) -> Any:
        return (weft.tanh(x * w) * x).sum()

    xs, w = weft.tensor([[0.5, 1.5], [2.0, -1.0]], dtype=weft.float64), leaf(2.0, -1.0)

    def run(f: Callable[..., Any]) -> Any:
        if transform == "vmap":
            return weft.vmap(f)(xs)
        if transform == "grad":
            return weft.grad(f)(xs[0])
        if transform == "vmap of grad":
            return weft.vmap(weft.grad(f))(xs)
        if transform == "grad of vmap":
            return weft.grad(lambda xs: (weft.vmap(f)(xs) ** 2).sum())(xs)
        if transform == "jvp":
            return weft.jvp(f, (xs[0],), (xs[1],))[1]
        return weft.hessian(f)(xs[0])

    np.testing.assert_allclose(
        run(lambda x: weft.checkpoint(function, x)).detach().numpy(),
        run(function).detach().numpy(),
        rtol=1e-12,
    )


# Memory

SIZE = 1 << 16
MIB = 1 << 20


@pytest.fixture
def reference_kernels() -> Iterator[None]:
    """Arrays of compiled kernels come from memory of weft's own, which tracemalloc does not see."""
    weft.set_eager_kernels(False)
    yield
    weft.set_eager_kernels(True)


def peak(run: Callable[[Any], Any]) -> float:
    """The most memory in MiB that forward and backward need."""
    x = weft.tensor(np.full(SIZE, 0.5), requires_grad=True)  # half a MiB
    tracemalloc.start()
    run(x).sum().backward()
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return highest / MIB


def deep(x: Any, length: int) -> Any:
    for _ in range(length):
        x = weft.tanh(x)
    return x


@pytest.mark.usefixtures("reference_kernels")
def test_checkpoints_need_less_memory() -> None:
    def segmented(x: Any) -> Any:
        for _ in range(8):
            x = weft.checkpoint(deep, x, 8)
        return x

    plain, saving = peak(lambda x: deep(x, 64)), peak(segmented)
    assert plain > 32  # 64 results of half a MiB
    assert saving < plain / 2.5  # 8 kept, and 8 computed again at a time


@pytest.mark.usefixtures("reference_kernels")
def test_nested_checkpoints_need_less_still() -> None:
    def halved(x: Any, length: int) -> Any:
        if length == 2:
            return deep(x, 2)
        return weft.checkpoint(lambda t: halved(halved(t, length // 2), length // 2), x)

    plain, saving = peak(lambda x: deep(x, 64)), peak(lambda x: halved(x, 64))
    assert saving < plain / 4


@pytest.mark.usefixtures("reference_kernels")
def test_nothing_is_kept_between_forward_and_backward() -> None:
    x = weft.tensor(np.full(SIZE, 0.5), requires_grad=True)
    tracemalloc.start()
    y = weft.checkpoint(deep, x, 32)
    held = tracemalloc.get_traced_memory()[0] / MIB
    tracemalloc.stop()
    assert held < 1.0  # the result alone
    y.sum().backward()
    assert x.grad is not None


# Chains


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_checkpoint_sequential_gives_the_same_gradients(segments: int) -> None:
    w = leaf(2.0)
    functions = [weft.tanh, lambda t: t * w, weft.exp, lambda t: t * t, weft.tanh]

    def plain(x: Any) -> Any:
        for f in functions:
            x = f(x)
        return x

    x = leaf(0.3)
    expected = gradients(lambda x, w: plain(x), x, w)
    assert gradients(lambda x, w: weft.checkpoint_sequential(functions, segments, x), x, w) == expected


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(ArgumentError, match="must be callable"):
        weft.checkpoint(3, leaf(1.0))
    with pytest.raises(DomainError, match=r"segments must be in 1\.\.2, got 3"):
        weft.checkpoint_sequential([weft.tanh, weft.exp], 3, leaf(1.0))
