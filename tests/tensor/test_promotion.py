"""The dtype of a result, for every pair of dtypes and every kind of number."""

from __future__ import annotations

import itertools
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import weft
from weft.base.dtypes import COMPLEX, DTYPES, FLOATS, INTEGERS, DType, kind

STANDARD = [d for d in DTYPES if d not in (weft.float16, weft.bfloat16)]
PAIRS = list(itertools.product(DTYPES, DTYPES))
ORDER = "biufc"


def zeros(dtype: DType) -> Any:
    return weft.zeros(2, dtype=dtype)


def expected(a: DType, b: DType) -> DType | None:
    """The table as documented; within a kind it is the standard's, which another test takes from there."""
    if a == b:
        return a
    if {a, b} == {weft.float16, weft.bfloat16}:
        return weft.float32
    ka, kb = sorted((kind(a).replace("u", "i"), kind(b).replace("u", "i")), key=ORDER.index)
    low, high = sorted((a, b), key=lambda d: ORDER.index(kind(d).replace("u", "i")))
    if ka != kb:
        wide = low == weft.float64 and kb == "c"
        return weft.complex128 if wide else high
    if kind(a) != kind(b):
        unsigned, signed = (a, b) if kind(a) == "u" else (b, a)
        if unsigned == weft.uint64:
            return None
        bits = max(signed.itemsize, 2 * unsigned.itemsize) * 8
        return np.dtype(f"int{bits}")
    return max(a, b, key=lambda d: d.itemsize)


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda d: d.name)
def test_maximum_of_two_dtypes(a: DType, b: DType) -> None:
    want = expected(a, b)
    function = weft.equal if "c" in kind(a) + kind(b) else weft.maximum
    if want is None:
        with pytest.raises(weft.errors.DtypeError, match="must have a common dtype") as caught:
            function(zeros(a), zeros(b))
        assert "astype" in str(caught.value)
        return
    assert weft.result_type(a, b) == want
    assert function(zeros(a), zeros(b)).dtype == (weft.bool if function is weft.equal else want)
    assert weft.where(weft.tensor([True, False]), zeros(a), zeros(b)).dtype == want


@pytest.mark.parametrize(("a", "b"), [p for p in PAIRS if set(p) <= set(STANDARD)], ids=lambda d: d.name)
def test_agrees_with_the_standard_where_it_speaks(a: DType, b: DType) -> None:
    try:
        want = strict.result_type(getattr(strict, a.name), getattr(strict, b.name))
    except TypeError:
        return
    assert weft.result_type(a, b) == np.dtype(str(want).rpartition(".")[2])


@pytest.mark.parametrize("number", [2, np.int64(2), np.uint8(2), np.int8(2)])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_integer_numbers_are_weak(dtype: DType, number: Any) -> None:
    want = weft.int64 if dtype == weft.bool else dtype
    assert (zeros(dtype) + number).dtype == want
    assert (number + zeros(dtype)).dtype == want
    assert weft.where(weft.tensor([True, False]), zeros(dtype), number).dtype == want


@pytest.mark.parametrize("number", [2.5, np.float64(2.5), np.float32(2.5), np.float16(2.5)])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_floating_numbers_are_weak(dtype: DType, number: Any) -> None:
    want = dtype if kind(dtype) in "fc" else weft.float32
    assert (zeros(dtype) * number).dtype == want
    assert (number * zeros(dtype)).dtype == want
    assert weft.where(weft.tensor([True, False]), number, zeros(dtype)).dtype == want


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_complex_numbers_are_weak(dtype: DType) -> None:
    want = dtype if kind(dtype) == "c" else weft.complex128 if dtype == weft.float64 else weft.complex64
    assert (zeros(dtype) * 2j).dtype == want
    assert (2j - zeros(dtype)).dtype == want


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_bool_numbers_take_the_dtype_of_the_tensor(dtype: DType) -> None:
    assert (zeros(dtype) + True).dtype == dtype
    assert (np.True_ + zeros(dtype)).dtype == dtype


def test_floating_numbers_next_to_integers_follow_the_default_dtype() -> None:
    weft.set_default_dtype(weft.float64)
    try:
        assert (weft.tensor([1, 2]) * 0.5).dtype == weft.float64
        assert (weft.tensor([1, 2]) / 2).dtype == weft.float64
    finally:
        weft.set_default_dtype(weft.float32)


