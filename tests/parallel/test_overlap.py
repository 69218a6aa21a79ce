"""Sums over ranks that go on beside other work: where they start and wait, what they give, what is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import parallel as par
from weft.backends import backend_named
from weft.errors import ParallelError

TWO = """
graph f(%x: f32[4], %y: f32[3]) {
  %0: f32[4] = mul(%x, %x)
  %1: f32[3] = exp(%y)
  %2: f32[4] = all_reduce(%0, axis="data", mesh="data=2")
  %3: f32[4] = add(%2, f32(1.0))
  %4: f32[3] = tanh(%1)
  %5: f32[3] = all_reduce(%4, axis="data", mesh="data=2")
  return %3, %5
}
"""


def names(graph: Any) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_sums_start_when_they_can_and_are_waited_for_when_they_must() -> None:
    start, wait = "start_all_reduce", "wait_all_reduce"
    found = names(par.overlap(weft.parse_graph(TWO)))
    assert found == ["mul", start, "exp", "tanh", start, wait, "add", wait]


def test_a_sum_without_work_beside_it_stays() -> None:
    text = (
        'graph f(%x: f32[4]) {\n  %0: f32[4] = all_reduce(%x, axis="data", mesh="data=2")\n  return %0\n}\n'
    )
    graph = weft.parse_graph(text)
    assert par.overlap(graph) is graph


def test_graphs_with_started_sums_read_back_from_their_text() -> None:
    graph = par.overlap(weft.parse_graph(TWO))
    assert names(weft.parse_graph(graph.to_text())) == names(graph)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_values_are_those_of_plain_sums(backend: str) -> None:
    graph = weft.parse_graph(TWO)

    def program() -> list[Any]:
        par.mesh(data=-1)
        run = backend_named(backend)(par.overlap(graph))
        x, y = (np.arange(n, dtype=np.float32) * (1 + par.rank()) for n in (4, 3))
        return [np.array(a) for a in run([x, y])]

    for first, second in par.simulate(program, 2):
        np.testing.assert_array_equal(first, np.arange(4.0) ** 2 * 5 + 1)
        both = sum(np.tanh(np.exp(np.arange(3.0) * r)) for r in (1, 2))
        np.testing.assert_allclose(second, both, rtol=1e-6)


def test_prints_and_commits_stay_behind_sums() -> None:
    """What has an effect of its own is not moved before the wait for what came before it."""
    text = """
graph f(%x: f32[4], %y: f32[3]) {
  %0: f32[4] = all_reduce(%x, axis="data", mesh="data=2")
  commit(mesh="data=2")
  %1: f32[3] = exp(%y)
  return %0, %1
}
"""
    found = names(par.overlap(weft.parse_graph(text)))
    assert found.index("commit") > found.index("wait_all_reduce" if "exp" in found[:2] else "all_reduce")


def test_compiled_steps_name_the_pass_and_leave_it_out() -> None:
    def program(**settings: Any) -> list[str]:
        mesh = par.mesh(data=-1)
        w, v = weft.ones(4, 3), weft.ones(3, 5)

        def loss(x: Any) -> Any:
            x = par.shard(x, "data")
            pull = weft.grad(lambda w, v: (weft.tanh(x @ w) @ v).sum(), argnums=(0, 1))
            return pull(w, v)

        run = weft.compile(loss, mesh=mesh, reproducible=False, **settings)
        run(weft.ones(8, 4))
        return [node.op.name for node in run.lowered.nodes] + [r.name for r in run.lowered.history()]

    with_it = par.simulate(lambda: program(disable=["bucket"]), 2)[0]
    assert {"overlap", "start_all_reduce", "wait_all_reduce"} <= set(with_it)
    assert with_it.index("start_all_reduce") + 1 < with_it.index("wait_all_reduce")
    without = par.simulate(lambda: program(disable=["bucket", "overlap"]), 2)[0]
    assert not {"overlap", "start_all_reduce"} & set(without)


def test_waiting_for_what_nobody_started_is_an_error() -> None:
    text = """
