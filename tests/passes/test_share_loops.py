"""The pass that shares loops and branches which compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.passes.helpers import assert_becomes, assert_same_results, count_op, graph_of, op_names, parse
from weft.passes import cse, dce, share_loops

SCALAR = np.asarray(0.7, np.float32)


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
    more = """carries=2, mapped=0, length=3, reverse=False, counted=False) {
            body(%b: f32[], %a: f32[], %e: f32[], %w: f32[], %v: f32[]) {
              %0: f32[] = mul(%a, %v)
              %1: f32[] = add(%0, %w)
              %2: f32[] = mul(%b, %e)
              return %2, %1, %0
            }
          }"""
    assert_becomes(
        lambda g: dce(share_loops(g)),
        f"""
        graph f(%x: f32[], %v: f32[], %w: f32[]) {{
          %0: f32[] = scan(%x, %v, %w, carries=1, mapped=0, length=3, reverse=False, counted=False) {{
            body(%a: f32[], %v: f32[], %w: f32[]) {{
              %0: f32[] = mul(%a, %v)
              %1: f32[] = add(%0, %w)
              return %1
            }}
          }}
          %1: f32[] = exp(%w)
          %2: f32[], %3: f32[], %4: f32[3] = scan(%v, %x, %1, %w, %v, {more}
          return %0, %2, %4
        }}""",
        f"""
        graph f(%x: f32[], %v: f32[], %w: f32[]) {{
          %0: f32[] = exp(%w)
          %1: f32[], %2: f32[], %3: f32[3] = scan(%v, %x, %0, %w, %v, {more}
          return %2, %1, %3
        }}""",
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
