"""Functions that move, search and sort elements and find distinct ones agree with the reference."""

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
    NUMERIC,
    REALS,
    Array,
    arrays,
    assert_agrees,
    assert_same,
    broadcastable,
    call_both,
    few,
    filled_shapes,
    promotable,
    strict,
    to_weft,
)
from tests.array_api.test_statistics import axes_of

ranked = arrays(ALL, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
filled = arrays(ALL, hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))


def axis_of(x: Array, extra: int = 0) -> st.SearchStrategy[int]:
    return st.integers(-x.ndim - extra, x.ndim - 1 + extra)


@few
@given(pair=broadcastable(ALL))
def test_broadcast(pair: tuple[Array, Array]) -> None:
    assert_agrees("broadcast_arrays", *pair)
    assert_agrees("broadcast_to", pair[0], np.broadcast_shapes(pair[0].shape, pair[1].shape))


@few
@given(dtypes=promotable(ALL, 3), shape=filled_shapes, data=st.data())
def test_concat_and_stack(dtypes: tuple[str, ...], shape: tuple[int, ...], data: Any) -> None:
    parts = [data.draw(arrays((d,), shape)) for d in dtypes]
    assert_agrees("stack", parts, axis=data.draw(axis_of(parts[0], 1).filter(lambda a: a <= len(shape))))
    assert_agrees("concat", parts, axis=data.draw(axis_of(parts[0]) if shape else st.none()))
    assert_agrees("concat", parts, axis=None)


@few
@given(x=arrays(ALL), data=st.data())
def test_expand_dims_and_squeeze(x: Array, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim - 1, x.ndim))
    assert_agrees("expand_dims", x, axis=axis)
    assert_agrees("squeeze", np.expand_dims(x, axis), axis)
    assert_agrees("squeeze", np.expand_dims(x, (0, -1)), (0, -1))


def test_axis_out_of_range_is_an_index_error_and_squeeze_of_a_long_axis_a_value_error() -> None:
    x = weft.ones((2, 1))
    for axis in (-4, 3):
        with pytest.raises(IndexError):
            weft.expand_dims(x, axis=axis)
    with pytest.raises(ValueError, match="squeeze"):
        weft.squeeze(x, 0)
    with pytest.raises(IndexError):
        weft.squeeze(x, 5)


@few
@given(x=arrays(ALL), data=st.data())
def test_flip_and_roll(x: Array, data: Any) -> None:
    axes = data.draw(axes_of(x))
    assert_agrees("flip", x, axis=axes)
    shift = data.draw(st.integers(-9, 9))
    assert_agrees("roll", x, shift, axis=axes)
    if isinstance(axes, tuple):
        assert_agrees("roll", x, tuple(range(3, 3 + len(axes))), axis=axes)


@few
@given(x=ranked, data=st.data())
def test_permute_dims_moveaxis_and_transpose(x: Array, data: Any) -> None:
    assert_agrees("permute_dims", x, tuple(data.draw(st.permutations(range(x.ndim)))))
    assert_agrees("moveaxis", x, data.draw(axis_of(x)), data.draw(axis_of(x)))
    sources = data.draw(st.permutations(range(x.ndim)).map(tuple))
    assert_agrees("moveaxis", x, sources, tuple(range(x.ndim)))
    if x.ndim >= 2:
        assert_agrees("matrix_transpose", x)
        assert_same(to_weft(x).mT, strict.asarray(x).mT)
    if x.ndim == 2:
        assert_same(to_weft(x).T, strict.asarray(x).T)


@few
@given(x=filled, data=st.data())
def test_repeat(x: Array, data: Any) -> None:
    axis = data.draw(st.none() | axis_of(x))
    size = x.size if axis is None else x.shape[axis]
    repeats = data.draw(st.integers(0, 3) | arrays(INTEGERS, (size,), min_value=0, max_value=3))
    if isinstance(repeats, np.ndarray) and repeats.dtype == np.uint64:
        expected = strict.asarray(np.repeat(x, repeats.astype("int64"), axis))  # which the reference refuses
        assert_same(weft.repeat(to_weft(x), to_weft(repeats), axis=axis), expected)
    else:
        assert_agrees("repeat", x, repeats, axis=axis)


