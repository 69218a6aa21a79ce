"""Sorting for a GPU: rows that fit into shared memory and that do not, in the order of the processor's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulator import EmulatedCard
from tests.gpu.plain_driver import run_on_card
from tests.schedule.test_gpu import run_grid
from weft.backends.cuda.build import build_program
from weft.schedule.gpu import sorting


def _rows(dtype: Any, *shape: int) -> Any:
    """Few different numbers, so that many are equal; of floats NaN, infinities and both zeros, too."""
    random = np.random.default_rng(sum(shape))
    x = random.integers(-9, 9, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5], dtype)
        x = np.where(random.random(shape) < 0.4, random.choice(special, shape), x)
    return x


def _run(function: Any, x: Any) -> list[Any]:
    graph = weft.make_graph(function)(weft.tensor(x)).optimize()
    found: list[Any] = run_on_card(EmulatedCard(), build_program(graph), [x])
    return found


def _stable(x: Any, descending: bool) -> Any:
    """The order of the last axis; NaN counts as the largest, and equal ones keep their order."""
    key = np.where(np.isnan(x), np.inf, x) if x.dtype.kind == "f" else x.astype(np.int64)
    nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    sign = -1 if descending else 1
    number = np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    return np.lexsort((number, sign * key, sign * nan.astype(int)), axis=-1)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.float16])
def test_rows_that_fit(dtype: Any) -> None:
    for shape, descending in (((3, 17), False), ((2, 70), True)):
        x = _rows(dtype, *shape)
        order = _stable(x, descending)
        (found,) = _run(lambda x, d=descending: weft.argsort(x, axis=1, descending=d), x)
        np.testing.assert_array_equal(found, order)
        (values,) = _run(lambda x, d=descending: weft.sort(x, axis=1, descending=d), x)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))


def test_another_axis_and_the_grid_interpreter() -> None:
    x = _rows(np.float32, 20, 3)
    graph = weft.make_graph(lambda x: weft.argsort(x, axis=0))(weft.tensor(x)).optimize()
    np.testing.assert_array_equal(run_grid(graph, [x])[0], _stable(x.T, False).T)


@pytest.mark.rotating(2)
def test_rows_that_are_cut_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_ROOM", 256)  # 32 keys with numbers, 64 without
    for size, descending in ((65, True), (100, False)):
        x = _rows(np.float32, 2, size)
        order = _stable(x, descending)
        (found,) = _run(lambda x, d=descending: weft.argsort(x, axis=1, descending=d), x)
        np.testing.assert_array_equal(found, order)
        (values,) = _run(lambda x, d=descending: weft.sort(x, axis=1, descending=d), x)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))


@pytest.mark.rotating(2)
def test_the_first_few_of_a_long_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_ROOM", 256)
    x = np.random.default_rng(0).permutation(200).reshape(2, 100).astype(np.float32)
    for k in (5, 70):
        found = _run(lambda x, k=k: weft.topk(x, k, axis=1), x)
        order = np.argsort(-x, axis=1)[:, :k]
        np.testing.assert_array_equal(found[0], np.take_along_axis(x, order, 1))
        np.testing.assert_array_equal(found[1], order)
