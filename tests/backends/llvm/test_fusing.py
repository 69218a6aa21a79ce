"""Products and sums: fused by one rule, so that what is zero in eager code is zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft


def same(a: Any, b: Any) -> Any:
    p = a * b
    return p - p


def commuted(a: Any, b: Any) -> Any:
    return a * b - b * a


def under_a_root(a: Any, b: Any) -> Any:
    return weft.sqrt(a * a - a * a) + weft.sqrt(b * b - b * b)


def scaled(a: Any, b: Any) -> Any:
    return a * b - (b * a) * 1.0


def in_rows(a: Any, b: Any) -> Any:
    p = (a * b).reshape(40, 25)
    return (p - p).sum(axis=1) + (p.sum(axis=1) - p.sum(axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [same, commuted, under_a_root, scaled, in_rows])
def test_differences_of_equal_products_are_zero(function: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (weft.tensor(rng.standard_normal(1000).astype(dtype)) for _ in range(2))
    found = weft.compile(function)(a, b).numpy()
    np.testing.assert_array_equal(found, np.zeros_like(found))


def test_a_product_that_goes_into_one_sum_is_rounded_with_it_on_every_element() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(1000).astype(np.float32) for _ in range(3))
    found = weft.compile(lambda a, b, c: a * b + c)(*map(weft.tensor, (a, b, c))).numpy()
    exact = a.astype(np.float64) * b + c
    plain = a * b + c
    assert (np.array_equal(found, exact.astype(np.float32))) != np.array_equal(found, plain)
