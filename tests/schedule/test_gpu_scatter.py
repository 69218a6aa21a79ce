"""scatter and scatter_add for a GPU: in order, every element by one thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulator import EmulatedCard
from tests.backends.cuda.op_matrix import SMALL
from tests.gpu.plain_driver import run_on_card
from weft.backends.cuda.build import build_program


def _found(function: Any, *arrays: Any) -> Any:
    graph = weft.make_graph(function)(*map(weft.tensor, arrays)).optimize()
    return run_on_card(EmulatedCard(), build_program(graph, machine=SMALL), arrays)[0]


def _added(x: Any, v: Any, i: Any) -> Any:
    out = x.copy()
    for k, row in enumerate(i.tolist()):
        out[row] += v[k]
    return out


@pytest.mark.rotating(2)
def test_sums_are_in_the_order_of_indices() -> None:
    """To the last bit what adding one row after the other gives."""
    random = np.random.default_rng(0)
    x, v = np.zeros((7, 9), np.float32), random.standard_normal((20, 9)).astype(np.float32)
    i = random.integers(-7, 7, 20)
    found = _found(lambda x, v, i: weft.index_add(x, i, v, axis=0), x, v, i)
    np.testing.assert_array_equal(found, _added(x, v, i))
    x, v, i = x[:, 0], random.standard_normal(300).astype(np.float32), random.integers(0, 7, 300)
    found = _found(lambda x, v, i: weft.scatter_add(x, 0, i, v), x, v, i)
    np.testing.assert_array_equal(found, _added(x, v, i))


@pytest.mark.parametrize("width", [130, 132, 68])
def test_long_rows_are_reached_several_columns_at_once(width: int) -> None:
    """More columns than threads: pairs, fours where they divide the row, and what is left of a block."""
    random = np.random.default_rng(2)
    x, v = random.standard_normal((2, 40, width)).astype(np.float32)
    i = random.integers(0, 6, 40)
    found = _found(lambda x, v, i: weft.index_add(x, i, v, axis=0), x, v, i)
    np.testing.assert_array_equal(found, _added(x, v, i))


def test_the_last_of_duplicates_counts() -> None:
    random = np.random.default_rng(1)
    x, v = np.zeros((5, 6, 9), np.float32), random.standard_normal((30, 9)).astype(np.float32)
    i, j = random.integers(0, 5, 30), random.integers(-6, 6, 30)

    def put(x: Any, v: Any, i: Any, j: Any) -> Any:
        out = x.clone()
        out[i, j] = v
        return out

    want = x.copy()
    for k in range(30):
        want[i[k], j[k]] = v[k]
    graph = weft.make_graph(put)(*map(weft.tensor, (x, v, i, j))).optimize()
    np.testing.assert_array_equal(
        run_on_card(EmulatedCard(), build_program(graph, machine=SMALL), [x, v, i, j])[0], want
    )


def test_gradient_of_an_embedding_in_half_precision() -> None:
    random = np.random.default_rng(2)
    i, dy = random.integers(0, 6, 33), random.standard_normal((33, 8)).astype(np.float32)

    def gradient(w: Any, i: Any, dy: Any) -> Any:
        return weft.grad(lambda w: (w[i] * dy).sum())(w)

    w = np.zeros((6, 8), np.float32)
    want = np.zeros((6, 8))
    np.add.at(want, i, dy.astype(np.float64))
    np.testing.assert_allclose(_found(gradient, w, i, dy), want, rtol=1e-5, atol=1e-5)
    half = _found(lambda w, i, dy: gradient(w.astype(weft.bfloat16), i, dy.astype(weft.bfloat16)), w, i, dy)
    np.testing.assert_allclose(half.astype(np.float32), want, rtol=2e-2, atol=2e-2)


def test_an_index_out_of_bounds_is_noted() -> None:
    i = np.zeros(20, np.int64)
    i[11] = 4
    with pytest.raises(AssertionError, match="failure"):
        _found(lambda x, v, i: weft.scatter_add(x, 0, i, v), np.zeros(4, "f4"), np.ones(20, "f4"), i)
