"""Functions of elements that loops look up are computed for the whole array, before the loops."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from tests.schedule.programs import check
from tests.schedule.programs import graph_of as source_graph
from weft.ir.graph import Graph
from weft.passes import hoist_lookups

X = np.random.default_rng(0).uniform(1, 2, 5).astype(np.float32)


def graph_of(function: Any, *args: Any) -> Graph:
    graph: Graph = weft.make_graph(function)(*map(weft.tensor, args)).optimize()
    return graph


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def nested(x: Any) -> Any:
    def row(i: Any, s: Any) -> Any:
        return weft.fori_loop(0, 5, lambda j, s: s + weft.log(x[j]) * i, s)

    return weft.fori_loop(0, 4, row, 0.0)


def test_function_moves_out_of_all_loops() -> None:
    graph = graph_of(nested, X)
    assert names(hoist_lookups(graph)) == ["log", "scan"]
    check(graph, X)


def test_function_stays_where_loops_look_up_less_than_there_is() -> None:
    few = graph_of(lambda x: weft.fori_loop(0, 4, lambda j, s: s + weft.log(x[j]), 0.0), X)
    assert hoist_lookups(few) is few


def test_array_that_changes_stays() -> None:
    def change(x: Any) -> Any:
        for _ in range(4):
            for j in range(5):
                x[j] = weft.exp(-x[j]) + x[4 - j] / 4  # shrinks what rounding adds, on any machine
        return x

    graph = source_graph(change, X)
    assert hoist_lookups(graph) is graph
    check(graph, X)


def test_function_is_computed_once_for_all_loops() -> None:
    graph = graph_of(weft.grad(nested), X)
    assert sum(node.op.name == "log" for node in hoist_lookups(graph).walk()) <= 1
    check(graph, X)