graph f(%x: f32[4]) {
  %0: f32[4] = wait_all_reduce(%x, %x, axis="data", mesh="data=2", number=3)
  return %0
}
"""
    graph = weft.parse_graph(text)

    def program() -> None:
        par.mesh(data=-1)
        backend_named("interpret")(graph)([np.ones(4, np.float32)])

    with pytest.raises(ParallelError, match="must have been started, got none of number 3"):
        par.simulate(program, 2)


STATE = """
graph f(%w: f32[2,6], %b: f32[3], %v: f32[6,2], %x: f32[4,4]) {
  %0: f32[4,6] = all_gather(%w, axis="data", dim=0, mesh="data=2")
  %1: f32[4,6] = matmul(%x, %0)
  %2: f32[6] = all_gather(%b, axis="data", dim=0, mesh="data=2")
  %3: f32[4,6] = add(%1, %2)
  %4: f32[6,4] = all_gather(%v, axis="data", dim=1, mesh="data=2")
  %5: f32[4,4] = matmul(%3, %4)
  %6: f32[4,2] = reduce_scatter(%5, axis="data", dim=1, mesh="data=2")
  %7: f32[4,4] = exp(%5)
  %8: f32[2,4] = reduce_scatter(%7, axis="data", dim=0, mesh="data=2")
  return %6, %8
}
"""


def in_world_of_two(graph: Any, backend: str) -> list[list[Any]]:
    """What two ranks get of the graph above, each with parts of its own."""
    shapes = [v.type.shape for v in graph.inputs]

    def program() -> list[Any]:
        par.mesh(data=-1)
        rng = np.random.default_rng(par.rank())
        given = [(rng.integers(-8, 8, s) / 16).astype(np.float32) for s in shapes]
        return [np.array(a) for a in backend_named(backend)(graph)(given)]

    return par.simulate(program, 2)


def test_parameters_are_gathered_together_and_sums_are_scattered_together() -> None:
    """Inputs with the next ones, along whatever dimension; no bit changes."""
    graph = weft.parse_graph(STATE)
    joined = par.bucket(graph, size=1 << 20)
    assert names(joined).count("all_gather") == names(joined).count("reduce_scatter") == 1
    assert par.bucket(graph, size=1) is graph
    pairs = par.bucket(graph, size=100)  # the table of 96 bytes and the vector, then the other table
    assert names(pairs).count("all_gather") == 2
    for backend in ("interpret", "llvm"):
        expected = in_world_of_two(graph, backend)
        for found in (joined, pairs, par.overlap(graph), par.overlap(pairs)):
            assert weft.parse_graph(found.to_text()).to_text() == found.to_text()
            for a, b in zip(in_world_of_two(found, backend), expected, strict=True):
                assert [x.tobytes() for x in a] == [x.tobytes() for x in b]


def test_one_parameter_comes_while_the_one_before_is_used() -> None:
    """Its start is behind the wait for the one before: no more are whole at a time than are needed."""
    found = names(par.overlap(weft.parse_graph(STATE)))
    start, wait = "start_all_gather", "wait_all_gather"
    assert next(n for n in found if "gather" in n) == "all_gather"  # nothing to do beside the first
    assert found.index(start) < found.index("matmul") < found.index(wait)
    under_way = 0
    for name in found:
        under_way += (name == start) - (name == wait)
        assert under_way <= 1
    assert "start_reduce_scatter" in found


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_waits_without_a_start_are_refused(name: str) -> None:
    attrs = 'axis="data", dim=0, mesh="data=2", number=3'
    text = f"graph f(%x: f32[4]) {{\n  %0: f32[4] = wait_{name}(%x, %x, {attrs})\n  return %0\n}}\n"
    graph = weft.parse_graph(text)

    def program() -> None:
        par.mesh(data=-1)
        backend_named("interpret")(graph)([np.zeros(4, np.float32)])

    with pytest.raises(ParallelError, match="must have been started, got none of number 3"):
        par.simulate(program, 2)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_what_was_started_may_be_written_over(backend: str) -> None:
    """Gradients of a block whose sums are scattered: what is gathered has its axes in another order."""
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s) * 0.5 for s in ((1, 4, 8), (8, 16), (16, 8), (8, 8))]

    def loss(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
        x = x + weft.tanh(x @ par.shard(w1, None, "model")) @ par.shard(w2, "model", None)
        whole = par.shard(x, None, None, None)
        return weft.sin(par.shard(x + whole @ w3, None, "model", None)).sum()

    def program() -> tuple[list[Any], list[str]]:
        run = weft.compile(weft.grad(loss, argnums=(0, 1, 2, 3)), mesh=par.mesh(model=-1), backend=backend)
        return [g.numpy() for g in run(*map(weft.tensor, arrays))], names(run.lowered)

    (expected, _), *_ = par.simulate(program, 1)
    for found, told in par.simulate(program, 2):
        assert {"start_all_gather", "start_reduce_scatter"} <= set(told)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
