"""Passes on loops: invariant motion and unrolling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.passes.helpers import (
    assert_becomes,
    assert_same_results,
    assert_stays,
    count_op,
    graph_of,
    op_names,
    parse,
)
from weft.ir.interpret import interpret
from weft.passes import licm, unroll

SCALAR = np.asarray(0.7, np.float32)


# Invariant motion


def test_invariant_nodes_move_before_the_loop() -> None:
    assert_becomes(
        licm,
        """
        graph f(%x: f32[], %w: f32[]) {
          %0: f32[] = scan(%x, %w, carries=1, mapped=0, length=3, reverse=False, counted=False) {
            body(%a: f32[], %w: f32[]) {
              %0: f32[] = exp(%w)
              %1: f32[] = mul(%0, f32(2.0))
              %2: f32[] = mul(%a, %1)
              return %2
            }
          }
          return %0
        }""",
        """
        graph f(%x: f32[], %w: f32[]) {
          %0: f32[] = exp(%w)
          %1: f32[] = mul(%0, f32(2.0))
          %2: f32[] = scan(%x, %w, %1, carries=1, mapped=0, length=3, reverse=False, counted=False) {
            body(%a: f32[], %w: f32[], %0: f32[]) {
              %1: f32[] = mul(%a, %0)
              return %1
            }
          }
          return %2
        }""",
    )


def test_invariant_nodes_of_the_test_and_of_inner_loops_move_out_of_all() -> None:
    def function(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
        def body(y: weft.Tensor) -> weft.Tensor:
            return weft.fori_loop(0, 2, lambda i, z: z + weft.exp(w) + 1.0, y)

        return weft.while_loop(lambda y: y < weft.sin(w) * 50.0, body, x)

    graph = graph_of(function, weft.ones(()), weft.ones(()))
    after = licm(graph)
    assert sorted(op_names(after)) == ["exp", "mul", "sin", "while_loop"]
    assert_same_results(graph, after, SCALAR, SCALAR)


def test_ops_that_can_fail_stay_in_a_loop_that_may_not_run() -> None:
    def function(x: weft.Tensor, table: weft.Tensor, place: weft.Tensor) -> weft.Tensor:
        return weft.while_loop(lambda y: y < 0.0, lambda y: y + table[place], x)

    graph = graph_of(function, weft.ones(()), weft.ones(3), weft.tensor(7))
    after = licm(graph)
    assert count_op(after, "gather") == 1
    assert "gather" not in op_names(after)
    interpret(
        after, [np.ones((), np.float32), np.ones(3, np.float32), np.asarray(7)]
    )  # the loop does not run


def test_effects_stay_in_the_loop() -> None:
    assert_stays(
        licm,
        """
        graph f(%x: f32[], %w: f32[]) {
          %0: f32[] = scan(%x, %w, carries=1, mapped=0, length=3, reverse=False, counted=False) {
            body(%a: f32[], %w: f32[]) {
              print(%w, pieces=("", ""), places=(("tensor", ""),))
              %0: f32[] = mul(%a, %w)
              return %0
            }
          }
          return %0
        }""",
    )


def test_inner_while_loop_stays_because_it_may_not_end() -> None:
    def function(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
        def body(y: weft.Tensor) -> weft.Tensor:
            return y + weft.while_loop(lambda z: z > 0.0, lambda z: z * 2.0, w)

        return weft.while_loop(lambda y: y < 0.0, body, x)

    graph = graph_of(function, weft.ones(()), weft.ones(()))
    after = licm(graph)
    assert op_names(after) == ["while_loop"]
    interpret(after, [np.ones((), np.float32), np.ones((), np.float32)])


def test_branches_keep_what_is_theirs() -> None:
    graph = graph_of(
        lambda x, w: weft.cond(x > 0.0, lambda: x + weft.exp(w), lambda: x), weft.ones(()), weft.ones(())
    )
    assert licm(graph) is graph


def test_broadcast_that_only_the_loop_uses_stays_where_it_is_free() -> None:
    graph = graph_of(
        lambda x, w: weft.fori_loop(0, 3, lambda i, y: y @ weft.broadcast_to(w, (4, 4)), x),
        weft.ones((4, 4)),
        weft.ones(()),
    )
    assert licm(graph) is graph


def test_carry_that_never_changes_becomes_an_operand() -> None:
    def function(x: weft.Tensor, w: weft.Tensor) -> Any:
        return weft.while_loop(lambda s: s[0] < 10.0, lambda s: (s[0] + s[1] * 2.0, s[1]), (x, w))

    graph = graph_of(function, weft.ones(()), weft.ones(()))
    after = licm(graph)
    assert op_names(after) == ["mul", "while_loop"]
    assert after.nodes[-1].attrs["carries"] == 1
    assert after.outputs[1] is after.inputs[1]
    assert_same_results(graph, after, SCALAR, SCALAR)


def test_lines_move_with_the_nodes() -> None:
    graph = graph_of(
        lambda x, w: weft.fori_loop(0, 3, lambda i, y: y + weft.exp(w), x), weft.ones(()), weft.ones(())
    )
    (inside,) = [n.location for n in graph.walk() if n.op.name == "exp"]
    assert licm(graph).nodes[0].location == inside is not None


# Unrolling


@pytest.mark.parametrize("reverse", [False, True])
def test_unrolled_scan_computes_the_same(reverse: bool) -> None:
    def function(x: weft.Tensor, rows: weft.Tensor) -> Any:
        return weft.scan(lambda c, r: (weft.sin(c) + r.sum(), c * r), x, rows, reverse=reverse)

    graph = graph_of(function, weft.ones(()), weft.ones((5, 2)))
    after = unroll(graph)
    assert count_op(after, "scan") == 0
    assert count_op(after, "sin") == 5
    assert_same_results(graph, after, SCALAR, np.arange(10, dtype=np.float32).reshape(5, 2))


def test_every_unrolled_node_has_its_own_identity_and_line() -> None:
    graph = graph_of(lambda x: weft.fori_loop(0, 4, lambda i, y: weft.sin(y), x), weft.ones(()))
    sines = [n for n in unroll(graph).nodes if n.op.name == "sin"]
    assert len({id(n) for n in sines}) == len({n.outputs[0] for n in sines}) == 4
    (line,) = {n.location for n in sines}
    assert line is not None
    assert line.file.endswith("test_loops.py")


def test_loops_longer_than_the_limit_stay() -> None:
    graph = graph_of(lambda x: weft.fori_loop(0, 100, lambda i, y: weft.sin(y), x), weft.ones(()))
    assert unroll(graph) is graph
    assert count_op(unroll(graph, limit=100), "sin") == 100


def test_scan_over_no_rows_gives_its_start_and_empty_stacks() -> None:
    graph = graph_of(lambda x, r: weft.scan(lambda c, y: (c + y, c), x, r), weft.ones(()), weft.ones((0,)))
    after = unroll(graph)
    assert op_names(after) == []
    assert_same_results(graph, after, SCALAR, np.zeros(0, np.float32))


@pytest.mark.parametrize("n", [0, 3])
def test_scan_over_no_rows_of_a_named_size_is_unrolled(n: int) -> None:
    graph = parse(
        """
        graph f(%x: f32[n], %rows: f32[0,n]) {
          %0: f32[n], %1: f32[0,n] = scan(%x, %rows, carries=1, mapped=1, length=0) {
            body(%0: f32[n], %1: f32[n]) {
              %2: f32[n] = add(%0, %1)
              return %2, %1
            }
          }
          return %0, %1
        }
        """
    )
    after = unroll(graph)
    assert count_op(after, "scan") == 0
    assert_same_results(graph, after, np.arange(n, dtype=np.float32), np.zeros((0, n), np.float32))


def test_loop_that_runs_as_often_as_data_says_stays() -> None:
    graph = graph_of(
        lambda n, x: weft.fori_loop(0, n, lambda i, y: weft.sin(y), x), weft.tensor(3), weft.ones(())
    )
    assert unroll(graph) is graph


def test_counted_scan_fills_the_rows_it_does_not_reach_with_zeros() -> None:
    graph = parse(
        """
        graph f(%x: f32[], %rows: f32[4]) {
          %0: f32[], %1: f32[4] = scan(i64(2), %x, %rows,
              carries=1, mapped=1, length=4, reverse=True, counted=True) {
            body(%a: f32[], %r: f32[]) {
              %0: f32[] = sub(%r, %a)
              return %0, %a
            }
          }
          return %0, %1
        }"""
    )
    after = unroll(graph)
    assert count_op(after, "sub") == 2
    assert_same_results(graph, after, SCALAR, np.arange(4, dtype=np.float32))


def test_effects_are_unrolled_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    graph = parse(
        """
        graph f(%rows: f32[3]) {
          scan(%rows, carries=0, mapped=1, length=3, reverse=True, counted=False) {
            body(%r: f32[]) {
              print(%r, pieces=("", ";"), places=(("number", ".0f"),))
              return
            }
          }
          return
        }"""
    )
    interpret(unroll(graph), [np.arange(3, dtype=np.float32)])
    assert capsys.readouterr().out == "2;1;0;"
