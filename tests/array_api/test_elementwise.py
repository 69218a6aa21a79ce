"""Elementwise functions and operators agree with the reference on every dtype, with special values."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import weft
from tests.array_api.reference import (
    ALL,
    COMPLEX,
    FLOATING,
    FLOATS,
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
    strict,
    to_strict,
    to_weft,
)

BITS = ("bool", *INTEGERS)
ULPS = 8.0  # of functions whose results the standard leaves to approximation

UNARY: dict[str, tuple[str, ...]] = {
    "abs": NUMERIC,
    "bitwise_invert": BITS,
    "ceil": REALS,
    "conj": NUMERIC,
    "floor": REALS,
    "imag": COMPLEX,
    "isfinite": NUMERIC,
    "isinf": NUMERIC,
    "isnan": NUMERIC,
    "logical_not": ("bool",),
    "negative": NUMERIC,
    "positive": NUMERIC,
    "real": NUMERIC,
    "reciprocal": FLOATING,
    "round": NUMERIC,
    "sign": NUMERIC,
    "signbit": FLOATS,
    "square": NUMERIC,
    "trunc": REALS,
}
APPROXIMATE = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
BINARY: dict[str, tuple[str, ...]] = {
    "add": NUMERIC,
    "bitwise_and": BITS,
    "bitwise_left_shift": INTEGERS,
    "bitwise_or": BITS,
    "bitwise_right_shift": INTEGERS,
    "bitwise_xor": BITS,
    "copysign": FLOATS,
    "divide": FLOATING,
    "equal": ALL,
    "floor_divide": REALS,
    "greater": REALS,
    "greater_equal": REALS,
    "less": REALS,
    "less_equal": REALS,
    "logical_and": ("bool",),
    "logical_or": ("bool",),
    "logical_xor": ("bool",),
    "maximum": REALS,
    "minimum": REALS,
    "multiply": NUMERIC,
    "nextafter": FLOATS,
    "not_equal": ALL,
    "pow": NUMERIC,
    "remainder": REALS,
    "subtract": NUMERIC,
}
APPROXIMATE_BINARY = ("atan2", "hypot", "logaddexp")
OPERATORS = {
    "add": operator.add,
    "and_": operator.and_,
    "eq": operator.eq,
    "floordiv": operator.floordiv,
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lshift": operator.lshift,
    "lt": operator.lt,
    "mod": operator.mod,
    "mul": operator.mul,
    "ne": operator.ne,
    "or_": operator.or_,
    "pow": operator.pow,
    "rshift": operator.rshift,
    "sub": operator.sub,
    "truediv": operator.truediv,
    "xor": operator.xor,
}
FUNCTION_OF = {
    "and_": "bitwise_and",
    "eq": "equal",
    "floordiv": "floor_divide",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lshift": "bitwise_left_shift",
    "lt": "less",
    "mod": "remainder",
    "mul": "multiply",
    "ne": "not_equal",
    "or_": "bitwise_or",
    "rshift": "bitwise_right_shift",
    "sub": "subtract",
    "truediv": "divide",
    "xor": "bitwise_xor",
}
IN_PLACE = {
    n: getattr(operator, f"i{n.rstrip('_')}")
    for n in OPERATORS
    if n not in ("eq", "ne", "lt", "le", "gt", "ge")
}


def defined(name: str, x: Any, y: Any) -> bool:
    """Whether the standard says what the result is, and the reference does not differ from it."""
    if name in ("floor_divide", "remainder"):
        return bool(np.all(np.isfinite(x) & np.isfinite(y)) and not np.any(np.asarray(y) == 0))
    if name in ("bitwise_left_shift", "bitwise_right_shift"):
        return bool(np.all(np.asarray(y) >= 0))
    if name == "pow":
        return bool(np.asarray(x).dtype.kind in "fc" or np.all(np.asarray(y) >= 0))
    return True


def exact(name: str, *inputs: Array) -> float | None:
    """How many ulps results may differ by: complex products, quotients and powers are not exact."""
    if name in ("pow", "abs", "sign"):
        return ULPS
    inexact = name in ("multiply", "divide", "reciprocal", "square")
    return ULPS if inexact and any(np.asarray(x).dtype.kind == "c" for x in inputs) else None


@pytest.mark.parametrize("name", UNARY)
@few
@given(data=st.data())
def test_unary_function(name: str, data: Any) -> None:
    x = data.draw(arrays(UNARY[name]))
    if name == "sign" and x.dtype.kind == "c":
        assume(not np.isinf(x).any())  # the direction of an infinite complex number is left open
    assert_agrees(name, x, ulps=exact(name, x))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", APPROXIMATE)
@few
@given(x=arrays(FLOATING))
def test_approximate_unary_function(name: str, x: Array) -> None:
    ours, expected = call_both(name, x)
    if name in ("expm1", "tanh") and x.dtype.kind == "c":
        assume(bool(np.isfinite(np.asarray(expected)).all()))  # the rest is in test_special_cases
    assert_same(ours, expected, ULPS)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", BINARY)
@few
@given(data=st.data())
def test_binary_function(name: str, data: Any) -> None:
    x, y = data.draw(broadcastable(BINARY[name]))
    assume(defined(name, x, y))
    assert_agrees(name, x, y, ulps=exact(name, x, y))


@pytest.mark.parametrize("name", APPROXIMATE_BINARY)
@few
@given(pair=broadcastable(FLOATS))
def test_approximate_binary_function(name: str, pair: tuple[Array, Array]) -> None:
    assert_agrees(name, *pair, ulps=ULPS)


def scalars_for(x: Array) -> st.SearchStrategy[Any]:
    """Python scalars that the standard lets stand next to an array."""
    if x.dtype.kind == "b":
        return st.booleans()
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        return st.integers(int(limits.min), int(limits.max))
    numbers = st.floats(width=32) | st.integers(-1000, 1000)
    return numbers | st.complex_numbers(max_magnitude=1e6) if x.dtype.kind == "c" else numbers


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", OPERATORS)
@few
@given(data=st.data())
def test_operator_with_an_array(name: str, data: Any) -> None:
    function = FUNCTION_OF.get(name, name)
    x, y = data.draw(broadcastable(BINARY[function]))
    assume(defined(function, x, y))
    with np.errstate(all="ignore"):
        expected = OPERATORS[name](to_strict(x), to_strict(y))
    assert_same(OPERATORS[name](to_weft(x), to_weft(y)), expected, exact(function, x, y))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", OPERATORS)
@few
@given(data=st.data())
def test_operator_with_a_python_scalar_on_either_side(name: str, data: Any) -> None:
    function = FUNCTION_OF.get(name, name)
    x = data.draw(arrays(BINARY[function]))
    scalar = data.draw(scalars_for(x))
    with np.errstate(all="ignore"):
        if defined(function, x, np.asarray(scalar, x.dtype)):
            expected = OPERATORS[name](to_strict(x), scalar)
            assert_same(OPERATORS[name](to_weft(x), scalar), expected, exact(function, x))
        if defined(function, np.asarray(scalar, x.dtype), x):
            expected = OPERATORS[name](scalar, to_strict(x))
            assert_same(OPERATORS[name](scalar, to_weft(x)), expected, exact(function, x))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", [*BINARY, *APPROXIMATE_BINARY])
@few
@given(data=st.data())
def test_function_with_a_python_scalar_on_either_side(name: str, data: Any) -> None:
    x = data.draw(arrays(BINARY.get(name, FLOATS)))
    scalar = data.draw(scalars_for(x))
    ulps = ULPS if name in APPROXIMATE_BINARY else exact(name, x)
    other = np.asarray(scalar, x.dtype)
    with np.errstate(all="ignore"):
        if defined(name, x, other):
            assert_agrees(name, x, scalar, ulps=ulps)
        if defined(name, other, x):
            assert_agrees(name, scalar, x, ulps=ulps)


@pytest.mark.parametrize("name", IN_PLACE)
@few
@given(data=st.data())
def test_in_place_operator_changes_the_tensor_and_its_views(name: str, data: Any) -> None:
    function = FUNCTION_OF.get(name, name)
    x = data.draw(arrays(BINARY[function]))
    other = data.draw(scalars_for(x) | arrays((x.dtype.name,), x.shape))
    assume(defined(function, x, np.asarray(other, x.dtype)))
    with np.errstate(all="ignore"):
        expected = OPERATORS[name](to_strict(x), to_strict(other))
    tensor = to_weft(x)
    before = tensor + 0 if x.dtype.kind != "b" else weft.logical_or(tensor, tensor)
    copy, view = weft.asarray(tensor, copy=True), tensor[...]
    changed = IN_PLACE[name](tensor, to_weft(other))
    assert changed is tensor
    assert_same(tensor, expected, exact(function, x))
    np.testing.assert_array_equal(np.asarray(copy), np.asarray(before))
    np.testing.assert_array_equal(np.asarray(view), np.asarray(tensor))


@few
@given(data=st.data())
def test_clip(data: Any) -> None:
    x = data.draw(arrays(REALS))
    bound = (
        st.none()
        | scalars_for(x).filter(lambda s: s == s)
        | arrays((x.dtype.name,), x.shape, allow_nan=False)
    )
    low, high = data.draw(bound), data.draw(bound)
    if low is not None and high is not None:
        with np.errstate(all="ignore"):
            assume(bool(np.all(np.asarray(low, x.dtype) <= np.asarray(high, x.dtype))))
    expected = x
    if low is not None:
        expected = np.maximum(expected, np.asarray(low, x.dtype))
    if high is not None:
        expected = np.minimum(expected, np.asarray(high, x.dtype))
    assert_same(weft.clip(to_weft(x), to_weft(low), to_weft(high)), strict.asarray(expected))


@few
@given(condition=arrays(("bool",), (3, 1)), data=st.data())
def test_where_with_arrays_and_scalars(condition: Array, data: Any) -> None:
    x, y = data.draw(
        broadcastable(ALL).filter(lambda p: np.broadcast_shapes(p[0].shape, p[1].shape) in ((), (1,), (3, 4)))
    )
    assert_agrees("where", condition, x, y)
    scalar = data.draw(scalars_for(x))
    if x.dtype.kind != "c":
        assert_agrees("where", condition, x, scalar)
        assert_agrees("where", condition, scalar, x)


def test_comparison_of_uint64_with_int64_is_refused_as_there_is_no_common_dtype() -> None:
    with pytest.raises(TypeError, match="dtypes must have a common dtype, got uint64 and int64"):
        weft.ones(1, dtype=weft.uint64) + weft.ones(1, dtype=weft.int64)
