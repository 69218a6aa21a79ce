"""The singular value decomposition.

Singular vectors are determined up to a phase (a sign, if real), and where values coincide up to a
rotation: gradients are as those of eigenvectors, see ``eigen``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import kind, real_dtype
from weft.base.records import NamedTuple
from weft.base.size_bounds import size_min
from weft.errors import DomainError
from weft.ir.types import TensorType
from weft.ops.contract import adjoint, transpose_last
from weft.ops.factors import of_matrices
from weft.ops.families import primitive
from weft.ops.linalg.common import (
    check_matrix,
    decompose,
    differences,
    floating,
    inverse_gaps,
    inverse_of,
    is_unused,
    scale_columns,
    scale_rows,
    well_conditioned,
)
from weft.ops.linalg.factorisations import fold_complement
from weft.ops.op import Array, Sample, Tensor, type_of
from weft.ops.public import published
from weft.ops.samples import real_array
from weft.ops.select import select
from weft.ops.view.padding import diag_embed, diagonal
from weft.ops.view.primitives import reshape
from weft.ops.view.slices import slice_axis


class SVDResult(NamedTuple):
    """The factors of ``U @ diag(S) @ Vh``."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _svd_type(x: TensorType, *, full_matrices: bool) -> tuple[TensorType, ...]:
    check_matrix("svd", x)
    *lead, m, n = x.shape
    k = size_min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    values = TensorType((*lead, k), real_dtype(x.dtype))
    return TensorType((*lead, m, rows), x.dtype), values, TensorType((*lead, columns, n), x.dtype)


def _svd(x: Array, *, full_matrices: bool) -> Any:
    check_matrix("svd", type_of(x))
    return decompose("svd", np.linalg.svd, x, full_matrices=full_matrices)


def _svd_vjp(g: Tensor, outs: Sequence[Tensor], full_matrices: bool) -> tuple[Tensor]:
    (gu, gs, gvh), (u, s, vh) = g, outs
    gv, v, k = adjoint(gvh), adjoint(vh), s.shape[-1]
    if full_matrices:
        gu, gv = (fold_complement(grad, x, k) for grad, x in ((gu, u), (gv, v)))
        u, v = (slice_axis(x, x.ndim - 1, 0, k) for x in (u, v))
    return (_reduced_svd_vjp(gu, gs, gv, u, s, v),)


def _reduced_svd_vjp(gu: Tensor, gs: Tensor, gv: Tensor, u: Tensor, s: Tensor, v: Tensor) -> Tensor:
    """J. Townsend, Differentiating the singular value decomposition (2016), and its complex case.

    Within the spans of U and V the rotations of both sides and the values change; where x is tall or
    wide, U or V can also turn out of its span.
    """
    no_u, no_v = is_unused(gu), is_unused(gv)
    uh_gu, vh_gv = adjoint(u) @ gu, adjoint(v) @ gv
    sums = reshape(s, shape=(*s.shape[:-1], 1, s.shape[-1])) + reshape(s, shape=(*s.shape, 1))
    gaps = differences(s) * sums
    turn_u = (uh_gu - adjoint(uh_gu)) * inverse_gaps(gaps, no_u)
    turn_v = (vh_gv - adjoint(vh_gv)) * inverse_gaps(gaps, no_v)
    inner = scale_columns(turn_u, s) + scale_rows(s, turn_v) + diag_embed(gs)
    column = reshape(s, shape=(*s.shape, 1))
    if kind(u.dtype) == "c":
        phase = diagonal(uh_gu - vh_gv)
        quarter = (phase - phase.conj()) / 4
        inner = inner + diag_embed(quarter * reshape(inverse_of(column, no_u & no_v), shape=s.shape))
    vh = adjoint(v)
    out = u @ inner @ vh
    if u.shape[-2] != s.shape[-1]:
        out = out + (gu - u @ uh_gu) @ (inverse_of(column, no_u) * vh)
    if v.shape[-2] != s.shape[-1]:
        out = out + (u * transpose_last(inverse_of(column, no_v))) @ adjoint(gv - v @ vh_gv)
    return out


def _svd_samples() -> list[Sample]:
    cases = [
        ((3, 3), False, False),
        ((2, 4, 2), False, False),
        ((2, 3), False, False),
        ((4, 2), False, True),
        ((3, 2), True, False),
        ((2, 3), True, True),
    ]
    return [
        *(
            Sample((well_conditioned(shape, complex=complex),), {"full_matrices": full}, smooth=not complex)
            for shape, full, complex in cases
        ),
        Sample((real_array((3, 0)),), {"full_matrices": False}),
        Sample((real_array((0, 2, 3)),), {"full_matrices": True}),
        Sample((well_conditioned((3, 2)).T.astype(np.float32),), {"full_matrices": False}, smooth=False),
    ]


svd_decompose = primitive(
    "svd",
    type_rule=_svd_type,
    eval=_svd,
    vjp=_svd_vjp,
    outputs=3,
    factors=of_matrices,
    samples=_svd_samples,
    host=True,
    raises=DomainError,
)


def _svdvals_type(x: TensorType) -> TensorType:
    check_matrix("svdvals", x)
    return TensorType((*x.shape[:-2], size_min(*x.shape[-2:])), real_dtype(x.dtype))


def _svdvals(x: Array) -> Any:
    check_matrix("svdvals", type_of(x))
    return decompose("svdvals", np.linalg.svd, x, compute_uv=False)


def _svdvals_vjp(g: Tensor, x: Tensor, out: Tensor) -> Tensor:
    """``U diag(g) V^H``; a singular value of 0 is where the sign of a number would turn, and counts as 0."""
    u, _, vh = svd_decompose(x, full_matrices=False)
    return scale_columns(u, select(out == 0, np.zeros((), g.dtype), g)) @ vh


singular_values = primitive(
    "svdvals",
    type_rule=_svdvals_type,
    eval=_svdvals,
    vjp=(_svdvals_vjp,),
    factors=of_matrices,
    samples=lambda: [
        Sample((well_conditioned((3, 3)),)),
        Sample((well_conditioned((2, 4, 2)),)),
        Sample((well_conditioned((2, 3), complex=True),)),
        Sample((well_conditioned((3, 2)).T,)),
        Sample((real_array((0, 3)),)),
        Sample((np.zeros((2, 2)),), smooth=False),
    ],
    host=True,
    raises=DomainError,
)


@published("weft.linalg.svd(weft.tensor([[3.0, 0.0], [0.0, 4.0]])).S -> tensor([4., 3.])")
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular value decomposition ``x = U @ diag(S) @ Vh``, singular values descending.

    With ``full_matrices`` U and Vh are square, else they have as many columns and rows as there are
    singular values. Gradients by U and Vh hold for functions that do not depend on the choice of phases
    (nor on that of the additional vectors), and where all singular values differ.
    """
    return SVDResult(*svd_decompose(*floating("svd", x), full_matrices=bool(full_matrices)))


@published("weft.linalg.svdvals(weft.tensor([[3.0, 0.0], [0.0, 4.0]])) -> tensor([4., 3.])")
def svdvals(x: Tensor, /) -> Tensor:
    """The singular values, descending."""
    return singular_values(*floating("svdvals", x))
