"""Rows whose length only a loop inside a loop tells: in memory that is there, or a clear error.

Each program runs as captured and optimised, with all memory checked, and by the reference interpreter;
values and gradients are those of eager code.
"""

# ruff: noqa: PERF401 - the programs are written as users write them

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.backends.llvm.driver import build_executable
from weft.errors import GraphError, ShapeError, WeftError
from weft.loop.verify import verify_program
from weft.schedule.program import lower_graph

Program = Callable[..., Any]
X = np.array([0.5, -1.0, 2.0], np.float32)


def counted_in_counted(x: Any, n: Any, m: Any) -> Any:
    rows = []
    for i in range(n):
        inner = [x]
        for j in range(m):
            inner.append(weft.sin(x * (j + 1)) + i)
        rows.append(weft.stack(inner))
    return weft.stack(rows)


def test_in_fixed(x: Any, n: Any, m: Any) -> Any:
    rows = []
    for i in range(4):
        inner, k = [x], m
        while k > 0:
            inner.append(x * k + i)
            k = k - 1
        rows.append(weft.stack(inner))
    return weft.stack(rows)


test_in_fixed.__test__ = False  # type: ignore[attr-defined]


def while_in_while(x: Any, n: Any, m: Any) -> Any:
    rows, k = [], n
    while k > 0:
        inner, j = [x], m
        while j > 0:
            inner.append(weft.tanh(x * j + k))
            j = j - 1
        rows.append(weft.concat(inner))
        k = k - 1
    return weft.stack(rows).sum(axis=0), len(rows)


def grown_under_if(x: Any, n: Any, m: Any) -> Any:
    rows = []
    for i in range(n):
        inner = [x]
        for j in range(6):
            if j < m:
                inner.append(x * j + i)
        rows.append(weft.stack(inner))
    return weft.stack(rows)


def branch_in_loop(x: Any, n: Any, m: Any) -> Any:
    rows = []
    for i in range(n):
        inner = [x]
        for j in range(m):
            if i > 1:
                inner.append(x * j)
            else:
                inner.append(x + i)
        rows.append(weft.stack(inner).sum(axis=1))
    return weft.stack(rows)


def three_deep(x: Any, n: Any, m: Any) -> Any:
    outer = []
    for i in range(n):
        rows = [weft.stack([x, x])]
        for j in range(m):
            inner = [x * i]
            for _ in range(1):
                inner.append(x + j)
            rows.append(weft.stack(inner))
        outer.append(weft.stack(rows))
    return weft.stack(outer)


def two_lengths(x: Any, n: Any, m: Any) -> Any:
    rows, others = [], []
    for i in range(n):
        inner, more = [x], [x * 2.0]
        for j in range(m):
            inner.append(x * j)
        for _ in range(m + 1):
            more.append(x - i)
        rows.append(weft.stack(inner))
        others.append(weft.stack(more))
    return weft.stack(rows), weft.stack(others)


def beside_a_carry(x: Any, n: Any, m: Any) -> Any:
    rows, h = [], x
    for _ in range(n):
        inner = [h]
        for j in range(m):
            h = weft.tanh(h + j)
            inner.append(h)
        rows.append(weft.stack(inner))
    return weft.stack(rows), h


def length_alone(x: Any, n: Any, m: Any) -> Any:
    rows = []
    for _ in range(n):
        inner = [x]
        for j in range(m):
            inner.append(x * j)
        rows.append(x * len(inner))
    return weft.stack(rows)


def rows_that_nobody_reads(x: Any, n: Any, m: Any) -> Any:
    rows = []
    for i in range(n):
        inner = [x]
        for j in range(m):
            inner.append(x * j + i)
        rows.append(weft.stack(inner))
    return x * len(rows)


def used_after_in_another_loop(x: Any, n: Any, m: Any) -> Any:
    rows = []
    for i in range(n):
        inner = [x]
        for j in range(m):
            inner.append(x * j + i)
        rows.append(weft.stack(inner))
    total = x * 0.0
    for row in rows:
        total = total * 0.5 + weft.sin(row).sum(axis=0)
    return total


PROGRAMS: list[Program] = [
    counted_in_counted, test_in_fixed, while_in_while, grown_under_if, branch_in_loop, three_deep,
    two_lengths, beside_a_carry, length_alone, rows_that_nobody_reads, used_after_in_another_loop,
]  # fmt: skip


def run(f: Program, n: int, m: int) -> list[Any]:
    """Values and the gradient of a call on tensors, or the error."""
    x = weft.tensor(X, requires_grad=True)
    try:
        leaves = weft.tree_leaves(f(x, weft.tensor(n), weft.tensor(m)))
    except WeftError as error:
        return [type(error)]
    linked = [v for v in leaves if isinstance(v, weft.Tensor) and v.requires_grad]
    if linked:
        sum(((v * (k + 1.5)).sum() for k, v in enumerate(linked)), weft.zeros(())).backward()
    values = [v.detach().numpy() if isinstance(v, weft.Tensor) else v for v in leaves]
    return [*values, None if x.grad is None else x.grad.numpy()]


