"""Sums over few rows on a GPU: a block has all rows of its columns, and no second kernel combines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.agreement import assert_agree, interpreted
from tests.backends.cuda.emulator import EmulatedCard
from tests.gpu.plain_driver import run_on_card
from tests.schedule.lowered import shaped
from weft.backends.cuda.build import build_program, loops_of

SHAPES = [(40, 24), (33, 10), (7, 31), (1, 9), (70, 1), (2, 3, 40)]


def normal(*shape: int) -> Any:
    return np.random.default_rng(shape[-1]).standard_normal(shape).astype(np.float32)


def gradient(x: Any, g: Any) -> Any:
    """What a layer gives back: to the one before it, and to its bias."""
    g = weft.where(x > 0, g, 0.0)
    axes = tuple(range(x.ndim - 1))
    return g, g.sum(axis=axes), (g * x).sum(axis=axes, keepdims=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_of_few_rows_are_one_kernel(shape: tuple[int, ...], dtype: str) -> None:
    given = [weft.tensor(normal(*shape)).astype(getattr(weft, dtype)).numpy() for _ in range(2)]
    graph = weft.make_graph(gradient)(*map(weft.tensor, given)).optimize()
    program = build_program(graph)
    assert len(program.steps) == 1
    assert program.arena == 0
    assert_agree(run_on_card(EmulatedCard(), program, given), interpreted(graph, given))


def test_threads_of_a_block_wait_for_each_other() -> None:
    """The interpreter of grids finds accesses with no barrier between them."""
    given = [normal(9, 6), normal(9, 6)]
    graph = weft.make_graph(gradient)(*map(weft.tensor, given)).optimize()
    assert_agree(shaped(loops_of(graph), graph, given, {}), interpreted(graph, given))


def test_other_folds_and_special_values() -> None:
    def f(x: Any) -> Any:
        y = weft.tanh(x)
        return y.max(axis=0), y.min(axis=0), (y * 2.0).sum(axis=0), y

    x = normal(20, 12)
    x[3, 2], x[4, 3], x[:, 5], x[6, 6] = np.nan, np.inf, -0.0, -np.inf
    graph = weft.make_graph(f)(weft.tensor(x)).optimize()
    program = build_program(graph)
    assert len(program.steps) == 1
    assert_agree(run_on_card(EmulatedCard(), program, [x]), interpreted(graph, [x]))


def test_many_rows_are_shared_out_and_combined() -> None:
    x = weft.zeros((4096, 64))
    program = build_program(weft.make_graph(gradient)(x, x).optimize())
    combining = [name.startswith("combine") for name in program.kernels]
    assert combining[:2] == [False, True]
    program = build_program(weft.make_graph(gradient)(x[:128], x[:128]).optimize())
    assert [step.grid for step in program.steps] == [2]  # type: ignore[union-attr]


def test_a_sum_by_one_block_is_not_combined() -> None:
    def f(x: Any, y: Any) -> Any:
        d = x - y
        return (d * d).sum(), d

    given = [normal(6, 5), normal(5)]
    graph = weft.make_graph(f)(*map(weft.tensor, given)).optimize()
    program = build_program(graph)
    assert len(program.steps) == 1
    assert_agree(run_on_card(EmulatedCard(), program, given), interpreted(graph, given))
