"""Making tensors: the creation functions of the standard, and conversion of Python and NumPy data."""

from __future__ import annotations

import array as buffers
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.array_api.reference import (
    ALL,
    COMPLEX,
    FLOATING,
    FLOATS,
    INTEGERS,
    NUMERIC,
    Array,
    arrays,
    assert_agrees,
    assert_same,
    few,
    shapes,
    strict,
    to_weft,
)

DTYPES = (*ALL, "float16", "bfloat16")


def same(tensor: Any, values: Any, dtype: str) -> bool:
    """Whether a tensor has these values and this dtype."""
    return tensor.dtype == getattr(weft, dtype) and tensor.tolist() == values


# The standard's functions


@pytest.mark.parametrize("dtype", [*NUMERIC, None])
@few
@given(
    start=st.integers(-20, 20), stop=st.none() | st.integers(-20, 20), step=st.sampled_from([1, 2, 3, -1, -4])
)
def test_arange_of_integers(start: int, stop: int | None, step: int, dtype: str | None) -> None:
    expected = range(start)[::1] if stop is None else range(start, stop, step)
    if dtype is not None and dtype.startswith("u") and any(v < 0 for v in expected):
        return
    kwargs = {} if dtype is None else {"dtype": dtype}
    out = weft.arange(start, **kwargs) if stop is None else weft.arange(start, stop, step, **kwargs)
    assert same(out, list(expected), dtype or "int64")


@pytest.mark.parametrize("dtype", FLOATS)
@few
@given(start=st.floats(-9, 9), stop=st.floats(-9, 9), step=st.floats(0.1, 5) | st.floats(-5, -0.1))
def test_arange_of_floats(start: float, stop: float, step: float, dtype: str) -> None:
    out = np.asarray(weft.arange(start, stop, step, dtype=dtype))
    assert out.shape == (max(0, math.ceil((stop - start) / step)),)
    np.testing.assert_allclose(out, start + step * np.arange(out.size), rtol=1e-6, atol=1e-5)


def test_arange_reaches_the_ends_of_every_integer_dtype() -> None:
    for dtype in INTEGERS:
        info = weft.iinfo(dtype)
        assert same(weft.arange(info.max - 2, info.max, dtype=dtype), [info.max - 2, info.max - 1], dtype)
        assert same(weft.arange(info.min, info.min + 2, dtype=dtype), [info.min, info.min + 1], dtype)
        assert weft.arange(0, 100, 7, dtype=dtype).shape == (15,)


def test_arange_infers_float_from_any_float() -> None:
    for args in ((3.0,), (0, 2.0), (0, 2, 0.5)):
        assert weft.arange(*args).dtype == weft.float32
    assert weft.arange(True, 4).dtype == weft.int64


@pytest.mark.parametrize("dtype", FLOATING)
@few
@given(start=st.floats(-1e3, 1e3), stop=st.floats(-1e3, 1e3), num=st.integers(0, 7), endpoint=st.booleans())
def test_linspace(start: float, stop: float, num: int, endpoint: bool, dtype: str) -> None:
    assert_agrees("linspace", start, stop, num, dtype=dtype, endpoint=endpoint, ulps=4)
    out = weft.linspace(start, stop, num, dtype=dtype, endpoint=endpoint)
    if num > 1 and endpoint:
        assert out[-1] == weft.full((), stop, dtype=dtype)
    if not endpoint:
        assert weft.all(out == weft.linspace(start, stop, num + 1, dtype=dtype)[:-1])


@few
@given(
    rows=st.integers(0, 5), cols=st.none() | st.integers(0, 5), k=st.integers(), dtype=st.sampled_from(ALL)
)
def test_eye(rows: int, cols: int | None, k: int, dtype: str) -> None:
    k = max(-10, min(k, 10)) if abs(k) > 2**40 else k  # which the reference cannot take
    assert_agrees("eye", rows, cols, k=max(-10, min(k, 10)), dtype=dtype)
    assert weft.eye(rows, cols, k=2**70).shape == (rows, rows if cols is None else cols)


@pytest.mark.parametrize("name", ["zeros", "ones", "empty"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_filled_with_a_constant(name: str, dtype: str) -> None:
    make, like = getattr(weft, name), getattr(weft, f"{name}_like")
    for out in (
        make((2, 3), dtype=dtype),
        make(2, 3, dtype=dtype),
        make(shape=(2, 3), dtype=dtype, device="cpu"),
    ):
        assert (out.shape, out.dtype) == ((2, 3), getattr(weft, dtype))
        assert name == "empty" or weft.all(out == (name == "ones"))
        for other in (like(out), like(weft.zeros((2, 3)), dtype=dtype)):
            assert (other.shape, other.dtype) == (out.shape, out.dtype)
            assert name == "empty" or weft.all(other == (name == "ones"))
    assert make(3).shape == (3,)
    assert make(()).dtype == weft.float32


@few
@given(shape=shapes, dtype=st.sampled_from(ALL), data=st.data())
def test_full(shape: tuple[int, ...], dtype: str, data: Any) -> None:
    value = data.draw(arrays((dtype,), ()))
    assert_agrees("full", shape, value.item(), dtype=dtype)
    assert_agrees("full_like", np.zeros(shape, dtype), value.item())
    assert_same(weft.full(shape, weft.tensor(value), dtype=dtype), strict.asarray(np.full(shape, value)))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, "bool"), (7, "int64"), (0.5, "float32"), (2j, "complex64"), (np.int8(3), "int8")],
)
def test_dtype_of_full_follows_the_value(value: Any, dtype: str) -> None:
    assert weft.full((2,), value).dtype == getattr(weft, dtype)
    assert weft.asarray(value).dtype == getattr(weft, dtype)


