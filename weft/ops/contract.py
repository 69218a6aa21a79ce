"""Products that sum over shared axes: matmul and what is built on it. Einstein sums stand in ``einsum``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import bfloat16, float16, float32, float64, kind
from weft.base.shapes import broadcast_shapes, normalize_axis
from weft.errors import ArgumentError, AxisError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_elementwise, move_axis
from weft.ops.broadcast import unbroadcast
from weft.ops.factors import of_product
from weft.ops.families import linear as linear_op
from weft.ops.op import Array, Attrs, Op, Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.samples import complex_array, int_array, real_array
from weft.ops.select import same_dtype
from weft.ops.view.primitives import permute, reshape

_EXACT = 1 << 53  # integers below this are exact in float64


def transpose_last(x: Tensor) -> Tensor:
    """x with its last two axes swapped."""
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return permute(x, axes=axes)


def adjoint(x: Tensor) -> Tensor:
    """x with its last two axes swapped, conjugated if it is complex."""
    return transpose_last(x.conj() if x.dtype.kind == "c" else x)


# The primitive: matrices along the last two axes, the axes before them broadcast


def _matmul_type(x: TensorType, y: TensorType) -> TensorType:
    if x.ndim < 2 or y.ndim < 2:
        raise ShapeError("matmul", f"both sides must have at least two axes, got {x} and {y}")
    if x.dtype != y.dtype:
        raise DtypeError("matmul", f"dtypes must be equal, got {x.dtype.name} and {y.dtype.name}")
    k, n = x.shape[-1], y.shape[-2]
    if k != n:
        hint = "the right side looks transposed; try y.mT" if y.shape[-1] == k else None
        message = f"inner dimensions must agree, got {x} and {y} ({k} vs {n})"
        raise ShapeError("matmul", message, hint=hint, clash=(k, n))
    lead = broadcast_shapes("matmul", [x.shape[:-2], y.shape[:-2]], (x, y))
    return TensorType((*lead, x.shape[-2], y.shape[-1]), x.dtype)


def _multiply_arrays(x: Array, y: Array) -> Any:
    """The matrix product of arrays, by BLAS wherever that is exact enough."""
    dtype = x.dtype
    if dtype is float32 or dtype is float64:
        return _multiply(x, y)
    if kind(dtype) in "iu" and _fits_double(x, y):
        wide = _multiply(x.astype(np.float64), y.astype(np.float64))
        return wide.astype(np.int64).astype(dtype)
    if dtype in (float16, bfloat16):
        return _multiply(x.astype(float32), y.astype(float32)).astype(dtype)
    return _multiply(x, y)


def _multiply(x: Array, y: Array) -> Any:
    if y.ndim > 2 or x.ndim == 2:
        return np.matmul(x, y)
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])  # one large product instead of one for each matrix
    return np.matmul(rows, y).reshape(*x.shape[:-1], y.shape[-1])


def _fits_double(x: Array, y: Array) -> bool:
    """Whether every partial sum of an integer product is exact in float64."""
    if x.size == 0 or y.size == 0:
        return False
    return bool(_largest(x) * _largest(y) * x.shape[-1] < _EXACT)


def _largest(x: Array) -> int:
    return max(abs(int(x.min())), abs(int(x.max())))


def left_gradient(g: Tensor, y: Tensor, x_type: TensorType) -> Tensor:
    """The gradient of a product by its left side."""
    return unbroadcast(matrix_multiply(g, adjoint(y)), x_type.shape)


def right_gradient(g: Tensor, x: Tensor, y_type: TensorType) -> Tensor:
    """The gradient of a product by its right side."""
    if y_type.ndim == 2 and x.ndim > 2:  # sum over the batch inside the product
        rows = prod(x.shape[:-1])
        x, g = reshape(x, shape=(rows, x.shape[-1])), reshape(g, shape=(rows, g.shape[-1]))
    return unbroadcast(matrix_multiply(adjoint(x), g), y_type.shape)


def _batch_multiply(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    x, y = inputs
    if axes[0] is not None or x.ndim > 2 or y.ndim > 3:
        return batch_elementwise(op, size, inputs, axes, attrs)
    columns = move_axis(y, axes[1], 1)  # type: ignore[arg-type] # examples side by side: one large product
    inner, _, width = columns.shape
    out = op(x, reshape(columns, shape=(inner, size * width)), **attrs)
    return reshape(out, shape=(x.shape[0], size, width)), 1


matrix_multiply: Op = linear_op(
    "matmul",
    type_rule=_matmul_type,
    eval=_multiply_arrays,
    transpose=(left_gradient, right_gradient),
    batch=_batch_multiply,
    precision="low",
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((3, 4), seed=1))),
        Sample((real_array((5, 2, 3)), real_array((3, 4), seed=1))),
        Sample((real_array((2, 3)), real_array((5, 3, 4), seed=1))),
        Sample((real_array((5, 1, 2, 3)), real_array((2, 3, 2), seed=1))),
        Sample((real_array((2, 0)), real_array((0, 4)))),
        Sample((real_array((0, 2, 3)), real_array((3, 4)))),
        Sample((real_array((3, 2)).T, real_array((4, 3)).T[::-1])),
        Sample((complex_array((2, 3)), complex_array((3, 2), seed=1))),
        Sample((complex_array((4, 2, 3)), complex_array((3, 2), seed=1))),
        Sample((int_array((3, 4)), int_array((4, 2), seed=1))),
        Sample((np.array([[2**62, 3]]), np.array([[3], [5]]))),
        Sample((int_array((3, 4), dtype="int8"), int_array((4, 2), -100, 100, dtype="int8"))),
        Sample((int_array((0, 4)), int_array((4, 2)))),
        Sample((real_array((3, 4)) > 0, real_array((4, 3)) > 0)),
        Sample(
            (real_array((3, 4)).astype(float16), real_array((4, 3), seed=1).astype(float16)), smooth=False
        ),
    ],
    products=lambda x, y: x[-1],
    factors=of_product,
    large_vjp=True,
)


def _matmul_samples() -> list[Sample]:
    shapes = [
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((2, 4, 3), (3,)),
        ((3,), (2, 3, 4)),
        ((2, 3), (3, 2)),
    ]
    return [Sample((real_array(a), real_array(b, seed=1))) for a, b in shapes]


@composite("matmul_vectors", samples=_matmul_samples, precision="low")
@example("(weft.tensor([[1.0, 2.0]]), weft.tensor([3.0, 4.0])) -> tensor([11.])")
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product over the last two axes; a vector on either side is a row or a column."""
    if x1.dtype is not getattr(x2, "dtype", None):
        x1, x2 = same_dtype("matmul", x1, x2)
    if x1.ndim > 1 and x2.ndim > 1:
        return matrix_multiply(x1, x2)
    for side in (x1, x2):
        if side.ndim == 0:
            both = f"{type_of(x1)} and {type_of(x2)}"
            raise ShapeError("matmul", f"both sides must have at least one axis, got {both}")
    k, n = x1.shape[-1], x2.shape[0 if x2.ndim == 1 else -2]
    if k != n:
        both = f"{type_of(x1)} and {type_of(x2)}"
        message = f"inner dimensions must agree, got {both} ({k} vs {n})"
        raise ShapeError("matmul", message, clash=(k, n))
    left = reshape(x1, shape=(1, *x1.shape)) if x1.ndim == 1 else x1
    right = reshape(x2, shape=(*x2.shape, 1)) if x2.ndim == 1 else x2
    out = matrix_multiply(left, right)
    if x1.ndim == 1:
        out = reshape(out, shape=(*out.shape[:-2], out.shape[-1]))
    return reshape(out, shape=out.shape[:-1]) if x2.ndim == 1 else out


