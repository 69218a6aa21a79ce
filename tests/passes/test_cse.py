from __future__ import annotations

import numpy as np

import weft
from tests.passes.helpers import assert_becomes, assert_stays, count_op, graph_of
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.ops.arithmetic import add
from weft.passes import cse


def test_equal_nodes_and_constants_are_merged() -> None:
    assert_becomes(
        cse,
        """
        graph f(%x: f32[3], %y: f32[3]) {
          %0: f32[3] = mul(%x, f32(2.0))
          %1: f32[3] = mul(%x, f32(2.0))
          %2: f32[3] = add(%0, %1)
          %3: f32[3] = exp(%1)
          return %2, %3
        }""",
        """
        graph f(%x: f32[3], %y: f32[3]) {
          %0: f32[3] = mul(%x, f32(2.0))
          %1: f32[3] = add(%0, %0)
          %2: f32[3] = exp(%0)
          return %1, %2
        }""",
    )


def test_inputs_of_commutative_ops_may_be_swapped() -> None:
    assert_becomes(
        cse,
        """
        graph f(%x: f32[3], %y: f32[3]) {
          %0: f32[3] = add(%x, %y)
          %1: f32[3] = add(%y, %x)
          %2: f32[3] = sub(%x, %y)
          %3: f32[3] = sub(%y, %x)
          return %0, %1, %2, %3
        }""",
        """
        graph f(%x: f32[3], %y: f32[3]) {
          %0: f32[3] = add(%x, %y)
          %1: f32[3] = sub(%x, %y)
          %2: f32[3] = sub(%y, %x)
          return %0, %0, %1, %2
        }""",
    )


def test_maximum_keeps_its_order_because_zeros_have_signs() -> None:
    assert_stays(
        cse,
        """
        graph f(%x: f32[], %y: f32[]) {
          %0: f32[] = maximum(%x, %y)
          %1: f32[] = maximum(%y, %x)
          return %0, %1
        }""",
    )


def test_zeros_of_different_sign_are_different_constants() -> None:
    assert_stays(
        cse,
        """
        graph f(%x: f32[]) {
          %0: f32[] = add(%x, f32(0.0))
          %1: f32[] = add(%x, f32(-0.0))
          return %0, %1
        }""",
    )


def test_attributes_must_be_equal() -> None:
    assert_stays(
        cse,
        """
        graph f(%x: f32[2,2]) {
          %0: f32[2] = sum(%x, axes=(0,), keepdims=False)
          %1: f32[2] = sum(%x, axes=(1,), keepdims=False)
          return %0, %1
        }""",
    )


def test_prints_are_never_merged() -> None:
    assert_stays(
        cse,
        """
        graph f(%x: f32[]) {
          print(%x, pieces=("", ""), places=(("tensor", ""),))
          print(%x, pieces=("", ""), places=(("tensor", ""),))
          return
        }""",
    )


def test_large_constants_are_merged_if_they_are_one_array() -> None:
    table = np.zeros(1 << 18, np.float64)
    values = [Value(TensorType(table.shape, table.dtype)) for _ in range(3)]
    x = Value(TensorType(table.shape, table.dtype), "x")
    outs = [Value(x.type) for _ in values]
    nodes = [Node(add, (x, v), {}, (o,)) for v, o in zip(values, outs, strict=True)]
    arrays = [table, table, table.copy()]
    graph = Graph("f", [x], nodes, outs, constants=dict(zip(values, arrays, strict=True)))
    after = cse(graph)
    assert len(after.constants) == 2
    assert len(after.nodes) == 2


def test_loops_with_equal_bodies_are_merged() -> None:
    def twice(x: weft.Tensor) -> tuple[weft.Tensor, weft.Tensor]:
        first = weft.fori_loop(0, 5, lambda i, y: weft.sin(y) * x, x)
        second = weft.fori_loop(0, 5, lambda i, z: weft.sin(z) * x, x)
        return first, second

    graph = graph_of(twice, weft.ones(2))
    assert count_op(graph, "scan") == 2
    assert count_op(cse(graph), "scan") == 1


def test_loops_with_different_bodies_are_not_merged() -> None:
    def two(x: weft.Tensor) -> tuple[weft.Tensor, weft.Tensor]:
        return weft.fori_loop(0, 5, lambda i, y: weft.sin(y), x), weft.fori_loop(
            0, 5, lambda i, y: weft.cos(y), x
        )

    assert count_op(cse(graph_of(two, weft.ones(2))), "scan") == 2


def test_carries_that_differ_only_after_some_iterations_are_told_apart() -> None:
    def chain(x: weft.Tensor) -> tuple[weft.Tensor, ...]:
        zero = x * 0.0

        def body(i: weft.Tensor, state: tuple[weft.Tensor, ...]) -> tuple[weft.Tensor, ...]:
            _, b, c, d = state
            return b, c, d, d + 1.0

        return weft.fori_loop(0, 3, body, (zero, zero, zero, zero))

    graph = graph_of(chain, weft.ones(()))
    expected = interpret(graph, [np.ones((), np.float32)])
    assert interpret(cse(graph), [np.ones((), np.float32)]) == expected
    assert [float(e) for e in expected] == [0.0, 1.0, 2.0, 3.0]


def test_equal_carries_of_a_loop_are_merged() -> None:
    def pair(x: weft.Tensor) -> tuple[weft.Tensor, ...]:
        return weft.fori_loop(0, 3, lambda i, s: (weft.sin(s[0]), weft.sin(s[1])), (x, x))

    graph = graph_of(pair, weft.ones(()))
    after = weft.passes.dce(cse(graph))
    assert len(after.nodes[-1].outputs) == 1
    assert after.outputs[0] is after.outputs[1]


def test_nodes_are_merged_inside_regions() -> None:
    assert_becomes(
        cse,
        """
        graph f(%p: bool[], %x: f32[]) {
          %0: f32[] = cond(%p, %x) {
            branches[0](%a: f32[]) {
              %0: f32[] = exp(%a)
              %1: f32[] = exp(%a)
              %2: f32[] = add(%0, %1)
              return %2
            }
            branches[1](%a: f32[]) {
              return %a
            }
          }
          return %0
        }""",
        """
        graph f(%p: bool[], %x: f32[]) {
          %0: f32[] = cond(%p, %x) {
            branches[0](%a: f32[]) {
              %0: f32[] = exp(%a)
              %1: f32[] = add(%0, %0)
              return %1
            }
            branches[1](%a: f32[]) {
              return %a
            }
          }
          return %0
        }""",
    )


def test_operand_given_twice_is_read_from_one_place() -> None:
    text = """
        graph f(%p: bool[], %x: f32[]) {
          %0: f32[] = cond(%p, %x, %x) {
            branches[0](%a: f32[], %b: f32[]) {
              %0: f32[] = add(%a, %b)
              return %0
            }
            branches[1](%a: f32[], %b: f32[]) {
              return %b
            }
          }
          return %0
        }"""
    assert_becomes(
        lambda g: weft.passes.dce(cse(g)),
        text,
        """
        graph f(%p: bool[], %x: f32[]) {
          %0: f32[] = cond(%p, %x) {
            branches[0](%a: f32[]) {
              %0: f32[] = add(%a, %a)
              return %0
            }
            branches[1](%a: f32[]) {
              return %a
            }
          }
          return %0
        }""",
    )