def test_creation_with_requires_grad_makes_a_leaf() -> None:
    like = weft.ones(2)
    for out in (
        weft.zeros(2, requires_grad=True),
        weft.ones(2, requires_grad=True),
        weft.empty(2, requires_grad=True),
        weft.full((2,), 1.0, requires_grad=True),
        weft.zeros_like(like, requires_grad=True),
        weft.ones_like(like, requires_grad=True),
        weft.empty_like(like, requires_grad=True),
        weft.full_like(like, 2, requires_grad=True),
        weft.eye(2, requires_grad=True),
        weft.arange(2.0, requires_grad=True),
        weft.linspace(0, 1, 2, requires_grad=True),
        weft.tensor([1.0, 2.0], requires_grad=True),
    ):
        assert out.requires_grad
        assert out.is_leaf


def test_gradients_flow_through_meshgrid() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    a, b = weft.meshgrid(x, y)
    (a * b).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]
    assert y.grad.tolist() == [3.0, 3.0, 3.0]


# Python data


@pytest.mark.parametrize(
    ("data", "values", "dtype"),
    [
        ([], [], "float32"),
        ([[], []], [[], []], "float32"),
        ((), [], "float32"),
        ([True, False], [True, False], "bool"),
        ([True, 2], [1, 2], "int64"),
        ([1, 2.5], [1.0, 2.5], "float32"),
        ([1, 2j], [1, 2j], "complex64"),
        ([[1, 2], (3, 4)], [[1, 2], [3, 4]], "int64"),
        (range(3), [0, 1, 2], "int64"),
        ([range(2), [5, 6]], [[0, 1], [5, 6]], "int64"),
        (-(2**63), -(2**63), "int64"),
        (np.arange(3, dtype=">i2"), [0, 1, 2], "int16"),
        (np.arange(3, dtype=">f8"), [0.0, 1.0, 2.0], "float64"),
        (np.arange(3, dtype="longlong"), [0, 1, 2], "int64"),
        (np.float64(2.5), 2.5, "float64"),
        ([np.float64(2.5), 1], [2.5, 1.0], "float64"),
        ([np.float32(2.5), 1.25], [2.5, 1.25], "float32"),
        ([np.int8(1), np.uint8(2)], [1, 2], "int16"),
        ([np.array([1, 2], "uint8"), [3, 4]], [[1, 2], [3, 4]], "uint8"),
        (buffers.array("f", [1.5, 2.5]), [1.5, 2.5], "float32"),
        (memoryview(b"\x01\x02"), [1, 2], "uint8"),
        (bytearray(b"\x01\x02"), [1, 2], "uint8"),
    ],
)
def test_data_becomes_a_tensor(data: Any, values: Any, dtype: str) -> None:
    for make in (weft.tensor, weft.asarray, weft.as_tensor):
        assert same(make(data), values, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_given_decides(dtype: str) -> None:
    for data in ([0, 1], [False, True], np.array([0, 1]), weft.tensor([0, 1])):
        assert same(weft.tensor(data, dtype=dtype), [0, 1], dtype)
        assert same(weft.asarray(data, dtype=getattr(weft, dtype)), [0, 1], dtype)


@pytest.mark.parametrize(
    ("data", "dtype", "error", "text"),
    [
        ([[1, 2], [3]], None, ValueError, "lists must have equal lengths on axis 1, got 1 and 2"),
        ([1, [2, 3]], None, ValueError, "lists must have equal lengths on axis 1, got a number and 2"),
        (["a"], None, TypeError, "elements must be numbers, got str"),
        ([1, None], None, TypeError, "elements must be numbers, got NoneType"),
        ([Decimal(1)], None, TypeError, "elements must be numbers, got Decimal"),
        ("abc", None, TypeError, r"data must be numbers, \(nested\) lists or arrays, got str"),
        ({1, 2}, None, TypeError, r"data must be numbers, \(nested\) lists or arrays, got set"),
        (object(), None, TypeError, r"data must be numbers, \(nested\) lists or arrays, got object"),
        (np.array(["a"]), None, TypeError, "dtype must be one that weft has, got NumPy's <U1"),
        (np.array([None]), None, TypeError, "dtype must be one that weft has, got NumPy's object"),
        (
            np.array([0], "M8[s]"),
            None,
            TypeError,
            r"dtype must be one that weft has, got NumPy's datetime64\[s\]",
        ),
        ([2**63], None, ValueError, "values must fit in int64, got a larger one"),
        ([300], "uint8", ValueError, "values must fit in uint8, got a larger one"),
        ([-1], "uint8", ValueError, "values must fit in uint8, got a larger one"),
        ([math.nan], "int32", ValueError, "values must fit in int32, got NaN"),
        ([1j], "float32", TypeError, "dtype must be complex for complex values, got float32"),
        (np.array([1j]), "float32", TypeError, "dtype must be complex for complex values, got float32"),
        ([1], "float8", TypeError, "must be one of bool, int8, .* got 'float8'"),
    ],
)
def test_data_that_cannot_be_a_tensor(data: Any, dtype: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        weft.tensor(data, dtype=dtype)


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="sizes must not be negative"):
        weft.zeros(-1)
    with pytest.raises(ValueError, match="the tensor must fit in memory"):
        weft.zeros(2**62)
    with pytest.raises(TypeError, match=r"shape must be an int or a tuple of ints, got 2\.5"):
        weft.ones(2.5)
    with pytest.raises(ValueError, match="step must not be 0"):
        weft.arange(0, 5, 0)
    with pytest.raises(ValueError, match="values must fit in int8, got 0 to 299"):
        weft.arange(300, dtype=weft.int8)
    with pytest.raises(ValueError, match="start must be a finite real number, got nan"):
        weft.arange(math.nan)
    with pytest.raises(ValueError, match="num must not be negative, got -1"):
        weft.linspace(0, 1, -1)
    with pytest.raises(TypeError, match="fill_value must be a number, got str"):
        weft.full((2,), "a")
    with pytest.raises(ValueError, match="must be cpu or cuda, got 'tpu'"):
        weft.ones(3, device="tpu")
    with pytest.raises(TypeError, match="unknown keyword 'dtyp'"):
        weft.ones(3, dtyp=weft.int8)
    with pytest.raises(ValueError, match="indexing must be 'xy' or 'ij', got 'yx'"):
        weft.meshgrid(weft.ones(2), indexing="yx")


# Tensors among the data


def test_asarray_of_lists_with_tensors_keeps_gradients() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    y = weft.asarray([[x, 1.0], [3.0, x * x]])
    assert y.shape == (2, 2)
    y.sum().backward()
    assert x.grad.item() == 5.0


def test_tensor_of_lists_with_tensors_is_a_leaf() -> None:
    x = weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)
    y = weft.tensor([x, [3, 4.5]])
    assert same(y, [[1.0, 2.0], [3.0, 4.5]], "float64")
    assert y.is_leaf
    assert not y.requires_grad


