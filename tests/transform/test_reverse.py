from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DtypeError, GradientError, ShapeError
from weft.testing import assert_close, gradcheck


def tensor(*values: float) -> weft.Tensor:
    return weft.tensor(np.array(values, np.float64))


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Layer:
    weight: Any
    bias: Any


class Bag:
    def __init__(self, *items: Any) -> None:
        self.items = items


weft.register_tree(Bag, lambda b: (b.items, None), lambda aux, items: Bag(*items))


# grad


def test_gradient_of_one_argument_is_like_it() -> None:
    assert_close(weft.grad(lambda x: (x * x).sum())(tensor(1, 2, 3)), tensor(2, 4, 6))


def test_gradient_by_several_arguments_is_a_tuple() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return (x * y * z).sum()

    x, y, z = tensor(1, 2), tensor(3, 4), tensor(5, 6)
    assert_close(weft.grad(f, argnums=1)(x, y, z), x * z)
    assert_close(weft.grad(f, argnums=-1)(x, y, z), x * y)
    assert_close(weft.grad(f, argnums=(2, 0))(x, y, z), (x * y, y * z))
    assert_close(weft.grad(f, argnums=[0])(x, y, z), (y * z,))


@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: {"b": a, "a": b},
        lambda a, b: [a, [b]],
        lambda a, b: (a, {"k": (b,)}, None),
        lambda a, b: Point(a, [b]),
        lambda a, b: Layer(a, b),
        lambda a, b: Bag(a, {"x": b}),
    ],
)
def test_gradient_of_a_tree_is_a_tree_like_it(build: Callable[[Any, Any], Any]) -> None:
    def f(tree: Any) -> Any:
        a, b = weft.tree_leaves(tree)
        return (a * a).sum() + (a * b).sum()

    a, b = tensor(1, 2), tensor(3, 4)
    gradient = weft.grad(f)(build(a, b))
    assert weft.tree_structure(gradient) == weft.tree_structure(build(a, b))
    assert_close(weft.tree_leaves(gradient), [a * 2.0 + b, a])


def test_keywords_and_other_arguments_are_passed_on() -> None:
    def f(x: Any, name: str, *, power: int, extra: Any = None) -> Any:
        assert (name, extra) == ("n", {"a": 1})
        return (x**power).sum()

    assert_close(weft.grad(f)(tensor(2), "n", power=3, extra={"a": 1}), tensor(12))


def test_numbers_and_arrays_are_taken_as_tensors() -> None:
    assert_close(weft.grad(lambda x: x * x)(3.0), weft.tensor(6.0))
    assert_close(weft.grad(lambda x: (x * x).sum())(np.array([1.0, 2.0])), tensor(2, 4))
    assert_close(weft.grad(lambda x: x * x)(np.float64(3.0)), weft.tensor(np.float64(6.0)))


def test_argument_that_is_not_used_has_gradient_zero() -> None:
    gradient = weft.grad(lambda t: (t["a"] * 2.0).sum())({"a": tensor(1), "b": tensor(1, 2)})
    assert_close(gradient, {"a": tensor(2), "b": tensor(0, 0)})
    assert_close(weft.grad(lambda x: weft.tensor(1.0))(tensor(1, 2)), tensor(0, 0))


def test_argument_that_is_the_result_has_gradient_one() -> None:
    assert_close(weft.grad(lambda x: x)(weft.tensor(5.0)), weft.tensor(1.0))


def test_value_and_grad_gives_both() -> None:
    value, gradient = weft.value_and_grad(lambda x: (x * x).sum())(tensor(1, 2))
    assert_close((value, gradient), (weft.tensor(np.float64(5.0)), tensor(2, 4)))
    assert not value.requires_grad


def test_aux_is_returned_and_not_differentiated() -> None:
    def f(x: Any) -> Any:
        return (x * x).sum(), {"twice": x * 2.0, "name": "n", "none": None}

    gradient, aux = weft.grad(f, has_aux=True)(tensor(1, 2))
    assert_close(gradient, tensor(2, 4))
    assert aux["name"] == "n"
    assert aux["none"] is None
    assert_close(aux["twice"], tensor(2, 4))
    assert not aux["twice"].requires_grad
    (value, again), gradient = weft.value_and_grad(f, has_aux=True)(tensor(1, 2))
    assert_close(
        (value, again["twice"], gradient), (weft.tensor(np.float64(5.0)), tensor(2, 4), tensor(2, 4))
    )


def test_function_may_change_its_argument() -> None:
    def f(x: Any) -> Any:
        x[0] = 5.0
        x += 1.0
        return (x * x).sum()

    x = tensor(1, 2)
    assert_close(weft.grad(f)(x), tensor(0, 6))
    assert_close(x, tensor(1, 2))


