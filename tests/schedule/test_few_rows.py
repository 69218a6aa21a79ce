"""Products of few rows with a large matrix: right in every size, and on any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.threads import on_threads
from weft.schedule.cpu.matmul.few_rows import MOST_ROWS, suits_few_rows
from weft.schedule.cpu.matmul.plan import Matrices
from weft.schedule.cpu.tuning import Tuning


def operands(m: int, k: int, n: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("m", "k", "n", "dtype"),
    [
        (2, 1037, 1203, np.float32),  # parts of k and of columns that are not all of one length
        (3, 640, 1024, np.float64),
        (8, 70, 9001, np.float64),  # less k than one part for each thread
        (16, 1200, 901, np.float32),
        (5, 9000, 127, np.float32),
    ],
)
def test_product_of_few_rows(m: int, k: int, n: int, dtype: Any, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = operands(m, k, n, dtype)
    f = weft.compile(lambda a, b: weft.maximum(a @ b + 1.0, 0.0))
    found = f(weft.tensor(a), weft.tensor(b)).numpy()
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + 1.0, 0.0)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 if dtype is np.float32 else 1e-10)
    f.explain()
    assert "matmul_rows" in capsys.readouterr().out


def test_bits_do_not_depend_on_threads() -> None:
    a, b = (weft.tensor(x) for x in operands(8, 1000, 1100, np.float32))
    found = on_threads(lambda: weft.compile(lambda a, b: a @ b)(a, b).numpy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "p",
    [
        Matrices(MOST_ROWS + 1, 2048, 2048, (2048, 1), (2048, 1), np.dtype("f4")),
        Matrices(1, 2048, 2048, (2048, 1), (2048, 1), np.dtype("f4")),
        Matrices(8, 2048, 2048, (2048, 1), (1, 2048), np.dtype("f4")),  # whose columns lie in order
        Matrices(8, 64, Tuning().stream_bytes // 256 - 1, (2048, 1), (64, 1), np.dtype("f4")),
        Matrices(8, 2048, 2048, (2048, 1), (2048, 1), np.dtype("c16")),
    ],
)
def test_other_products_are_left_to_tiles(p: Matrices) -> None:
    assert not suits_few_rows(p, 2, Tuning())


def weighted_rows(x: weft.Tensor, data: weft.Tensor) -> weft.Tensor:
    """Rows times what is left of a matrix from a column on, in a loop."""
    rows, columns = x.shape[0], data.shape[1]
    found = weft.zeros((columns + 1, rows, columns), dtype=data.dtype)
    for i in range(columns + 1):
        found[i, :, i:] = x @ data[:, i:] / 3.0
    return found


def in_numpy(x: np.ndarray, data: np.ndarray) -> np.ndarray:
    rows, columns = x.shape[0], data.shape[1]
    found = np.zeros((columns + 1, rows, columns), dtype=data.dtype)
    for i in range(columns + 1):
        found[i, :, i:] = x @ data[:, i:] / 3.0
    return found


@pytest.mark.parametrize(
    ("m", "k", "n", "dtype"),
    [
        (1, 8, 1, np.float64),
        (1, 19, 300, np.float64),  # blocks of columns, with a last one of any length, down to none
        (3, 16, 131, np.float32),
        (4, 9, 260, np.float32),
        (1, 7, 40, np.float64),  # too short: tiles
        (5, 30, 40, np.float64),  # too many rows: tiles
    ],
)
def test_columns_of_a_slice_in_a_loop(m: int, k: int, n: int, dtype: Any) -> None:
    x, data = operands(m, k, n, dtype)
    found = weft.compile(weighted_rows)(weft.tensor(x), weft.tensor(data)).numpy()
    np.testing.assert_allclose(found, in_numpy(x, data), rtol=0, atol=1e-4 if dtype is np.float32 else 1e-12)


def test_columns_of_a_slice_are_summed_block_by_block(capsys: pytest.CaptureFixture[str]) -> None:
    x, data = (weft.tensor(part) for part in operands(1, 50, 60, np.float64))
    f = weft.compile(weighted_rows)
    f(x, data)
    f.explain()
    assert "matmul_columns" in capsys.readouterr().out


def test_columns_of_a_slice_give_the_same_bits_on_any_number_of_threads() -> None:
    x, data = (weft.tensor(part) for part in operands(2, 70, 400, np.float64))
    found = on_threads(lambda: weft.compile(weighted_rows)(x, data).numpy())
    np.testing.assert_array_equal(*found)


def test_gradient_through_columns_of_a_slice() -> None:
    x, data = (weft.tensor(part) for part in operands(1, 12, 7, np.float64))
    weights = weft.tensor(np.random.default_rng(5).standard_normal((8, 1, 7)))

    def loss(x: weft.Tensor, data: weft.Tensor) -> weft.Tensor:
        return (weighted_rows(x, data) ** 2 * weights).sum()

    compiled = weft.compile(weft.grad(loss, argnums=(0, 1)))(x, data)
    rng = np.random.default_rng(6)
    along = [weft.tensor(rng.standard_normal(part.shape)) for part in (x, data)]
    step = 1e-6
    after, before = (
        loss(*(part + sign * step * way for part, way in zip((x, data), along, strict=True)))
        for sign in (1, -1)
    )
    slope = sum(float((g * way).sum()) for g, way in zip(compiled, along, strict=True))
    assert slope == pytest.approx(float(after - before) / (2 * step), rel=1e-6)
