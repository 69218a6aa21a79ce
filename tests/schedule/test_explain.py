"""What explanations say of programs: ops, lines, bytes, operations."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from tests.schedule.lowered import program_of
from weft.schedule.explanation import Explanation, Limits, Measured, explain_program, show_seconds
from weft.schedule.origins import op_names, show_bytes, steps_of

LIMITS = Limits(memory=10e9, cache=100e9, held=2**20, flops=100e9)


def explained(f: Any, *args: Any, **sizes: int) -> Explanation:
    graph = weft.make_graph(f)(*args)
    return explain_program(graph, program_of(graph), LIMITS, sizes)


def network(x: Any, w: Any) -> Any:
    h = weft.tanh(x @ w + 1.0)
    return weft.softmax(h, axis=1)


def test_kernels_tell_their_ops_and_lines() -> None:
    steps = explained(network, weft.ones((128, 64)), weft.ones((64, 32))).kernels
    assert [s.number for s in steps] == list(range(1, len(steps) + 1))
    text = " ".join(s.ops for s in steps)
    for op in ("matmul", "tanh", "exp", "div"):
        assert op in text
    lines = {line for s in steps for line in s.sources}
    first = network.__code__.co_firstlineno
    assert f"test_explain.py:{first + 1}: h = weft.tanh(x @ w + 1.0)" in lines
    assert f"test_explain.py:{first + 2}: return weft.softmax(h, axis=1)" in lines


def test_bytes_are_what_is_read_and_written_once() -> None:
    (step,) = explained(lambda x, y: weft.exp(x) * y + x, weft.ones((64, 64)), weft.ones(64)).kernels
    assert step.bytes == (64 * 64 * 2 + 64) * 4
    assert step.flops == 64 * 64 * (12 + 2)


def test_product_counts_two_operations_for_each_term() -> None:
    steps = explained(lambda x, y: x @ y, weft.ones((256, 128)), weft.ones((128, 192))).kernels
    assert sum(s.flops for s in steps) == pytest.approx(2 * 256 * 128 * 192, rel=0.1)


@pytest.mark.parametrize("count", [1, 5, 1000, 70_000, 1_000_000])
def test_operations_of_blocks_that_are_cut_short(count: int) -> None:
    steps = explained(lambda x: (x * x).sum(), weft.ones(count)).kernels
    assert sum(s.flops for s in steps) == pytest.approx(2 * count, rel=0.01, abs=200)


def test_named_sizes_take_the_values_of_the_call() -> None:
    n_floats: Any = weft.TensorType(("n",), weft.float32)  # type: ignore[arg-type]
    graph = weft.make_graph(lambda x: weft.exp(x))(n_floats)
    program = program_of(graph)
    for n in (10, 5000):
        (step,) = explain_program(graph, program, LIMITS, {"n": n}).kernels
        assert (step.bytes, step.flops) == (8 * n, 12 * n)


def test_estimate_is_bound_by_memory_or_by_arithmetic() -> None:
    assert LIMITS.seconds(20_000_000, 0, 4) == pytest.approx(2e-3, rel=0.01)
    assert LIMITS.seconds(1000, 10**9, 4) == pytest.approx(1e-2, rel=0.01)
    assert LIMITS.seconds(1000, 10**9, 8) == pytest.approx(2e-2, rel=0.01)


def test_loops_and_branches_are_indented() -> None:
    def f(x: Any) -> Any:
        for _ in range(10):
            if x.sum() > 0.0:
                x = weft.tanh(x @ x)
            else:
                x = weft.linalg.inv(x)
        while x.sum() > 1.0:
            x = x / 2.0
        return x

    compiled = weft.compile(f, backend="interpret")
    compiled(weft.ones((96, 96)))
    graph = compiled.graph.optimize()
    found = explain_program(graph, program_of(graph), LIMITS)
    heads = [(s.depth, s.name) for s in found.steps if not s.number]
    assert heads == [(0, "loop, 10 times:"), (1, "if:"), (1, "else:"), (0, "while:")]
    assert found.hosts == ("inv",)
    text = str(found)
    assert "run by Python: inv" in text
    assert "inv (by Python)" in text


def test_measured_times_come_with_their_share() -> None:
    graph = weft.make_graph(lambda x: weft.linalg.inv(x) @ x)(weft.eye(64))
    program = program_of(graph)
    count = sum(1 for s in steps_of(program) if s.number)
    times = [Measured(1, 1e-3), *[Measured(2, 3e-3 / (count - 1))] * (count - 1)]
    text = str(explain_program(graph, program, LIMITS, {}, times))
    assert "1.0 ms  25%" in text
    assert "2 x " in text


def test_empty_program() -> None:
    found = explained(lambda x: x, weft.ones(3))
    assert "<lambda>" in str(found)


def test_short_texts() -> None:
    graph = weft.make_graph(lambda x: weft.tanh(weft.tanh(weft.tanh(x)) + 1.0))(weft.ones(2))
    assert op_names(graph.nodes) == "2 tanh, add, tanh"
    assert show_bytes(999) == "999 bytes"
    assert show_bytes(1000) == "1.0 KB"
    assert show_seconds(2.0) == "2.0 s"
    assert show_seconds(5e-9) == "5 ns"
