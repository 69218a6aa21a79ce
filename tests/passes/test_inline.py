from __future__ import annotations

import numpy as np

import weft
from tests.passes.helpers import assert_becomes, assert_stays, count_op, graph_of
from weft.ir.interpret import interpret
from weft.passes import inline


def test_body_of_a_call_takes_its_place() -> None:
    assert_becomes(
        inline,
        """
        graph f(%x: f32[3], %y: f32[3]) {
          %0: f32[3], %1: f32[3] = call both(x=%x, y=%y) {
            body(%a: f32[3], %b: f32[3]) {
              %0: f32[3] = mul(%a, f32(2.0))
              return %0, %b
            }
          }
          %2: f32[3] = add(%0, %1)
          return %2
        }""",
        """
        graph f(%x: f32[3], %y: f32[3]) {
          %0: f32[3] = mul(%x, f32(2.0))
          %1: f32[3] = add(%0, %y)
          return %1
        }""",
    )


def test_graph_without_calls_is_the_same_object() -> None:
    assert_stays(
        inline,
        """
        graph f(%x: f32[3]) {
          %0: f32[3] = exp(%x)
          return %0
        }""",
    )


def test_calls_in_calls_and_in_regions_are_expanded() -> None:
    def function(x: weft.Tensor) -> weft.Tensor:
        return weft.fori_loop(0, 3, lambda i, y: weft.gelu(y, approximate="tanh"), weft.mish(x))

    graph = graph_of(function, weft.ones(3))
    assert count_op(graph, "call") >= 2
    after = inline(graph)
    after.verify()
    assert count_op(after, "call") == 0
    x = np.linspace(-2, 2, 3, dtype=np.float32)
    np.testing.assert_array_equal(interpret(after, [x])[0], interpret(graph, [x])[0])


def test_expanded_nodes_have_the_line_of_the_call() -> None:
    graph = graph_of(lambda x: weft.silu(x), weft.ones(3))
    (line,) = {n.location for n in inline(graph).nodes}
    assert line == graph.nodes[0].location is not None