def need_rank(op: str, rank: int, *inputs: Tensor) -> None:
    """Raise unless all inputs have a rank."""
    for x in inputs:
        if x.ndim != rank:
            both = " and ".join(str(type_of(x)) for x in inputs)
            axes = f"{rank} axis" if rank == 1 else f"{rank} axes"
            raise ShapeError(
                op, f"the tensors must have {axes}, got {both}", hint="weft.matmul takes any rank"
            )


@composite(
    samples=lambda: [
        Sample((real_array((3,)), real_array((4,), seed=1))),
        Sample((complex_array((2,)), complex_array((3,), seed=1))),
        Sample((real_array((0,)), real_array((4,)))),
    ]
)
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of each element of one vector with each of another.

    >>> import weft
    >>> weft.outer(weft.tensor([1, 2]), weft.tensor([1, 10, 100]))
    tensor([[  1,  10, 100],
            [  2,  20, 200]])
    """
    need_rank("outer", 1, x1, x2)
    x1, x2 = same_dtype("outer", x1, x2)
    return reshape(x1, shape=(*x1.shape, 1)) * reshape(x2, shape=(1, *x2.shape))


# Products over chosen axes


def _vecdot_samples() -> list[Sample]:
    return [
        Sample((real_array((2, 3)), real_array((2, 3), seed=1))),
        Sample((real_array((3,)), real_array((2, 3), seed=1))),
        Sample((real_array((3, 2)), real_array((3, 1), seed=1)), {"axis": -2}),
        Sample((complex_array((2, 3)), complex_array((2, 3), seed=1))),
        Sample((int_array((2, 3)), int_array((2, 3), seed=1))),
        Sample((real_array((2, 0)), real_array((2, 0)))),
    ]


@composite(samples=_vecdot_samples, precision="low")
@example("(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([1.0, 10.0])) -> tensor([21., 43.])")
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The inner product along an axis; the first side is conjugated if it is complex."""
    x1, x2 = same_dtype("vecdot", x1, x2)
    left, right = (move_axis(x, normalize_axis("vecdot", axis, x.ndim), x.ndim - 1) for x in (x1, x2))
    if left.shape[-1] != right.shape[-1]:
        raise ShapeError("vecdot", f"sizes along axis {axis} must agree, got {type_of(x1)} and {type_of(x2)}")
    left = left.conj() if left.dtype.kind == "c" else left
    out = matrix_multiply(
        reshape(left, shape=(*left.shape[:-1], 1, left.shape[-1])), reshape(right, shape=(*right.shape, 1))
    )
    return reshape(out, shape=out.shape[:-2])


