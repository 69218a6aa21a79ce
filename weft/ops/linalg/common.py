"""What the ops of linear algebra share: checks, errors, scaling by a diagonal, and matrices for tests.

Matrices are the last two axes; all axes before them are a batch. Decompositions compute in float32,
float64, complex64 and complex128. Half precisions are refused, as LAPACK has none and to compute in
another precision is for the user to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, complex64, complex128, default_float, float32, float64, kind
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.contract import adjoint
from weft.ops.op import Array, Tensor, type_of
from weft.ops.reduce import all as reduce_all
from weft.ops.samples import complex_array, real_array
from weft.ops.select import cast, same_dtype, select
from weft.ops.size import unit_matrix
from weft.ops.view.primitives import reshape

PRECISIONS = (float32, float64, complex64, complex128)

# Checks


def check_dtype(op: str, x: TensorType) -> None:
    """Raise unless the dtype is one that decompositions and transforms compute in."""
    if x.dtype not in PRECISIONS:
        names = ", ".join(d.name for d in PRECISIONS)
        hint = "cast with .astype(weft.float32)" if kind(x.dtype) == "f" else None
        raise DtypeError(op, f"dtype must be one of {names}, got {x.dtype.name}", hint=hint)


def check_matrix(op: str, x: TensorType) -> None:
    """Raise unless x is a matrix or a batch of them, in a dtype that can be decomposed."""
    if x.ndim < 2:
        raise ShapeError(op, f"must be a matrix or a batch of matrices, got {x}")
    check_dtype(op, x)


def check_square(op: str, x: TensorType) -> None:
    """Raise unless x is a square matrix or a batch of them, in a dtype that can be decomposed."""
    check_matrix(op, x)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(op, f"matrices must be square, got {x}")


def check_finite(op: str, x: Array) -> None:
    """Raise if an element is NaN or infinite: LAPACK's iterations would fail, or give numbers still."""
    if not np.isfinite(x).all():
        raise infinite_error(op, type_of(x))


def infinite_error(op: str, kind: TensorType) -> DomainError:
    """The error for elements that are NaN or infinite."""
    return DomainError(op, f"elements must be finite, got {kind} with NaN or infinity in it")


def square_type(op: str) -> Callable[..., TensorType]:
    """The type rule of an op from square matrices to matrices of the same type."""

    def rule(x: TensorType, **attrs: object) -> TensorType:
        check_square(op, x)
        return x

    return rule


def floating(op: str, *inputs: Tensor) -> list[Tensor]:
    """Inputs in their common dtype; integers and truth values become floats."""
    for x in inputs:
        if not hasattr(x, "dtype"):
            raise ArgumentError(
                op,
                f"inputs must be tensors, got {type(x).__name__}",
                hint="make it one with weft.tensor(...)",
            )
    same = same_dtype(op, *inputs)
    return [cast(x, dtype=default_float()) for x in same] if kind(same[0].dtype) in "biu" else same


def culprit(x: Array, attempt: Callable[[Array], Any]) -> tuple[Array, str]:
    """The first matrix of a batch for which an attempt fails, and words for where it is."""
    for index in np.ndindex(x.shape[:-2]):
        try:
            attempt(x[index])
        except np.linalg.LinAlgError:
            where = f"matrix {', '.join(map(str, index))} of {type_of(x)}" if index else str(type_of(x))
            return x[index], where
    return x, str(type_of(x))


def singular(op: str, x: Array) -> DomainError:
    """The error for a matrix that has no inverse, or the one for a type that does not fit."""
    check_square(op, type_of(x))
    _, where = culprit(x, np.linalg.inv)
    return singular_error(op, where)


def singular_error(op: str, where: str) -> DomainError:
    """The error for a matrix that has no inverse, with words for where it is."""
    return DomainError(
        op,
        f"matrices must be invertible, got a singular one ({where})",
        hint="weft.linalg.pinv and lstsq take any matrix",
    )


def indefinite_error(found: str, where: str) -> DomainError:
    """The error for a matrix that is not positive definite, with words for what was found, and where."""
    return DomainError(
        "cholesky",
        f"matrices must be positive definite, got {found} ({where})",
        hint="if rounding made it so, add a small multiple of the identity",
    )


