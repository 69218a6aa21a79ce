"""Backward rules on large arrays outside of graphs: one kernel each, against their ops one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.backends.eager import rules as eager_rules

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def kernels_are_on() -> Iterator[None]:
    weft.set_eager_kernels(True)
    yield
    weft.set_eager_kernels(True)


def positive(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).uniform(0.5, 2.0, shape)


FUNCTIONS: list[Function] = [
    weft.relu,
    weft.exp,
    weft.tanh,
    weft.sigmoid,
    weft.sqrt,
    weft.log,
    lambda x: x * x,
    lambda x: x / (x + 3.0),
    lambda x: 2.0**x,
    lambda x: x**3,
    lambda x: weft.maximum(x, 1.0),
    weft.softmax,
    weft.log_softmax,
    lambda x: weft.softmax(x, axis=0),
    lambda x: weft.logsumexp(x, axis=1),
    lambda x: x.amax(axis=1) if hasattr(x, "amax") else weft.max(x, axis=1),
    lambda x: x @ weft.tensor(positive(300, 40, seed=1)),
    lambda x: x * weft.tensor(positive(300, seed=2)),
    lambda x: x - weft.tensor(positive(256, 1, seed=3)),
]


def gradient(function: Function, *arrays: Any) -> list[Any]:
    leaves = [weft.tensor(a, requires_grad=True) for a in arrays]
    out = function(*leaves)
    (out * weft.tensor(positive(*out.shape, seed=9))).sum().backward()
    return [leaf.grad.numpy() for leaf in leaves]


def one_by_one(function: Function, *args: Any) -> Any:
    weft.set_eager_kernels(False)
    try:
        return function(*args)
    finally:
        weft.set_eager_kernels(True)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_a_kernel_gives_what_the_rule_gives(number: int) -> None:
    x = positive(256, 300)
    got, expected = gradient(FUNCTIONS[number], x), one_by_one(gradient, FUNCTIONS[number], x)
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "shapes", [((256, 300), (256, 300)), ((256, 300), (300,)), ((256, 1), (256, 300)), ((256, 300), ())]
)
def test_both_sides_of_a_product_get_their_gradients(shapes: tuple[tuple[int, ...], ...]) -> None:
    arrays = [positive(*shape, seed=i) for i, shape in enumerate(shapes)]
    for function in (lambda x, y: x * y, lambda x, y: x / y, weft.pow, lambda x, y: x - y):
        got, expected = gradient(function, *arrays), one_by_one(gradient, function, *arrays)
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-9)


def test_one_kernel_serves_all_shapes_of_an_elementwise_rule() -> None:
    gradient(weft.asinh, positive(300, 300))
    before = len(eager_rules._kernels)
    for shape in ((70000,), (100, 10, 90), (300, 301)):
        x = positive(*shape)
        expected = positive(*shape, seed=9) / np.sqrt(x * x + 1)
        np.testing.assert_allclose(gradient(weft.asinh, x)[0], expected, rtol=1e-10)
    assert len(eager_rules._kernels) == before


def test_a_batch_of_another_size_needs_no_other_kernel() -> None:
    gradient(weft.softmax, positive(200, 400))
    before = len(eager_rules._kernels)
    x = positive(250, 400)
    np.testing.assert_allclose(gradient(weft.softmax, x), one_by_one(gradient, weft.softmax, x), rtol=1e-9)
    assert len(eager_rules._kernels) == before


def test_zeros_that_mean_not_chosen_stay_zeros() -> None:
    x = np.linspace(-1.0, 1.0, 1 << 17)
    t = weft.tensor(x, requires_grad=True)
    weft.where(t > 0, weft.log(t), 0.0).sum().backward()
    expected = np.where(x > 0, 1 / np.where(x > 0, x, 1.0), 0.0)
    np.testing.assert_allclose(t.grad.numpy(), expected)


def test_second_derivatives_go_through_the_ops() -> None:
    x = weft.tensor(positive(256, 300), requires_grad=True)
    (g,) = weft.autograd.grad(weft.exp(x * x).sum(), [x], create_graph=True)
    (second,) = weft.autograd.grad(g.sum(), [x])
    a = x.detach().numpy()
    np.testing.assert_allclose(second.numpy(), (2 + 4 * a * a) * np.exp(a * a), rtol=1e-9)


def test_equal_gradients_have_equal_bits() -> None:
    x = positive(256, 300).astype("f4")
    first, again = (gradient(lambda x: weft.softmax(x) * weft.tanh(x), x)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_a_large_sum_of_gradients_is_right() -> None:
    x = positive(256, 300)
    got = gradient(lambda x: x * 2.0 + weft.exp(x) + x.reshape(256, 300) * x, x)
    expected = positive(256, 300, seed=9) * (2 + np.exp(x) + 2 * x)
    np.testing.assert_allclose(got[0], expected, rtol=1e-10)
