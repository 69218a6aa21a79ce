"""Every pass on random graphs: the same bits before and after, with NaN, infinities and both zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.ir.random_graphs import arrays_of, graphs
from tests.of_code import examples
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.passes import PIPELINE, Pass
from weft.passes.check import same_elements

SPECIAL = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-40, -2.5]
EVERY: list[Any] = [*PIPELINE, weft.passes.unroll, weft.passes.fold.using(limit=0)]


def with_special_values(array: np.ndarray, seed: int) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    rng = np.random.default_rng(seed)
    special = rng.choice(np.array(SPECIAL, array.dtype), array.shape)
    return np.where(rng.random(array.shape) < 0.5, array, special).astype(array.dtype)


def assert_same_results(before: Graph, after: Graph, arrays: list[np.ndarray]) -> None:
    for a, b in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert same_elements(a, b).all(), f"{a} became {b}\n{before}\n{after}"


@pytest.mark.parametrize("each", EVERY, ids=repr)
@examples(25, 8)
@given(graph=graphs(), seed=st.integers(0, 1000))
def test_pass_keeps_every_bit_and_the_graph_well_formed(each: Pass, graph: Graph, seed: int) -> None:
    after = each(graph)
    after.verify()
    arrays = [with_special_values(a, seed) for a in arrays_of(graph)]
    assert_same_results(graph, after, arrays)
    assert each(after) is after or each(each(after)).same(each(after))


@examples(60, 20)
@given(graph=graphs(max_nodes=25), seed=st.integers(0, 1000))
def test_pipeline_keeps_every_bit(graph: Graph, seed: int) -> None:
    after = graph.optimize(debug=True)
    assert_same_results(graph, after, [with_special_values(a, seed) for a in arrays_of(graph)])
    assert after.optimize() is after


@examples(20, 6)
@given(graph=graphs())
def test_pipeline_does_not_change_the_graph_it_gets(graph: Graph) -> None:
    before = graph.to_text()
    graph.optimize()
    assert graph.to_text() == before
