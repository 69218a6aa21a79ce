"""Products that sum over shared axes: matmul and what is built on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.shapes import broadcast_shapes
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.broadcast import unbroadcast
from weft.ops.elementwise import same_dtype
from weft.ops.families import linear
from weft.ops.op import Sample, type_of
from weft.ops.public import public
from weft.ops.samples import complex_array, real_array
from weft.ops.view import permute, reshape


def transpose_last(x: Any) -> Any:
    """x with its last two axes swapped."""
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return permute(x, axes=axes)


def adjoint(x: Any) -> Any:
    """x with its last two axes swapped, conjugated if it is complex."""
    return transpose_last(x.conj() if x.dtype.kind == "c" else x)


def _matmul_type(x: TensorType, y: TensorType) -> TensorType:
    if x.ndim < 2 or y.ndim < 2:
        raise ShapeError("matmul", f"both sides must have at least two axes, got {x} and {y}")
    if x.dtype != y.dtype:
        raise DtypeError("matmul", f"dtypes must be equal, got {x.dtype.name} and {y.dtype.name}")
    k, n = x.shape[-1], y.shape[-2]
    if k != n:
        hint = "the right side looks transposed; try y.mT" if y.shape[-1] == k else None
        raise ShapeError("matmul", f"inner dimensions must agree, got {x} and {y} ({k} vs {n})", hint=hint)
    lead = broadcast_shapes("matmul", [x.shape[:-2], y.shape[:-2]], (x, y))
    return TensorType((*lead, x.shape[-2], y.shape[-1]), x.dtype)


def _batch_matmul(op: Any, size: int, inputs: Any, axes: Any, attrs: Any) -> Any:
    from weft.ops.batching import batch_elementwise

    return batch_elementwise(op, size, inputs, axes, attrs)


matrix_multiply = linear(
    "matmul",
    type_rule=_matmul_type,
    eval=lambda x, y: np.matmul(x, y),
    transpose=(
        lambda g, y, x_type: unbroadcast(matrix_multiply(g, adjoint(y)), x_type.shape),
        lambda g, x, y_type: unbroadcast(matrix_multiply(adjoint(x), g), y_type.shape),
    ),
    batch=_batch_matmul,
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((3, 4), seed=1))),
        Sample((real_array((5, 2, 3)), real_array((3, 4), seed=1))),
        Sample((real_array((5, 1, 2, 3)), real_array((2, 3, 2), seed=1))),
        Sample((real_array((2, 0)), real_array((0, 4)))),
        Sample((complex_array((2, 3)), complex_array((3, 2), seed=1))),
    ],
)


@public
def matmul(x1: Any, x2: Any, /) -> Any:
    """The matrix product over the last two axes; a vector on either side is a row or a column.

    >>> import weft
    >>> weft.matmul(weft.tensor([[1.0, 2.0]]), weft.tensor([3.0, 4.0]))
    tensor([11.])
    """
    x1, x2 = same_dtype("matmul", x1, x2)
    for side in (x1, x2):
        if side.ndim == 0:
            raise ShapeError("matmul", f"both sides must have at least one axis, got {type_of(x1)} and {type_of(x2)}")
    left = reshape(x1, shape=(1, *x1.shape)) if x1.ndim == 1 else x1
    right = reshape(x2, shape=(*x2.shape, 1)) if x2.ndim == 1 else x2
    out = matrix_multiply(left, right)
    if x1.ndim == 1:
        out = reshape(out, shape=(*out.shape[:-2], out.shape[-1]))
    return reshape(out, shape=out.shape[:-1]) if x2.ndim == 1 else out
