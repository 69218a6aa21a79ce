"""Work on transposes of large matrices is done on the matrices as they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.passes.helpers import assert_becomes, assert_stays
from weft.passes.lowering.straighten import LEAST, straighten

M, N = 300, 512  # in float64 more than the least


def test_centred_rows_of_a_transpose() -> None:
    assert_becomes(
        straighten,
        """
        graph f(%x: f64[300,512]) {
          %0: f64[512,300] = permute(%x, axes=(1, 0))
          %1: f64[512,1] = sum(%0, axes=(1,), keepdims=True)
          %2: f64[512,300] = sub(%0, %1)
          %3: f64[300,512] = permute(%2, axes=(1, 0))
          %4: f64[512,512] = matmul(%2, %3)
          return %4
        }""",
        """
        graph f(%x: f64[300,512]) {
          %0: f64[1,512] = sum(%x, axes=(0,), keepdims=True)
          %1: f64[512,1] = permute(%0, axes=(1, 0))
          %2: f64[1,512] = reshape(%1, shape=(1, 512))
          %3: f64[300,512] = sub(%x, %2)
          %4: f64[512,300] = permute(%3, axes=(1, 0))
          %5: f64[300,512] = permute(%4, axes=(1, 0))
          %6: f64[512,512] = matmul(%4, %5)
          return %6
        }""",
    )


@pytest.mark.parametrize(
    "text",
    [
        # a result that has to be in its own order
        """
        graph f(%x: f64[300,512]) {
          %0: f64[512,300] = permute(%x, axes=(1, 0))
          %1: f64[512,300] = exp(%0)
          return %1
        }""",
        # another operand that lies in its own order
        """
        graph f(%x: f64[300,512], %y: f64[512,300]) {
          %0: f64[512,300] = permute(%x, axes=(1, 0))
          %1: f64[512,300] = add(%0, %y)
          %2: f64[512] = sum(%1, axes=(1,))
          return %2
        }""",
        # one use that needs the transpose is enough
        """
        graph f(%x: f64[300,512], %y: f64[512,300]) {
          %0: f64[512,300] = permute(%x, axes=(1, 0))
          %1: f64[512,300] = exp(%0)
          %2: f64[512] = sum(%1, axes=(1,))
          %3: f64[512,300] = add(%1, %y)
          return %2, %3
        }""",
        # small ones are in a cache
        """
        graph f(%x: f64[30,51]) {
          %0: f64[51,30] = permute(%x, axes=(1, 0))
          %1: f64[51] = sum(%0, axes=(1,))
          return %1
        }""",
        # only read by a product
        """
        graph f(%x: f64[300,512], %y: f64[300,512]) {
          %0: f64[512,300] = permute(%x, axes=(1, 0))
          %1: f64[512,512] = matmul(%0, %y)
          return %1
        }""",
    ],
)
def test_what_is_needed_as_it_is_stays(text: str) -> None:
    assert_stays(straighten, text)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "means": lambda x, v: x.T.mean(axis=1),
    "means of all": lambda x, v: x.T.mean(),
    "largest of both axes": lambda x, v: (x.T.max(axis=0), x.T.max(axis=1)),
    "kept axes": lambda x, v: x.T.sum(axis=1, keepdims=True) * 2.0,
    "vectors beside": lambda x, v: ((x.T + v) * v[:3].sum()).sum(axis=0),
    "columns beside": lambda x, v: (x.T * x[0][:, None]).sum(axis=1),
    "several transposes": lambda x, v: (x.T * (x * 2.0).T).sum(axis=0),
    "comparison": lambda x, v: (v < x.T).sum(axis=0),
    "covariance": lambda x, v: (x.T - x.T.mean(axis=1, keepdims=True)) @ (x - x.mean(axis=0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str) -> None:
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((M, N)), rng.standard_normal(M)
    assert x.nbytes >= LEAST
    f = weft.compile(PROGRAMS[name])
    found, expected = f(weft.tensor(x), weft.tensor(v)), PROGRAMS[name](x, v)
    assert "straighten" in [record.name for record in f.lowered.history()]
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-12, atol=1e-10)


def test_special_values_stay() -> None:
    x = np.random.default_rng(0).standard_normal((M, N))
    x[3, 5], x[7, 6], x[8, 7] = np.inf, np.nan, -np.inf
    x[:, 9] = -0.0
    f = weft.compile(lambda x: (x.T.max(axis=1), x.T.sum(axis=1)))
    largest, total = f(weft.tensor(x))
    np.testing.assert_array_equal(largest.numpy(), x.T.max(axis=1))
    np.testing.assert_allclose(total.numpy(), x.T.sum(axis=1), rtol=1e-11)


def test_gradient() -> None:
    x = np.random.default_rng(0).standard_normal((M, N))
    f = weft.compile(weft.grad(lambda x: ((x.T - x.T.mean(axis=1, keepdims=True)) ** 2).sum()))
    np.testing.assert_allclose(f(weft.tensor(x)).numpy(), 2 * (x - x.mean(axis=0)), rtol=1e-9, atol=1e-10)
