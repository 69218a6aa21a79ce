"""Eigenvalues and eigenvectors, of Hermitian and of general matrices.

Vectors are determined up to a phase (a sign, if real), and where values coincide up to a rotation. So
gradients hold for functions that do not depend on that choice. Where values coincide the gradient by
the vectors does not exist and is NaN; the gradient by the values alone always exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import complex_dtype, real_dtype
from weft.base.public import public
from weft.base.records import NamedTuple
from weft.errors import DomainError
from weft.ir.types import TensorType
from weft.ops.contract import adjoint
from weft.ops.factors import of_matrices
from weft.ops.families import primitive
from weft.ops.linalg.common import (
    check_square,
    decompose,
    differences,
    floating,
    hermitian_part,
    inverse_gaps,
    is_unused,
    positive_definite,
    scale_columns,
    scale_rows,
    well_conditioned,
)
from weft.ops.linalg.systems import solve_system
from weft.ops.op import Array, Sample, Tensor, type_of
from weft.ops.public import published
from weft.ops.samples import real_array
from weft.ops.select import cast
from weft.ops.view.padding import diag_embed, diagonal


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Eigenvalues in no particular order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


# Hermitian matrices


def _eigh_type(x: TensorType) -> tuple[TensorType, TensorType]:
    check_square("eigh", x)
    return TensorType(x.shape[:-1], real_dtype(x.dtype)), x


def _hermitian_eval(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Array) -> Any:
        check_square(op, type_of(x))  # before the Hermitian part, which broadcasts
        return decompose(op, function, hermitian_part(x))

    return run


def _eigh_vjp(g: Tensor, outs: Sequence[Tensor]) -> tuple[Tensor]:
    (gw, gv), (w, v) = g, outs
    vh = adjoint(v)
    inner = (vh @ gv) * inverse_gaps(differences(w), is_unused(gv))
    return (hermitian_part(v @ (diag_embed(gw) + inner) @ vh),)


def _hermitian_samples(vectors: bool) -> list[Sample]:
    return [
        Sample((positive_definite((3, 3)),)),
        Sample((positive_definite((2, 1, 3, 3)),)),
        Sample((positive_definite((3, 3), complex=True),), smooth=not vectors),
        Sample((positive_definite((1, 1)).T,)),
        Sample((real_array((0, 0)),)),
        Sample((real_array((0, 2, 2)),)),
        Sample((positive_definite((3, 3)).astype(np.float32),), smooth=False),
    ]


eigh_decompose = primitive(
    "eigh",
    type_rule=_eigh_type,
    eval=_hermitian_eval("eigh", np.linalg.eigh),
    vjp=_eigh_vjp,
    outputs=2,
    factors=of_matrices,
    samples=lambda: _hermitian_samples(vectors=True),
    host=True,
    raises=DomainError,
)


def _eigvalsh_vjp(g: Tensor, x: Tensor) -> Tensor:
    _, v = eigh_decompose(x)
    return scale_columns(v, g) @ adjoint(v)


def _eigvalsh_type(x: TensorType) -> TensorType:
    check_square("eigvalsh", x)
    return TensorType(x.shape[:-1], real_dtype(x.dtype))


hermitian_eigenvalues = primitive(
    "eigvalsh",
    type_rule=_eigvalsh_type,
    eval=_hermitian_eval("eigvalsh", np.linalg.eigvalsh),
    vjp=(_eigvalsh_vjp,),
    factors=of_matrices,
    samples=lambda: _hermitian_samples(vectors=False),
    host=True,
    raises=DomainError,
)


@public
def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of a Hermitian matrix: ``x = V @ diag(w) @ V^H``.

    A matrix that is not quite Hermitian stands for its Hermitian part. Gradients by the eigenvectors hold
    for functions that do not depend on their phases, and where all eigenvalues differ.

    >>> import weft
    >>> w, v = weft.linalg.eigh(weft.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> w
    tensor([1., 3.])
    """
    return EighResult(*eigh_decompose(*floating("eigh", x)))