# Parts of matrices


def hermitian_part(x: Any) -> Any:
    """``(x + x^H) / 2``."""
    return (x + adjoint(x)) / 2


_BLOCK = 128  # rows and columns that are turned while they are in a cache


def write_lower_hermitian(out: Array, x: Array) -> None:
    """Write ``(x + x^H) / 2`` on and below the diagonal; above it, out holds anything.

    >>> import numpy as np
    >>> from weft.ops.linalg.common import write_lower_hermitian
    >>> out = np.zeros((2, 2))
    >>> write_lower_hermitian(out, np.array([[2.0, 1.0], [3.0, 4.0]]))
    >>> out[1].tolist()
    [2.0, 4.0]
    """
    n = x.shape[-1]
    for i in range(0, n, _BLOCK):
        for j in range(0, i + 1, _BLOCK):
            rows, columns = slice(i, i + _BLOCK), slice(j, j + _BLOCK)
            part = out[..., rows, columns]
            np.conjugate(np.swapaxes(x[..., columns, rows], -1, -2), out=part)
            part += x[..., rows, columns]
            part /= 2


def scale_rows(v: Tensor, x: Tensor) -> Tensor:
    """``diag(v) @ x``."""
    return reshape(v, shape=(*v.shape, 1)) * x


def scale_columns(x: Tensor, v: Tensor) -> Tensor:
    """``x @ diag(v)``."""
    return x * reshape(v, shape=(*v.shape[:-1], 1, v.shape[-1]))


def as_matrices(v: Tensor) -> Tensor:
    """Numbers as matrices of one row and one column, to multiply whole matrices with."""
    return reshape(v, shape=(*v.shape, 1, 1))


# Iterations for values and vectors; gradients by vectors divide by the distances between values


def decompose(op: str, function: Callable[..., Any], x: Array, **options: object) -> Any:
    """Run one of NumPy's iterations, with errors in weft's terms; the type is right."""
    check_finite(op, x)
    try:
        return function(x, **options)
    except np.linalg.LinAlgError as error:
        raise DomainError(
            op, f"the iteration must converge, got {type_of(x)} where it does not ({error})"
        ) from None


def is_unused(g: Tensor) -> Tensor:
    """Whether the gradient by a matrix is all zero, for each of a batch."""
    return as_matrices(reduce_all(g == 0, axis=(-2, -1)))


def inverse_of(x: Tensor, unused: object) -> Tensor:
    """``1 / x``; where x is 0, NaN, or 0 if nothing depends on it."""
    zero = x == 0
    filler = select(unused, np.zeros((), x.dtype), np.full((), np.nan, x.dtype))
    return select(zero, filler, 1 / select(zero, np.ones((), x.dtype), x))


def inverse_gaps(gaps: Tensor, unused: object) -> Tensor:
    """``1 / gaps`` off the diagonal, 0 on it."""
    return select(unit_matrix(gaps.shape[-1], bool_), np.zeros((), gaps.dtype), inverse_of(gaps, unused))


def differences(v: Tensor) -> Tensor:
    """The matrix of ``v[j] - v[i]``."""
    return reshape(v, shape=(*v.shape[:-1], 1, v.shape[-1])) - reshape(v, shape=(*v.shape, 1))


# Matrices for the generated tests


def well_conditioned(shape: Sequence[int], *, seed: int = 0, complex: bool = False) -> Array:
    """Matrices with distinct singular values between about 1 and 3."""
    make = complex_array if complex else real_array
    u, s, vh = np.linalg.svd(make(shape, seed=seed), full_matrices=False)
    out: Array = (u * np.linspace(3.0, 1.0, s.shape[-1])) @ vh
    return out


def positive_definite(shape: Sequence[int], *, seed: int = 0, complex: bool = False) -> Array:
    """Hermitian matrices with distinct positive eigenvalues."""
    x = well_conditioned(shape, seed=seed, complex=complex)
    out: Array = x @ x.swapaxes(-1, -2).conj()
    return out
