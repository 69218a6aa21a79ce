"""Products of a matrix with its own transpose: half is computed, and all of it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.threads import on_threads

Program = Callable[[Any], Any]


def numbers(shape: tuple[int, int], dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def kernels(f: Any, x: weft.Tensor, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    f.explain(x)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "shape", "dtype"),
    [
        (lambda x: x @ x.T, (531, 700), np.float64),
        (lambda x: x.T @ x, (700, 640), np.float64),
        (lambda x: x @ x.T, (515, 600), np.float32),
        (lambda x: x @ x.T / 3.0 + 1.0, (600, 513), np.float64),
        (lambda x: (x @ x.T) * x[:, :512], (512, 700), np.float64),  # what follows is not symmetric
        (lambda x: x[3:, 7:] @ x[3:, 7:].T, (600, 607), np.float64),
    ],
)
def test_values(
    program: Program, shape: tuple[int, int], dtype: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    x = numbers(shape, dtype)
    f = weft.compile(program)
    found = f(weft.tensor(x)).numpy()
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, program(x.astype(np.float64)), rtol=0, atol=2e-2 if dtype is np.float32 else 1e-9
    )
    assert "matmul_symmetric" in kernels(f, weft.tensor(x), capsys)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x @ x,
        lambda x: x[:, :600] @ x[:, 50:].T,  # two parts of one matrix
        lambda x: x[:511] @ x[:511].T,  # too small
    ],
)
def test_other_products_are_computed_whole(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    x = numbers((650, 650))
    f = weft.compile(program)
    np.testing.assert_allclose(f(weft.tensor(x)).numpy(), program(x), rtol=0, atol=1e-9)
    assert "matmul_symmetric" not in kernels(f, weft.tensor(x), capsys)


def test_the_result_is_symmetric_to_the_bit_on_any_number_of_threads() -> None:
    x = weft.tensor(numbers((777, 513)))
    found = on_threads(lambda: weft.compile(lambda x: x @ x.T)(x).numpy())
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0], found[0].T)


def test_covariances() -> None:
    x = numbers((600, 520))
    found = weft.compile(lambda x: weft.cov(x.T))(weft.tensor(x)).numpy()
    np.testing.assert_allclose(found, np.cov(x.T), rtol=0, atol=1e-12)


def test_gradient() -> None:
    x, weights = numbers((520, 515)), np.random.default_rng(1).standard_normal((520, 520))
    f = weft.compile(weft.grad(lambda x, w: (x @ x.T * w).sum()))
    found = f(weft.tensor(x), weft.tensor(weights)).numpy()
    np.testing.assert_allclose(found, (weights + weights.T) @ x, rtol=0, atol=1e-9)
