from __future__ import annotations

import numpy as np

import weft
from tests.passes.helpers import assert_becomes, assert_stays, graph_of, op_names
from weft.passes import fold


def test_nodes_on_constants_are_computed() -> None:
    assert_becomes(
        fold,
        """
        graph f(%x: f32[]) {
          %0: f32[] = mul(f32(3.0), f32(2.0))
          %1: f32[] = sqrt(%0)
          %2: f64[] = cast(f32(0.1), dtype=f64)
          %3: f32[] = add(%x, %0)
          return %3, %2
        }""",
        """
        graph f(%x: f32[]) {
          %0: f32[] = add(%x, f32(6.0))
          return %0, f64(0.10000000149011612)
        }""",
    )


def test_kernels_decide_so_division_by_zero_is_infinite_and_nobody_warns() -> None:
    assert_becomes(
        fold,
        """
        graph f() {
          %0: f32[] = div(f32(-1.0), f32(0.0))
          %1: f32[] = log(f32(-0.0))
          return %0, %1
        }""",
        """
        graph f() {
          return f32(-inf), f32(-inf)
        }""",
    )


def test_what_fails_is_left_to_the_run_which_names_the_line() -> None:
    assert_stays(
        fold,
        """
        graph f() {
          %0: f32[] = gather(f32[2](1.0, 2.0), i64(7))
          return %0
        }""",
    )


def test_large_results_are_not_made_of_small_constants() -> None:
    text = """
        graph f(%x: f32[100,100]) {
          %0: f32[100,100] = broadcast_to(f32(1.0), shape=(100, 100))
          %1: f32[100,100] = sub(%x, %0)
          return %1
        }"""
    assert_stays(fold, text)
    graph = fold(weft.parse_graph("\n".join(line.strip() for line in text.strip().splitlines())), limit=10**4)
    assert op_names(graph) == ["sub"]


def test_results_no_larger_than_what_they_are_made_of_are_computed() -> None:
    table = weft.ones(100_000)

    def function(x: weft.Tensor) -> weft.Tensor:
        return x * (weft.arange(100_000.0) + 1.0)

    assert op_names(fold(graph_of(function, table))) == ["mul"]


def test_named_sizes_are_left_alone() -> None:
    assert_stays(
        fold,
        """
        graph f(%x: f32[n]) {
          %0: f32[n] = broadcast_to(f32(1.0), shape=(size(n),))
          %1: f32[n] = add(%x, %0)
          return %1
        }""",
    )


def test_branch_that_a_constant_chooses_is_taken() -> None:
    before = """
        graph f(%x: f32[]) {{
          %0: f32[] = cond(bool({}), %x) {{
            branches[0](%a: f32[]) {{
              %0: f32[] = exp(%a)
              return %0
            }}
            branches[1](%a: f32[]) {{
              %0: f32[] = sin(%a)
              return %0
            }}
          }}
          return %0
        }}"""
    after = """
        graph f(%x: f32[]) {{
          %0: f32[] = {}(%x)
          return %0
        }}"""
    assert_becomes(fold, before.format("True"), after.format("exp"))
    assert_becomes(fold, before.format("False"), after.format("sin"))


def test_index_of_a_switch_beyond_its_branches_takes_the_last() -> None:
    def choose(x: weft.Tensor) -> weft.Tensor:
        return weft.switch(weft.tensor(9), [weft.exp, weft.sin, weft.cos], x)

    assert op_names(fold(graph_of(choose, weft.ones(())))) == ["cos"]


def test_constants_inside_loops_are_computed() -> None:
    assert_becomes(
        fold,
        """
        graph f(%x: f32[]) {
          %0: f32[] = scan(%x, carries=1, mapped=0, length=3, reverse=False, counted=False) {
            body(%a: f32[]) {
              %0: f32[] = neg(f32(2.0))
              %1: f32[] = mul(%a, %0)
              return %1
            }
          }
          return %0
        }""",
        """
        graph f(%x: f32[]) {
          %0: f32[] = scan(%x, carries=1, mapped=0, length=3, reverse=False, counted=False) {
            body(%a: f32[]) {
              %0: f32[] = mul(%a, f32(-2.0))
              return %0
            }
          }
          return %0
        }""",
    )


def test_prints_are_not_folded() -> None:
    assert_stays(
        fold,
        """
        graph f() {
          print(f32(1.0), pieces=("", ""), places=(("tensor", ""),))
          return
        }""",
    )


def test_folded_constants_share_no_memory_with_others() -> None:
    graph = graph_of(lambda x: x + weft.tensor([[1.0, 2.0]]).T, weft.ones((2, 2)))
    (array,) = fold(graph).constants.values()
    assert array.base is None
    assert isinstance(array, np.ndarray)
