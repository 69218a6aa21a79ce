"""Passes on loops: invariant motion, unrolling, and sharing of loops that compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.passes.helpers import assert_becomes, assert_stays, count_op, graph_of, op_names, parse
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.passes import cse, dce, licm, share_loops, unroll
from weft.passes.check import same_elements

SCALAR = np.asarray(0.7, np.float32)


def assert_same_results(before: Graph, after: Graph, *arrays: Any) -> None:
    after.verify()
    for a, b in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        assert a.shape == b.shape
        assert same_elements(a, b).all()


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


# Sharing


def gradient_of(loop: Any) -> Any:
    def function(x: weft.Tensor) -> Any:
        y = loop(x)
        return y, *weft.autograd.grad(y.sum(), [x])

    return function


LOOPS = {
    "scan": lambda x: weft.fori_loop(0, 9, lambda i, y: weft.sin(y) * weft.exp(y), x),
    "while": lambda x: weft.while_loop(lambda y: y > 0.1, lambda y: weft.sin(y) * 0.5, x),
    "nested": lambda x: weft.fori_loop(
        0, 3, lambda i, y: weft.fori_loop(0, 2, lambda j, z: weft.sin(z) * y, y), x
    ),
    "cond in scan": lambda x: weft.fori_loop(
        0, 3, lambda i, y: weft.cond(y > 0.5, lambda: weft.sin(y), lambda: weft.exp(y)), x
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_gradient_of_control_flow_runs_forward_once(name: str) -> None:
    graph = graph_of(gradient_of(LOOPS[name]), weft.tensor(0.7, requires_grad=True))
    kind = "while_loop" if name == "while" else "scan"
    before = sum(n.op.name == kind for n in graph.nodes)
    after = graph.optimize(debug=True)
    assert sum(n.op.name == kind for n in after.nodes) == before - 1
    assert_same_results(graph, after, SCALAR)


def test_cond_whose_results_another_one_gives_is_left_out() -> None:
    branches = """
            branches[0](%a: f32[]) {{
              %0: f32[] = exp(%a)
              return %0{}
            }}
            branches[1](%a: f32[]) {{
              return %a{}
            }}
          }}"""
    assert_becomes(
        share_loops,
        "graph f(%p: bool[], %x: f32[]) {\n          %0: f32[] = cond(%p, %x) {"
        + branches.format("", "")
        + "\n          %1: f32[], %2: f32[] = cond(%p, %x) {"
        + branches.format(", %a", ", %a")
        + "\n          return %0, %2\n}",
        """
        graph f(%p: bool[], %x: f32[]) {
          %0: f32[], %1: f32[] = cond(%p, %x) {
            branches[0](%a: f32[]) {
              %0: f32[] = exp(%a)
              return %0, %a
            }
            branches[1](%a: f32[]) {
              return %a, %a
            }
          }
          return %0, %1
        }""",
    )


def test_merged_loop_has_the_line_of_the_forward_one() -> None:
    graph = graph_of(gradient_of(LOOPS["scan"]), weft.tensor(0.7, requires_grad=True))
    first = next(n for n in share_loops(graph).nodes if n.op.name == "scan")
    assert first.location is not None
    assert first.location.phase == ""


def test_order_of_operands_and_further_operands_do_not_matter() -> None:
    assert_becomes(
        lambda g: dce(share_loops(g)),
        """
        graph f(%x: f32[], %v: f32[], %w: f32[]) {
          %0: f32[] = scan(%x, %v, %w, carries=1, mapped=0, length=3, reverse=False, counted=False) {
            body(%a: f32[], %v: f32[], %w: f32[]) {
              %0: f32[] = mul(%a, %v)
              %1: f32[] = add(%0, %w)
              return %1
            }
          }
          %1: f32[] = exp(%w)
          %2: f32[], %3: f32[], %4: f32[3] = scan(%v, %x, %1, %w, %v,
              carries=2, mapped=0, length=3, reverse=False, counted=False) {
            body(%b: f32[], %a: f32[], %e: f32[], %w: f32[], %v: f32[]) {
              %0: f32[] = mul(%a, %v)
              %1: f32[] = add(%0, %w)
              %2: f32[] = mul(%b, %e)
              return %2, %1, %0
            }
          }
          return %0, %2, %4
        }""",
        """
        graph f(%x: f32[], %v: f32[], %w: f32[]) {
          %0: f32[] = exp(%w)
          %1: f32[], %2: f32[], %3: f32[3] = scan(%v, %x, %0, %w, %v,
              carries=2, mapped=0, length=3, reverse=False, counted=False) {
            body(%b: f32[], %a: f32[], %e: f32[], %w: f32[], %v: f32[]) {
              %0: f32[] = mul(%a, %v)
              %1: f32[] = add(%0, %w)
              %2: f32[] = mul(%b, %e)
              return %2, %1, %0
            }
          }
          return %2, %1, %3
        }""",
    )


def test_loop_that_needs_the_result_of_the_other_is_not_merged_with_it() -> None:
    graph = parse(
        """
        graph f(%x: f32[]) {
          %0: f32[] = scan(%x, carries=1, mapped=0, length=3, reverse=False, counted=False) {
            body(%a: f32[]) {
              %0: f32[] = sin(%a)
              return %0
            }
          }
          %1: f32[], %2: f32[] = scan(%x, %0, carries=2, mapped=0, length=3, reverse=False, counted=False) {
            body(%a: f32[], %b: f32[]) {
              %0: f32[] = sin(%a)
              %1: f32[] = mul(%a, %b)
              return %0, %1
            }
          }
          return %0, %1, %2
        }"""
    )
    after = dce(share_loops(cse(graph)))
    after.verify()
    assert_same_results(graph, after, SCALAR)


@pytest.mark.parametrize(
    "second",
    [
        lambda x: weft.fori_loop(0, 4, lambda i, y: weft.sin(y), x),
        lambda x: weft.fori_loop(0, 3, lambda i, y: weft.cos(y), x),
        lambda x: weft.fori_loop(0, 3, lambda i, y: weft.sin(y), x + 1.0),
        lambda x: weft.while_loop(lambda y: y > 0.2, lambda y: weft.sin(y) * 0.5, x),
    ],
    ids=["length", "body", "start", "kind"],
)
def test_loops_that_differ_are_not_merged(second: Any) -> None:
    def function(x: weft.Tensor) -> Any:
        return weft.fori_loop(0, 3, lambda i, y: weft.sin(y), x), second(x)

    graph = graph_of(function, weft.ones(()))
    assert share_loops(cse(graph)) is cse(graph) or len(share_loops(cse(graph)).nodes) == len(
        cse(graph).nodes
    )


def test_while_loops_that_differ_in_their_tests_are_not_merged() -> None:
    def function(x: weft.Tensor) -> Any:
        return [weft.while_loop(lambda y, s=s: y > s, lambda y: weft.sin(y) * 0.5, x) for s in (0.1, 0.2)]

    graph = graph_of(function, weft.ones(()))
    assert count_op(graph.optimize(), "while_loop") == 2


def test_collected_sizes_of_a_merged_while_loop_are_renamed() -> None:
    before = parse(
        """
        graph f(%x: f32[]) {
          %0: f32[], %1: f32[n1], %2: i64[] = while_loop(%x,
              carries=1, trips=size(n1), checkpoint_every=None) {
            test(%a: f32[]) {
              %0: bool[] = greater(%a, f32(0.1))
              return %0
            }
            body(%a: f32[]) {
              %0: f32[] = mul(%a, f32(0.5))
              return %0, %a
            }
          }
          %3: f32[n1] = exp(%1)
          %4: f32[], %5: f32[n2], %6: f32[n2], %7: i64[] = while_loop(%x,
              carries=1, trips=size(n2), checkpoint_every=None) {
            test(%a: f32[]) {
              %0: bool[] = greater(%a, f32(0.1))
              return %0
            }
            body(%a: f32[]) {
              %0: f32[] = mul(%a, f32(0.5))
              %1: f32[] = sin(%a)
              return %0, %a, %1
            }
          }
          return %0, %3, %6
        }"""
    )
    after = dce(share_loops(before))
    assert op_names(after) == ["while_loop", "exp"]
    assert str(after.outputs[1].type) == "f32[n2]"
    assert_same_results(before, after, SCALAR)


@pytest.mark.parametrize("trips", ["size(n1)", "None"])
def test_size_of_a_loop_that_goes_is_told_by_the_one_that_stays(trips: str) -> None:
    first = "%0: i64[], %1: f32[n1], %2: i64[]" if trips != "None" else "%0: i64[]"
    rows = ", %x" if trips != "None" else ""
    sums = "%8: f32[] = sum(%1, axes=(0,))" if trips != "None" else "%8: f32[] = exp(%x)"
    loops = f"""
          {first} = while_loop(i64(0), %n, %x, carries=1, trips={trips}, checkpoint_every=None) {{
            test(%i: i64[], %n: i64[], %x: f32[]) {{
              %0: bool[] = less(%i, %n)
              return %0
            }}
            body(%i: i64[], %n: i64[], %x: f32[]) {{
              %0: i64[] = add(%i, i64(1))
              return %0{rows}
            }}
          }}
          %3: i64[], %4: f32[n2], %5: i64[] = while_loop(i64(0), %n, %x,
              carries=1, trips=size(n2), checkpoint_every=None) {{
            test(%i: i64[], %n: i64[], %x: f32[]) {{
              %0: bool[] = less(%i, %n)
              return %0
            }}
            body(%i: i64[], %n: i64[], %x: f32[]) {{
              %0: i64[] = add(%i, i64(1))
              %1: f32[] = exp(%x)
              return %0, %1
            }}
          }}
          %6: f32[n2] = broadcast_to(%x, shape=(size(n2),))
          %7: f32[] = sum(%6, axes=(0,))
          {sums}"""
    before = parse(f"graph f(%x: f32[], %n: i64[]) {{{loops}\n return %0, %3, %5, %7, %8\n}}")
    after = dce(share_loops(before))
    for n in (0, 1, 3):
        assert_same_results(before, after, SCALAR, np.asarray(n))


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_gradient_of_loops_of_one_length_in_a_loop(backend: str) -> None:
    def f(a: Any, m: Any, n: Any) -> Any:
        v, s = a, m
        for _ in range(2):
            for _ in range(n):
                s = s + weft.sin(v)
                v = a * 0.25
            rows = []
            for _ in range(n):
                rows.append(m * 0.125)  # noqa: PERF401 - a loop of the graph
            v = sum(rows, start=a * 0.5)
        return v.sum() + s.sum()

    compiled = weft.compile(f, backend=backend)
    for n in (1, 2, 0):
        grads = []
        for function, turns in ((f, n), (compiled, weft.tensor(n))):
            leaves = [weft.tensor(x, requires_grad=True) for x in ([0.2, -0.3, 0.4], [0.5, -0.5, 0.25])]
            function(*leaves, turns).backward()
            grads += [x.grad.numpy() for x in leaves]
        np.testing.assert_allclose(grads[:2], grads[2:], rtol=1e-6)
