"""Collectives written with those of a library: the same values, to the last bit, on any number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.parallel.test_collectives import CASES, given
from weft import parallel as par
from weft.ir.interpret import interpret
from weft.passes.lowering.collectives_by_library import collective_pairs, collectives_by_library


def both(n: int, call: Any, x: Any) -> list[tuple[Any, Any]]:
    """On each rank what a graph gives, and what it gives after the pass."""

    def program() -> Any:
        mesh = par.mesh(data=-1)
        array = x(par.rank())
        graph = weft.make_graph(call)(weft.tensor(array))
        shared = collectives_by_library(graph, pairs=[(mesh.text, "data")])
        names = {node.op.name for node in shared.walk()}
        assert not {node.op for node in graph.walk() if "mesh" in node.attrs} & {
            node.op for node in shared.walk()
        }, names
        return interpret(graph, [array])[0], interpret(shared, [array])[0]

    return par.simulate(program, n)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
def test_values_stay(name: str, n: int) -> None:
    for right, found in both(n, CASES[name][0], lambda rank: given(rank, (2 * n, 3))):
        assert found.dtype == right.dtype
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("n", [3, 16, 17, 23])
@pytest.mark.parametrize("size", [1, 2500])
def test_sums_of_many_ranks_follow_the_tree(n: int, size: int) -> None:
    for right, found in both(n, lambda x: par.all_reduce(x, "data"), lambda rank: given(rank, (size,))):
        assert found.tobytes() == right.tobytes()


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_dimensions(dim: int) -> None:
    def call(x: Any) -> Any:
        whole = par.all_gather(x, "data", dim=dim)
        return par.all_to_all(whole, "data", split=dim, join=(dim + 1) % 3)

    for right, found in both(3, call, lambda rank: given(rank, (2, 3, 4))):
        np.testing.assert_array_equal(found, right)


def test_halves_and_shards() -> None:
    text = """
    graph f(%x: f32[8,3]) {
      %0: f32[2,2,3] = take_shards(%x, axis="data", dim=0, count=2, mesh="data=2")
      %1: f32[2,2,3] = start_all_reduce(%0, axis="data", mesh="data=2", number=0)
      %2: f32[2,2,3] = exp(%0)
      %3: f32[2,2,3] = wait_all_reduce(%1, %0, axis="data", mesh="data=2", number=0)
      %4: f32[2,2,3] = add(%2, %3)
      %5: f32[8,3] = gather_shards(%4, axis="data", dim=0, mesh="data=2")
      %6: i64[] = shards_here(count=2, mesh="data=2")
      commit(mesh="data=2")
      return %5, %6
    }"""
    graph = weft.parse_graph(text)
    assert collective_pairs(graph) == {("data=2", "data"): True, ("data=2", ""): False}

    def program() -> Any:
        par.mesh(data=2)
        x = given(0, (8, 3))
        shared = collectives_by_library(graph, pairs=tuple(collective_pairs(graph)), commits=False)
        assert {n.op.name for n in shared.nodes if n.op.effect} == {"library_gather"}
        meeting = collectives_by_library(graph, pairs=[("data=2", "")])
        assert "library_commit" in {n.op.name for n in meeting.nodes}
        return interpret(graph, [x]), interpret(shared, [x])

    for right, found in par.simulate(program, 2):
        for a, b in zip(right, found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_is_not_asked_for_stays() -> None:
    text = """
    graph f(%x: c64[4]) {
      %0: c64[4] = all_reduce(%x, axis="data", mesh="data=2,model=2")
      %1: c64[4] = all_reduce(%0, axis="model", mesh="data=2,model=2")
      return %1
    }"""
    graph = weft.parse_graph(text)
    assert collectives_by_library(graph) is graph
    assert collectives_by_library(graph, pairs=[("data=2,model=2", "data")]) is graph  # complex sums
