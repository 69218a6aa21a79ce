"""Elementwise functions at zeros, infinities and NaN: the "special cases" lists of the standard.

The reference follows them but for the cases written out below, where it keeps to Python or to C instead.
"""

from __future__ import annotations

import math
from itertools import product
from math import inf, nan, pi
from typing import Any

import numpy as np
import pytest

import weft
from tests.array_api.reference import Array, assert_same, strict
from tests.array_api.test_elementwise import APPROXIMATE, APPROXIMATE_BINARY, BINARY, COMPLEX, FLOATS, UNARY

SPECIAL = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 3.0, -3.0, 2.5, 1e300, inf, -inf, nan)
COMPLEX_SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, -0.25, inf, -inf, nan)

# (x1, x2, floor_divide(x1, x2)) where the reference returns what Python does
FLOOR_DIVIDE = [
    (inf, 2.0, inf),
    (inf, -2.0, -inf),
    (-inf, 2.0, -inf),
    (-inf, -2.0, inf),
    (inf, 0.0, inf),
    (-inf, 0.0, -inf),
    (3.0, inf, 0.0),
    (3.0, -inf, -0.0),
    (-3.0, inf, -0.0),
    (-3.0, -inf, 0.0),
    (inf, inf, nan),
    (0.0, 0.0, nan),
    (0.0, -2.0, -0.0),
    (-0.0, 2.0, -0.0),
    (-0.0, -2.0, 0.0),
    (1.0, -0.0, -inf),
    (-1.0, 0.0, -inf),
    (nan, 1.0, nan),
    (1.0, nan, nan),
]

# (function, z, result) where the reference returns what its C library does
COMPLEX_CASES = [
    ("expm1", complex(0.0, 0.0), complex(0.0, 0.0)),
    ("expm1", complex(-0.0, 0.0), complex(0.0, 0.0)),
    ("expm1", complex(1.0, inf), complex(nan, nan)),
    ("expm1", complex(1.0, nan), complex(nan, nan)),
    ("expm1", complex(inf, 0.0), complex(inf, 0.0)),
    ("expm1", complex(-inf, 0.0), complex(-1.0, 0.0)),
    ("expm1", complex(-inf, 1.0), complex(-1.0, 0.0)),
    ("expm1", complex(inf, 1.0), complex(inf, inf)),
    ("expm1", complex(-inf, inf), complex(-1.0, 0.0)),
    ("expm1", complex(inf, inf), complex(inf, nan)),
    ("expm1", complex(-inf, nan), complex(-1.0, 0.0)),
    ("expm1", complex(inf, nan), complex(inf, nan)),
    ("expm1", complex(nan, 0.0), complex(nan, 0.0)),
    ("expm1", complex(nan, 1.0), complex(nan, nan)),
    ("expm1", complex(nan, nan), complex(nan, nan)),
    ("sign", complex(0.0, 0.0), complex(0.0, 0.0)),
    ("sign", complex(-0.0, 0.0), complex(0.0, 0.0)),
    ("sign", complex(-0.0, -0.0), complex(0.0, 0.0)),
    ("sign", complex(nan, 1.0), complex(nan, nan)),
    ("sign", complex(1.0, nan), complex(nan, nan)),
    ("tanh", complex(0.0, 0.0), complex(0.0, 0.0)),
    ("tanh", complex(0.0, inf), complex(0.0, nan)),
    ("tanh", complex(0.0, nan), complex(0.0, nan)),
    ("tanh", complex(1.0, inf), complex(nan, nan)),
    ("tanh", complex(inf, 1.0), complex(1.0, 0.0)),
    ("tanh", complex(inf, 3.0), complex(1.0, 0.0)),
    ("tanh", complex(inf, inf), complex(1.0, 0.0)),
    ("tanh", complex(inf, nan), complex(1.0, 0.0)),
    ("tanh", complex(nan, 0.0), complex(nan, 0.0)),
    ("tanh", complex(nan, 1.0), complex(nan, nan)),
    ("acosh", complex(0.0, 0.0), complex(0.0, pi / 2)),
    ("acosh", complex(0.0, nan), complex(nan, pi / 2)),
    ("acos", complex(0.0, nan), complex(pi / 2, nan)),
    ("sqrt", complex(-inf, 1.0), complex(0.0, inf)),
    ("sqrt", complex(-0.0, 0.0), complex(0.0, 0.0)),
    ("log", complex(-0.0, 0.0), complex(-inf, pi)),
    ("exp", complex(-inf, inf), complex(0.0, 0.0)),
    ("abs", complex(nan, inf), inf),
]