@few
@given(x=arrays(ALL), data=st.data())
def test_reshape_tile_and_unstack(x: Array, data: Any) -> None:
    assert_agrees("reshape", x, (x.size,))
    assert_agrees("reshape", x, (1, x.size, 1))
    if x.size:
        assert_agrees("reshape", x, (-1, 1))
    assert_agrees("reshape", x, (x.size,), copy=True)
    repetitions = data.draw(st.lists(st.integers(0, 3), max_size=4).map(tuple))
    assert_agrees("tile", x, repetitions)
    if x.ndim:
        assert_agrees("unstack", x, axis=data.draw(axis_of(x)))


@few
@given(x=arrays(ALL, hnp.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=4)), k=st.integers(-6, 6))
def test_triangles(x: Array, k: int) -> None:
    assert_agrees("tril", x, k=k)
    assert_agrees("triu", x, k=k)


@few
@given(x=arrays(NUMERIC, (3,)), n=st.integers(0, 3), indexing=st.sampled_from(["xy", "ij"]))
def test_meshgrid(x: Array, n: int, indexing: str) -> None:
    axes = [x, x[:2], x[:0]][:n]
    ours, expected = call_both("meshgrid", *axes, indexing=indexing)
    assert isinstance(ours, list)
    assert_same(ours, expected)


@few
@given(x=filled, data=st.data())
def test_take_and_take_along_axis(x: Array, data: Any) -> None:
    axis = data.draw(axis_of(x))
    size = x.shape[axis]
    dtype = data.draw(st.sampled_from(["int8", "int64", "uint8"]))
    assert_agrees("take", x, data.draw(arrays((dtype,), (3,), min_value=0, max_value=size - 1)), axis=axis)
    if x.ndim == 1:
        assert_agrees("take", x, np.array([-1, 0]))
    along = list(x.shape)
    along[axis] = data.draw(st.integers(0, 3))
    indices = data.draw(arrays(("int64",), tuple(along), min_value=-size, max_value=size - 1))
    assert_agrees("take_along_axis", x, indices, axis=axis)
    assert_same(
        weft.take_along_axis(to_weft(x), to_weft(np.zeros_like(x, "int64"))),
        strict.asarray(np.take_along_axis(x, np.zeros_like(x, "int64"), -1)),
    )


@few
@given(x=ranked.filter(lambda a: a.dtype.kind not in "bc"), descending=st.booleans(), data=st.data())
def test_sort_and_argsort(x: Array, descending: bool, data: Any) -> None:
    axis = data.draw(axis_of(x))
    if x.dtype.kind == "f":
        x = np.nan_to_num(x) + 0.0  # the order of NaN and of zeros of either sign is left open
    assert_agrees("sort", x, axis=axis, descending=descending)
    assert_agrees("argsort", x, axis=axis, descending=descending)
    assert_agrees("sort", x, descending=descending, stable=False)


@few
@given(x=arrays(REALS, (6,), allow_nan=False), y=st.integers(0, 3), side=st.sampled_from(["left", "right"]))
def test_searchsorted(x: Array, y: int, side: str) -> None:
    values = x[:y].reshape(1, y)
    assert_agrees("searchsorted", np.sort(x), values, side=side)
    assert_agrees("searchsorted", x, values, side=side, sorter=np.argsort(x))


@few
@given(x=filled)
def test_nonzero(x: Array) -> None:
    ours, expected = call_both("nonzero", x)
    assert isinstance(ours, tuple)
    assert_same(ours, expected)


def test_nonzero_of_a_0d_tensor_is_an_error() -> None:
    with pytest.raises(ValueError, match="nonzero"):
        weft.nonzero(weft.tensor(1.0))


@pytest.mark.parametrize("name", ["unique_all", "unique_counts", "unique_inverse", "unique_values"])
@few
@given(x=arrays(ALL, filled_shapes))
def test_distinct_values(name: str, x: Array) -> None:
    if x.dtype.kind in "fc":
        x = np.asarray(
            x + np.array(0, x.dtype)
        )  # one sign of zero, so that which of them stands for both is no question
    ours, expected = call_both(name, x)
    if name != "unique_values":
        assert ours._fields == expected._fields
    assert_same(ours, expected)


def test_each_nan_is_distinct() -> None:
    out = weft.unique_all(weft.tensor([weft.nan, 1.0, weft.nan, 1.0]))
    assert out.values.shape == (3,)
    assert sorted(out.counts.tolist()) == [1, 1, 2]
