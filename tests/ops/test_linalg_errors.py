"""Errors of linear algebra: each says what must hold and what was got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import linalg
from weft.errors import ArgumentError, AxisError, DomainError, DtypeError, ShapeError, WeftError


def tensor(array: Any) -> Any:
    return weft.tensor(np.asarray(array))


A23, A22 = np.ones((2, 3), np.float32), np.ones((2, 2), np.float32)
NAN = np.full((2, 2), np.nan, np.float32)
BATCH = np.stack([np.eye(2), -np.eye(2)]).astype(np.float32)
HALF = weft.float16

ERRORS: list[tuple[Callable[[], Any], type[WeftError], str]] = [
    (
        lambda: linalg.inv(tensor(A22)),
        DomainError,
        "inv: matrices must be invertible, got a singular one (f32[2,2])",
    ),
    (
        lambda: linalg.solve(tensor(A22), tensor(A22)),
        DomainError,
        "solve: matrices must be invertible, got a singular one (f32[2,2])",
    ),
    (
        lambda: linalg.inv(tensor(BATCH * [[[1.0]], [[0.0]]])),
        DomainError,
        "inv: matrices must be invertible, got a singular one (matrix 1 of f64[2,2,2])",
    ),
    (
        lambda: linalg.cholesky(tensor(-np.eye(2, dtype="f"))),
        DomainError,
        "cholesky: matrices must be positive definite, got one with the eigenvalue -1 (f32[2,2])",
    ),
    (
        lambda: linalg.cholesky(tensor(BATCH)),
        DomainError,
        "cholesky: matrices must be positive definite, got one with the eigenvalue -1 (matrix 1 of f32[",
    ),
    (
        lambda: linalg.solve_triangular(tensor(np.diag([1.0, 0.0])), tensor(np.eye(2)), upper=True),
        DomainError,
        "solve_triangular: matrices must be invertible, got a singular one (f64[2,2])",
    ),
    (
        lambda: linalg.cholesky(tensor(np.array([[-1.0, np.nan], [np.nan, np.nan]]))),
        DomainError,
        "cholesky: elements must be finite, got f64[2,2] with NaN or infinity in it",
    ),
    (
        lambda: linalg.svd(tensor(NAN)),
        DomainError,
        "svd: elements must be finite, got f32[2,2] with NaN or infinity in it",
    ),
    (
        lambda: linalg.eigh(tensor(NAN)),
        DomainError,
        "eigh: elements must be finite, got f32[2,2] with NaN or infinity in it",
    ),
    (
        lambda: linalg.eig(tensor(NAN)),
        DomainError,
        "eig: elements must be finite, got f32[2,2] with NaN or infinity in it",
    ),
    (lambda: linalg.inv(tensor(A23)), ShapeError, "inv: matrices must be square, got f32[2,3]"),
    (lambda: linalg.cholesky(tensor(A23[:1])), ShapeError, "cholesky: matrices must be square, got f32[1,3]"),
    (lambda: linalg.eigh(tensor(A23[:1])), ShapeError, "eigh: matrices must be square, got f32[1,3]"),
    (lambda: linalg.det(tensor(A23)), ShapeError, "det: matrices must be square, got f32[2,3]"),
    (lambda: linalg.slogdet(tensor(A23)), ShapeError, "slogdet: matrices must be square, got f32[2,3]"),
    (lambda: linalg.eigvals(tensor(A23)), ShapeError, "eigvals: matrices must be square, got f32[2,3]"),
    (lambda: linalg.matrix_exp(tensor(A23)), ShapeError, "matrix_exp: matrices must be square, got f32[2,3]"),
    (
        lambda: linalg.matrix_power(tensor(A23), 2),
        ShapeError,
        "matrix_power: must be a square matrix or a batch of them, got f32[2,3]",
    ),
    (
        lambda: linalg.svd(tensor(A23[0])),
        ShapeError,
        "svd: must be a matrix or a batch of matrices, got f32[3]",
    ),
    (
        lambda: linalg.qr(tensor(A23[0])),
        ShapeError,
        "qr: must be a matrix or a batch of matrices, got f32[3]",
    ),
    (
        lambda: linalg.pinv(tensor(A23[0])),
        ShapeError,
        "pinv: must be a matrix or a batch of matrices, got f32[3]",
    ),
    (
        lambda: linalg.matrix_norm(tensor(A23[0])),
        ShapeError,
        "matrix_norm: must be a matrix or a batch of matrices, got f32[3]",
    ),
    (
        lambda: linalg.solve(tensor(np.eye(2)), tensor(np.ones((3, 1)))),
        ShapeError,
        "solve: both sides must have as many rows, got f64[2,2] and f64[3,1] (2 vs 3)",
    ),
    (
        lambda: linalg.solve(tensor(np.ones((2, 2, 2))), tensor(np.ones((3, 2, 1)))),
        ShapeError,
        "solve: shapes must broadcast together",
    ),
    (
        lambda: linalg.lstsq(tensor(A23), tensor(A23.T)),
        ShapeError,
        "lstsq: both sides must have as many rows, got f32[2,3] and f32[3,2]",
    ),
    (
        lambda: linalg.cross(tensor(A22), tensor(A22)),
        ShapeError,
        "cross: vectors must have 3 elements along the axis, got f32[2,2] and f32[2,2], axis 1",
    ),
    (
        lambda: linalg.cross(tensor(A23), tensor(A23), axis=2),
        AxisError,
        "cross: axis must be in -2..1 for rank 2, got 2",
    ),
    (
        lambda: linalg.multi_dot([tensor(A23), tensor(A23[None])]),
        ShapeError,
        "multi_dot: must be a chain of matrices, got f32[1,2,3] at place 1",
    ),
    (lambda: linalg.multi_dot([]), ArgumentError, "multi_dot: at least one tensor is needed, got none"),
    (
        lambda: linalg.inv(tensor(A22).astype(HALF)),
        DtypeError,
        "inv: dtype must be one of float32, float64, complex64, complex128, got float16",
    ),
    (
        lambda: linalg.svd(tensor(A22).astype(weft.bfloat16)),
        DtypeError,
        "svd: dtype must be one of float32, float64, complex64, complex128, got bfloat16",
    ),
    (
        lambda: linalg.cholesky(tensor(A22).astype(HALF)),
        DtypeError,
        "cholesky: dtype must be one of float32, float64, complex64, complex128, got float16",
    ),
    (
        lambda: linalg.qr(tensor(A22).astype(HALF)),
        DtypeError,
        "qr: dtype must be one of float32, float64, complex64, complex128, got float16",
    ),
    (
        lambda: linalg.det(tensor(A22).astype(HALF)),
        DtypeError,
        "det: dtype must be one of float32, float64, complex64, complex128, got float16",
    ),
    (
        lambda: linalg.qr(tensor(A22), mode="r"),
        DomainError,
        "qr: mode must be 'reduced' or 'complete', got 'r'",
    ),
    (
        lambda: linalg.matrix_norm(tensor(A22), ord=3),
        DomainError,
        "matrix_norm: ord must be one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf, got 3",
    ),
    (
        lambda: linalg.vector_norm(tensor(A22), ord="fro"),
        ArgumentError,
        "vector_norm: ord must be a number, got 'fro'",
    ),
    (
        lambda: linalg.vector_norm(tensor(A22), axis=2),
        AxisError,
        "vector_norm: axis must be in -2..1 for rank 2, got 2",
    ),
    (
        lambda: linalg.norm(tensor(A22[None]), 1),
        ShapeError,
        "norm: with an ord and no axis must be a vector or a matrix, got f32[1,2,2]",
    ),
    (
        lambda: linalg.norm(tensor(A22[None]), axis=(0, 1, 2)),
        ArgumentError,
        "norm: axis must be one or two axes, got (0, 1, 2)",
    ),
    (lambda: linalg.matrix_power(tensor(A22), 1.5), ArgumentError, "matrix_power: n must be an int, got 1.5"),
    (lambda: linalg.inv([[1.0]]), ArgumentError, "inv: inputs must be tensors, got list"),
    (lambda: linalg.svd(tensor(A22), full=True), ArgumentError, "svd: unknown keyword 'full'"),
    (
        lambda: linalg.pinv(tensor(A22), rtol="small"),
        ArgumentError,
        "pinv: rtol must be a number or a tensor, got 'small'",
    ),
    (
        lambda: linalg.tensorinv(tensor(A23)),
        ShapeError,
        "tensorinv: the first 2 axes must have as many elements as the others, got f32[2,3]",
    ),
    (
        lambda: linalg.tensorsolve(tensor(A23), tensor(A22)),
        ShapeError,
        "tensorsolve: a must have the shape of b, then as many elements again",
    ),
]


@pytest.mark.parametrize(
    ("call", "kind", "text"), ERRORS, ids=[text.partition(",")[0] for _, _, text in ERRORS]
)
def test_error_says_what_must_hold_and_what_was_got(
    call: Callable[[], Any], kind: type[WeftError], text: str
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).splitlines()[0].startswith(text)