def same(a: float, b: float) -> bool:
    """Equal, with the signs of zeros; NaN equals NaN; other values to rounding."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=1e-6) and math.copysign(1.0, a) == math.copysign(1.0, b)


def grid(dtype: str) -> Array:
    """Every special value of a dtype that the dtype can hold."""
    if dtype in COMPLEX:
        pairs = [complex(a, b) for a, b in product(COMPLEX_SPECIAL, COMPLEX_SPECIAL)]
        return np.array(pairs, dtype)
    with np.errstate(over="ignore"):
        return np.array(SPECIAL, dtype)


def expected(name: str, *inputs: Array) -> Any:
    with np.errstate(all="ignore"):
        return getattr(strict, name)(*map(strict.asarray, inputs))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name", [n for n in (*UNARY, *APPROXIMATE) if n in APPROXIMATE or "float32" in UNARY[n]]
)
def test_unary_function_at_special_values(name: str, dtype: str) -> None:
    x = grid(dtype)
    assert_same(
        getattr(weft, name)(weft.tensor(x)), expected(name, x), ulps=4 if name in APPROXIMATE else None
    )
    zeros = x[x == 0]
    ours = np.asarray(getattr(weft, name)(weft.tensor(zeros)))
    np.testing.assert_array_equal(np.signbit(ours), np.signbit(np.asarray(expected(name, zeros))))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name", [n for n in (*BINARY, *APPROXIMATE_BINARY) if n in APPROXIMATE_BINARY or "float32" in BINARY[n]]
)
def test_binary_function_at_special_values(name: str, dtype: str) -> None:
    x, y = (g.ravel() for g in np.meshgrid(grid(dtype), grid(dtype)))
    if name == "floor_divide":
        finite = np.isfinite(x) & np.isfinite(y)
        x, y = x[finite], y[finite]
    ulps = 4 if name in (*APPROXIMATE_BINARY, "pow") else None
    assert_same(getattr(weft, name)(weft.tensor(x), weft.tensor(y)), expected(name, x, y), ulps)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize(
    "name", [n for n in (*UNARY, *APPROXIMATE) if n in APPROXIMATE or "complex64" in UNARY[n]]
)
def test_unary_function_at_complex_special_values(name: str, dtype: str) -> None:
    x = grid(dtype)
    if name in ("expm1", "tanh", "sign"):
        x = x[np.isfinite(x)]
    assert_same(getattr(weft, name)(weft.tensor(x)), expected(name, x), ulps=8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("x", "y", "result"), FLOOR_DIVIDE)
def test_floor_divide_of_values_that_are_not_finite(x: float, y: float, result: float, dtype: str) -> None:
    a, b = weft.tensor(x, dtype=dtype), weft.tensor(y, dtype=dtype)
    assert same(float(weft.floor_divide(a, b)), result)
    assert same(float(a // b), result)
    a //= b
    assert same(float(a), result)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize(("name", "z", "result"), COMPLEX_CASES)
def test_complex_special_case(name: str, z: complex, result: complex, dtype: str) -> None:
    ours = complex(getattr(weft, name)(weft.tensor(z, dtype=dtype)))
    assert same(ours.real, complex(result).real)
    assert same(ours.imag, complex(result).imag) or name == "abs"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("name", "result"), [("sum", 0.0), ("prod", 1.0), ("mean", nan), ("var", nan), ("std", nan)]
)
def test_statistic_of_an_empty_tensor(name: str, result: float, dtype: str) -> None:
    assert same(float(getattr(weft, name)(weft.zeros((0,), dtype=dtype))), result)


@pytest.mark.parametrize("name", ["max", "mean", "min", "prod", "std", "sum", "var"])
def test_statistic_passes_nan_on(name: str) -> None:
    assert math.isnan(float(getattr(weft, name)(weft.tensor([1.0, nan, 2.0]))))


@pytest.mark.parametrize(("name", "result"), [("any", False), ("all", True)])
def test_truth_of_an_empty_tensor(name: str, result: bool) -> None:
    assert bool(getattr(weft, name)(weft.zeros((0,), dtype=weft.bool))) is result


def test_nan_and_infinity_are_true() -> None:
    assert bool(weft.all(weft.tensor([nan, inf, -inf])))


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
@pytest.mark.parametrize("exponent", [0.5, [0.5], [0.5, 0.5], [0.25, 0.25], 1.5])
def test_power_of_negative_zero_and_infinity_is_positive_for_any_shape_of_exponent(
    exponent: object, dtype: object
) -> None:
    out = weft.tensor([-0.0, -float("inf")], dtype=dtype) ** weft.tensor(exponent, dtype=dtype)
    assert out.tolist() == [0.0, float("inf")]
    assert not weft.signbit(out).any()
    assert out.dtype == dtype
