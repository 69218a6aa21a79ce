"""Products of vectors, chains of matrices, and tensors taken as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DTypeLike
from weft.base.public import public
from weft.base.shapes import broadcast_shapes, normalize_axis, size_of
from weft.base.size_bounds import typical
from weft.errors import ArgumentError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.broadcast import unbroadcast
from weft.ops.contract import matmul
from weft.ops.families import linear
from weft.ops.linalg.common import floating, well_conditioned
from weft.ops.linalg.systems import invert, solve_system
from weft.ops.op import Array, Op, Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.reduce import sum
from weft.ops.samples import complex_array, real_array
from weft.ops.select import in_single, run_in_single, same_dtype
from weft.ops.view.padding import diagonal
from weft.ops.view.primitives import reshape


def _cross_type(x: TensorType, y: TensorType, *, axis: int) -> TensorType:
    if x.dtype != y.dtype:
        raise DtypeError("cross", f"dtypes must be equal, got {x.dtype.name} and {y.dtype.name}")
    if x.ndim != y.ndim or x.shape[axis] != 3 or y.shape[axis] != 3:
        raise ShapeError(
            "cross", f"vectors must have 3 elements along the axis, got {x} and {y}, axis {axis}"
        )
    return TensorType(broadcast_shapes("cross", [x.shape, y.shape], (x, y)), x.dtype)


def _cross(x: Array, y: Array, *, axis: int) -> Array:
    wide = [in_single(a) for a in (x, y)]  # type: ignore[arg-type]
    out: Array = np.cross(*wide, axis=axis).astype(x.dtype, copy=False)  # type: ignore[call-overload]
    return out


cross_product: Op = linear(
    "cross",
    type_rule=_cross_type,
    eval=_cross,
    transpose=(
        lambda g, x_type, y, axis: unbroadcast(cross_product(y.conj(), g, axis=axis), x_type.shape),
        lambda g, x, y_type, axis: unbroadcast(cross_product(g, x.conj(), axis=axis), y_type.shape),
    ),
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((2, 3), seed=1)), {"axis": 1}),
        Sample((real_array((3, 1, 2)), real_array((3, 4, 2), seed=1)), {"axis": 0}),
        Sample((complex_array((3,)), complex_array((3,), seed=1)), {"axis": 0}),
        Sample((real_array((3, 0)), real_array((3, 0))), {"axis": 0}),
    ],
)


@public
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along an axis.

    >>> import weft
    >>> weft.linalg.cross(weft.tensor([1.0, 0.0, 0.0]), weft.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    x1, x2 = same_dtype("cross", x1, x2)
    rank = np.maximum(x1.ndim, x2.ndim).item()
    axis = normalize_axis("cross", axis, rank)
    x1, x2 = (x if x.ndim == rank else reshape(x, shape=(*[1] * (rank - x.ndim), *x.shape)) for x in (x1, x2))
    _cross_type(type_of(x1), type_of(x2), axis=axis)
    return cross_product(x1, x2, axis=axis)


def _trace_samples() -> list[Sample]:
    return [
        Sample((real_array((3, 3)),)),
        Sample((real_array((2, 3, 4)),), {"offset": 1}),
        Sample((real_array((4, 2)),), {"offset": -3}),
        Sample((real_array((2, 0)),)),
        Sample((complex_array((2, 2)),)),
    ]


@composite(samples=_trace_samples)
@example("weft.linalg.trace(weft.tensor([[1.0, 2.0], [3.0, 4.0]])) -> tensor(5.)")
def trace(x: Tensor, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sum along a diagonal; an offset above 0 is a diagonal above the main one."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def _multi_dot_samples() -> list[Sample]:
    chain = real_array((2, 5)), real_array((5, 3), seed=1), real_array((3, 4), seed=2)
    return [Sample(chain), Sample((real_array((2,)), *chain, real_array((4,), seed=3))), Sample(chain[:1])]


@composite(samples=_multi_dot_samples, sampled=lambda *arrays: multi_dot(arrays))  # type: ignore[has-type]
@example("weft.linalg.multi_dot([weft.ones((2, 3)), weft.ones((3, 4)), weft.ones(4)]) -> tensor([12., 12.])")
def multi_dot(arrays: Sequence[Any], /) -> Tensor:
    """The product of a chain of matrices, in the order that takes the fewest multiplications.

    The first and the last may be vectors.
    """
    arrays = list(arrays)
    if not arrays:
        raise ArgumentError("multi_dot", "at least one tensor is needed, got none")
    for i, x in enumerate(arrays):
        ranks = (1, 2) if i in (0, len(arrays) - 1) else (2,)
        if x.ndim not in ranks:
            raise ShapeError("multi_dot", f"must be a chain of matrices, got {type_of(x)} at place {i}")
    shapes = [x.shape for x in arrays]
    shapes[0], shapes[-1] = (1, *shapes[0])[-2:], (*shapes[-1], 1)[:2]
    sizes = [typical(s) for s in (*(rows for rows, _ in shapes), shapes[-1][1])]
    splits = _best_splits(sizes)
    return run_in_single(lambda *given: _product(given, splits, 0, len(given) - 1), tuple(arrays), {})  # type: ignore[no-any-return]


def _best_splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """For each part i..j of a chain the last matrix of its left half; matrix k is sizes[k] x sizes[k + 1]."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = {
                k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)
            }
            splits[i, j] = split = sorted(costs, key=costs.__getitem__)[0]
            cost[i, j] = costs[split]
    return splits


