from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.testing import assert_close


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (weft.tensor([1.0, 2.0]), weft.tensor([1.0, 2.0])),
        (weft.tensor([1.0, 2.0]), weft.tensor([1.0 + 5e-7, 2.0])),
        (weft.tensor([np.nan, np.inf]), weft.tensor([np.nan, np.inf])),
        (weft.tensor([1, 2]), np.array([1, 2])),
        (weft.tensor([True]), weft.tensor([True])),
        (weft.tensor([1.0], dtype=weft.bfloat16), weft.tensor([1.01], dtype=weft.bfloat16)),
        (weft.tensor([1 + 1j]), weft.tensor([1 + 1j])),
        ({"a": [weft.tensor(1.0)], "b": None}, {"b": None, "a": [weft.tensor(1.0)]}),
        (weft.tensor(1.0, requires_grad=True), 1.0),
        (1.0, 1.0),
        (np.zeros((0, 2)), np.zeros((0, 2))),
    ],
)
def test_equal_values_pass(actual: Any, expected: Any) -> None:
    assert_close(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (weft.tensor([1.0, 2.0]), weft.tensor([1.0, 2.5]), r"the value differs in 1 of 2 elements"),
        (
            weft.tensor([1.0, 2.0]),
            weft.tensor([1.0, 2.5]),
            r"difference 0.5 at \(1,\), relative 0.2: got 2.0, expected 2.5",
        ),
        ({"a": [weft.tensor(1.0)]}, {"a": [weft.tensor(2.0)]}, r"\['a'\]\[0\] differs in 1 of 1 elements"),
        (weft.tensor([1.0]), weft.tensor(1.0), r"must be of shape \(\), got \(1,\)"),
        (weft.tensor([1.0]), weft.tensor([1]), "must be of dtype int64, got float32"),
        (weft.tensor([np.nan]), weft.tensor([1.0]), "differs in 1 of 1"),
        (weft.tensor([np.inf]), weft.tensor([-np.inf]), "differs in 1 of 1"),
        (weft.tensor([2**62 + 1]), weft.tensor([2**62]), "difference 1 at"),
    ],
)
def test_difference_is_described(actual: Any, expected: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_close(actual, expected)


def test_tolerances_can_be_given() -> None:
    assert_close(1.0, 1.1, atol=0.2)
    assert_close(1.0, 1.1, rtol=0.2)
    with pytest.raises(AssertionError, match=r"tolerances: atol=0, rtol=0"):
        assert_close(weft.tensor(1.0), weft.tensor(1.0 + 2e-7), rtol=0, atol=0)


def test_nan_and_dtype_can_be_treated_otherwise() -> None:
    with pytest.raises(AssertionError):
        assert_close(np.nan, np.nan, equal_nan=False)
    assert_close(weft.tensor([1.0]), weft.tensor([1]), check_dtype=False)
