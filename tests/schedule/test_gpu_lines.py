"""Running results of few long lines, and places of extremes, for a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulator import EmulatedCard
from tests.gpu.plain_driver import run_on_card
from weft.backends.cuda.build import build_program
from weft.schedule.gpu import scans


def _run(function: Any, x: Any) -> list[Any]:
    graph = weft.make_graph(function)(weft.tensor(x)).optimize()
    found: list[Any] = run_on_card(EmulatedCard(), build_program(graph), [x])
    return found


@pytest.mark.rotating(2)
def test_lines_that_are_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_LONGEST_PART", 1024)
    x = np.random.default_rng(0).integers(-9, 9, (1, 2500)).astype(np.float32)
    np.testing.assert_array_equal(_run(lambda x: weft.cumsum(x, axis=1), x)[0], np.cumsum(x, axis=1))
    np.testing.assert_array_equal(
        _run(lambda x: weft.cummax(x, axis=1)[0], x)[0], np.maximum.accumulate(x, axis=1)
    )
    gradient = weft.grad(lambda x: (weft.cumsum(x, axis=1) * x).sum())  # goes backward, too
    wanted = np.cumsum(x, axis=1) + np.cumsum(x[:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_array_equal(_run(gradient, x)[0], wanted)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint32, bool, np.float64, np.int64])
def test_places_of_extremes(dtype: Any) -> None:
    """The first of equal ones; NaN comes before all; both zeros are equal."""
    random = np.random.default_rng(1)
    x = random.integers(0, 5, (4, 70)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x = np.where(x == 0, random.choice(np.array([0.0, -0.0], dtype), x.shape), x - 2)
        x[1, [30, 50]] = np.nan
        x[2, 9] = -np.inf
    for axis in (0, 1):
        largest, smallest = _run(lambda x, a=axis: (weft.argmax(x, axis=a), weft.argmin(x, axis=a)), x)
        np.testing.assert_array_equal(largest, np.argmax(x, axis=axis))
        np.testing.assert_array_equal(smallest, np.argmin(x, axis=axis))


def test_arrays_of_one_number_are_filled_in_vectors() -> None:
    for size, dtype in ((4096, np.float32), (4100, np.float32), (8200, np.float16), (4097, np.float32)):
        x = np.arange(3, dtype=dtype)
        graph = weft.make_graph(lambda x, n=size: weft.concat([weft.full((n,), 2.5, dtype=x.dtype), x]))(
            weft.tensor(x)
        ).optimize()
        (found,) = run_on_card(EmulatedCard(), build_program(graph), [x])
        np.testing.assert_array_equal(found, np.concatenate([np.full(size, 2.5, dtype), x]))
