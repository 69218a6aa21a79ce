"""Factorisations into triangular matrices: Cholesky and QR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.public import public
from weft.base.records import NamedTuple
from weft.base.size_bounds import lower_bound, size_min
from weft.errors import DomainError
from weft.ir.types import TensorType
from weft.ops.contract import adjoint
from weft.ops.factors import of_matrices
from weft.ops.families import primitive
from weft.ops.linalg.common import (
    check_finite,
    check_matrix,
    check_square,
    culprit,
    floating,
    hermitian_part,
    indefinite_error,
    positive_definite,
    square_type,
    well_conditioned,
)
from weft.ops.linalg.systems import triangular_solve
from weft.ops.op import Array, Sample, Tensor, composite, type_of
from weft.ops.samples import real_array
from weft.ops.view.padding import diag_embed, diagonal, tril, triu
from weft.ops.view.primitives import join
from weft.ops.view.slices import slice_axis


def halve_diagonal(x: Tensor) -> Tensor:
    """x with its diagonal divided by 2."""
    return x - diag_embed(diagonal(x)) / 2


# Cholesky


def _cholesky(x: Array) -> Array:
    check_square("cholesky", type_of(x))
    symmetric = hermitian_part(x)
    try:
        return np.linalg.cholesky(symmetric)
    except np.linalg.LinAlgError:
        raise _indefinite(symmetric) from None


def _indefinite(x: Array) -> DomainError:
    matrix, where = culprit(x, np.linalg.cholesky)
    check_finite("cholesky", matrix)
    smallest = np.linalg.eigvalsh(matrix)[0]
    return indefinite_error(f"one with the eigenvalue {smallest:.4g}", where)


def _cholesky_vjp(g: Tensor, out: Tensor) -> Any:
    """``L^-H Φ(L^H g) L^-1``, where Φ takes the lower triangle and half the diagonal.

    I. Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527.
    """
    upper = adjoint(out)
    left = triangular_solve(upper, halve_diagonal(tril(upper @ g)), upper=True, unit=False)
    return hermitian_part(triangular_solve(upper, adjoint(left), upper=True, unit=False))


cholesky_factor = primitive(
    "cholesky",
    type_rule=square_type("cholesky"),
    eval=_cholesky,
    vjp=(_cholesky_vjp,),
    factors=of_matrices,
    samples=lambda: [
        Sample((positive_definite((3, 3)),)),
        Sample((positive_definite((2, 1, 3, 3)),)),
        Sample((positive_definite((3, 3), complex=True),)),
        Sample((positive_definite((4, 4))[::2, ::2],)),
        Sample((real_array((0, 0)),)),
        Sample((real_array((0, 2, 2)),)),
        Sample((positive_definite((3, 3)).astype(np.float32),), smooth=False),
    ],
    host=True,
    raises=DomainError,
)


@composite(
    "cholesky_upper", samples=lambda: [Sample((positive_definite((3, 3), complex=True),), {"upper": True})]
)
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The lower triangular L with ``x = L @ L^H``, or the upper triangular U with ``x = U^H @ U``.

    x must be Hermitian (symmetric, if real) and positive definite. A matrix that is not quite Hermitian
    stands for its Hermitian part, so that its gradient is Hermitian too.

    >>> import weft
    >>> weft.linalg.cholesky(weft.tensor([[4.0, 2.0], [2.0, 10.0]]))
    tensor([[2., 0.],
            [1., 3.]])
    """
    lower = cholesky_factor(*floating("cholesky", x))
    return adjoint(lower) if upper else lower


# QR


class QRResult(NamedTuple):
    """The factors that ``qr`` returns."""

    Q: Tensor
    R: Tensor


def _qr_type(x: TensorType, *, complete: bool) -> tuple[TensorType, TensorType]:
    check_matrix("qr", x)
    *lead, m, n = x.shape
    k = m if complete else size_min(m, n)
    return TensorType((*lead, m, k), x.dtype), TensorType((*lead, k, n), x.dtype)


