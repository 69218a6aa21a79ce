"""Reductions and cumulative functions agree with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import weft
from tests.array_api.reference import (
    ALL,
    FLOATS,
    NUMERIC,
    REALS,
    Array,
    arrays,
    assert_agrees,
    call_both,
    few,
    filled_shapes,
    strict,
)

SMALL = {"min_value": -8, "max_value": 8, "allow_nan": False}
SMALL_COMPLEX = {"max_magnitude": 8, "allow_nan": False}


def small(dtypes: tuple[str, ...], shape: Any = filled_shapes) -> Any:
    """Arrays of small values, whose sums and products do not overflow."""
    reals = tuple(d for d in dtypes if not d.startswith("complex"))
    others = tuple(d for d in dtypes if d.startswith("complex"))
    strategy = arrays(reals, shape, **SMALL)
    return strategy | arrays(others, shape, **SMALL_COMPLEX) if others else strategy


def axes_of(x: Array, *, several: bool = True) -> st.SearchStrategy[Any]:
    """None, an axis, or several, counted from either end."""
    if x.ndim == 0:
        return st.none()
    one = st.integers(-x.ndim, x.ndim - 1)
    if not several:
        return st.none() | one
    many = st.lists(one, unique_by=lambda a: a % x.ndim, min_size=1).map(tuple)
    return st.none() | one | many


@pytest.mark.parametrize("name", ["all", "any"])
@few
@given(x=arrays(ALL), keepdims=st.booleans(), data=st.data())
def test_truth_over_axes(name: str, x: Array, keepdims: bool, data: Any) -> None:
    assert_agrees(name, x, axis=data.draw(axes_of(x)), keepdims=keepdims)


@pytest.mark.parametrize("name", ["max", "min"])
@few
@given(x=arrays(REALS, filled_shapes), keepdims=st.booleans(), data=st.data())
def test_extreme_over_axes(name: str, x: Array, keepdims: bool, data: Any) -> None:
    assume(not np.any(x == 0) or x.dtype.kind in "iu")  # which of +0 and -0 is larger is left open
    assert_agrees(name, x, axis=data.draw(axes_of(x)), keepdims=keepdims)


@pytest.mark.parametrize("name", ["sum", "prod"])
@few
@given(x=small(NUMERIC), keepdims=st.booleans(), data=st.data())
def test_sum_and_product_over_axes(name: str, x: Array, keepdims: bool, data: Any) -> None:
    if x.size > 12:
        x = np.clip(x.real, -1.5, 1.5).astype(x.dtype) if x.dtype.kind in "fc" else np.sign(x).astype(x.dtype)
    kind = x.dtype.kind
    dtype = data.draw(
        st.sampled_from([None, "float64"] if kind == "f" else [None, "int64"] if kind == "i" else [None])
    )
    axis = data.draw(axes_of(x))
    ours, expected = call_both(name, x, axis=axis, dtype=dtype, keepdims=keepdims)
    reference = np.asarray(expected)
    assert (ours.dtype, ours.shape) == (reference.dtype, reference.shape)
    tolerance = 64 * np.finfo(reference.dtype).eps if kind in "fc" else 0
    np.testing.assert_allclose(np.asarray(ours), reference, rtol=tolerance, atol=tolerance * 64)


@pytest.mark.parametrize("name", ["mean", "var", "std"])
@few
@given(x=small(FLOATS), keepdims=st.booleans(), data=st.data())
def test_moment_over_axes(name: str, x: Array, keepdims: bool, data: Any) -> None:
    kwargs = {"axis": data.draw(axes_of(x)), "keepdims": keepdims}
    if name != "mean":
        kwargs["correction"] = data.draw(st.sampled_from([0, 0.0, 0.5]))
    wide = np.asarray(getattr(strict, name)(strict.asarray(x.astype("float64")), **kwargs))
    ours = getattr(weft, name)(weft.tensor(x), **kwargs)
    assert (ours.dtype, ours.shape) == (x.dtype, wide.shape)
    np.testing.assert_allclose(
        np.asarray(ours), wide, rtol=1e-4, atol=2e-3 if x.dtype == np.float32 else 1e-6
    )


def test_variance_with_more_correction_than_elements_is_not_finite() -> None:
    assert not np.isfinite(float(weft.var(weft.tensor([1.0, 2.0]), correction=2)))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@few
@given(data=st.data(), include_initial=st.booleans())
def test_cumulative_function(name: str, data: Any, include_initial: bool) -> None:
    x = data.draw(small(NUMERIC, data.draw(filled_shapes.filter(lambda s: len(s) > 0))))
    if name == "cumulative_prod":
        x = np.sign(x.real).astype(x.dtype)
    axis = data.draw(axes_of(x, several=False))
    assume(axis is not None or x.ndim == 1)
    assert_agrees(name, x, axis=axis, include_initial=include_initial, ulps=64)


@few
@given(x=small(NUMERIC, (5, 4)), axis=st.sampled_from([-1, 0, 1]), n=st.integers(0, 3))
def test_difference(x: Array, axis: int, n: int) -> None:
    assert_agrees("diff", x, axis=axis, n=n, ulps=16)
    assert_agrees("diff", x, axis=axis, prepend=x[:2, :4] if axis == 0 else x[:, :2], ulps=16)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@few
@given(x=arrays(REALS, filled_shapes), keepdims=st.booleans(), data=st.data())
def test_position_of_an_extreme(name: str, x: Array, keepdims: bool, data: Any) -> None:
    assert_agrees(name, x, axis=data.draw(axes_of(x, several=False)), keepdims=keepdims)


@few
@given(x=arrays(ALL), keepdims=st.booleans(), data=st.data())
def test_count_nonzero(x: Array, keepdims: bool, data: Any) -> None:
    assert_agrees("count_nonzero", x, axis=data.draw(axes_of(x)), keepdims=keepdims)
