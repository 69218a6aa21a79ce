"""What fails in compiled code raises the error that the op's kernel raises, with the user's line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.lowered import compiled, lowered
from weft.errors import BoundsError, DomainError, WeftError
from weft.ops.op import OPS

X = np.arange(12.0).reshape(4, 3)
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("gather", [X, np.array([0, 4])], {}),
    ("gather", [X, np.array([0, -5])], {}),
    ("gather", [X, np.array([1, 2]), np.array(3)], {}),
    ("gather", [X, np.array([1, 200], np.uint8)], {}),
    ("gather", [np.zeros((0, 3)), np.array([0])], {}),
    ("scatter", [X, np.ones((2, 3)), np.array([1, 7])], {}),
    ("scatter_add", [X, np.ones(2), np.array([1, 1]), np.array([-4, 0])], {}),
    ("take_class", [X, np.array([0, 1, 3, 2])], {"axis": 1, "ignore": -100}),
    ("take_class", [X, np.array([0, -1, 1, -100])], {"axis": 1, "ignore": -100}),
    ("put_class", [np.ones(2), np.array([0, 9])], {"classes": 3, "axis": 0, "ignore": -100}),
    ("solve_triangular", [np.diag([1.0, 0.0, 2.0]), X[:3]], {"upper": True, "unit": False}),
    ("solve_triangular", [np.stack([np.eye(3), 0 * np.eye(3)]), X[:3]], {"upper": False, "unit": False}),
]


@pytest.mark.parametrize("run", [lowered, compiled])
@pytest.mark.parametrize(("name", "arrays", "attrs"), CASES)
def test_error_is_that_of_the_kernel(name: str, arrays: Any, attrs: Any, run: Any) -> None:
    with pytest.raises(WeftError) as expected:
        OPS[name].eval(*arrays, **attrs)
    with pytest.raises(type(expected.value)) as actual:
        run(name, arrays, attrs)
    assert (actual.value.op, actual.value.message) == (expected.value.op, expected.value.message)


def test_error_names_the_users_line() -> None:
    @weft.compile
    def row(x: Any, i: Any) -> Any:
        doubled = x * 2.0
        return doubled[i]  # here

    with pytest.raises(BoundsError, match=r"index must be in -4\.\.3 for axis 0 of size 4, got 9") as error:
        row(weft.tensor(X), weft.tensor(9))
    assert "return doubled[i]  # here" in str(error.value)


def test_what_is_not_needed_does_not_fail() -> None:
    @weft.compile
    def first(x: Any, i: Any) -> Any:
        return weft.cond(i < 4, lambda: x[i], lambda: x[0] * 0.0)

    assert first(weft.tensor(X), weft.tensor(9)).tolist() == [0.0, 0.0, 0.0]


def test_singular_matrix_is_told_by_its_place() -> None:
    a = np.stack([np.eye(2), np.zeros((2, 2))])
    with pytest.raises(DomainError, match=r"a singular one \(matrix 1 of f64\[2,2,2\]\)"):
        compiled("solve_triangular", [a, np.ones((2, 1))], {"upper": True, "unit": False})