@pytest.mark.parametrize("dtype", [*INTEGERS, weft.bool], ids=lambda d: d.name)
def test_division_and_functions_of_integers_are_float32(dtype: DType) -> None:
    x = weft.ones(2, dtype=dtype)
    assert (x / x).dtype == weft.float32
    assert weft.sqrt(x).dtype == weft.sin(x).dtype == weft.erf(x).dtype == weft.float32
    assert weft.atan2(x, x).dtype == weft.float32


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_arithmetic_of_integers_stays(dtype: DType) -> None:
    x = weft.tensor([1, 2, 3], dtype=dtype)
    for out in (x + x, x - x, x * x, x // x, x % x, x**x, abs(x), +x, -x, x & x, ~x, x << 1, x >> 1, x**2):
        assert out.dtype == dtype
    for function in (
        weft.floor,
        weft.ceil,
        weft.trunc,
        weft.round,
        weft.sign,
        weft.square,
        weft.real,
        weft.conj,
    ):
        assert function(x).dtype == dtype


@pytest.mark.parametrize("dtype", COMPLEX, ids=lambda d: d.name)
def test_parts_of_complex_numbers_are_real(dtype: DType) -> None:
    x = zeros(dtype)
    real = weft.float32 if dtype == weft.complex64 else weft.float64
    assert abs(x).dtype == x.real.dtype == x.imag.dtype == weft.angle(x).dtype == real
    assert weft.complex(x.real, x.imag).dtype == dtype


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_every_function_of_floats_stays(dtype: DType) -> None:
    x = weft.tensor([0.25, 0.5], dtype=dtype)
    names = (
        "abs asin atanh ceil cos erf erfinv exp exp2 expm1 lgamma log1p round rsqrt sigmoid sign sqrt tanh"
    )
    for name in names.split():
        assert getattr(weft, name)(x).dtype == dtype
    for out in (x + x, x * 0.3, 0.3 - x, x / 3, x**2, x**0.3, 2**x, x % 0.3, x // 0.3):
        assert out.dtype == dtype


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX], ids=lambda d: d.name)
def test_gradients_have_the_dtype_of_their_tensor(dtype: DType) -> None:
    names = "abs exp log1p sin sqrt tanh square reciprocal"
    for name in names.split():
        x = weft.tensor([0.25, 0.5], dtype=dtype, requires_grad=True)
        y = getattr(weft, name)(x) * 0.3 + 1.5
        y.backward(weft.ones_like(y))
        assert x.grad.dtype == dtype


def test_gradient_of_a_promoted_input_comes_back_in_its_dtype() -> None:
    x = weft.tensor([1.0, 2.0], dtype=weft.float16, requires_grad=True)
    y = weft.tensor([3.0, 4.0], dtype=weft.float64, requires_grad=True)
    (x * y).sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (weft.float16, weft.float64)
    assert x.grad.tolist() == [3.0, 4.0]


def test_uint64_and_signed_integers_have_no_common_dtype() -> None:
    with pytest.raises(
        weft.errors.DtypeError, match=r"add: dtypes must have a common dtype, got uint64 and int64"
    ):
        weft.zeros(2, dtype=weft.uint64) + weft.zeros(2, dtype=weft.int64)


def test_number_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(weft.errors.DtypeError, match="add: the number must fit in int8, got 300"):
        weft.zeros(2, dtype=weft.int8) + 300
    with pytest.raises(weft.errors.DtypeError, match="mul: the number must fit in uint8, got -1"):
        -1 * weft.zeros(2, dtype=weft.uint8)


def test_comparison_with_a_number_that_does_not_fit_has_an_answer() -> None:
    x = weft.tensor([0, 255], dtype=weft.uint8)
    assert (x == -1).tolist() == [False, False]
    assert (x > -1).tolist() == [True, True]
    assert (x < 300).tolist() == [True, True]


def test_big_endian_and_foreign_dtypes_of_numpy_arrays_are_taken() -> None:
    x = weft.tensor([1.0, 2.0])
    assert (x + np.array([1, 2], ">f4")).dtype == weft.float32
    assert (weft.tensor([1]) + np.array([1], np.longlong)).dtype == weft.int64
    with pytest.raises(weft.errors.DtypeError, match="must be one that weft has"):
        x + np.array(["a", "b"])


def test_functions_of_numbers_alone_give_tensors() -> None:
    assert weft.add(1, 2).dtype == weft.int64
    assert weft.add(1, 2.0).dtype == weft.float32
    assert weft.exp(1.0).dtype == weft.float32
    assert weft.maximum(np.array([1.0]), 2).dtype == weft.float64
