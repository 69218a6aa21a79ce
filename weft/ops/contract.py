"""Products that sum over shared axes: matmul and what is built on it. Einstein sums stand in ``einsum``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import bfloat16, float16, float32, kind
from weft.base.shapes import broadcast_shapes, normalize_axis
from weft.errors import ArgumentError, AxisError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_elementwise, move_axis
from weft.ops.broadcast import unbroadcast
from weft.ops.families import linear as linear_op
from weft.ops.op import Array, Attrs, Op, Sample, composite, type_of
from weft.ops.public import public
from weft.ops.samples import complex_array, int_array, real_array
from weft.ops.select import same_dtype
from weft.ops.view import permute, reshape

_EXACT = 1 << 53  # integers below this are exact in float64


def transpose_last(x: Any) -> Any:
    """x with its last two axes swapped."""
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return permute(x, axes=axes)


def adjoint(x: Any) -> Any:
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
        raise ShapeError("matmul", f"inner dimensions must agree, got {x} and {y} ({k} vs {n})", hint=hint)
    lead = broadcast_shapes("matmul", [x.shape[:-2], y.shape[:-2]], (x, y))
    return TensorType((*lead, x.shape[-2], y.shape[-1]), x.dtype)


def multiply_arrays(x: Array, y: Array) -> Array:
    """The matrix product of arrays, by BLAS wherever that is exact enough."""
    dtype = x.dtype
    if kind(dtype) in "iu" and _fits_double(x, y):
        wide = _multiply(x.astype(np.float64), y.astype(np.float64))
        return wide.astype(np.int64).astype(dtype)
    if dtype == float16 or dtype == bfloat16:
        return _multiply(x.astype(float32), y.astype(float32)).astype(dtype)
    return _multiply(x, y)


def _multiply(x: Array, y: Array) -> Array:
    if y.ndim > 2 or x.ndim == 2:
        return np.matmul(x, y)
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])  # one large product instead of one for each matrix
    return np.matmul(rows, y).reshape(*x.shape[:-1], y.shape[-1])


def _fits_double(x: Array, y: Array) -> bool:
    """Whether every partial sum of an integer product is exact in float64."""
    if x.size == 0 or y.size == 0:
        return False
    return _largest(x) * _largest(y) * x.shape[-1] < _EXACT


def _largest(x: Array) -> int:
    return max(abs(int(x.min())), abs(int(x.max())))


def _right_gradient(g: Any, x: Any, y_type: TensorType) -> Any:
    if y_type.ndim == 2 and x.ndim > 2:  # sum over the batch inside the product
        rows = prod(x.shape[:-1])
        x, g = reshape(x, shape=(rows, x.shape[-1])), reshape(g, shape=(rows, g.shape[-1]))
    return unbroadcast(matrix_multiply(adjoint(x), g), y_type.shape)


def _batch_multiply(op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs) -> Any:
    x, y = inputs
    if axes[0] is not None or x.ndim > 2 or y.ndim > 3:
        return batch_elementwise(op, size, inputs, axes, attrs)
    columns = move_axis(y, axes[1], 1)  # type: ignore[arg-type] # examples side by side: one large product
    inner, _, width = columns.shape
    out = op(x, reshape(columns, shape=(inner, size * width)), **attrs)
    return reshape(out, shape=(x.shape[0], size, width)), 1


matrix_multiply = linear_op(
    "matmul",
    type_rule=_matmul_type,
    eval=lambda x, y: multiply_arrays(x, y),
    transpose=(
        lambda g, y, x_type: unbroadcast(matrix_multiply(g, adjoint(y)), x_type.shape),
        _right_gradient,
    ),
    batch=_batch_multiply,
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
        Sample((real_array((3, 4)).astype(float16), real_array((4, 3), seed=1).astype(float16)), smooth=False),
    ],
)


def _matmul_samples() -> list[Sample]:
    shapes = [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 4, 3), (3,)), ((3,), (2, 3, 4)), ((2, 3), (3, 2))]
    return [Sample((real_array(a), real_array(b, seed=1))) for a, b in shapes]


@public
@composite("matmul_vectors", samples=_matmul_samples)
def matmul(x1: Any, x2: Any, /) -> Any:
    """The matrix product over the last two axes; a vector on either side is a row or a column.

    >>> import weft
    >>> weft.matmul(weft.tensor([[1.0, 2.0]]), weft.tensor([3.0, 4.0]))
    tensor([11.])
    """
    if x1.dtype is not getattr(x2, "dtype", None):
        x1, x2 = same_dtype("matmul", x1, x2)
    if x1.ndim > 1 and x2.ndim > 1:
        return matrix_multiply(x1, x2)
    for side in (x1, x2):
        if side.ndim == 0:
            both = f"{type_of(x1)} and {type_of(x2)}"
            raise ShapeError("matmul", f"both sides must have at least one axis, got {both}")
    left = reshape(x1, shape=(1, *x1.shape)) if x1.ndim == 1 else x1
    right = reshape(x2, shape=(*x2.shape, 1)) if x2.ndim == 1 else x2
    out = matrix_multiply(left, right)
    if x1.ndim == 1:
        out = reshape(out, shape=(*out.shape[:-2], out.shape[-1]))
    return reshape(out, shape=out.shape[:-1]) if x2.ndim == 1 else out


# Products of fixed rank


def _need_rank(op: str, rank: int, *inputs: Any) -> None:
    for x in inputs:
        if x.ndim != rank:
            both = " and ".join(str(type_of(x)) for x in inputs)
            axes = f"{rank} axis" if rank == 1 else f"{rank} axes"
            raise ShapeError(op, f"the tensors must have {axes}, got {both}", hint="weft.matmul takes any rank")


@public
@composite(samples=lambda: [Sample((real_array((2, 3)), real_array((3, 4), seed=1)))])
def mm(x1: Any, x2: Any, /) -> Any:
    """The product of two matrices.

    >>> import weft
    >>> weft.mm(weft.ones((2, 3)), weft.ones((3, 1)))
    tensor([[3.],
            [3.]])
    """
    _need_rank("mm", 2, x1, x2)
    return matmul(x1, x2)


@public
@composite(samples=lambda: [Sample((real_array((5, 2, 3)), real_array((5, 3, 4), seed=1)))])
def bmm(x1: Any, x2: Any, /) -> Any:
    """The products of two batches of matrices, (B, n, k) and (B, k, m).

    >>> import weft
    >>> weft.bmm(weft.ones((5, 2, 3)), weft.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    _need_rank("bmm", 3, x1, x2)
    if x1.shape[0] != x2.shape[0]:
        raise ShapeError("bmm", f"batch sizes must agree, got {type_of(x1)} and {type_of(x2)}")
    return matmul(x1, x2)


@public
@composite(samples=lambda: [Sample((real_array((2, 3)), real_array((3,), seed=1)))])
def mv(x1: Any, x2: Any, /) -> Any:
    """The product of a matrix and a vector.

    >>> import weft
    >>> weft.mv(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([1.0, 1.0]))
    tensor([3., 7.])
    """
    _need_rank("mv", 2, x1)
    _need_rank("mv", 1, x2)
    return matmul(x1, x2)


@public
@composite(
    samples=lambda: [
        Sample((real_array((4,)), real_array((4,), seed=1))),
        Sample((complex_array((4,)), complex_array((4,), seed=1))),
        Sample((int_array((4,)), int_array((4,), seed=1))),
        Sample((real_array((0,)), real_array((0,)))),
    ]
)
def dot(x1: Any, x2: Any, /) -> Any:
    """The sum of products of two vectors, without conjugation.

    >>> import weft
    >>> weft.dot(weft.tensor([1, 2, 3]), weft.tensor([4, 5, 6]))
    tensor(32)
    """
    _need_rank("dot", 1, x1, x2)
    return matmul(x1, x2)


@public
@composite(
    samples=lambda: [
        Sample((real_array((3,)), real_array((4,), seed=1))),
        Sample((complex_array((2,)), complex_array((3,), seed=1))),
        Sample((real_array((0,)), real_array((4,)))),
    ]
)
def outer(x1: Any, x2: Any, /) -> Any:
    """The products of each element of one vector with each of another.

    >>> import weft
    >>> weft.outer(weft.tensor([1, 2]), weft.tensor([1, 10, 100]))
    tensor([[  1,  10, 100],
            [  2,  20, 200]])
    """
    _need_rank("outer", 1, x1, x2)
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


@public
@composite(samples=_vecdot_samples)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The inner product along an axis; the first side is conjugated if it is complex.

    >>> import weft
    >>> weft.vecdot(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    x1, x2 = same_dtype("vecdot", x1, x2)
    left, right = (move_axis(x, normalize_axis("vecdot", axis, x.ndim), x.ndim - 1) for x in (x1, x2))
    if left.shape[-1] != right.shape[-1]:
        raise ShapeError("vecdot", f"sizes along axis {axis} must agree, got {type_of(x1)} and {type_of(x2)}")
    left = left.conj() if left.dtype.kind == "c" else left
    out = matrix_multiply(
        reshape(left, shape=(*left.shape[:-1], 1, left.shape[-1])), reshape(right, shape=(*right.shape, 1))
    )
    return reshape(out, shape=out.shape[:-2])


def _contracted_axes(x1: Any, x2: Any, axes: Any) -> tuple[list[int], list[int]]:
    """The axes of both sides that a tensordot sums over."""
    if isinstance(axes, Sequence):
        if len(axes) != 2:
            raise ArgumentError("tensordot", f"axes must be an int or two sequences, got {axes!r}")
        pair = [list(a) if isinstance(a, Sequence) else [a] for a in axes]
        left, right = ([normalize_axis("tensordot", a, x.ndim) for a in p] for x, p in zip((x1, x2), pair, strict=True))
    else:
        count = operator.index(axes)
        if not 0 <= count <= min(x1.ndim, x2.ndim):
            raise AxisError("tensordot", f"axes must be in 0..{min(x1.ndim, x2.ndim)}, got {count}")
        left, right = list(range(x1.ndim - count, x1.ndim)), list(range(count))
    if len(left) != len(right) or len(set(left)) != len(left) or len(set(right)) != len(right):
        raise AxisError("tensordot", f"axes must be as many on both sides and distinct, got {axes!r}")
    if [x1.shape[a] for a in left] != [x2.shape[a] for a in right]:
        raise ShapeError("tensordot", f"summed sizes must agree, got {type_of(x1)} and {type_of(x2)} over {axes!r}")
    return left, right


@public
@composite(
    samples=lambda: [
        Sample((real_array((2, 3, 4)), real_array((3, 4, 2), seed=1)), {"axes": 2}),
        Sample((real_array((2, 3)), real_array((4,), seed=1)), {"axes": 0}),
        Sample((real_array((2, 3, 4)), real_array((4, 5, 2), seed=1)), {"axes": ((2, 0), (0, 2))}),
        Sample((complex_array((2, 3)), complex_array((3,), seed=1)), {"axes": 1}),
        Sample((real_array((0, 3)), real_array((3, 2))), {"axes": 1}),
    ]
)
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """The sum of products over the last axes of one side and the first of another, or over named ones.

    >>> import weft
    >>> weft.tensordot(weft.ones((2, 3, 4)), weft.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    """
    x1, x2 = same_dtype("tensordot", x1, x2)
    left, right = _contracted_axes(x1, x2, axes)
    keep1 = [a for a in range(x1.ndim) if a not in left]
    keep2 = [a for a in range(x2.ndim) if a not in right]
    rows, columns = tuple(x1.shape[a] for a in keep1), tuple(x2.shape[a] for a in keep2)
    shared = prod(x1.shape[a] for a in left)
    a = reshape(permute(x1, axes=(*keep1, *left)), shape=(prod(rows), shared))
    b = reshape(permute(x2, axes=(*right, *keep2)), shape=(shared, prod(columns)))
    return reshape(matrix_multiply(a, b), shape=(*rows, *columns))


@public
@composite(
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((4, 3), seed=1))),
        Sample((real_array((3,)), real_array((3,), seed=1))),
        Sample((real_array(()), real_array((2, 3), seed=1))),
    ]
)
def inner(x1: Any, x2: Any, /) -> Any:
    """The sum of products over the last axis of both sides; a 0-d side just scales the other.

    >>> import weft
    >>> weft.inner(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([1.0, 1.0]))
    tensor([3., 7.])
    """
    if x1.ndim == 0 or x2.ndim == 0:
        return x1 * x2
    return tensordot(x1, x2, axes=((-1,), (-1,)))


