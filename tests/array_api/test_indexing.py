"""Indexing agrees with the reference: basic keys, masks, integer arrays, and assignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import weft
from tests.array_api.reference import (
    ALL,
    INTEGERS,
    Array,
    arrays,
    assert_same,
    few,
    filled_shapes,
    strict,
    to_weft,
)
from tests.array_api.test_elementwise import scalars_for

shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def check_get(x: Array, key: Any) -> None:
    """weft gives what NumPy does, which the reference wraps and partly refuses."""
    assert_same(to_weft(x)[to_weft(key)], strict.asarray(np.asarray(x[key])))


def check_set(x: Array, key: Any, value: Any) -> None:
    expected = x.copy()
    expected[key] = value
    tensor, other = to_weft(x), to_weft(x)
    copy, view = weft.asarray(tensor, copy=True), tensor.detach()
    tensor[to_weft(key)] = to_weft(value)
    assert_same(tensor, strict.asarray(expected))
    assert_same(view, strict.asarray(expected))
    assert_same(copy, strict.asarray(x))
    assert_same(other, strict.asarray(x))


@few
@given(x=arrays(ALL, shapes), data=st.data())
def test_get_by_basic_key(x: Array, data: Any) -> None:
    check_get(x, data.draw(hnp.basic_indices(x.shape, allow_newaxis=True)))


@few
@given(x=arrays(ALL, shapes), data=st.data())
def test_get_by_mask(x: Array, data: Any) -> None:
    rank = data.draw(st.integers(0, x.ndim))
    check_get(x, data.draw(arrays(("bool",), x.shape[:rank])))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 4, 3), (5, 4)])
def test_mask_of_another_shape_is_an_index_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(IndexError):
        weft.ones((2, 4))[weft.ones(shape, dtype=weft.bool)]


@few
@given(
    x=arrays(ALL, filled_shapes.filter(lambda s: len(s) > 0)), dtype=st.sampled_from(INTEGERS), data=st.data()
)
def test_get_by_integer_arrays_and_integers(x: Array, dtype: str, data: Any) -> None:
    def index(size: int) -> st.SearchStrategy[Any]:
        low = 0 if dtype.startswith("u") else -size
        plain = st.integers(-size, size - 1)
        return (
            plain
            | arrays((dtype,), (2, 1), min_value=low, max_value=size - 1)
            | arrays(("int64",), (3,), min_value=0, max_value=size - 1)
        )

    key = tuple(data.draw(index(size)) for size in x.shape)
    check_get(x, key)
    first = data.draw(arrays((dtype,), (2, 2), min_value=0, max_value=x.shape[0] - 1))
    check_get(x, first)
    check_get(x, (first, ...))


@few
@given(x=arrays(ALL, shapes), data=st.data())
def test_set_by_basic_key(x: Array, data: Any) -> None:
    key = data.draw(hnp.basic_indices(x.shape))
    value = data.draw(arrays((x.dtype.name,), np.asarray(x[key]).shape) | scalars_for(x))
    with np.errstate(all="ignore"):
        check_set(x, key, value)


@few
@given(x=arrays(ALL, shapes), data=st.data())
def test_set_by_mask(x: Array, data: Any) -> None:
    key = data.draw(arrays(("bool",), x.shape))
    with np.errstate(all="ignore"):
        check_set(x, key, data.draw(arrays((x.dtype.name,), ()) | scalars_for(x)))
    check_set(x, key, data.draw(arrays((x.dtype.name,), (int(key.sum()),))))


@few
@given(x=arrays(ALL, (4, 3)), data=st.data())
def test_set_by_integer_arrays(x: Array, data: Any) -> None:
    rows = np.array(data.draw(st.lists(st.integers(-4, 3), unique_by=lambda i: i % 4, max_size=4)), "int64")
    check_set(x, rows, data.draw(arrays((x.dtype.name,), (len(rows), 3))))
    check_set(x, (rows, 1), data.draw(arrays((x.dtype.name,), (len(rows),))))


def test_value_is_cast_to_the_dtype_of_the_tensor_where_promotion_allows_it() -> None:
    x = weft.zeros(3, dtype=weft.float64)
    x[1] = weft.tensor(2.0, dtype=weft.float32)
    x[2] = 7
    assert x.dtype == weft.float64
    assert x.tolist() == [0.0, 2.0, 7.0]


@pytest.mark.parametrize("key", [3, -4, (0, 0), weft.tensor([3])])
def test_index_out_of_range_is_an_index_error(key: Any) -> None:
    with pytest.raises(IndexError):
        weft.arange(3)[key]


def test_tensors_serve_as_integers_and_slice_bounds() -> None:
    x = weft.arange(5)
    one, three = weft.tensor(1), weft.tensor(3, dtype=weft.uint8)
    assert x[one].item() == 1
    assert x[one:three].tolist() == [1, 2]
    assert [int(i) for i in x] == [0, 1, 2, 3, 4]