def test_lists_with_tensors_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"elements must have equal shapes, got f32\[2\] and f32\[3\]"):
        weft.tensor([weft.ones(2), weft.ones(3)])


# Copies


@few
@given(x=arrays(ALL))
def test_asarray_of_a_tensor(x: Array) -> None:
    t = to_weft(x)
    for copy in (None, False):
        assert weft.asarray(t, copy=copy) is t
        assert weft.asarray(t, dtype=t.dtype, copy=copy) is t
    copied = weft.asarray(t, copy=True)
    assert copied is not t
    assert_same(copied, strict.asarray(x))
    if x.size:
        first = (0,) * x.ndim
        t[first] = 1 - int(bool(x[first])) if x.dtype.kind == "b" else 3 if x[first] != 3 else 4
        assert_same(copied, strict.asarray(x))


def test_copy_false_shares_memory_or_is_an_error() -> None:
    array = np.zeros(3, "float32")
    shared = weft.asarray(array, copy=False)
    array[0] = 7.0
    assert shared.tolist() == [7.0, 0.0, 0.0]
    for data, dtype in (
        ([1.0], None),
        (1.0, None),
        (array, "float64"),
        (weft.ones(1), "float64"),
        (array.astype(">f4"), None),
    ):
        with pytest.raises(ValueError, match="copy must not be False"):
            weft.asarray(data, dtype=dtype, copy=False)


def test_numpy_arrays_are_copied_unless_shared_on_purpose() -> None:
    array = np.zeros(3)
    copies = [weft.tensor(array), weft.asarray(array), weft.asarray(array, copy=True)]
    shared = weft.from_numpy(array)
    array[0] = 7.0
    assert all(t.tolist() == [0.0, 0.0, 0.0] for t in copies)
    assert shared.tolist() == [7.0, 0.0, 0.0]
    shared[1] = 5.0  # a tensor that is changed gets memory of its own
    assert array.tolist() == [7.0, 0.0, 0.0]
    assert shared.tolist() == [7.0, 5.0, 0.0]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_data_keeps_its_parts(dtype: str) -> None:
    assert weft.tensor([1 + 2j, 3], dtype=dtype).tolist() == [1 + 2j, 3 + 0j]