def eager(f: Program, n: int, m: int) -> list[Any]:
    return run(lambda x, n, m: f(x, int(n), int(m)), n, m)


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted), (found, wanted)
    for a, b in zip(found, wanted, strict=True):
        if isinstance(b, np.ndarray):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
        else:
            assert a == b


PLAIN = (counted_in_counted, while_in_while)  # these without checks, too
CALLS = [(3, 2), (1, 0), (0, 2), (0, 0), (2, 40), (20, 3), (3, 2)]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("f", PROGRAMS)
def test_rows_of_loops_in_loops_are_those_of_eager_code(f: Program) -> None:
    ways = [weft.compile(f, debug=True), weft.compile(f, backend="interpret", debug=True)]
    ways += [weft.compile(f)] if f in PLAIN else []
    for n, m in CALLS:
        wanted = eager(f, n, m)
        for way in ways:
            assert_same(run(way, n, m), wanted)
    assert len(ways[0].versions) == 1


def ragged(x: Any, n: Any, m: Any) -> Any:
    rows = []
    for i in range(n):
        inner = [x]
        for j in range(m + i):
            inner.append(x * j + i)
        rows.append(weft.stack(inner))
    return weft.stack(rows)


def ragged_joined(x: Any, n: Any, m: Any) -> Any:
    rows = []
    for i in range(n):
        inner = [x]
        for _ in range(m + i):
            inner.append(x * i)
        rows.append(weft.concat(inner))
    return weft.concat(rows)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("f", [ragged, ragged_joined])
def test_rows_of_different_lengths_are_an_error_with_the_line(f: Program) -> None:
    said = []
    for options in ({"debug": True}, {}, {"backend": "interpret"}):
        way = weft.compile(f, **options)
        for n, m in ((1, 2), (0, 2), (1, 0)):  # of one row, or none, there is nothing that differs
            assert_same(run(way, n, m), eager(f, n, m))
        with pytest.raises(
            ShapeError, match=r"iterations must give rows of one length, got \d and \d"
        ) as caught:
            way(weft.tensor(X), weft.tensor(4), weft.tensor(1))
        assert "test_late_sizes.py" in str(caught.value)
        said.append(str(caught.value))
        assert_same(run(way, 1, 1), eager(f, 1, 1))  # the next call works
    assert said[0] == said[1] == said[2]


BRANCH = """
graph f(%x: f32[3], %p: bool[], %m: i64[]) {
  %0: f32[k,3] = cond(%p, %x, %m) {
    branches[0] true(%x: f32[3], %m: i64[]) {
      %0: i64[], %1: f32[k,3], %2: i64[] = while_loop(i64(0), %m, %x, carries=1, trips=k) {
        test(%0: i64[], %m: i64[], %x: f32[3]) {
          %1: bool[] = less(%0, %m)
          return %1
        }
        body(%0: i64[], %m: i64[], %x: f32[3]) {
          %1: i64[] = add(%0, i64(1))
          %2: f32[3] = sin(%x)
          return %1, %2
        }
      }
      return %1
    }
    branches[1] false(%x: f32[3], %m: i64[]) {
      %0: bool[3] = greater(%x, f32(0.0))
      %1: i64[k] = true_places(%0, trips=k)
      %2: f32[1,3] = reshape(%x, shape=(1, 3))
      %3: i64[k] = mul(%1, i64(0))
      %4: f32[k,3] = gather(%2, %3)
      return %4
    }
  }
  return %0
}
"""


@pytest.mark.parametrize("debug", [True, False])
def test_size_that_both_branches_tell_is_that_of_the_one_that_ran(debug: bool) -> None:
    run = build_executable(weft.parse_graph(BRANCH), debug=debug)
    for p, m in ((True, 4), (False, 4), (True, 0), (True, 50), (False, 0)):
        (got,) = run([X, np.array(p), np.array(m)])
        wanted = [np.sin(X)] * m if p else [X, X]
        np.testing.assert_allclose(got, np.reshape(wanted, (-1, 3)), rtol=1e-6)


# What must be seen by whoever verifies


def test_size_that_is_used_before_it_is_told_is_an_error() -> None:
    graph = weft.parse_graph("""
    graph f(%x: bool[3]) {
      %0: i64[n] = true_places(%x, trips=n)
      %1: i64[] = size(value=n, dtype=i64)
      return %1, %0
    }""")
    graph.verify()
    with pytest.raises(GraphError, match=r"node 0, .*size.*: a size must be told before it is used, got n"):
        graph.replace(nodes=graph.nodes[::-1]).verify()


def test_size_that_nobody_tells_is_an_error() -> None:
    graph = weft.parse_graph("""
    graph f(%x: f32[3]) {
      %0: f32[1,3] = reshape(%x, shape=(1, 3))
      %1: f32[n,3] = broadcast_to(%0, shape=(n, 3))
      return %1
    }""")
    with pytest.raises(GraphError, match=r"f: size n must be that of an input, got none"):
        lower_graph(graph)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("f", PROGRAMS)
def test_programs_have_memory_before_it_is_used(f: Program) -> None:
    graph = weft.make_graph(f)(weft.tensor(X), weft.tensor(3), weft.tensor(2))
    for given in (graph, graph.optimize()):
        for debug in (False, True):
            verify_program(lower_graph(weft.passes.lower(given), debug=debug))
