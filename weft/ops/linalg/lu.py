"""The LU factorisation with row pivots."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from weft.base.public import public
from weft.base.size_bounds import lower_bound, size_min
from weft.ir.types import TensorType
from weft.ops.contract import adjoint
from weft.ops.factors import of_matrices
from weft.ops.families import primitive
from weft.ops.linalg.common import check_matrix, floating, well_conditioned
from weft.ops.linalg.systems import triangular_solve
from weft.ops.op import Array, Sample, Tensor
from weft.ops.samples import real_array
from weft.ops.view.padding import tril, triu
from weft.ops.view.primitives import join
from weft.ops.view.slices import pad_axes, slice_axis


class LUResult(NamedTuple):
    """The factors that ``lu`` returns."""

    P: Tensor
    L: Tensor
    U: Tensor


def _lu_type(x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    check_matrix("lu", x)
    *lead, m, n = x.shape
    k = size_min(m, n)
    shapes = ((*lead, m, m), (*lead, m, k), (*lead, k, n))
    p, lower, upper = (TensorType(s, x.dtype) for s in shapes)
    return p, lower, upper


def _lu(x: Array) -> tuple[Array, Array, Array]:
    """Column after column, all matrices of a stack at once; of each the largest element is the pivot."""
    check_matrix("lu", TensorType(x.shape, x.dtype))
    *lead, m, n = x.shape
    k = min(m, n)
    a = np.array(x).reshape(prod(lead), m, n)
    order = np.broadcast_to(np.arange(m), (len(a), m)).copy()
    stack = np.arange(len(a))
    for i in range(k):
        pivot = i + np.abs(a[:, i:, i]).argmax(axis=1)
        a[stack, i], a[stack, pivot] = a[stack, pivot].copy(), a[stack, i].copy()
        order[stack, i], order[stack, pivot] = order[stack, pivot].copy(), order[stack, i].copy()
        head = a[:, i, i]
        a[:, i + 1 :, i] /= np.where(head == 0, 1, head)[:, None]  # below a pivot of 0 all are 0
        a[:, i + 1 :, i + 1 :] -= a[:, i + 1 :, i, None] * a[:, None, i, i + 1 :]
    p = np.zeros((len(a), m, m), x.dtype)
    p[stack[:, None], order, np.arange(m)] = 1
    lower = np.tril(a[:, :, :k], -1) + np.eye(m, k, dtype=x.dtype)
    parts = (p, lower, np.triu(a[:, :k]))
    found = [t.reshape(*lead, *t.shape[1:]) for t in parts]
    return found[0], found[1], found[2]


def _lu_vjp(g: Sequence[Tensor], outs: Sequence[Tensor]) -> tuple[Tensor]:
    """From ``L^-1 P^T dA U^-1 = L^-1 dL + dU U^-1``, a strictly lower and an upper triangular matrix.

    Of a matrix that is not square the part beyond the first rows or columns follows from the others.
    """
    (_, gl, gu), (p, lower, upper) = g, outs
    m, k, n, last = lower.shape[-2], lower.shape[-1], upper.shape[-1], lower.ndim - 1
    top, left = slice_axis(lower, last - 1, 0, k), slice_axis(upper, last, 0, k)
    below = adjoint(top) @ slice_axis(gl, last - 1, 0, k)
    above = slice_axis(gu, last, 0, k) @ adjoint(left)
    rows, columns = slice_axis(lower, last - 1, k, m), slice_axis(upper, last, k, n)
    g_rows, g_columns = slice_axis(gl, last - 1, k, m), slice_axis(gu, last, k, n)
    tall, wide = lower_bound(k - m) != 0, lower_bound(k - n) != 0  # or may be, where sizes have names
    if tall:
        above = above - adjoint(rows) @ g_rows
    if wide:
        below = below - g_columns @ adjoint(columns)
    inner = tril(below, k=-1) + triu(above)
    square: Any = _divided(triangular_solve(adjoint(top), inner, upper=True, unit=True), left)
    if tall:
        square = join(square, _divided(g_rows, left), axis=last - 1)
    if wide:
        beside: Any = triangular_solve(adjoint(top), g_columns, upper=True, unit=True)
        if tall:  # one of both is empty
            none = (0,) * (last - 1)
            beside = pad_axes(
                beside, low=(0,) * (last + 1), high=(*none, m - k, 0), interior=(0,) * (last + 1), value=0
            )
        square = join(square, beside, axis=last)
    return (p @ square,)


def _divided(x: Tensor, upper: Tensor) -> Tensor:
    """``x @ upper^-H``."""
    return adjoint(triangular_solve(upper, adjoint(x), upper=True, unit=False))


lu_factors = primitive(
    "lu",
    type_rule=_lu_type,
    eval=_lu,
    vjp=_lu_vjp,
    outputs=3,
    factors=of_matrices,
    samples=lambda: [
        Sample((well_conditioned((3, 3)),)),
        Sample((well_conditioned((2, 4, 2)),)),
        Sample((well_conditioned((2, 4)),)),
        Sample((well_conditioned((3, 3), complex=True),)),
        Sample((real_array((3, 0)),)),
    ],
    host=True,
)


@public
def lu(x: Tensor, /) -> LUResult:
    """The factors ``x = P L U``: a permutation, a lower triangular one with a diagonal of 1, an upper one.

    >>> import weft
    >>> p, l, u = weft.linalg.lu(weft.tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> p, l, u
    (tensor([[0., 1.],
            [1., 0.]]), tensor([[1.0000, 0.0000],
            [0.2500, 1.0000]]), tensor([[4., 4.],
            [0., 1.]]))
    """
    return LUResult(*lu_factors(*floating("lu", x)))
