"""What the backward pass computes again instead of keeping it."""

from __future__ import annotations

import weft
from tests.passes.helpers import assert_becomes, assert_stays
from weft.passes import recompute


def test_backward_has_copies_of_cheap_values_of_the_forward_pass() -> None:
    assert_becomes(
        recompute,
        """
        graph f(%x: f32[8]) {
          %0: f32[8] = mul(%x, f32(2.0)) @ f.py:1
          %1: f32[8] = tanh(%0) @ f.py:1
          %2: f32[] = sum(%1, axes=(0,)) @ f.py:1
          %3: f32[8] = mul(%1, %1) @ f.py:1 backward
          return %2, %3
        }""",
        """
        graph f(%x: f32[8]) {
          %0: f32[8] = mul(%x, f32(2.0))
          %1: f32[8] = tanh(%0)
          %2: f32[] = sum(%1, axes=(0,))
          %3: f32[8] = mul(%x, f32(2.0))
          %4: f32[8] = tanh(%3)
          %5: f32[8] = mul(%4, %4)
          return %2, %5
        }""",
    )


def test_what_a_product_of_the_backward_pass_reads_is_kept() -> None:
    assert_stays(
        recompute,
        """
        graph f(%x: f32[8,8]) {
          %0: f32[8,8] = tanh(%x) @ f.py:1
          %1: f32[8,8] = matmul(%0, %0) @ f.py:1 backward
          %2: f32[8,8] = mul(%0, %1) @ f.py:1 backward
          return %2
        }""",
    )


def test_what_is_made_by_a_product_is_kept() -> None:
    assert_stays(
        recompute,
        """
        graph f(%x: f32[8,8]) {
          %0: f32[8,8] = matmul(%x, %x) @ f.py:1
          %1: f32[8,8] = mul(%0, %0) @ f.py:1 backward
          return %1
        }""",
    )


def test_graph_without_a_gradient_stays() -> None:
    graph = weft.make_graph(lambda x: weft.tanh(x) * x)(weft.ones(8))
    assert recompute(graph) is graph