@published("weft.linalg.eigvalsh(weft.tensor([[2.0, 1.0], [1.0, 2.0]])) -> tensor([1., 3.])")
def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of a Hermitian matrix, ascending."""
    return hermitian_eigenvalues(*floating("eigvalsh", x))


# General square matrices


def _eig(x: Array) -> tuple[Array, Array]:
    check_square("eig", type_of(x))
    w, v = decompose("eig", np.linalg.eig, x)
    return w.astype(complex_dtype(x.dtype)), v.astype(complex_dtype(x.dtype))


def _eig_type(x: TensorType) -> tuple[TensorType, TensorType]:
    check_square("eig", x)
    dtype = complex_dtype(x.dtype)
    return TensorType(x.shape[:-1], dtype), TensorType(x.shape, dtype)


def _eig_vjp(g: Tensor, outs: Sequence[Tensor], x_type: TensorType) -> tuple[Tensor]:
    """As for a Hermitian matrix, but V is not unitary and its columns are kept at length 1.

    C. Boeddeker et al., On the computation of complex-valued gradients, arXiv:1701.00392.
    """
    (gw, gv), (w, v) = g, outs
    vh = adjoint(v)
    along = vh @ gv
    lengths = cast(diagonal(along), dtype=real_dtype(v.dtype))
    across = along - scale_columns(vh @ v, lengths)
    inner = across * inverse_gaps(differences(w), is_unused(gv)).conj()
    full = solve_system(vh, (diag_embed(gw) + inner) @ vh)
    return (cast(full, dtype=x_type.dtype),)


def _general_samples(vectors: bool) -> list[Sample]:
    rotation = np.array([[1.0, -2.0, 0.1], [0.5, 1.0, 0.3], [0.2, 0.1, 2.0]])
    return [
        Sample((rotation,), smooth=not vectors),
        Sample((well_conditioned((2, 3, 3)) + np.diag([0.0, 3.0, 7.0]),)),
        Sample((well_conditioned((3, 3), complex=True),), smooth=not vectors),
        Sample((real_array((0, 0)),)),
        Sample((rotation.astype(np.float32).T,), smooth=False),
    ]


eig_decompose = primitive(
    "eig",
    type_rule=_eig_type,
    eval=_eig,
    vjp=_eig_vjp,
    outputs=2,
    factors=of_matrices,
    samples=lambda: _general_samples(vectors=True),
    host=True,
    raises=DomainError,
)


def _eigvals(x: Array) -> Array:
    check_square("eigvals", type_of(x))
    w: Array = decompose("eigvals", np.linalg.eigvals, x)
    return w.astype(complex_dtype(x.dtype))


def _eigvals_type(x: TensorType) -> TensorType:
    check_square("eigvals", x)
    return TensorType(x.shape[:-1], complex_dtype(x.dtype))


def _eigvals_vjp(g: Tensor, x: Tensor) -> Tensor:
    _, v = eig_decompose(x)
    vh = adjoint(v)
    return cast(solve_system(vh, scale_rows(g, vh)), dtype=x.dtype)


eigenvalues_of = primitive(
    "eigvals",
    type_rule=_eigvals_type,
    eval=_eigvals,
    vjp=(_eigvals_vjp,),
    factors=of_matrices,
    samples=lambda: _general_samples(vectors=False),
    host=True,
    raises=DomainError,
)


@public
def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of a square matrix: ``x @ V = V @ diag(w)``, always complex.

    Gradients by the eigenvectors hold for functions that do not depend on their phases, and where all
    eigenvalues differ.

    >>> import weft
    >>> w, v = weft.linalg.eig(weft.tensor([[0.0, -1.0], [1.0, 0.0]]))
    >>> sorted(w.imag.tolist())
    [-1.0, 1.0]
    """
    return EigResult(*eig_decompose(*floating("eig", x)))


@public
def eigvals(x: Tensor, /) -> Tensor:
    """The eigenvalues of a square matrix, in no particular order and always complex.

    >>> import weft
    >>> sorted(weft.linalg.eigvals(weft.tensor([[0.0, -1.0], [1.0, 0.0]])).imag.tolist())
    [-1.0, 1.0]
    """
    return eigenvalues_of(*floating("eigvals", x))