def _qr_vjp(g: Tensor, outs: Sequence[Tensor], complete: bool) -> tuple[Tensor]:
    (gq, gr), (q, r) = g, outs
    m, n = q.shape[-2], r.shape[-1]
    last, k = q.ndim - 1, size_min(m, n)
    if complete and lower_bound(k - m) != 0:
        gq = fold_complement(gq, q, k)
        q, r, gr = slice_axis(q, last, 0, k), slice_axis(r, last - 1, 0, k), slice_axis(gr, last - 1, 0, k)
    if lower_bound(k - n) == 0:
        return (_square_or_tall_qr_vjp(gq, gr, q, r),)
    # A wide matrix [A1 A2] has Q R1 = A1 and R2 = Q^H A2; where sizes have names, A2 may be empty.
    gr_left, gr_right = slice_axis(gr, last, 0, k), slice_axis(gr, last, k, n)
    r_left, r_right = slice_axis(r, last, 0, k), slice_axis(r, last, k, n)
    gq = gq + q @ (r_right @ adjoint(gr_right))
    return (join(_square_or_tall_qr_vjp(gq, gr_left, q, r_left), q @ gr_right, axis=last),)


def fold_complement(g: Tensor, q: Tensor, n: int) -> Any:
    """The gradient by the first n columns of a unitary matrix, with that by the others folded into it.

    The other columns span the complement of the first, so any change of them that matters follows from a
    change of the first: ``dQ2 = -Q1 dQ1^H Q2``.
    """
    last, total = q.ndim - 1, q.shape[-1]
    q1, q2 = slice_axis(q, last, 0, n), slice_axis(q, last, n, total)
    g1, g2 = slice_axis(g, last, 0, n), slice_axis(g, last, n, total)
    return g1 - q2 @ (adjoint(g2) @ q1)


def _square_or_tall_qr_vjp(gq: Tensor, gr: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """``(gQ + Q S) R^-H``, S Hermitian with the upper triangle of ``gR R^H - Q^H gQ``; R's diagonal is real.

    S. F. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions, arXiv:1009.6112.
    """
    half = halve_diagonal(triu(gr @ adjoint(r) - adjoint(q) @ gq))
    right = adjoint(gq + q @ (half + adjoint(half)))
    return adjoint(triangular_solve(r, right, upper=True, unit=False))


qr_factors = primitive(
    "qr",
    type_rule=_qr_type,
    eval=lambda x, *, complete: np.linalg.qr(x, "complete" if complete else "reduced"),
    vjp=_qr_vjp,
    outputs=2,
    factors=of_matrices,
    samples=lambda: [
        Sample((well_conditioned((3, 3)),), {"complete": False}),
        Sample((well_conditioned((2, 4, 2)),), {"complete": False}),
        Sample((well_conditioned((2, 4)),), {"complete": False}),
        Sample((well_conditioned((4, 2), complex=True),), {"complete": False}),
        Sample((well_conditioned((2, 3), complex=True),), {"complete": False}),
        Sample((well_conditioned((3, 2)),), {"complete": True}),
        Sample((well_conditioned((2, 3)),), {"complete": True}),
        Sample((real_array((3, 0)),), {"complete": False}),
        Sample((real_array((0, 3)),), {"complete": False}),
    ],
    host=True,
)


@public
def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """A matrix Q with orthonormal columns and an upper triangular R with ``x = Q @ R``.

    The mode "reduced" gives Q as many columns as x has, if there are enough rows; "complete" makes Q
    square. Gradients need linearly independent columns (the first ones, of a wide matrix). Those by the
    additional columns of a complete Q hold for functions that do not depend on how the columns were chosen.

    >>> import weft
    >>> q, r = weft.linalg.qr(weft.tensor([[0.0, 2.0], [3.0, 1.0]]))
    >>> weft.abs(r)
    tensor([[3., 1.],
            [0., 2.]])
    """
    if mode not in ("reduced", "complete"):
        raise DomainError("qr", f"mode must be 'reduced' or 'complete', got {mode!r}")
    return QRResult(*qr_factors(*floating("qr", x), complete=mode == "complete"))
