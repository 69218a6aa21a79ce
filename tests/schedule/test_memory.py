"""The memory plan, copies that go away, and the order of units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.schedule.lowered import program_of
from weft.ir.interpret import interpret
from weft.loop.interpret import run_program
from weft.loop.ir import Block, Buffer, Copy, Loop, Program, While
from weft.loop.walk import accesses, blocks_of
from weft.schedule.memory import plan_arena

F32 = np.dtype("f4")


def graph_of(function: Callable[..., Any], *args: Any) -> Any:
    return weft.make_graph(function)(*args).optimize()


def copies_in_loops(program: Program) -> int:
    """Copies of arrays inside the loops of a program's main function."""

    def count(block: Block, inside: bool) -> int:
        total = 0
        for s in block.statements:
            total += inside and isinstance(s, Copy)
            for inner in blocks_of(s):
                total += count(inner, inside or isinstance(s, Loop | While))
        return total

    return count(program.main.body, False)


def check(function: Callable[..., Any], *args: Any) -> Program:
    graph = graph_of(function, *args)
    program = program_of(graph)
    arrays = [a.numpy() for a in args]
    for a, b in zip(run_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, rtol=1e-5, atol=1e-6)
    return program


# Copies


def shortest_paths(d: Any) -> Any:
    for k in range(5):
        for i in range(5):
            for j in range(5):
                d[i, j] = weft.minimum(d[i, j], d[i, k] + d[k, j])
    return d


def power(x: Any) -> Any:
    y = x
    for _ in range(6):
        y = weft.tanh(y * x)
    return y


def prefix(x: Any) -> Any:
    out = weft.zeros(7)
    for i in range(1, 7):
        out[i] = out[i - 1] + x[i]
    return out


@pytest.mark.parametrize(
    ("function", "arg"),
    [(shortest_paths, weft.rand(5, 5)), (power, weft.rand(40)), (prefix, weft.rand(7))],
)
def test_a_loop_changes_its_arrays_in_place(function: Callable[..., Any], arg: Any) -> None:
    assert copies_in_loops(check(function, arg)) == 0


def test_a_value_that_is_read_after_it_was_changed_is_copied() -> None:
    def swap(a: Any, b: Any) -> Any:
        for _ in range(3):
            a, b = b * 1.5, a
        return a - b

    check(swap, weft.rand(50), weft.rand(50))


def test_arrays_that_a_loop_exchanges_stay_apart() -> None:
    def turn(a: Any, b: Any, c: Any) -> Any:
        for _ in range(4):
            a, b, c = b, c, a
        return a * 100.0 + b * 10.0 + c

    check(turn, weft.rand(9), weft.rand(9), weft.rand(9))


def test_the_input_of_a_program_is_never_changed() -> None:
    x = np.random.default_rng(0).random((5, 5)).astype(np.float32)
    kept = x.copy()
    weft.compile(shortest_paths, backend="llvm")(weft.tensor(x))
    np.testing.assert_array_equal(x, kept)


# The arena


def test_values_whose_lives_do_not_overlap_share_memory() -> None:
    def chain(x: Any) -> Any:
        for _ in range(4):
            x = weft.cumsum(weft.sort(x))
        return x

    arena = program_of(weft.make_graph(chain)(weft.rand(1000)).optimize()).arena_size
    assert arena <= 3 * 4096  # one that is read, one that is written, and the keys of the sort


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(1, 300)), min_size=1, max_size=12)
)
def test_buffers_that_live_at_the_same_time_do_not_overlap(spans: list[tuple[int, int, int]]) -> None:
    buffers = [Buffer(f"t{i}", F32, size) for i, (_, _, size) in enumerate(spans)]
    steps: list[list[Buffer]] = [[] for _ in range(9)]
    for buffer, (a, b, _) in zip(buffers, spans, strict=True):
        steps[min(a, b)].append(buffer)
        steps[max(a, b)].append(buffer)
    statements: list[Any] = []
    for step in steps:
        statements += [_touch(buffer) for buffer in step]
    plan = plan_arena(Block(statements), buffers)
    for i, x in enumerate(buffers):
        for y in buffers[i + 1 :]:
            apart = plan.lives[x].last < plan.lives[y].first or plan.lives[y].last < plan.lives[x].first
            start, other = plan.offsets[x], plan.offsets[y]
            assert apart or start + 4 * x.size <= other or other + 4 * y.size <= start
    assert all(plan.offsets[b] + 4 * b.size <= plan.size for b in buffers)


def _touch(buffer: Buffer) -> Any:
    from weft.loop.index import Index
    from weft.loop.ir import Const, Store

    return Store(buffer, Index.of(0), Const(np.float32(0), F32))


def test_a_buffer_of_a_loop_lives_all_through_it() -> None:
    def carried(x: Any, w: Any) -> Any:
        total = weft.sort(x)
        for _ in range(5):
            total = weft.cumsum(total @ w) * 0.01 + x
        return total

    check(carried, weft.rand(20), weft.rand(20, 20))


# Order


def test_what_overwrites_state_comes_after_what_may_fail() -> None:
    table = weft.tensor(np.ones((4, 3), np.float32))
    state = weft.tensor(np.zeros(3, np.float32))

    def step(i: Any) -> Any:
        state.add_(1.0)
        return table[i]

    compiled = weft.compile(step, backend="llvm")
    compiled(weft.tensor(2))
    with pytest.raises(IndexError):
        compiled(weft.tensor(7))
    assert state.tolist() == [1.0, 1.0, 1.0]
    compiled(weft.tensor(0))
    assert state.tolist() == [2.0, 2.0, 2.0]


def test_statements_use_only_buffers_of_the_program() -> None:
    program = check(power, weft.rand(100))
    known = {*program.main.buffers, *program.arena, *program.main.scratch, *program.heap}
    assert {a.buffer for s in program.main.body.statements for a in accesses(s)} <= known