def _product(arrays: Sequence[Tensor], splits: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return arrays[i]
    k = splits[i, j]
    return matmul(_product(arrays, splits, i, k), _product(arrays, splits, k + 1, j))


# Tensors as matrices


def _tensorinv_samples() -> list[Sample]:
    return [
        Sample((well_conditioned((6, 6)).reshape(2, 3, 6),)),
        Sample((well_conditioned((4, 4)).reshape(4, 2, 2),), {"ind": 1}),
    ]


@composite(samples=_tensorinv_samples)
@example("weft.linalg.tensorinv(weft.reshape(weft.eye(4), (2, 2, 4))).shape -> (4, 2, 2)")
def tensorinv(x: Tensor, /, ind: int = 2) -> Tensor:
    """The inverse of x seen as a matrix from its last axes to its first ``ind`` axes."""
    (x,) = floating("tensorinv", x)
    front, back = x.shape[:ind], x.shape[ind:]
    if ind < 1 or size_of(front) != size_of(back):
        raise ShapeError(
            "tensorinv", f"the first {ind} axes must have as many elements as the others, got {type_of(x)}"
        )
    matrix = reshape(x, shape=(size_of(front), size_of(back)))
    return reshape(invert(matrix), shape=(*back, *front))


@composite(samples=lambda: [Sample((well_conditioned((6, 6)).reshape(2, 3, 6), real_array((2, 3))))])
def tensorsolve(a: Tensor, b: Tensor, /) -> Tensor:
    """The x with ``tensordot(a, x, axes=x.ndim) = b``.

    >>> import weft
    >>> weft.linalg.tensorsolve(weft.reshape(weft.eye(4) * 2, (2, 2, 4)), weft.ones((2, 2)))
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    a, b = floating("tensorsolve", a, b)
    rest = a.shape[b.ndim :]
    if a.shape[: b.ndim] != b.shape or size_of(rest) != size_of(b.shape):
        raise ShapeError(
            "tensorsolve",
            f"a must have the shape of b, then as many elements again, got {type_of(a)} and {type_of(b)}",
        )
    n = size_of(rest)
    out = solve_system(reshape(a, shape=(n, n)), reshape(b, shape=(n, 1)))
    return reshape(out, shape=rest)
