"""``where`` lets no NaN from the side that was not taken into the gradient, whatever was computed there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import weft

X = [0.0, 2.0, -1.0]


def entropy(x: weft.Tensor) -> weft.Tensor:
    return weft.where(x > 0, weft.log(x) * x, 0.0)


def infinite_product(x: weft.Tensor) -> weft.Tensor:
    return weft.where(x > 0, weft.exp(1 / x) * x, x * 2)


def through_views(x: weft.Tensor) -> weft.Tensor:
    inner = (x * weft.log(x)).reshape(3, 1).reshape(3)
    return weft.where(x > 0, inner, 1.0) * 3


def infinite_constant(x: weft.Tensor) -> weft.Tensor:
    factors = weft.tensor([float("inf"), 2.0, float("nan")])
    return weft.where(x > 0, x * factors, x)


def two_masks(x: weft.Tensor) -> weft.Tensor:
    return weft.where(x > 0, weft.where(x > 1, x * weft.log(x - 1 + 1e-3), weft.sqrt(x) / x), 0.0)


SLOPES: list[tuple[Callable[[weft.Tensor], weft.Tensor], list[float]]] = [
    (entropy, [0, np.log(2) + 1, 0]),
    (infinite_product, [2, np.exp(0.5) * (1 - 0.5), 2]),
    (through_views, [0, 3 * (np.log(2) + 1), 0]),
    (infinite_constant, [1, 2, 1]),
    (two_masks, [0, np.log(1.001) + 2 / 1.001, 0]),
]


@pytest.mark.parametrize(("function", "expected"), SLOPES)
def test_gradient_is_that_of_the_side_taken(
    function: Callable[[weft.Tensor], weft.Tensor], expected: list[float]
) -> None:
    x = weft.tensor(X, requires_grad=True)
    function(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=2e-5)


@pytest.mark.parametrize(("function", "expected"), SLOPES)
def test_gradient_with_a_graph_is_that_of_the_side_taken(
    function: Callable[[weft.Tensor], weft.Tensor], expected: list[float]
) -> None:
    x = weft.tensor(X, requires_grad=True)
    (g,) = weft.autograd.grad(function(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), expected, rtol=2e-5)


@pytest.mark.parametrize(("function", "expected"), SLOPES)
def test_forward_mode_agrees(function: Callable[[weft.Tensor], weft.Tensor], expected: list[float]) -> None:
    _, tangent = weft.jvp(function, (weft.tensor(X),), (weft.ones(3),))
    np.testing.assert_allclose(tangent.numpy(), expected, rtol=2e-5)


def test_second_order_of_entropy() -> None:
    hessian = weft.grad(lambda v: weft.grad(lambda u: entropy(u).sum())(v).sum())(weft.tensor([0.0, 2.0]))
    np.testing.assert_allclose(hessian.numpy(), [0, 0.5], rtol=1e-5)


def test_whole_side_not_taken() -> None:
    x = weft.tensor([0.0, 1.0], requires_grad=True)
    weft.where(x.sum() > 5, (x * weft.log(x)).sum(), x.sum()).backward()
    assert x.grad.tolist() == [1, 1]


def test_true_nan_still_shows() -> None:
    x = weft.tensor([0.0], requires_grad=True)
    (x * weft.log(x)).sum().backward()
    assert np.isnan(x.grad.numpy()).all() or np.isinf(x.grad.numpy()).all()


def test_masked_fill_lets_none_through() -> None:
    x = weft.tensor([0.0, 2.0], requires_grad=True)
    weft.masked_fill(x * weft.log(x), weft.tensor([True, False]), 0.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0, np.log(2) + 1], rtol=1e-5)
