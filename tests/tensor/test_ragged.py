"""Ragged tensors against lists of rows: values, gradients, transforms, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ArgumentError, BoundsError, DtypeError, ShapeError

ROWS = [[1.0, 2.0, 3.0], [], [4.0, -1.0]]
rows_of_numbers = st.lists(st.lists(st.floats(-4, 4, width=32), max_size=4), min_size=1, max_size=5)


def example(requires_grad: bool = False) -> Any:
    return weft.ragged(ROWS, dtype=weft.float64, requires_grad=requires_grad)


def test_parts_are_what_it_was_made_of() -> None:
    r = example()
    assert (len(r), r.ndim, r.shape, r.dtype) == (3, 2, (3, None), np.float64)
    assert r.lengths.tolist() == [3, 0, 2]
    assert r.splits.tolist() == [0, 3, 3, 5]
    assert r.tolist() == ROWS
    assert [row.tolist() for row in r] == ROWS


def test_rows_are_found_by_number_and_slice() -> None:
    r = example()
    assert r[0].tolist() == ROWS[0]
    assert r[-1].tolist() == ROWS[-1]
    assert r[::-1].tolist() == ROWS[::-1]
    assert r[1:].tolist() == ROWS[1:]
    assert r[3:].tolist() == []
    assert r.take_rows([2, 2, 0]).tolist() == [ROWS[2], ROWS[2], ROWS[0]]


@given(rows_of_numbers)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_reductions_equal_those_of_each_row(rows: list[list[float]]) -> None:
    r = weft.ragged(rows, dtype=weft.float64)
    full = [np.array(row, np.float64) for row in rows]
    np.testing.assert_allclose(r.sum().numpy(), [row.sum() for row in full])
    np.testing.assert_allclose(r.prod().numpy(), [row.prod() for row in full])
    np.testing.assert_allclose(r.max().numpy(), [row.max(initial=-np.inf) for row in full])
    np.testing.assert_allclose(r.min().numpy(), [row.min(initial=np.inf) for row in full])
    means = [row.mean() if row.size else np.nan for row in full]
    np.testing.assert_allclose(r.mean().numpy(), means)
    for got, row in zip(r.softmax(), full, strict=True):
        np.testing.assert_allclose(got.numpy(), np.exp(row) / np.exp(row).sum(), rtol=1e-12)


@given(rows_of_numbers, st.integers(0, 2))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_padded_and_back_is_the_same(rows: list[list[float]], more: int) -> None:
    r = weft.ragged(rows, dtype=weft.float64)
    length = max(map(len, rows)) + more
    padded = r.to_padded(-7.0, length)
    assert padded.shape == (len(rows), length)
    expected = [row + [-7.0] * (length - len(row)) for row in rows]
    np.testing.assert_array_equal(padded.numpy(), np.array(expected).reshape(len(rows), length))
    if length:
        assert weft.ragged_from_padded(padded, r.lengths).tolist() == rows


def test_mask_tells_elements_from_padding() -> None:
    assert example().mask().tolist() == [[True] * 3, [False] * 3, [True, True, False]]


def test_elementwise_functions_and_operators_work_on_each_element() -> None:
    r = example()
    assert weft.exp(r).tolist() == [np.exp(row).tolist() for row in ROWS]
    assert (r * 2.0 + 1.0).tolist() == [[2 * v + 1 for v in row] for row in ROWS]
    assert (1.0 - r).tolist() == [[1 - v for v in row] for row in ROWS]
    assert (r * r).tolist() == [[v * v for v in row] for row in ROWS]
    assert (r > 1.5).tolist() == [[v > 1.5 for v in row] for row in ROWS]
    assert weft.maximum(r, weft.tensor(2.0, dtype=weft.float64)).tolist() == [
        [max(v, 2.0) for v in row] for row in ROWS
    ]
    assert (-r).tolist() == [[-v for v in row] for row in ROWS]


def test_one_value_a_row_broadcasts_over_the_row() -> None:
    per_row = weft.tensor([[10.0], [20.0], [30.0]], dtype=weft.float64)
    assert (example() + per_row).tolist() == [[11.0, 12.0, 13.0], [], [34.0, 29.0]]
    assert (per_row - example()).tolist() == [[9.0, 8.0, 7.0], [], [26.0, 31.0]]


def test_elements_may_be_vectors() -> None:
    r = weft.ragged([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]])
    assert r.shape == (2, None, 2)
    assert r.sum().tolist() == [[4.0, 6.0], [5.0, 6.0]]
    assert r.max().tolist() == [[3.0, 4.0], [5.0, 6.0]]
    assert (r @ weft.tensor([[1.0], [1.0]])).tolist() == [[[3.0], [7.0]], [[11.0]]]
    assert r.to_padded().shape == (2, 2, 2)


def test_gradients_reach_the_elements() -> None:
    r = example(requires_grad=True)
    (r * r).sum().sum().backward()
    assert r.grad.tolist() == [[2.0, 4.0, 6.0], [], [8.0, -2.0]]
    assert not r.detach().requires_grad


def test_gradient_of_max_goes_to_the_largest_element_of_each_row() -> None:
    r = example(requires_grad=True)
    weft.where(r.lengths > 0, r.max(), 0.0).sum().backward()
    assert r.grad.tolist() == [[0.0, 0.0, 1.0], [], [1.0, 0.0]]


@pytest.mark.parametrize("name", ["sum", "mean", "max", "prod", "softmax", "to_padded"])
def test_gradients_hold_to_second_order(name: str) -> None:
    def f(values: Any) -> Any:
        out = getattr(weft.ragged_from_splits(values, [0, 3, 5]), name)()
        return weft.sin(out.values if name == "softmax" else out)

    values = (weft.tensor([1.0, 2.5, 3.0, 4.0, -1.0], dtype=weft.float64),)
    weft.testing.gradcheck(f, values)
    weft.testing.gradgradcheck(f, values)


def test_gradient_through_from_padded_skips_the_padding() -> None:
    x = weft.ones((2, 3), requires_grad=True)
    weft.ragged_from_padded(x, [1, 2]).sum().sum().backward()
    assert x.grad.tolist() == [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]


def test_ragged_tensors_are_trees_of_their_values() -> None:
    gradient = weft.grad(lambda r: (r * r).sum().sum())(example())
    assert gradient.tolist() == [[2.0, 4.0, 6.0], [], [8.0, -2.0]]


def test_printing_shows_rows() -> None:
    assert repr(weft.ragged([[1.0, 2.0], [], [3.0]])) == "ragged([[1., 2.],\n        [],\n        [3.]])"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: example() + weft.ragged([[1.0], [], []]), ShapeError, "rows must have equal lengths"),
        (lambda: example()[3], BoundsError, "row must be in -3..2, got 3"),
        (lambda: example().to_padded(length=2), ShapeError, "length must be at least the longest row, 3"),
        (lambda: example() + weft.ones((3, 2)), ShapeError, "one value a row"),
        (lambda: example() + weft.ones((2, 1)), ShapeError, "one value a row needs 3 rows"),
        (lambda: weft.ragged([[1.0], [[2.0]]]), ShapeError, "elements of all rows must have one shape"),
        (lambda: weft.ragged([]), ArgumentError, "at least one row"),
        (lambda: weft.ragged_from_splits(weft.ones(3), [0, 2]), ShapeError, "splits must rise from 0 to 3"),
        (lambda: weft.ragged_from_padded(weft.ones((2, 2)), [1, 3]), BoundsError, "lengths must be in 0..2"),
        (
            lambda: weft.ragged_from_padded(weft.ones((2, 2)), [1]),
            ShapeError,
            "a length is needed for each row",
        ),
        (lambda: weft.ragged([[1], [2]]).max(), DtypeError, "dtype must be floating"),
        (lambda: weft.sort(example()), ArgumentError, ""),
    ],
)
def test_bad_input_is_an_error_in_the_users_terms(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
