"""Norms of vectors and matrices, and the condition number. Where a norm is 0 its gradient is 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import float32
from weft.base.shapes import Axes, normalize_axis
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.ops.complex import absolute
from weft.ops.linalg.common import check_square, floating, well_conditioned
from weft.ops.linalg.svd import singular_values
from weft.ops.linalg.systems import invert
from weft.ops.op import Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.reduce import max, min, sum
from weft.ops.samples import real_array
from weft.ops.vector_norm import vector_norm
from weft.ops.view.axes import moveaxis
from weft.ops.view.primitives import reshape

_INFINITE = float("inf")
_MATRIX_ORDERS = ("fro", "nuc", 1, -1, 2, -2, _INFINITE, -_INFINITE)


def _matrix_samples() -> list[Sample]:
    tall = well_conditioned((4, 2))
    return [
        *(Sample((tall,), {"ord": p}) for p in _MATRIX_ORDERS),
        *(Sample((well_conditioned((2, 3, 3)),), {"ord": p, "keepdims": True}) for p in ("fro", "nuc", 1, 2)),
        *(Sample((well_conditioned((2, 3), complex=True),), {"ord": p}) for p in _MATRIX_ORDERS),
        *(Sample((np.zeros((2, 2)),), {"ord": p}, smooth=False) for p in _MATRIX_ORDERS),
        Sample((real_array((0, 3)),), {"ord": 2}),
        Sample((tall.T.astype(float32),), smooth=False),
    ]


@composite(samples=_matrix_samples)
@example("weft.linalg.matrix_norm(weft.tensor([[1.0, -7.0], [2.0, 3.0]]), ord=1) -> tensor(10.)")
def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of matrices: "fro" (Frobenius), "nuc" (nuclear), 1, -1, 2, -2, inf or -inf.

    2 and -2 are the largest and smallest singular value, "nuc" is their sum; 1 and -1 are the largest and
    smallest sum of absolute values in a column, inf and -inf in a row.
    """
    (x,) = floating("matrix_norm", x)
    if x.ndim < 2:
        raise ShapeError("matrix_norm", f"must be a matrix or a batch of matrices, got {type_of(x)}")
    if ord is not None and (isinstance(ord, bool) or ord not in _MATRIX_ORDERS):
        known = ", ".join(map(repr, _MATRIX_ORDERS))
        raise DomainError("matrix_norm", f"ord must be one of {known}, got {ord!r}")
    empty = 0 in x.shape[-2:] and (isinstance(ord, str) or ord is None or ord > 0)
    if ord in ("fro", None) or empty:
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    out = _norm_of_singular_values(x, ord) if ord in ("nuc", 2, -2) else _norm_of_sums(x, ord)
    return reshape(out, shape=(*out.shape, 1, 1)) if keepdims else out


def _norm_of_singular_values(x: Tensor, ord: object) -> Tensor:
    reduction = {"nuc": sum, 2: max, -2: min}[ord]
    return reduction(singular_values(x), axis=-1)


def _norm_of_sums(x: Tensor, ord: float) -> Tensor:
    sums = sum(absolute(x), axis=-2 if abs(ord) == 1 else -1)
    return (max if ord > 0 else min)(sums, axis=-1)


def _norm_samples() -> list[Sample]:
    x = real_array((2, 3, 4))
    return [
        Sample((x,)),
        Sample((x,), {"axis": 1, "ord": 3}),
        Sample((x,), {"axis": (2, 0), "ord": 1, "keepdims": True}),
        Sample((x,), {"axis": (0, 1), "ord": "nuc"}),
        Sample((x[0],), {"ord": _INFINITE}),
        Sample((x[0, 0],), {"ord": 1}),
    ]


@composite("linalg_norm", samples=_norm_samples)
def norm(x: Tensor, /, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The norm of vectors, if ``axis`` is one axis, or of matrices, if it is two.

    Without an axis all of x is one vector; with an ord, x must then be a vector or a matrix.

    >>> import weft
    >>> weft.linalg.norm(weft.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    >>> weft.linalg.norm(weft.tensor([[3.0, 0.0], [0.0, 4.0]]), 2)
    tensor(4.)
    """
    if axis is None:
        if ord is None:
            return vector_norm(x, keepdims=keepdims)
        if x.ndim not in (1, 2):
            raise ShapeError(
                "norm", f"with an ord and no axis must be a vector or a matrix, got {type_of(x)}"
            )
        axis = tuple(range(x.ndim))
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ArgumentError("norm", f"axis must be one or two axes, got {axis!r}")
    out = matrix_norm(moveaxis(x, axes, (-2, -1)), ord="fro" if ord is None else ord)
    if not keepdims:
        return out
    reduced = [normalize_axis("norm", a, x.ndim) for a in axes]
    return reshape(out, shape=tuple(1 if i in reduced else s for i, s in enumerate(x.shape)))


def _cond_samples() -> list[Sample]:
    return [
        Sample((well_conditioned((3, 3)),)),
        Sample((well_conditioned((2, 4, 2)),)),
        *(Sample((well_conditioned((3, 3)),), {"p": p}) for p in _MATRIX_ORDERS),
        Sample((np.array([[1.0, 0.0], [0.0, 0.0]]),), smooth=False),
    ]


@composite("linalg_cond", samples=_cond_samples)
@example("weft.linalg.cond(weft.tensor([[1.0, 0.0], [0.0, 4.0]])) -> tensor(4.)")
def cond(x: Tensor, /, p: Tensor | None = None) -> Tensor:
    """The condition number: the largest singular value over the smallest, infinite for a singular matrix.

    With p = -2 it is the inverse of that. With the p of another ``matrix_norm`` it is the norm times that of
    the inverse, and matrices must be invertible.
    """
    (x,) = floating("cond", x)
    if p is None or p in (2, -2):
        s = singular_values(x)
        large, small = max(s, axis=-1), min(s, axis=-1)
        return small / large if p == -2 else large / small
    check_square("cond", type_of(x))
    return matrix_norm(x, ord=p) * matrix_norm(invert(x), ord=p)