@public
@composite(
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((3, 2), seed=1))),
        Sample((real_array((2,)), real_array((3, 2), seed=1))),
    ]
)
def kron(x1: Any, x2: Any, /) -> Any:
    """The Kronecker product: every element of one side times the whole of the other.

    >>> import weft
    >>> weft.kron(weft.tensor([1, 10]), weft.tensor([1, 2, 3]))
    tensor([ 1,  2,  3, 10, 20, 30])
    """
    x1, x2 = same_dtype("kron", x1, x2)
    rank = max(x1.ndim, x2.ndim)
    rows, columns = ((1,) * (rank - x.ndim) + x.shape for x in (x1, x2))
    left = reshape(x1, shape=tuple(s for r in rows for s in (r, 1)))
    right = reshape(x2, shape=tuple(s for c in columns for s in (1, c)))
    return reshape(left * right, shape=tuple(r * c for r, c in zip(rows, columns, strict=True)))


# Layers without state


def _need_features(op: str, x: Any, size: int) -> None:
    if x.ndim == 0 or x.shape[-1] != size:
        raise ShapeError(op, f"the last axis must have {size} features as the weight says, got {type_of(x)}")


@public
@composite(
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((4, 3), seed=1), real_array((4,), seed=2))),
        Sample((real_array((5, 2, 3)), real_array((4, 3), seed=1))),
        Sample((real_array((3,)), real_array((4, 3), seed=1), real_array((4,), seed=2))),
        Sample((real_array((0, 3)), real_array((4, 3)))),
        Sample((real_array((2, 3)), real_array((3,), seed=1))),
    ]
)
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """``x @ weight.T + bias``: x (..., in), weight (out, in) or (in,), bias (out,).

    >>> import weft
    >>> weft.linear(weft.tensor([1.0, 2.0]), weft.tensor([[1.0, 1.0], [0.0, 3.0]]), weft.tensor([10.0, 20.0]))
    tensor([13., 26.])
    """
    if weight.ndim not in (1, 2):
        raise ShapeError("linear", f"the weight must be (out, in) or (in,), got {type_of(weight)}")
    _need_features("linear", x, weight.shape[-1])
    out = matmul(x, transpose_last(weight) if weight.ndim == 2 else weight)
    return out if bias is None else out + bias


