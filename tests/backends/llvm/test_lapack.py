"""Factorisations that compiled code has LAPACK compute into its own memory, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import DomainError

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        found = found + 1j * rng.standard_normal(shape)
    return found.astype(dtype)


def positive(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    x = numbers(shape, dtype)
    return (x @ np.swapaxes(x.conj(), -1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def close(dtype: Any) -> dict[str, float]:
    return {"rtol": 0, "atol": 3e-4 if np.dtype(dtype).char in "fF" else 1e-11}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(0, 0), (1, 1), (2, 2), (63, 63), (65, 65), (300, 300), (2, 3, 5, 5), (0, 3, 3)]
)
def test_cholesky(shape: tuple[int, ...], dtype: Any) -> None:
    x = positive(shape, dtype)
    found = weft.compile(lambda x: weft.linalg.cholesky(x))(weft.tensor(x)).numpy()
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.linalg.cholesky(x), **close(dtype))


def test_cholesky_of_a_matrix_that_is_not_quite_symmetric_takes_its_symmetric_part() -> None:
    x = positive((200, 200), np.float64)
    skew = numbers((200, 200), np.float64)
    found = weft.compile(lambda x: weft.linalg.cholesky(x))(weft.tensor(x + skew - skew.T)).numpy()
    np.testing.assert_allclose(found, np.linalg.cholesky(x), rtol=0, atol=1e-10)


def test_cholesky_into_the_matrix_itself() -> None:
    def change(a: weft.Tensor) -> None:
        a[:] = weft.linalg.cholesky(a)

    x = positive((150, 150), np.float64)
    a = weft.tensor(x)
    weft.compile(change)(a)
    np.testing.assert_allclose(a.numpy(), np.linalg.cholesky(x), rtol=0, atol=1e-11)


def test_cholesky_of_a_matrix_that_is_not_positive_definite() -> None:
    x = positive((2, 70, 70), np.float64)
    x[1, 2, 2] = -1.0
    f = weft.compile(lambda x: weft.linalg.cholesky(x))
    with pytest.raises(DomainError) as eager:
        weft.linalg.cholesky(weft.tensor(x))
    with pytest.raises(DomainError) as compiled:
        f(weft.tensor(x))
    assert str(compiled.value).splitlines()[0] == str(eager.value).splitlines()[0]
    assert "matrix 1 of f64[2,70,70]" in str(compiled.value)


@pytest.mark.parametrize("n", [4, 70])  # as loops, by the library
@pytest.mark.parametrize("place", [(2, 2), (3, 1), (1, 3)])
def test_cholesky_of_what_is_not_a_number(n: int, place: tuple[int, int]) -> None:
    x = positive((n, n), np.float64)
    x[place] = np.nan
    found = weft.compile(lambda x: weft.linalg.cholesky(x))(weft.tensor(x)).numpy()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(weft.linalg.cholesky(weft.tensor(x)).numpy()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((1, 1), (1, 1)),
        ((50, 50), (50, 150)),
        ((33, 33), (33, 1)),
        ((3, 3), (3, 0)),
        ((0, 0), (0, 2)),
        ((4, 3, 3), (3, 2)),
        ((3, 3), (4, 3, 2)),
    ],
)
def test_solve(left: tuple[int, ...], right: tuple[int, ...], dtype: Any) -> None:
    a = numbers(left, dtype) + (2 * left[-1] * np.eye(left[-1])).astype(dtype)
    b = numbers(right, dtype, seed=1)
    found = weft.compile(lambda a, b: weft.linalg.solve(a, b))(weft.tensor(a), weft.tensor(b)).numpy()
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.linalg.solve(a, b), **close(dtype))


def test_solve_with_a_singular_matrix() -> None:
    a, b = weft.tensor([[1.0, 2.0], [2.0, 4.0]]), weft.ones(2, 3)
    with pytest.raises(DomainError, match="must be invertible, got a singular one"):
        weft.compile(lambda a, b: weft.linalg.solve(a, b))(a, b)


def test_solve_changes_neither_side() -> None:
    a, b = numbers((9, 9), np.float64) + 9 * np.eye(9), numbers((9, 4), np.float64, seed=2)

    def f(a: weft.Tensor, b: weft.Tensor) -> tuple[weft.Tensor, ...]:
        doubled, more = a * 2.0, b + 1.0
        return weft.linalg.solve(doubled, more), doubled, more

    x, doubled, more = weft.compile(f)(weft.tensor(a), weft.tensor(b))
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(2 * a, b + 1), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(doubled.numpy(), 2 * a)
    np.testing.assert_array_equal(more.numpy(), b + 1)


def test_gradient_through_both() -> None:
    a, b = positive((5, 5), np.float64), numbers((5, 3), np.float64)

    def loss(a: weft.Tensor, b: weft.Tensor) -> weft.Tensor:
        return (weft.linalg.cholesky(a) @ weft.linalg.solve(a, b)).sum() ** 2

    tensors = weft.tensor(a), weft.tensor(b)
    found = weft.compile(weft.grad(loss, argnums=(0, 1)))(*tensors)
    along = numbers((5, 5), np.float64, 3), numbers((5, 3), np.float64, 4)
    step = 1e-6
    ends = [
        float(loss(*(weft.tensor(x + sign * step * way) for x, way in zip((a, b), along, strict=True))))
        for sign in (1, -1)
    ]
    slope = sum(float((g.numpy() * way).sum()) for g, way in zip(found, along, strict=True))
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)