def _contracted_axes(
    x1: Tensor, x2: Tensor, axes: int | Sequence[int | Sequence[int]]
) -> tuple[list[int], list[int]]:
    """The axes of both sides that a tensordot sums over."""
    if isinstance(axes, Sequence):
        if len(axes) != 2:
            raise ArgumentError("tensordot", f"axes must be an int or two sequences, got {axes!r}")
        pair = [list(a) if isinstance(a, Sequence) else [a] for a in axes]
        left, right = (
            [normalize_axis("tensordot", a, x.ndim) for a in p] for x, p in zip((x1, x2), pair, strict=True)
        )
    else:
        count = operator.index(axes)
        if not 0 <= count <= min(x1.ndim, x2.ndim):
            raise AxisError("tensordot", f"axes must be in 0..{min(x1.ndim, x2.ndim)}, got {count}")
        left, right = list(range(x1.ndim - count, x1.ndim)), list(range(count))
    if len(left) != len(right) or len(set(left)) != len(left) or len(set(right)) != len(right):
        raise AxisError("tensordot", f"axes must be as many on both sides and distinct, got {axes!r}")
    if [x1.shape[a] for a in left] != [x2.shape[a] for a in right]:
        raise ShapeError(
            "tensordot", f"summed sizes must agree, got {type_of(x1)} and {type_of(x2)} over {axes!r}"
        )
    return left, right


@composite(
    samples=lambda: [
        Sample((real_array((2, 3, 4)), real_array((3, 4, 2), seed=1)), {"axes": 2}),
        Sample((real_array((2, 3)), real_array((4,), seed=1)), {"axes": 0}),
        Sample((real_array((2, 3, 4)), real_array((4, 5, 2), seed=1)), {"axes": ((2, 0), (0, 2))}),
        Sample((complex_array((2, 3)), complex_array((3,), seed=1)), {"axes": 1}),
        Sample((real_array((0, 3)), real_array((3, 2))), {"axes": 1}),
    ],
    precision="low",
)
@example("(weft.ones((2, 3, 4)), weft.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape -> (2, 5)")
def tensordot(x1: Tensor, x2: Tensor, /, axes: int | Sequence[int | Sequence[int]] = 2) -> Tensor:
    """The sum of products over the last axes of one side and the first of another, or over named ones."""
    x1, x2 = same_dtype("tensordot", x1, x2)
    left, right = _contracted_axes(x1, x2, axes)
    keep1 = [a for a in range(x1.ndim) if a not in left]
    keep2 = [a for a in range(x2.ndim) if a not in right]
    rows, columns = tuple(x1.shape[a] for a in keep1), tuple(x2.shape[a] for a in keep2)
    shared = prod(x1.shape[a] for a in left)
    a = reshape(permute(x1, axes=(*keep1, *left)), shape=(prod(rows), shared))
    b = reshape(permute(x2, axes=(*right, *keep2)), shape=(shared, prod(columns)))
    return reshape(matrix_multiply(a, b), shape=(*rows, *columns))
