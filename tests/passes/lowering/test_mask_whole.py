"""What is done with elements that a mask picks: computed for all where that is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.passes.lowering.mask_whole import mask_whole

X = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)


def square(x: Any, y: Any) -> Any:
    for _ in range(3):
        m = abs(x) < 1.5
        x[m] = x[m] ** 2 + y[m] * 0.5
    return x


def of_one_axis(x: Any, y: Any) -> Any:
    x, y = x[0], y[0]
    for i in range(3):
        m = x > i - 1
        x[m] = y[m] - x[m]
    return x


def of_three_axes(x: Any, y: Any) -> Any:
    x, y = x.reshape((2, 2, 5)), y.reshape((2, 2, 5))
    for _ in range(2):
        m = x > y
        x[m] = y[m] * 2.0
    return x


def numbers(x: Any, y: Any) -> Any:
    for i in range(3):
        m = x > i
        x[m] = i
    return x


def sums(x: Any, y: Any) -> Any:
    total = y[0, 0] * 0.0
    for i in range(4):
        m = x < i - 1
        total = total + (x[m] * y[m]).sum()
    return total


def means(x: Any, y: Any) -> Any:
    total = y[0, 0] * 0.0
    for i in range(2):
        total = total + x[x < i + 1].mean()
    return total


WHOLE = (square, of_one_axis, of_three_axes, numbers, sums, means)


def divided_by_their_sum(x: Any, y: Any) -> Any:
    for i in range(2):
        m = x > i
        x[m] = x[m] / (1.0 + x[m].sum())
    return x


def by_another_mask(x: Any, y: Any) -> Any:
    x, y = x[0], y[0]
    for _ in range(2):
        m = x > 0
        first = x[m]
        m = y > x
        x[m] = x[m] + first.sum()
    return x


@pytest.mark.rotating(3)
@pytest.mark.parametrize("f", [*WHOLE, divided_by_their_sum, by_another_mask])
def test_loop_with_masks_does_what_eager_code_does(f: Callable[..., Any]) -> None:
    for x, y in ((X, Y), (Y, X), (X * 0 - 9, Y)):  # by one compiled version: other counts, and none
        found = weft.compile(f)
        np.testing.assert_allclose(
            found(weft.tensor(x), weft.tensor(y)).numpy(),
            f(weft.tensor(x), weft.tensor(y)).numpy(),
            rtol=2e-5,
        )


@pytest.mark.parametrize("f", WHOLE)
def test_one_version_serves_every_count(f: Callable[..., Any]) -> None:
    found = weft.compile(f)
    for x, y in ((X, Y), (Y, X), (X * 0 + 0.25, Y)):
        expected = f(weft.tensor(x), weft.tensor(y)).numpy()
        np.testing.assert_allclose(found(weft.tensor(x), weft.tensor(y)).numpy(), expected, rtol=2e-5)
    assert len(found.versions) == 1
    assert "true_places" not in str(found.lowered)


def test_what_needs_the_picked_ones_in_a_row_is_left() -> None:
    def f(x: Any) -> Any:
        m = x > 0
        x[m] = weft.flip(x[m])
        return x

    graph = weft.make_graph(f)(weft.TensorType((6,), weft.float32)).optimize()
    assert "true_places" in str(mask_whole(graph))


def test_integers_that_were_not_picked_do_not_divide() -> None:
    def f(x: Any, y: Any) -> Any:
        for _ in range(2):
            m = y != 0
            x[m] = x[m] // y[m]
        return x

    x, y = weft.tensor([8, 9, 10]), weft.tensor([2, 0, 5])
    assert weft.compile(f)(x, y).tolist() == [2, 9, 0]


def test_masked_update_in_a_loop_has_a_gradient() -> None:
    def f(x: Any, y: Any) -> Any:
        z = x * 1.0
        for _ in range(2):
            m = z < 0.5
            z[m] = z[m] * y[m] + 1.0
        return z.sum()

    x, y = weft.tensor(X.astype(np.float64)), weft.tensor(Y.astype(np.float64))
    found = weft.compile(weft.grad(f, argnums=(0, 1)))(x, y)
    for a, b in zip(found, weft.grad(f, argnums=(0, 1))(x, y), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)
