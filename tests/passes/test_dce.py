from __future__ import annotations

import weft
from tests.passes.helpers import assert_becomes, assert_stays
from weft.passes import dce


def test_nodes_that_no_result_needs_are_left_out() -> None:
    assert_becomes(
        dce,
        """
        graph f(%x: f32[3], state %s: f32[3]) {
          %0: f32[3] = exp(%x)
          %1: f32[3] = tanh(%0)
          %2: f32[3] = sin(%x)
          update %s = %2
          return %x
        }""",
        """
        graph f(%x: f32[3], state %s: f32[3]) {
          %0: f32[3] = sin(%x)
          update %s = %0
          return %x
        }""",
    )


def test_graph_without_dead_code_is_the_same_object() -> None:
    assert_stays(
        dce,
        """
        graph f(%x: f32[3]) {
          %0: f32[3] = exp(%x)
          return %0
        }""",
    )


def test_unused_outputs_of_a_cond_and_operands_that_only_they_needed_go() -> None:
    assert_becomes(
        dce,
        """
        graph f(%p: bool[], %x: f32[], %y: f32[]) {
          %0: f32[], %1: f32[] = cond(%p, %x, %y) {
            branches[0](%a: f32[], %b: f32[]) {
              %0: f32[] = exp(%b)
              return %a, %0
            }
            branches[1](%a: f32[], %b: f32[]) {
              %0: f32[] = sin(%a)
              return %0, %b
            }
          }
          return %0
        }""",
        """
        graph f(%p: bool[], %x: f32[], %y: f32[]) {
          %0: f32[] = cond(%p, %x) {
            branches[0](%a: f32[]) {
              return %a
            }
            branches[1](%a: f32[]) {
              %0: f32[] = sin(%a)
              return %0
            }
          }
          return %0
        }""",
    )


def test_unused_carry_stack_row_and_operand_of_a_scan_go() -> None:
    assert_becomes(
        dce,
        """
        graph f(%x: f32[], %rows: f32[4], %w: f32[], %v: f32[]) {
          %0: f32[], %1: f32[], %2: f32[4] = scan(%x, %x, %rows, %w, %v,
              carries=2, mapped=1, length=4, reverse=False, counted=False) {
            body(%a: f32[], %b: f32[], %row: f32[], %w: f32[], %v: f32[]) {
              %0: f32[] = mul(%a, %w)
              %1: f32[] = add(%b, %row)
              %2: f32[] = add(%b, %v)
              return %0, %1, %2
            }
          }
          return %0
        }""",
        """
        graph f(%x: f32[], %rows: f32[4], %w: f32[], %v: f32[]) {
          %0: f32[] = scan(%x, %w, carries=1, mapped=0, length=4, reverse=False, counted=False) {
            body(%a: f32[], %w: f32[]) {
              %0: f32[] = mul(%a, %w)
              return %0
            }
          }
          return %0
        }""",
    )


def test_carry_that_decides_how_often_a_loop_goes_round_stays() -> None:
    assert_stays(
        dce,
        """
        graph f(%x: f32[]) {
          %0: i64[], %1: f32[] = while_loop(i64(0), %x, carries=2, trips=None, checkpoint_every=None) {
            test(%i: i64[], %a: f32[]) {
              %0: bool[] = less(%i, i64(5))
              return %0
            }
            body(%i: i64[], %a: f32[]) {
              %0: i64[] = add(%i, i64(1))
              %1: f32[] = sin(%a)
              return %0, %1
            }
          }
          return %1
        }""",
    )


def test_what_a_while_loop_collects_goes_with_its_number_of_trips_where_nobody_looks() -> None:
    assert_becomes(
        dce,
        """
        graph f(%x: f32[]) {
          %0: f32[], %1: f32[n], %2: i64[] = while_loop(%x, carries=1, trips=size(n), checkpoint_every=None) {
            test(%a: f32[]) {
              %0: bool[] = less(%a, f32(5.0))
              return %0
            }
            body(%a: f32[]) {
              %0: f32[] = add(%a, f32(1.0))
              %1: f32[] = sin(%a)
              return %0, %1
            }
          }
          return %0
        }""",
        """
        graph f(%x: f32[]) {
          %0: f32[] = while_loop(%x, carries=1, trips=None, checkpoint_every=None) {
            test(%a: f32[]) {
              %0: bool[] = less(%a, f32(5.0))
              return %0
            }
            body(%a: f32[]) {
              %0: f32[] = add(%a, f32(1.0))
              return %0
            }
          }
          return %0
        }""",
    )


def test_effects_stay_and_so_does_what_they_need() -> None:
    assert_stays(
        dce,
        """
        graph f(%x: f32[]) {
          %0: f32[] = exp(%x)
          print(%0, pieces=("", ""), places=(("tensor", ""),))
          return
        }""",
    )


def test_loop_with_an_effect_stays_though_its_result_is_not_used() -> None:
    text = """
        graph f(%x: f32[]) {
          %0: f32[] = scan(%x, carries=1, mapped=0, length=2, reverse=False, counted=False) {
            body(%a: f32[]) {
              %0: f32[] = sin(%a)
              print(%a, pieces=("", ""), places=(("tensor", ""),))
              return %0
            }
          }
          return %x
        }"""
    assert_stays(dce, text)


def test_unused_output_of_a_call_goes_and_its_arguments_stay() -> None:
    graph = weft.parse_graph(
        """
graph f(%x: f32[3], %y: f32[3]) {
  %0: f32[3], %1: f32[3] = call both(x=%x, y=%y) {
    body(%x: f32[3], %y: f32[3]) {
      %0: f32[3] = exp(%x)
      %1: f32[3] = exp(%y)
      return %0, %1
    }
  }
  return %1
}
"""
    )
    after = dce(graph)
    assert len(after.nodes[0].outputs) == 1
    assert len(after.nodes[0].inputs) == 2
    assert [n.op.name for n in after.walk()] == ["exp", "call"]
    after.verify()
