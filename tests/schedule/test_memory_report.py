"""The report of the memory plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.lowered import program_of
from weft.errors import ArgumentError


def chain(x: Any, w: Any) -> Any:
    a = x @ w
    b = weft.softmax(a @ w, axis=1)
    return b @ w


def graph_of(f: Any, *args: Any) -> Any:
    return weft.make_graph(f)(*args)


def chain_graph(rows: Any = 256) -> Any:
    return graph_of(chain, weft.TensorType((rows, 64), weft.float32), weft.ones((64, 64)))


def test_totals_are_those_of_the_graph_and_its_program() -> None:
    graph = chain_graph()
    report = graph.memory()
    assert report.inputs == (256 * 64 + 64 * 64) * 4
    assert report.outputs == 256 * 64 * 4
    assert report.arena == program_of(graph).arena_size
    assert 0 < report.peak <= report.arena <= report.unshared


def test_peak_is_the_most_that_is_alive_at_once() -> None:
    report = chain_graph().memory()
    alive = [
        sum({b.offset: b.bytes for b in report.buffers if b.first <= step <= b.last}.values())
        for step in range(1, 10)
    ]
    assert max(alive) == report.peak
    assert sum({b.offset: b.bytes for b in report.buffers if b.at_peak}.values()) == report.peak


def test_buffer_names_the_op_and_the_users_line() -> None:
    report = chain_graph().memory()
    first = report.buffers[0]
    assert (first.shape, first.dtype, first.bytes) == ((256, 64), np.dtype("f4"), 65536)
    assert first.op == "matmul"
    assert first.location == (__file__, chain.__code__.co_firstlineno + 1)
    assert "matmul at test_memory_report.py" in str(report)
    assert "a = x @ w" in str(report)


def test_buffers_whose_lives_overlap_do_not_share_memory() -> None:
    report = graph_of(lambda x: [weft.linalg.inv(x @ x) for _ in range(3)], weft.eye(32)).memory()
    for a in report.buffers:
        for b in report.buffers:
            overlaps = a is not b and a.first <= b.last and b.first <= a.last
            disjoint = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
            assert not overlaps or disjoint or a.last == b.first or b.last == a.first


def test_named_sizes_stay_names_until_they_are_bound() -> None:
    graph = chain_graph("n")
    report = graph.memory()
    assert str(report.inputs) == "256*n+16384"
    assert "n" in str(report.arena)
    bound = graph.memory(n=10)
    assert bound.inputs == 256 * 10 + 16384
    assert isinstance(bound.arena, int)
    assert bound.buffers[0].shape == (10, 64)


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="memory: sizes must be among n, got m"):
        chain_graph("n").memory(m=3)
    with pytest.raises(ArgumentError, match="no named sizes"):
        chain_graph().memory(n=3)


def test_graph_that_needs_nothing_in_between() -> None:
    report = graph_of(lambda x: x * 2.0, weft.ones(1000)).memory()
    assert (report.arena, report.peak, report.unshared, report.buffers) == (0, 0, 0, ())
    assert "peak" in str(report)


def test_constants_and_loops_are_counted() -> None:
    table = np.random.default_rng(0).random((50, 50), np.float32)

    def f(x: Any) -> Any:
        for _ in range(20):
            x = weft.tanh(x @ weft.tensor(table)) @ x
        return x

    graph = weft.compile(f, backend="interpret")
    graph(weft.ones((50, 50)))
    report = graph.graph.optimize().memory()
    assert report.constants >= table.nbytes
    assert report.buffers
    assert report.buffers[0].first <= report.buffers[0].last


def test_donated_updates_lie_in_the_memory_of_inputs() -> None:
    weight = weft.nn.Parameter(weft.ones((64, 64)))
    optimizer = weft.optim.SGD([weight], lr=0.1)

    @weft.compile(backend="interpret")
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (x @ weight).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(weft.ones((8, 64)))
    assert step.graph.optimize().memory().donated == 64 * 64 * 4


def test_memory_of_a_loop_that_collects_is_on_the_heap() -> None:
    def f(x: Any) -> Any:
        found = []
        while x.sum() > 1.0:
            x = x / 2.0
            found.append(x)
        return weft.stack(found)

    compiled = weft.compile(f, backend="interpret")
    compiled(weft.ones(100))
    report = compiled.graph.optimize().memory()
    assert report.heap
    assert "grows as the run goes" in str(report)