def test_complex_argument_follows_the_convention_of_backward() -> None:
    z = weft.tensor(np.array([1 + 2j, 3 - 1j]))

    def f(z: Any) -> Any:
        return (z * z.conj()).real.sum()

    gradient = weft.grad(f)(z)
    leaf = weft.tensor(z.numpy(), requires_grad=True)
    f(leaf).backward()
    assert_close(gradient, leaf.grad)
    assert_close(gradient, 2.0 * z)


def test_own_name_is_kept() -> None:
    def loss(x: Any) -> Any:
        """How bad it is."""
        return x

    assert weft.grad(loss).__name__ == "loss"
    assert weft.value_and_grad(loss).__doc__ == "How bad it is."


# Graph


def test_arguments_are_left_alone() -> None:
    x = weft.tensor([1.0, 2.0])
    weft.grad(lambda x: (x * x).sum())(x)
    assert not x.requires_grad
    leaf = weft.tensor([1.0, 2.0], requires_grad=True)
    weft.grad(lambda x: (x * x).sum())(leaf)
    assert leaf.grad is None


def test_gradient_of_closed_over_parameters() -> None:
    w = weft.tensor([3.0, 4.0], requires_grad=True)
    x = weft.tensor([1.0, 2.0])
    slope = weft.grad(lambda x: (w * x * x).sum())(x)
    assert slope.requires_grad
    slope.sum().backward()
    assert_close(w.grad, weft.tensor([2.0, 4.0]))


def test_closed_over_result_of_an_op_is_reached() -> None:
    w = weft.tensor([3.0, 4.0], requires_grad=True)
    h = w * w
    value, slope = weft.value_and_grad(lambda x: (h * x).sum())(weft.tensor([1.0, 2.0]))
    (value + slope.sum()).backward()
    assert_close(w.grad, weft.tensor([2 * 3.0 * 2.0, 2 * 4.0 * 3.0]))


def test_graph_of_the_call_is_freed() -> None:
    probe = weft.tensor(np.zeros(10))
    alive: list[weakref.ref[Any]] = []

    def f(x: Any) -> Any:
        y = x * x
        alive.append(weakref.ref(y))
        return y.sum()

    weft.grad(f)(probe)
    gc.collect()
    assert alive[0]() is None


def test_many_nested_steps_cost_the_same_each() -> None:
    """A loop of inner gradients, differentiated outside, walks its growing graph only once."""

    def descend(x: Any) -> Any:
        for _ in range(200):
            x = x - 0.01 * weft.grad(lambda y: (y * y).sum())(x)
        return x.sum()

    assert_close(weft.grad(descend)(tensor(1, 2)), tensor(*[0.98**200] * 2), rtol=1e-12)


# vjp


def test_vjp_gives_value_and_pullback() -> None:
    x, y = tensor(1, 2), tensor(3, 4)
    out, pull = weft.vjp(lambda a, b: {"product": a * b, "sum": a + b}, x, y)
    assert_close(out, {"product": x * y, "sum": x + y})
    assert not out["product"].requires_grad
    u, v = tensor(1, 10), tensor(2, 20)
    assert_close(pull({"sum": v, "product": u}), (u * y + v, u * x + v))
    assert_close(pull({"product": u, "sum": None}), (u * y, u * x))


def test_pullback_can_be_called_again() -> None:
    _, pull = weft.vjp(lambda a: a * a, tensor(1, 2))
    assert_close(pull(tensor(1, 1)), pull(tensor(1, 1)))


def test_pullback_is_not_disturbed_by_changes_of_the_value() -> None:
    x = weft.tensor(np.array([1.0, 2.0]), requires_grad=True)
    out, pull = weft.vjp(lambda a: a * a, x)
    out *= 10.0
    assert_close(pull(tensor(1, 1))[0], tensor(2, 4))


def test_closed_over_tensor_is_returned_as_it_is() -> None:
    w = weft.tensor([1.0], requires_grad=True)
    assert weft.grad(lambda x: (x.sum(), w), has_aux=True)(tensor(1))[1] is w
    with weft.no_grad():
        assert weft.grad(lambda x: (x.sum(), w), has_aux=True)(tensor(1))[1] is w


def test_pullback_is_differentiable_by_its_argument() -> None:
    _, pull = weft.vjp(lambda a: a * a * a, tensor(1, 2))
    u = weft.tensor(np.array([1.0, 1.0]), requires_grad=True)
    pull(u)[0].sum().backward()
    assert_close(u.grad, tensor(3, 12))


def test_output_that_is_not_floating_has_no_gradient() -> None:
    out, pull = weft.vjp(lambda a: (a * 2.0, weft.tensor(3)), tensor(1, 2))
    assert_close(out[1], weft.tensor(3))
    assert_close(pull((tensor(1, 1), weft.tensor(1))), (tensor(2, 2),))


