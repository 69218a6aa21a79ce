"""The order of truth values, and what masks pick by it, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft


def mask_of(shape: tuple[int, ...], share: float) -> np.ndarray:
    return np.random.default_rng(0).random(shape) < share


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((0,), 0),
        ((1,), 0),
        ((64,), 0),
        ((65,), 0),
        ((1000,), 0),
        ((3, 100), 1),
        ((100, 3), 0),
        ((2, 70, 3), 1),
    ],
)
def test_equal_ones_stay_in_their_order(
    shape: tuple[int, ...], axis: int, share: float, descending: bool
) -> None:
    x = mask_of(shape, share)
    f = weft.compile(lambda x: weft.argsort(x, axis=axis, descending=descending))
    expected = np.argsort(~x if descending else x, axis=axis, kind="stable")
    np.testing.assert_array_equal(f(weft.tensor(x)).numpy(), expected)


def picked(x: weft.Tensor, limit: float) -> tuple[weft.Tensor, ...]:
    mask = x > limit
    first = x[mask]
    mask[:2] = True  # another mask now
    return first, x[mask] * 2.0, (x + 1.0)[mask], weft.nonzero(mask)[0]


@pytest.mark.parametrize("limit", [-9.0, 0.0, 0.5, 9.0])
def test_one_mask_picks_several_times_and_may_change_in_between(limit: float) -> None:
    f = weft.compile(picked)
    for seed in range(3):  # other elements, and another number of them
        x = np.random.default_rng(seed).standard_normal(90)
        mask = x > limit
        later = mask.copy()
        later[:2] = True
        expected = x[mask], x[later] * 2.0, (x + 1.0)[later], np.nonzero(later)[0]
        for part, wanted in zip(f(weft.tensor(x), limit), expected, strict=True):
            np.testing.assert_array_equal(part.numpy(), wanted)


def test_gradient_through_what_one_mask_picks_twice() -> None:
    x = np.random.default_rng(1).standard_normal(70)

    def loss(x: weft.Tensor) -> weft.Tensor:
        mask = x > 0.0
        return (x[mask] ** 2 * (3.0 * x)[mask]).sum()

    found = weft.compile(weft.grad(loss))(weft.tensor(x)).numpy()
    np.testing.assert_allclose(found, np.where(x > 0, 9.0 * x**2, 0.0), rtol=1e-12)
