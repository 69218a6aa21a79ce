"""Transposed products become products of transposed sides."""

from __future__ import annotations

from tests.passes.helpers import assert_becomes, assert_stays
from weft.passes import turn_products


def test_transposed_product() -> None:
    assert_becomes(
        turn_products,
        """
        graph f(%a: f32[5,2,3], %b: f32[5,3,4]) {
          %0: f32[5,2,4] = matmul(%a, %b)
          %1: f32[5,4,2] = permute(%0, axes=(0, 2, 1))
          return %1
        }""",
        """
        graph f(%a: f32[5,2,3], %b: f32[5,3,4]) {
          %0: f32[5,3,2] = permute(%a, axes=(0, 2, 1))
          %1: f32[5,4,3] = permute(%b, axes=(0, 2, 1))
          %2: f32[5,4,2] = matmul(%1, %0)
          return %2
        }""",
    )


def test_product_that_is_used_as_it_is_stays() -> None:
    assert_stays(
        turn_products,
        """
        graph f(%a: f32[2,3], %b: f32[3,4]) {
          %0: f32[2,4] = matmul(%a, %b)
          %1: f32[4,2] = permute(%0, axes=(1, 0))
          return %0, %1
        }""",
    )


def test_other_order_of_axes_stays() -> None:
    assert_stays(
        turn_products,
        """
        graph f(%a: f32[5,2,3], %b: f32[5,3,4]) {
          %0: f32[5,2,4] = matmul(%a, %b)
          %1: f32[4,2,5] = permute(%0, axes=(2, 1, 0))
          return %1
        }""",
    )