@public
@composite(
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((2, 4), seed=1), real_array((5, 3, 4), seed=2), real_array((5,)))),
        Sample((real_array((3,)), real_array((4,), seed=1), real_array((5, 3, 4), seed=2))),
    ]
)
def bilinear(x1: Any, x2: Any, weight: Any, bias: Any = None) -> Any:
    """``x1 @ weight[o] @ x2 + bias[o]`` for every output o: weight (out, in1, in2).

    >>> import weft
    >>> weft.bilinear(weft.ones((6, 2)), weft.ones((6, 3)), weft.ones((4, 2, 3))).shape
    (6, 4)
    """
    if weight.ndim != 3:
        raise ShapeError("bilinear", f"the weight must be (out, in1, in2), got {type_of(weight)}")
    outputs, first, second = weight.shape
    _need_features("bilinear", x1, first)
    _need_features("bilinear", x2, second)
    flat = reshape(permute(weight, axes=(1, 0, 2)), shape=(first, outputs * second))
    partial = matmul(x1, flat)
    partial = reshape(partial, shape=(*partial.shape[:-1], outputs, second))
    out = matmul(partial, reshape(x2, shape=(*x2.shape, 1)))
    out = reshape(out, shape=out.shape[:-1])
    return out if bias is None else out + bias
