"""Determinants. The gradient of ``det`` is its matrix of cofactors, which a singular matrix has too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base.dtypes import bool_, int64, kind, real_dtype
from weft.base.records import NamedTuple
from weft.ir.types import TensorType
from weft.ops.compare import equal, logical_or
from weft.ops.contract import adjoint, transpose_last
from weft.ops.factors import of_matrices
from weft.ops.families import primitive
from weft.ops.linalg.common import (
    as_matrices,
    check_square,
    floating,
    scale_columns,
    square_type,
    well_conditioned,
)
from weft.ops.linalg.kernels import cofactor_matrix
from weft.ops.linalg.svd import svd_decompose
from weft.ops.linalg.systems import invert
from weft.ops.op import Array, Op, Sample, Tensor, type_of
from weft.ops.public import published
from weft.ops.reduce import prod
from weft.ops.samples import real_array
from weft.ops.select import select
from weft.ops.size import count_to, positions, unit_matrix
from weft.ops.view.padding import diag_embed, diagonal
from weft.ops.view.primitives import reshape


class SlogdetResult(NamedTuple):
    """The sign (a complex number of length 1, if complex) and the logarithm of the absolute value."""

    sign: Tensor
    logabsdet: Tensor


def _det_type(x: TensorType) -> TensorType:
    check_square("det", x)
    return TensorType(x.shape[:-2], x.dtype)


def _with_rank(n: int, rank: int) -> Array:
    """A square matrix of a rank."""
    values = np.where(np.arange(n) < rank, np.arange(n) + 1.0, 0.0)
    q, r = np.linalg.qr(real_array((n, n), seed=3))[0], np.linalg.qr(real_array((n, n), seed=4))[0]
    out: Array = (q * values) @ r
    return out


def _det_samples(smooth: bool = True) -> list[Sample]:
    """Some of them singular; ``smooth`` tells of those whose singular values coincide."""
    return [
        Sample((well_conditioned((3, 3)),)),
        Sample((well_conditioned((2, 1, 2, 2)),)),
        Sample((well_conditioned((3, 3), complex=True).T,)),
        Sample((_with_rank(4, 3),)),
        Sample((_with_rank(4, 2),), smooth=smooth),
        Sample((np.zeros((2, 2)),), smooth=smooth),
        Sample((np.ones((1, 1)),)),
        Sample((real_array((0, 0)),)),
        Sample((real_array((0, 2, 2)),)),
        Sample((well_conditioned((3, 3)).astype(np.float32),), smooth=False),
    ]


determinant = primitive(
    "det",
    type_rule=_det_type,
    eval=lambda x: np.linalg.det(x),
    vjp=(lambda g, x: as_matrices(g) * cofactors(x).conj(),),
    factors=of_matrices,
    samples=_det_samples,
    host=True,
)


def _cofactors(x: Array) -> Array:
    check_square("cofactors", type_of(x))
    return cofactor_matrix(x)


def _cofactors_vjp(g: Tensor, x: Tensor) -> Tensor:
    """The second derivative of det, taken where x is diagonal: between its singular vectors.

    ``det(S + B)`` has the terms ``p[i, j] (B[i, i] B[j, j] - B[i, j] B[j, i])`` of second order in B, where
    p is the product of all singular values but i and j.
    """
    u, s, vh = svd_decompose(x, full_matrices=True)
    n = s.shape[-1]
    here = count_to(n, int64)
    left_out = logical_or(equal(here, positions(n, 2)), equal(here, positions(n, 1)))
    p = prod(select(left_out, np.ones((), s.dtype), reshape(s, shape=(*s.shape[:-1], 1, 1, n))), axis=-1)
    p = select(unit_matrix(n, bool_), np.zeros((), s.dtype), p)
    b = transpose_last(u) @ g @ transpose_last(vh)
    inner = diag_embed(scale_columns(p, diagonal(b)).sum(axis=-1)) - p * transpose_last(b)
    return as_matrices(determinant(u @ vh).conj()) * (u @ inner @ vh)


cofactors: Op = primitive(
    "cofactors",
    type_rule=square_type("cofactors"),
    eval=_cofactors,
    vjp=(_cofactors_vjp,),
    factors=of_matrices,
    samples=lambda: _det_samples(smooth=False),
    host=True,
)


@published("weft.linalg.det(weft.tensor([[3.0, 1.0], [2.0, 4.0]])) -> tensor(10.)")
def det(x: Tensor, /) -> Tensor:
    """The determinant."""
    return determinant(*floating("det", x))


# The logarithm


def _slogdet_type(x: TensorType) -> tuple[TensorType, TensorType]:
    check_square("slogdet", x)
    lead = x.shape[:-2]
    return TensorType(lead, x.dtype), TensorType(lead, real_dtype(x.dtype))


def _slogdet_vjp(g: Tensor, x: Tensor, outs: Sequence[Tensor]) -> tuple[Tensor]:
    g_sign, factor = g
    if kind(x.dtype) == "c":
        turn = g_sign * outs[0].conj()
        factor = factor + (turn - turn.conj()) / 2
    return (as_matrices(factor) * adjoint(invert(x)),)


slogdet_parts = primitive(
    "slogdet",
    type_rule=_slogdet_type,
    eval=lambda x: tuple(np.linalg.slogdet(x)),
    vjp=_slogdet_vjp,
    outputs=2,
    factors=of_matrices,
    samples=lambda: [
        Sample((well_conditioned((3, 3)),)),
        Sample((well_conditioned((2, 2, 2)),)),
        Sample((well_conditioned((3, 3), complex=True),)),
        Sample((well_conditioned((3, 3)).T,)),
        Sample((real_array((0, 0)),)),
        Sample((well_conditioned((3, 3)).astype(np.float32),), smooth=False),
    ],
    host=True,
)


@published("weft.linalg.slogdet(weft.tensor([[-1.0, 0.0], [0.0, 1.0]])).sign -> tensor(-1.)")
def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its absolute value, where itself would overflow.

    Of a singular matrix they are 0 and minus infinity, and have no gradient.
    """
    return SlogdetResult(*slogdet_parts(*floating("slogdet", x)))