def test_vjp_with_aux() -> None:
    out, pull, aux = weft.vjp(lambda a: (a * 2.0, a * 3.0), tensor(1, 2), has_aux=True)
    assert_close((out, aux, pull(tensor(1, 1))), (tensor(2, 4), tensor(3, 6), (tensor(2, 2),)))


def test_gradients_agree_with_finite_differences_through_a_network() -> None:
    rng = np.random.default_rng(0)
    params = {
        "layers": [
            Layer(weft.tensor(rng.standard_normal((3, 4))), weft.tensor(rng.standard_normal(4))),
            Layer(weft.tensor(rng.standard_normal((4, 2))), weft.tensor(rng.standard_normal(2))),
        ]
    }

    def network(params: Any, x: Any) -> Any:
        for layer in params["layers"]:
            x = weft.tanh(x @ layer.weight + layer.bias)
        return x

    assert gradcheck(network, (params, weft.tensor(rng.standard_normal((5, 3)))), batched=True)


# Threads


def test_threads_do_not_disturb_each_other() -> None:
    results: dict[int, Any] = {}

    def work(k: int) -> None:
        x = weft.tensor(np.full(3, float(k)))
        for _ in range(20):
            slope = weft.grad(lambda a: (a * a * a).sum())
            hvp = weft.jvp(slope, (x,), (x,))[1]
            rows = weft.vmap(slope)(weft.tensor(np.full((4, 3), float(k))))
            with weft.no_grad():
                value = slope(x)
        results[k] = (hvp, rows, value)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(8):
        hvp, rows, value = results[k]
        assert_close(hvp, np.full(3, 6.0 * k * k))
        assert_close(rows, np.full((4, 3), 3.0 * k * k))
        assert_close(value, np.full(3, 3.0 * k * k))


# Errors


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: weft.grad(lambda a: a)(x),
            GradientError,
            r"grad: the function must return one real number, got f64\[2\]",
        ),
        (lambda x: weft.grad(lambda a: 3.0)(x), GradientError, "must return a tensor, got float"),
        (lambda x: weft.grad(lambda a: None)(x), GradientError, "must return a tensor, got NoneType"),
        (
            lambda x: weft.grad(lambda a: (a * (1 + 1j)).sum())(x),
            GradientError,
            r"one real number, got c128\[\]",
        ),
        (
            lambda x: weft.grad(lambda a: a.sum())(weft.tensor([1, 2])),
            DtypeError,
            r"argument 0 must be .* got i64\[2\]",
        ),
        (
            lambda x: weft.grad(lambda a: a["x"].sum())({"x": x, "n": [weft.tensor(1)]}),
            DtypeError,
            r"argument 0\['n'\]\[0\] must be floating or complex to be differentiated, got i64\[\]",
        ),
        (
            lambda x: weft.grad(lambda a: a[0].sum())([x, "s"]),
            ArgumentError,
            r"argument 0\[1\] must be a tensor, got str",
        ),
        (
            lambda x: weft.grad(lambda a: a.sum(), argnums=1)(x),
            ArgumentError,
            "one of the 1 positional arguments, got 1",
        ),
        (lambda x: weft.grad(lambda a: a.sum())(), ArgumentError, "one of the 0 positional arguments, got 0"),
        (
            lambda x: weft.grad(lambda a: a.sum(), argnums="0")(x),
            ArgumentError,
            "must be an int or a tuple of ints",
        ),
        (
            lambda x: weft.grad(lambda a, b: a.sum(), argnums=(0, -2))(x, x),
            ArgumentError,
            "argnums must be distinct",
        ),
        (lambda x: weft.grad(3), ArgumentError, "grad: must be given a function, got int"),
        (
            lambda x: weft.grad(lambda a: a.sum(), has_aux=True)(x),
            ArgumentError,
            r"must return \(output, aux\)",
        ),
        (lambda x: weft.vjp(lambda a: (a, "s"), x), ArgumentError, r"vjp: .* got str at \[1\]"),
        (
            lambda x: weft.vjp(lambda a: (a, a), x)[1](x),
            ArgumentError,
            "got tuple of 2 and Tensor at the gradient",
        ),
        (
            lambda x: weft.vjp(lambda a: a, x)[1](x.sum()),
            ShapeError,
            r"must be of type f64\[2\], got f64\[\]",
        ),
    ],
)
def test_mistake_is_reported(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(tensor(1, 2))


def test_error_inside_the_function_passes_through_and_leaves_recording_as_it_was() -> None:
    def f(x: Any) -> Any:
        raise ZeroDivisionError("mine")

    for transform in (
        weft.grad(f),
        weft.vmap(f),
        lambda x: weft.jvp(f, (x,), (x,)),
        lambda x: weft.vjp(f, x),
    ):
        with weft.no_grad():
            with pytest.raises(ZeroDivisionError, match="mine"):
                transform(tensor(1, 2))
            assert not weft.is_grad_enabled()
        assert weft.is_grad_enabled()
