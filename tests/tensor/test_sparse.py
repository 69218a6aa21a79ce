"""Sparse tensors against dense ones: values, gradients, transforms, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ArgumentError, BoundsError, DtypeError, ShapeError

INDICES = [[0, 1, 1, 0], [2, 0, 2, 2]]
DENSE = np.array([[0.0, 0.0, 4.0], [4.0, 0.0, 5.0]])


def example(requires_grad: bool = False) -> Any:
    values = weft.tensor([3.0, 4.0, 5.0, 1.0], dtype=weft.float64, requires_grad=requires_grad)
    return weft.sparse_coo_tensor(INDICES, values, (2, 3))


@st.composite
def sparse_matrices(draw: Any, rows: int, columns: int) -> tuple[Any, Any]:
    """Indices, with duplicates, and values of a random matrix."""
    count = draw(st.integers(0, 8))
    indices = [
        draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count)) for size in (rows, columns)
    ]
    values = draw(st.lists(st.integers(-5, 5), min_size=count, max_size=count))
    return np.array(indices, np.int64).reshape(2, count), np.array(values, np.float64)


def dense_of(indices: Any, values: Any, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape)
    np.add.at(out, tuple(indices), values)
    return out


def test_parts_are_what_they_were_made_of() -> None:
    s = example()
    assert (s.shape, s.ndim, s.size, s.nnz, s.dtype) == ((2, 3), 2, 6, 4, np.float64)
    assert s.indices.tolist() == INDICES
    assert not s.is_coalesced


def test_shape_is_just_large_enough_by_default() -> None:
    assert weft.sparse_coo_tensor(INDICES, [1.0, 2.0, 3.0, 4.0]).shape == (2, 3)


def test_to_dense_sums_duplicates() -> None:
    np.testing.assert_array_equal(example().to_dense().numpy(), DENSE)


def test_coalesce_sorts_and_sums() -> None:
    s = example().coalesce()
    assert s.is_coalesced
    assert s.coalesce() is s
    assert s.indices.tolist() == [[0, 1, 1], [2, 0, 2]]
    assert s.values.tolist() == [4.0, 4.0, 5.0]


def test_values_may_have_dense_axes() -> None:
    s = weft.sparse_coo_tensor([[0, 2]], [[1.0, 2.0], [3.0, 4.0]], (3, 2))
    assert s.to_dense().tolist() == [[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]
    assert s.sum(axis=0).tolist() == [4.0, 6.0]


def test_to_sparse_and_back_keeps_values_and_gradients() -> None:
    x = weft.tensor(DENSE, requires_grad=True)
    s = weft.to_sparse(x)
    assert s.nnz == 3
    (s.to_dense() * 2.0).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2.0 * (DENSE != 0))


@given(sparse_matrices(3, 4), st.booleans())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_product_with_dense_equals_the_dense_product(matrix: tuple[Any, Any], vector: bool) -> None:
    indices, values = matrix
    right = np.arange(4.0) if vector else np.arange(8.0).reshape(4, 2)
    v = weft.tensor(values, requires_grad=True)
    d = weft.tensor(right, requires_grad=True)
    out = weft.sparse_coo_tensor(indices, v, (3, 4)) @ d
    dense = dense_of(indices, values, (3, 4))
    np.testing.assert_allclose(out.detach().numpy(), dense @ right)
    g = np.cos(np.arange(out.size)).reshape(out.shape)
    out.backward(weft.tensor(g))
    np.testing.assert_allclose(d.grad.numpy(), dense.T @ g)
    if v.grad is not None:
        outer = g.reshape(3, -1) @ right.reshape(4, -1).T
        np.testing.assert_allclose(v.grad.numpy(), outer[tuple(indices)])


@given(sparse_matrices(3, 4), sparse_matrices(4, 2))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_product_of_two_sparse_matrices_is_sparse(a: tuple[Any, Any], b: tuple[Any, Any]) -> None:
    out = weft.sparse_coo_tensor(*a, (3, 4)) @ weft.sparse_coo_tensor(*b, (4, 2))
    assert out.shape == (3, 2)
    np.testing.assert_allclose(out.to_dense().numpy(), dense_of(*a, (3, 4)) @ dense_of(*b, (4, 2)))


def test_dense_times_sparse() -> None:
    left = np.arange(4.0).reshape(2, 2)
    np.testing.assert_allclose((weft.tensor(left) @ example()).numpy(), left @ DENSE)
    np.testing.assert_allclose((weft.tensor(left[1]) @ example()).numpy(), left[1] @ DENSE)


def test_arithmetic_keeps_sparsity_where_it_can() -> None:
    s = example()
    for sparse, dense in [
        (s + s, 2 * DENSE),
        (s - s, 0 * DENSE),
        (-s, -DENSE),
        (s * 3.0, 3 * DENSE),
        (3.0 * s, 3 * DENSE),
        (s / 2.0, DENSE / 2),
        (s * weft.tensor(DENSE), DENSE**2),
        (s * s, DENSE**2),
        (weft.sqrt(s), np.sqrt(DENSE)),
        (abs(s), DENSE),
        (s.T, DENSE.T),
    ]:
        np.testing.assert_allclose(sparse.to_dense().numpy(), dense)
    np.testing.assert_allclose((s + weft.tensor(DENSE)).numpy(), 2 * DENSE)
    np.testing.assert_allclose((weft.tensor(DENSE) - s).numpy(), 0 * DENSE)


def test_function_that_is_not_linear_sees_summed_duplicates() -> None:
    s = weft.sparse_coo_tensor([[0, 0]], [3.0, -3.0], (1,))
    assert weft.square(s).to_dense().tolist() == [0.0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1), -1])
def test_sum_equals_the_dense_sum(axis: Any) -> None:
    np.testing.assert_allclose(weft.sum(example(), axis=axis).numpy(), DENSE.sum(axis=axis))


def test_gradient_has_the_form_of_the_tensor() -> None:
    s = example(requires_grad=True)
    assert s.requires_grad
    assert s.grad is None
    (s @ weft.ones(3, dtype=weft.float64)).sum().backward()
    assert s.grad.indices.tolist() == INDICES  # type: ignore[attr-defined]
    assert s.grad.values.tolist() == [1.0] * 4  # type: ignore[attr-defined]
    assert not s.detach().requires_grad


def test_gradients_hold_to_second_order() -> None:
    def f(v: Any, d: Any) -> Any:
        return weft.sin(weft.sparse_coo_tensor(INDICES, v, (2, 3)) @ d).sum()

    inputs = (weft.tensor([3.0, 4.0, 5.0, 1.0], dtype=weft.float64), weft.tensor(DENSE.T.copy()))
    weft.testing.gradcheck(f, inputs)
    weft.testing.gradgradcheck(f, inputs)


def test_sparse_tensors_are_trees_of_their_values() -> None:
    gradient = weft.grad(lambda s: (s @ weft.ones(3, dtype=weft.float64)).sum())(example())
    assert gradient.to_dense().tolist() == [[0.0, 0.0, 2.0], [1.0, 0.0, 1.0]]
    batch = weft.vmap(lambda v: weft.sparse_coo_tensor(INDICES, v, (2, 3)).to_dense())(weft.ones((5, 4)))
    assert batch.shape == (5, 2, 3)


def test_printing_shows_indices_values_and_shape() -> None:
    assert repr(example()) == (
        "sparse_coo_tensor(indices=tensor([[0, 1, 1, 0],\n"
        "                          [2, 0, 2, 2]]),\n"
        "                  values=tensor([3., 4., 5., 1.], dtype=weft.float64),\n"
        "                  shape=(2, 3), nnz=4)"
    )


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: weft.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,)),
            BoundsError,
            "indices must be in 0..2 for axis 0",
        ),
        (lambda: weft.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,)), BoundsError, "got -1"),
        (
            lambda: weft.sparse_coo_tensor([[0, 1]], [1.0], (3,)),
            ShapeError,
            "indices must be (rank, n) with n values",
        ),
        (lambda: weft.sparse_coo_tensor([[0]], [1.0], (3, 3)), ShapeError, "shape must have 1 sparse axes"),
        (lambda: weft.sparse_coo_tensor(weft.ones((1, 1)), [1.0]), DtypeError, "indices must be integers"),
        (lambda: example() @ weft.ones((2, 2)), ShapeError, "inner dimensions must agree"),
        (lambda: example() @ example(), ShapeError, "inner dimensions must agree"),
        (lambda: example() * weft.ones((2, 2)), ShapeError, "shapes must be equal"),
        (lambda: weft.exp(example()), ArgumentError, "the result would not be sparse"),
        (lambda: example() + example().T, ShapeError, "sparse shapes must be equal"),
        (lambda: weft.sort(example()), ArgumentError, ""),
    ],
)
def test_bad_input_is_an_error_in_the_users_terms(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
