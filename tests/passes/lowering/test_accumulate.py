"""Sums that begin at zero and are then added to something begin at that instead."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from tests.passes.helpers import assert_becomes, assert_stays
from tests.schedule.programs import check, graph_of
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.passes import accumulate

X = np.random.default_rng(0).standard_normal(6).astype(np.float32)
SCATTERED = "scatter_add(f32[4](0.0, ...), %v, %i)"


def test_element_that_is_added_changes_that_element() -> None:
    assert_becomes(
        accumulate,
        f"""
        graph f(%c: f32[4], %v: f32[], %i: i64[]) {{
          %0: f32[4] = {SCATTERED}
          %1: f32[4] = add(%0, %c)
          return %1
        }}""",
        """
        graph f(%c: f32[4], %v: f32[], %i: i64[]) {
          %0: f32[4] = scatter_add(%c, %v, %i)
          return %0
        }""",
    )


def test_base_may_come_later() -> None:
    assert_becomes(
        accumulate,
        f"""
        graph f(%c: f32[4], %v: f32[], %i: i64[]) {{
          %0: f32[4] = {SCATTERED}
          %1: f32[4] = exp(%c)
          %2: f32[4] = add(%0, %1)
          return %2
        }}""",
        """
        graph f(%c: f32[4], %v: f32[], %i: i64[]) {
          %0: f32[4] = exp(%c)
          %1: f32[4] = scatter_add(%0, %v, %i)
          return %1
        }""",
    )


def test_chain_of_sums_begins_at_the_base() -> None:
    assert_becomes(
        accumulate,
        f"""
        graph f(%c: f32[4], %v: f32[], %i: i64[]) {{
          %0: f32[4] = {SCATTERED}
          %1: f32[4] = {SCATTERED}
          %2: f32[4] = add(%0, %1)
          %3: f32[4] = add(%c, %2)
          return %3
        }}""",
        """
        graph f(%c: f32[4], %v: f32[], %i: i64[]) {
          %0: f32[4] = scatter_add(%c, %v, %i)
          %1: f32[4] = scatter_add(%0, %v, %i)
          return %1
        }""",
    )


def test_sum_that_others_see_stays() -> None:
    assert_stays(
        accumulate,
        f"""
        graph f(%c: f32[4], %v: f32[], %i: i64[]) {{
          %0: f32[4] = {SCATTERED}
          %1: f32[4] = add(%c, %0)
          return %1, %0
        }}""",
    )


def test_sum_of_another_shape_stays() -> None:
    assert_stays(
        accumulate,
        f"""
        graph f(%c: f32[], %v: f32[], %i: i64[]) {{
          %0: f32[4] = {SCATTERED}
          %1: f32[4] = add(%c, %0)
          return %1
        }}""",
    )


def test_sum_that_begins_elsewhere_stays() -> None:
    assert_stays(
        accumulate,
        """
        graph f(%c: f32[4], %v: f32[], %i: i64[]) {
          %0: f32[4] = scatter_add(f32[4](1.0, ...), %v, %i)
          %1: f32[4] = add(%c, %0)
          return %1
        }""",
    )


def loop(start: str, result: str) -> str:
    return f"""
        graph f(%c: f32[4], %v: f32[3], %i: i64[3]) {{
          %0: f32[4] = scan({start}, %v, %i, carries=1, mapped=2, length=3, reverse=False, counted=False) {{
            body(%s: f32[4], %v: f32[], %i: i64[]) {{
              {result}
            }}
          }}
        """


def test_loop_that_only_adds_begins_at_the_base() -> None:
    slow = f"%0: f32[4] = {SCATTERED}\n %1: f32[4] = add(%s, %0)\n return %1"
    fast = "%0: f32[4] = scatter_add(%s, %v, %i)\n return %0"
    assert_becomes(
        accumulate,
        loop("f32[4](0.0, ...)", slow) + "%1: f32[4] = add(%c, %0)\n return %1 }",
        loop("%c", fast) + "return %0 }",
    )


def test_loop_that_uses_its_sum_stays() -> None:
    body = "%0: f32[4] = scatter_add(%s, %v, %i)\n %1: f32[4] = tanh(%0)\n return %1"
    assert_stays(accumulate, loop("f32[4](0.0, ...)", body) + "%1: f32[4] = add(%c, %0)\n return %1 }")
    body = "%0: f32[] = gather(%s, %i)\n %1: f32[4] = scatter_add(%s, %0, %i)\n return %1"
    assert_stays(accumulate, loop("f32[4](0.0, ...)", body) + "%1: f32[4] = add(%c, %0)\n return %1 }")


def test_base_that_needs_the_sum_is_no_base() -> None:
    graph = weft.parse_graph("""
        graph f(%c: f32[4], %v: f32[3]) {
          %0: f32[4], %1: f32[4] = scan(f32[4](0.0, ...), f32[4](1.0, ...), %v, carries=2, mapped=1, length=3,
              reverse=False, counted=False) {
            body(%a: f32[4], %b: f32[4], %v: f32[]) {
              %0: f32[4] = add(%a, %v)
              %1: f32[4] = mul(%b, %v)
              return %0, %1
            }
          }
          %2: f32[4] = add(%1, %0)
          return %2
        }""")
    assert accumulate(graph) is graph


def test_branches_begin_at_the_base() -> None:
    def branches(operands: str, inputs: str, then: str, otherwise: str) -> str:
        return f"""
        graph f(%p: bool[], %c: f32[4], %v: f32[], %i: i64[]) {{
          %0: f32[4] = cond(%p, %v, %i{operands}) {{
            branches[0] then(%v: f32[], %i: i64[]{inputs}) {{
              %0: f32[4] = scatter_add({then}, %v, %i)
              return %0
            }}
            branches[1] otherwise(%v: f32[], %i: i64[]{inputs}) {{
              return {otherwise}
            }}
          }}
        """

    zeros = "f32[4](0.0, ...)"
    assert_becomes(
        accumulate,
        branches("", "", zeros, zeros) + "%1: f32[4] = add(%c, %0)\n return %1 }",
        branches(", %c", ", %b: f32[4]", "%b", "%b").replace("%b", "%2") + "return %0 }",
    )
    assert_stays(
        accumulate,
        branches("", "", zeros, "f32[4](1.0, ...)") + "%1: f32[4] = add(%c, %0)\n return %1 }",
    )


def test_gradients_are_the_same() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                if x[i] > x[j]:
                    total = total + x[i] * x[j] ** 2
        return total

    graph = graph_of(weft.grad(f), X)
    faster: Graph = accumulate(graph)
    faster.verify()
    assert not [n for n in faster.walk() if n.op.name == "add" and n.outputs[0].type.shape == (6,)]
    np.testing.assert_allclose(interpret(faster, [X])[0], interpret(graph, [X])[0], rtol=1e-5)
    check(graph, X)


PADDED = "pad(%v, low=(1,), high=(1,), interior=(0,), value=0)"


def test_loop_adds_a_part_to_that_part_of_what_it_carries() -> None:
    def loop_of(body: str) -> str:
        return f"""
        graph f(%c: f32[4], %v: f32[2]) {{
          %0: f32[4] = scan(%c, %v, carries=1, mapped=0, length=3) {{
            body(%s: f32[4], %v: f32[2]) {{
              {body}
            }}
          }}
          return %0
        }}"""

    at = "starts=(1,), stops=(3,)"
    assert_becomes(
        accumulate,
        loop_of(f"%0: f32[4] = {PADDED}\n %1: f32[4] = add(%0, %s)\n return %1"),
        loop_of(
            f"%0: f32[2] = slice(%s, {at})\n %1: f32[2] = add(%0, %v)\n"
            f"%2: f32[4] = update_slice(%s, %1, {at})\n return %2"
        ),
    )
    for body in (
        f"%0: f32[4] = {PADDED}\n %1: f32[4] = tanh(%s)\n %2: f32[4] = add(%0, %1)\n return %2",
        f"%0: f32[4] = {PADDED}\n %1: f32[4] = add(%0, %s)\n %2: f32[4] = mul(%1, %s)\n return %2",
        f"%0: f32[4] = {PADDED.replace('value=0', 'value=1')}\n %1: f32[4] = add(%0, %s)\n return %1",
        "%0: f32[4] = pad(%v, low=(-1,), high=(3,), interior=(0,), value=0)\n %1: f32[4] = add(%0, %s)\n"
        "return %1",
    ):
        assert_stays(accumulate, loop_of(body))


def test_gradient_of_slices_in_a_loop_changes_parts() -> None:
    def loss(x: Any, w: Any) -> Any:
        total = 0.0
        for i in range(x.shape[0]):
            total = total + weft.tanh(x[:i] * w[i]).sum() + (x[i:] * x[: x.shape[0] - i]).sum()
        return total

    graph = graph_of(weft.grad(loss, argnums=(0, 1)), X, X)
    after = accumulate(graph)
    names = [node.op.name for node in after.walk()]
    assert "update_slice" in names
    assert "pad" not in names
    for a, b in zip(interpret(after, [X, X]), interpret(graph, [X, X]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    check(after, X, X)
