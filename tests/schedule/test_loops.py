"""Loops with indexing: they change arrays in place, count where they can, and keep nothing that is known."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.programs import check, graph_of, statements
from weft.ir.parse import parse_graph
from weft.loop.ir import Copy, Fail, If, Load, Loop, Scalar, Store, While

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 5)).astype(np.float32)
V = RNG.standard_normal(6).astype(np.float32)


def paths(d: Any) -> Any:
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]
    return d


@functools.cache
def program_of_paths(n: int) -> Any:
    """The loops of ``paths``, after a run of them was compared; for n = 33 that takes seconds."""
    d = RNG.uniform(1, 9, (n, n)).astype(np.float32)
    return check(graph_of(paths, d), d)


def triangle(x: Any) -> Any:
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(i):
            total = total + x[i] * weft.sin(x[j])
    return total


def mixture(x: Any, w: Any) -> Any:
    total = 0.0
    for i in range(x.shape[0]):
        for a in range(x.shape[1]):
            y = weft.exp(w[a]) * x[i, a]
            for b in range(a):
                y = y + w[b] * x[i, b]
            total = total - 0.5 * y * y + w[a]
    return total


# In place


@pytest.mark.rotating(2)
def test_branch_that_changes_an_element_copies_nothing() -> None:
    for n in (3, 33):
        assert not statements(program_of_paths(n), Copy, in_loops=True)


def test_branch_of_several_changes_in_place() -> None:
    def pick(x: Any, which: Any) -> Any:
        for i in range(x.shape[0]):
            kind = which[i]
            if kind == 0:
                x[i] = x[i] + 1.0
            elif kind == 1:
                x[i] = 0.0
        return x

    which = np.array([0, 1, 2, 0, 1, 2])
    program = check(graph_of(pick, V, which), V, which)
    assert not statements(program, Copy, in_loops=True)


def test_array_that_is_read_after_it_changed_elsewhere_is_copied() -> None:
    def mixed(x: Any) -> Any:
        for i in range(1, x.shape[0]):
            old = x.clone()
            if x[i] > 0:
                x[i] = 0.0
            x[0] = x[0] + old.sum()
        return x

    check(graph_of(mixed, V), V)


def test_element_is_read_before_it_is_changed() -> None:
    def swap(x: Any) -> Any:
        for i in range(x.shape[0] - 1):
            old = x[i]
            x[i] = x[i + 1]
            x[i + 1] = old * 2.0
        return x

    program = check(graph_of(swap, V), V)
    assert not statements(program, Copy, in_loops=True)


def test_carry_that_is_collected_changes_in_place() -> None:
    def states(x: Any) -> Any:
        return weft.scan(lambda c, _: (weft.tanh(c) * 2.0, c), x, None, length=4)

    x = RNG.standard_normal(100).astype(np.float32)
    program = check(weft.make_graph(states)(weft.tensor(x)).optimize(), x)
    assert len(statements(program, Copy, in_loops=True)) == 1


# Counting


def test_while_loop_that_counts_is_a_loop() -> None:
    program = check(graph_of(triangle, V), V)
    assert not statements(program, While)
    assert not statements(program, Fail)


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (2, 5), (3, 3), (4, 1), (-2, 2)])
def test_loop_counts_from_any_start_to_any_stop(start: int, stop: int) -> None:
    def count(a: Any, b: Any, x: Any) -> Any:
        return weft.while_loop(lambda s: s[0] < b, lambda s: (s[0] + 1, s[1] * x + s[0]), (a, x))

    tensors = weft.tensor(start), weft.tensor(stop), weft.tensor(1.5)
    graph = weft.make_graph(count)(*tensors).optimize()
    program = check(graph, np.int64(start), np.int64(stop), np.float32(1.5))
    assert not statements(program, While)


def test_loop_may_tell_its_length_and_collect_nothing() -> None:
    graph = parse_graph("""
        graph f(%stop: i64[]) {
          %0: i64[], %1: i64[] = while_loop(i64(0), %stop, carries=1, trips=n) {
            test(%0: i64[], %1: i64[]) {
              %2: bool[] = less(%0, %1)
              return %2
            }
            body(%0: i64[], %1: i64[]) {
              %2: i64[] = add(%0, i64(1))
              return %2
            }
          }
          %2: i64[] = mul(%1, i64(10))
          return %2
        }
    """)
    for stop in (0, 1, 7):
        check(graph, np.int64(stop))


def test_other_tests_stay_while_loops() -> None:
    def halve(a: Any, x: Any) -> Any:
        return weft.while_loop(lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1] * 0.5), (a, x))

    graph = weft.make_graph(halve)(weft.tensor(0.0), weft.tensor(9.0)).optimize()
    assert statements(check(graph, np.float32(0), np.float32(9)), While)

    def double(n: Any, x: Any) -> Any:
        return weft.while_loop(lambda s: s[0] < n, lambda s: (s[0] + s[0], s[1] * 0.5), (1, x))

    graph = weft.make_graph(double)(weft.tensor(9), weft.tensor(9.0)).optimize()
    assert statements(check(graph, np.int64(9), np.float32(9)), While)


def test_index_that_leaves_its_axis_still_fails() -> None:
    def beyond(x: Any, n: Any) -> Any:
        return weft.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + x[s[0]]), (0, x[0]))[1]

    run = weft.compile(beyond, backend="llvm")
    assert float(run(weft.tensor(V), weft.tensor(6))) == pytest.approx(float(V.sum() + V[0]), rel=1e-5)
    with pytest.raises(weft.errors.BoundsError, match="size 6, got 6"):
        run(weft.tensor(V), weft.tensor(7))


# Gradients


@pytest.mark.rotating(2)
@pytest.mark.parametrize("function", [triangle, lambda x: mixture(x.reshape((2, 3)), x[:3])])
def test_gradient_moves_no_arrays(function: Any) -> None:
    graph = graph_of(weft.grad(function), V)
    program = check(graph, V)
    assert not statements(program, Copy, in_loops=True)
    assert not statements(program, While)


def test_gradients_of_several_arrays() -> None:
    w = RNG.standard_normal(5).astype(np.float32)
    program = check(graph_of(weft.grad(mixture, argnums=(0, 1)), X, w), X, w)
    assert not [s for s in statements(program, Scalar, in_loops=True) if s.instruction == "exp"]
    assert all(s.buffer.dtype != np.int64 for s in statements(program, Store))


def test_gradient_of_a_branch_moves_no_arrays() -> None:
    def ordered(x: Any) -> Any:
        total = 0.0
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                if x[i] > x[j]:
                    total = total + x[i] * x[j] ** 2
        return total

    program = check(graph_of(weft.grad(ordered), V), V)
    assert not statements(program, Copy, in_loops=True)


def test_derivative_of_a_gradient() -> None:
    def curvature(x: Any) -> Any:
        return weft.jvp(weft.grad(triangle), (x,), (weft.ones_like(x),))

    check(graph_of(curvature, V), V)


def test_number_that_is_collected_takes_no_memory() -> None:
    def ones(x: Any) -> Any:
        _, (twos, places) = weft.scan(lambda c, i: (c + i, (weft.tensor(2.0), i + 1)), x, weft.arange(5))
        return weft.fori_loop(0, 5, lambda i, s: s + twos[i] * places[i], x)

    graph = weft.make_graph(ones)(weft.tensor(1.0)).optimize()
    program = check(graph, np.float32(1))
    assert not statements(program, Load, in_loops=True)
    assert not statements(program, Store, in_loops=True)


# Vectors


def test_loop_that_meets_itself_once_is_cut_there() -> None:
    program = program_of_paths(33)
    kinds = [s.kind for s in statements(program, Loop) if not statements_of(s, Loop)]
    assert kinds == ["vector", "serial", "vector"]
    assert not statements(program, If)


def statements_of(loop: Any, kind: type) -> list[Any]:
    return [s for s in loop.body.statements if isinstance(s, kind)]


def row_by_row(x: Any) -> Any:
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = x[i, j] + x[i - 1, j]
    return x


def backward(x: Any) -> Any:
    n = x.shape[1]
    for i in range(x.shape[0]):
        for j in range(n):
            x[i, n - 1 - j] = x[i, n - 1 - j] * 0.5 + x[0, n - 1 - j]
    return x


def running(x: Any) -> Any:
    for i in range(x.shape[0]):
        for j in range(1, x.shape[1]):
            x[i, j] = x[i, j] + x[i, j - 1]
    return x


def by_pivot(x: Any) -> Any:
    for k in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[k, j] = x[k, j] / x[k, k]
    return x


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("function", "is_independent"), [(row_by_row, True), (backward, True), (running, False), (by_pivot, True)]
)
def test_loops_that_change_a_matrix(function: Any, is_independent: bool) -> None:
    x = RNG.uniform(1, 2, (6, 50)).astype(np.float32)
    program = check(graph_of(function, x), x)
    assert any(s.kind == "vector" for s in statements(program, Loop)) == is_independent
