"""Accuracy of the special functions: against values of 50 digits, and against SciPy over the whole range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special as scipy_special

import weft
from tests.ops.special_values import NEGATIVE, VALUES
from weft.ops.scalar import NUMPY
from weft.ops.special import erf_code, erfc_code, erfinv_code

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "erf": weft.erf,
    "erfc": weft.erfc,
    "erfinv": weft.erfinv,
    "lgamma": weft.lgamma,
    "digamma": weft.digamma,
    "trigamma": lambda x: weft.polygamma(1, x),
    "tetragamma": lambda x: weft.polygamma(2, x),
}
RNG = np.random.default_rng(0)
AXIS = np.concatenate(
    [RNG.uniform(-30, 30, 20000), RNG.uniform(-1, 1, 5000), 10.0 ** RNG.uniform(-300, 300, 2000)]
)
INSIDE = np.concatenate([RNG.uniform(-1, 1, 20000), 1 - 10.0 ** RNG.uniform(-15, -1, 5000)])
POSITIVE = np.abs(AXIS)


def ulps(actual: Any, expected: Any) -> Any:
    """How many units in the last place values differ by."""
    return np.abs(actual - expected) / np.spacing(np.abs(expected))


def values(name: str, x: Any) -> Any:
    return FUNCTIONS[name](weft.tensor(x)).numpy()


@pytest.mark.parametrize("name", VALUES)
def test_error_is_at_most_4_units_in_the_last_place(name: str) -> None:
    x, expected = np.array(VALUES[name]).T
    assert ulps(values(name, x), expected).max() <= 4


@pytest.mark.parametrize("name", NEGATIVE)
def test_error_left_of_zero_is_small(name: str) -> None:
    x, expected = np.array(NEGATIVE[name]).T
    np.testing.assert_allclose(values(name, x), expected, rtol=5e-15)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("dtype", [weft.float32, weft.float16, weft.bfloat16], ids=lambda d: d.name)
def test_narrow_dtypes_are_as_accurate_as_they_can_be(name: str, dtype: Any) -> None:
    x, _ = np.array(VALUES[name]).T
    narrow = weft.tensor(x[(np.abs(x) > 1e-4) & (np.abs(x) < 1e3)]).astype(dtype)
    if name == "erfinv":
        narrow = narrow[abs(narrow) < 1]
    exact = values(name, narrow.numpy().astype(np.float64))
    held = np.abs(exact) > float(weft.finfo(dtype).smallest_normal)
    actual = FUNCTIONS[name](narrow).numpy().astype(np.float64)
    np.testing.assert_allclose(actual[held], exact[held], rtol=2.5 * float(weft.finfo(dtype).eps))


@pytest.mark.parametrize(
    ("name", "x", "oracle", "tolerance"),
    [
        ("erf", AXIS, scipy_special.erf, 1e-15),
        ("erfc", AXIS, scipy_special.erfc, 2e-13),
        ("erfinv", INSIDE, scipy_special.erfinv, 2e-15),
        ("digamma", POSITIVE, scipy_special.digamma, 1e-14),
        ("trigamma", POSITIVE[POSITIVE > 1e-100], lambda x: scipy_special.polygamma(1, x), 1e-13),
    ],
)
def test_agrees_with_scipy_over_the_whole_range(name: str, x: Any, oracle: Any, tolerance: float) -> None:
    expected = oracle(x)
    normal = np.abs(expected) > 1e-300
    np.testing.assert_allclose(values(name, x)[normal], expected[normal], rtol=tolerance)


def test_erfinv_of_float32_is_within_2_units_where_its_pieces_meet() -> None:
    """Eager, as ``tests/loop`` and ``tests/fuzz`` ask it of compiled code; at both ends of each piece."""
    ends = [0.0, np.sqrt(0.5), np.sqrt(-np.expm1(-5)), 0.7536993, 1.0]
    steps = np.arange(-3000, 3001)
    x = np.concatenate([(np.float32(end).view(np.int32) + steps).astype(np.int32) for end in ends])
    x = np.abs(x.view(np.float32))
    x = x[x < 1]
    exact = scipy_special.erfinv(x.astype(np.float64))
    for sign in (1, -1):
        error = np.abs(values("erfinv", sign * x) - sign * exact) / np.spacing(exact.astype(np.float32))
        assert error.max() <= 2


def test_lgamma_agrees_with_scipy_to_within_the_error_of_its_terms() -> None:
    np.testing.assert_allclose(values("lgamma", AXIS), scipy_special.gammaln(AXIS), rtol=1e-13, atol=2e-13)


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("erf", [0.0, -0.0, np.inf, -np.inf, np.nan], [0.0, -0.0, 1.0, -1.0, np.nan]),
        ("erfc", [0.0, np.inf, -np.inf, np.nan, 40.0, -40.0], [1.0, 0.0, 2.0, np.nan, 0.0, 2.0]),
        ("erfinv", [0.0, -0.0, 1.0, -1.0, 1.5, np.nan], [0.0, -0.0, np.inf, -np.inf, np.nan, np.nan]),
        (
            "lgamma",
            [0.0, -1.0, 1.0, 2.0, np.inf, -np.inf, np.nan],
            [np.inf, np.inf, 0, 0, np.inf, np.inf, np.nan],
        ),
        ("digamma", [0.0, -0.0, -1.0, np.inf, np.nan], [-np.inf, np.inf, np.nan, np.inf, np.nan]),
        ("trigamma", [0.0, -1.0, np.inf, np.nan], [np.inf, np.inf, 0.0, np.nan]),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_special_values(name: str, x: list[float], expected: list[float], dtype: str) -> None:
    actual = values(name, np.array(x, dtype))
    np.testing.assert_array_equal(actual, np.array(expected, dtype))
    np.testing.assert_array_equal(np.signbit(actual[:2]), np.signbit(np.array(expected[:2])))


@pytest.mark.parametrize("code", [erf_code, erfc_code, erfinv_code])
def test_both_ways_of_choosing_a_piece_agree(code: Callable[..., Any]) -> None:
    x = INSIDE if code is erfinv_code else AXIS
    name = code.__name__.removesuffix("_code")
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(code(NUMPY, x), values(name, x))


def test_polygamma_of_order_zero_is_digamma() -> None:
    x = weft.tensor([0.5, 2.5])
    assert weft.polygamma(0, x).tolist() == weft.digamma(x).tolist()
    with pytest.raises(weft.errors.DomainError, match="polygamma: n must be an integer >= 0, got -1"):
        weft.polygamma(-1, x)
