"""Pools: ties, NaN, infinities, padding, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from tests.ops.oracles_pool import ORACLES


@st.composite
def pools(draw: Any) -> tuple[Any, dict[str, Any]]:
    rank = draw(st.integers(1, 3))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    attrs = {
        "kernel_size": kernel,
        "stride": tuple(draw(st.integers(1, 4)) for _ in range(rank)),
        "padding": tuple(draw(st.integers(0, k // 2)) for k in kernel),
        "ceil_mode": draw(st.booleans()),
    }
    sizes = tuple(draw(st.integers(k, 6)) for k in kernel)
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return rng.integers(-5, 6, size=(2, 2, *sizes)).astype(np.float64), attrs


@examples(80, 20)
@given(pools())
def test_max_pool_of_random_shape_equals_a_loop(case: tuple[Any, dict[str, Any]]) -> None:
    x, attrs = case
    name = f"max_pool{x.ndim - 2}d"
    out = getattr(weft, name)(weft.tensor(x), **attrs, return_indices=True)
    for actual, expected in zip(out, ORACLES[name](x, **attrs, return_indices=True), strict=True):
        np.testing.assert_array_equal(actual.numpy(), expected)


@examples(80, 20)
@given(pools(), st.booleans())
def test_avg_pool_of_random_shape_equals_a_loop(case: tuple[Any, dict[str, Any]], include: bool) -> None:
    x, attrs = case
    name = f"avg_pool{x.ndim - 2}d"
    out = getattr(weft, name)(weft.tensor(x), **attrs, count_include_pad=include)
    np.testing.assert_allclose(out.numpy(), ORACLES[name](x, **attrs, count_include_pad=include), atol=1e-12)


def test_gradient_of_equal_elements_goes_to_the_first() -> None:
    x = weft.zeros((1, 1, 2, 2), requires_grad=True)
    weft.max_pool2d(x, 2).sum().backward()
    assert x.grad.tolist() == [[[[1.0, 0.0], [0.0, 0.0]]]]


def test_overlapping_windows_add_up_in_the_gradient() -> None:
    x = weft.tensor([[[0.0, 5.0, 1.0]]], requires_grad=True)
    weft.max_pool1d(x, 2, stride=1).sum().backward()
    assert x.grad.tolist() == [[[0.0, 2.0, 0.0]]]


def test_nan_is_the_largest_and_is_found() -> None:
    out, index = weft.max_pool1d(weft.tensor([[[1.0, np.nan, 3.0, 2.0]]]), 2, return_indices=True)
    np.testing.assert_array_equal(out.numpy()[0, 0], [np.nan, 3.0])
    assert index.tolist() == [[[1, 2]]]


def test_padding_never_wins_over_minus_infinity() -> None:
    x = weft.full((1, 1, 3), -np.inf)
    out, index = weft.max_pool1d(x, 2, stride=1, padding=1, return_indices=True)
    assert out.tolist() == [[[-np.inf] * 4]]
    assert index.tolist() == [[[0, 0, 1, 2]]]


def test_max_pool_takes_integers() -> None:
    out = weft.max_pool1d(weft.tensor([[[-3, -7, -1, -9]]]), 2, padding=1)
    assert out.dtype == weft.int64
    assert out.tolist() == [[[-3, -1, -9]]]


def test_fold_of_unfold_counts_the_windows_of_each_pixel() -> None:
    x = weft.rand(2, 3, 5, 6, dtype=weft.float64)
    counts = weft.fold(weft.unfold(weft.ones_like(x), 3), (5, 6), 3)
    np.testing.assert_allclose(weft.fold(weft.unfold(x, 3), (5, 6), 3).numpy(), (x * counts).numpy())


ERRORS = [
    (lambda: weft.max_pool2d(weft.ones((2, 2)), 2), "the tensor must have 3 or 4 axes"),
    (lambda: weft.max_pool2d(weft.ones((1, 1, 2, 2)), 3), "must fit into the padded input"),
    (lambda: weft.max_pool1d(weft.ones((1, 1, 4)), 2, padding=2), "at most half of the window"),
    (lambda: weft.max_pool1d(weft.ones((1, 1, 4), dtype=weft.bool), 2), "integer or floating, got bool"),
    (lambda: weft.avg_pool1d(weft.ones((1, 1, 4), dtype=weft.int64), 2), "dtype must be floating"),
    (lambda: weft.avg_pool2d(weft.ones((1, 1, 4, 4)), 2, divisor_override=0), "must not be 0"),
    (lambda: weft.adaptive_avg_pool2d(weft.ones((1, 1, 4, 4)), (1, 2, 3)), "output_size must be an int or 2"),
    (lambda: weft.adaptive_max_pool1d(weft.ones((1, 1, 0)), 2), "must not be empty"),
    (lambda: weft.fold(weft.ones((1, 4, 5)), (3, 3), 2), "the last axes must be"),
    (lambda: weft.max_pool1d(weft.ones((1, 1, 4)), 0), "kernel_size must be at least 1"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_bad_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text):
        call()
