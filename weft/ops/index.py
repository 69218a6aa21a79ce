"""The primitives of indexing with integer tensors.

    gather_nd(x, i, j, ...)           x[i, j, ...]; with from_end=False a negative index is out of bounds
    scatter_nd(x, v, i, j, ...)       x with v at [i, j, ...]; of duplicate indices the last one counts
    scatter_add_nd(x, v, i, j, ...)   x with v added at [i, j, ...]; duplicate indices add up

Indices stand for the first axes of x and broadcast together, to a shape S; results and ``v`` have the
shape S + x.shape[k:]. Negative indices count from the end. The public functions are in ``index_axis``,
brackets in ``weft.tensor.indexing``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bfloat16, float16, float32, int64, kind
from weft.base.shapes import Shape, broadcast_shapes, size_of
from weft.base.size_bounds import surely_less
from weft.base.sizes import is_known
from weft.errors import BoundsError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import move_axis, to_front
from weft.ops.compare import equal
from weft.ops.factors import of_gather, of_scatter, of_scatter_add
from weft.ops.families import linear
from weft.ops.op import Array, Attrs, Op, Sample, Tensor
from weft.ops.samples import complex_array, int_array, like_array, real_array
from weft.ops.select import select
from weft.ops.size import count_to, filled, positions
from weft.ops.view.primitives import reshape
from weft.ops.view.slices import Ints

# Checks


def check_bounds(
    op: str,
    indices: Sequence[Any],
    shape: Shape,
    axes: Sequence[int] | None = None,
    from_end: bool = True,
) -> None:
    """Raise if an index whose values are known leaves its axis of a shape, by default the first axes.

    An axis of -1 is one that the user does not know of.
    """
    for axis, index in zip(range(len(indices)) if axes is None else axes, indices, strict=True):
        array = getattr(index, "_data", index)
        if axis < 0 or not isinstance(array, np.ndarray | np.generic) or array.size == 0:
            continue
        size, low, high = shape[axis], array.min(), array.max()
        first = -size if from_end else 0
        if not (first <= low and high < size):
            known = np.asarray(array)
            wrong = known[(known < first) | (known >= size)].flat[0]
            raise bounds_error(op, axis, size, wrong, from_end)


def index_with(
    op: str,
    run: Callable[..., Tensor],
    inputs: Sequence[Any],
    indices: Sequence[Any],
    shape: Shape,
    axes: Ints,
) -> Tensor:
    """Run a primitive; an index out of bounds is told in the name of op, for the axes the user knows."""
    try:
        return run(*inputs, *indices)
    except BoundsError:
        check_bounds(op, indices, shape, axes)
        raise


def bounds_error(op: str, axis: int, size: int, index: Array, from_end: bool = True) -> BoundsError:
    """An index that is outside an axis."""
    allowed = f"in {-size if from_end else 0}..{size - 1}" if size else "absent"
    return BoundsError(op, f"index must be {allowed} for axis {axis} of size {size}, got {int(index)}")


def _indexed_shape(op: str, x: TensorType, indices: tuple[TensorType, ...]) -> Shape:
    if len(indices) > x.ndim:
        raise BoundsError(op, f"there must be at most {x.ndim} indices for {x}, got {len(indices)}")
    for i in indices:
        if kind(i.dtype) not in "iu":
            raise DtypeError(op, f"indices must be integers, got {i.dtype.name}")
    return (*broadcast_shapes(op, [i.shape for i in indices], indices), *x.shape[len(indices) :])


def _scattered_type(op: str) -> Callable[..., Any]:
    def type_rule(x: TensorType, v: TensorType, *indices: TensorType) -> TensorType:
        part = TensorType(_indexed_shape(op, x, indices), x.dtype)
        if v != part:
            raise ShapeError(op, f"the values must be of type {part}, got {v}")
        return x

    return type_rule


# Kernels


def _gathered_type(x: TensorType, *indices: TensorType, from_end: bool = True) -> TensorType:
    return TensorType(_indexed_shape("gather", x, indices), x.dtype)


def _gather(x: Array, *indices: Array, from_end: bool = True) -> Array:
    if not from_end and all(i.size for i in indices):
        check_bounds("gather", indices, x.shape, from_end=False)
    try:
        if len(indices) == 1 and x.flags.c_contiguous:
            return x.take(indices[0], axis=0)
        return x[indices]
    except IndexError:
        if all(i.size for i in indices):
            check_bounds("gather", indices, x.shape)
        raise


def _flat_indices(op: str, x: Array, indices: Sequence[Any]) -> Any:
    """Indices of the first axes as one index, non-negative and checked, in the order of S."""
    if all(i.size for i in indices):  # with an empty one nothing is indexed at all
        check_bounds(op, indices, x.shape)
    flat: Any = 0
    for index, size in zip(indices, x.shape, strict=False):
        index = np.asarray(index, np.intp)
        flat = flat * size + np.where(index < 0, index + size, index)
    return flat.reshape(-1)


def _rows(x: Array, count: int) -> Array:
    """x with its first ``count`` axes made one, and the others made one."""
    return x.reshape(size_of(x.shape[:count]), size_of(x.shape[count:]))


def _scatter(x: Array, v: Array, *indices: Array) -> Array:
    flat = _flat_indices("scatter", x, indices)
    out = np.array(x, order="C")
    # one index in one order, so that the last of several writes to a place is well defined
    rows = _rows(out, len(indices))
    rows[flat] = v.reshape(flat.size, rows.shape[1])
    return out


def _scatter_add(x: Array, v: Array, *indices: Array) -> Array:
    flat = _flat_indices("scatter_add", x, indices)
    narrow = x.dtype in (float16, bfloat16)
    out = np.array(x, float32 if narrow else None, order="C")
    if v.size:
        add_rows(_rows(out, len(indices)), flat, v.reshape(flat.size, -1).astype(out.dtype, copy=False))
    return out.astype(x.dtype) if narrow else out


_BLOCK = 1 << 18  # elements whose indices are written out at a time: they stay in the cache


def add_rows(out: Array, index: Array, rows: Array) -> None:
    """Add each row to the row of ``out`` that its index names, in place.

    NumPy's ``add.at`` is fast only for one index an element, and a loop over rows only for long rows
    (measured: from about 300 elements on).
    """
    count, width = rows.shape
    if width >= 300:
        for i, row in zip(index.tolist(), rows, strict=True):
            out[i] += row
        return
    flat, step, offsets = out.reshape(-1), max(1, _BLOCK // width), np.arange(width)
    for start in range(0, count, step):
        part = slice(start, start + step)
        places = index[part] if width == 1 else (index[part, None] * width + offsets).reshape(-1)
        np.add.at(flat, places, rows[part].reshape(-1))


# Batching


def _aligned(indices: Sequence[Any], axes: Sequence[int | None]) -> list[Tensor]:
    """Indices with their batch axes first, and ranks filled up after it so that they broadcast."""
    rank = max(i.ndim - (a is not None) for i, a in zip(indices, axes, strict=True))
    out = []
    for index, axis in zip(indices, axes, strict=True):
        if axis is not None:
            index = move_axis(index, axis, 0)
            shape = (index.shape[0], *[1] * (rank + 1 - index.ndim), *index.shape[1:])
            index = reshape(index, shape=shape)
        out.append(index)
    return out


def with_examples(size: int, indices: Sequence[Any], axes: Sequence[int | None]) -> list[Tensor]:
    """Indices of a batch, after an index that tells the examples apart."""
    aligned = _aligned(indices, axes)
    rank = max(max(i.ndim for i in aligned), 1)
    return [positions(size, rank - 1), *aligned]


def result_rank(indices: Sequence[Any]) -> int:
    """The number of axes that indices have when they are broadcast together."""
    return max(len(i.shape) for i in indices)


def _batch_gather(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    (x, *indices), (axis, *index_axes) = inputs, axes
    if axis is None:
        return op(x, *_aligned(indices, index_axes), **attrs), 0
    if all(a is None for a in index_axes):
        return op(move_axis(x, axis, len(indices)), *indices, **attrs), result_rank(indices)
    return op(move_axis(x, axis, 0), *with_examples(size, indices, index_axes), **attrs), 0


def batch_scatter(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    """The batching rule of ops that put values at places of an array."""
    (x, v, *indices), (x_axis, v_axis, *index_axes) = inputs, axes
    x, v = to_front(x, x_axis, size), to_front(v, v_axis, size)
    if all(a is None for a in index_axes):
        after = len(indices)
        v = move_axis(v, 0, result_rank(indices))
        return op(move_axis(x, 0, after), v, *indices, **attrs), after
    return op(x, v, *with_examples(size, indices, index_axes), **attrs), 0


# Ops


def _gather_samples() -> list[Sample]:
    x, i, j = real_array((4, 5)), int_array((2, 3), -4, 4), int_array((3,), 0, 5, seed=1)
    return [
        Sample((x, i)),
        Sample((x, i, j)),
        Sample((x.T, i)),
        Sample((real_array((4, 2, 3)), i, int_array((), 0, 2))),
        Sample((x, np.zeros((0, 2), np.int64))),
        Sample((real_array((3, 0)), int_array((2,), 0, 3))),
        Sample((complex_array((3,)), int_array((4,), 0, 3, dtype="int32"))),
        Sample((x, np.array(2, np.uint64))),
        Sample((x, int_array((2, 3), 0, 4)), {"from_end": False}),
    ]


def _scatter_samples() -> list[Sample]:
    out = []
    for sample in _gather_samples():
        x, *indices = sample.inputs
        v = like_array(x, _gather(x, *indices).shape, seed=7)
        out.append(Sample((x, v, *indices)))
    return out


def _zeros(kind: TensorType) -> Any:
    """Zeros that take no memory; a constant wherever they flow."""
    if not is_known(kind.shape):
        return filled(kind.shape, 0, kind.dtype)
    return np.broadcast_to(np.zeros((), kind.dtype), kind.shape)


def _gather_transpose(g: Tensor, x_type: TensorType, indices: tuple[Any, ...]) -> list[Tensor | None]:
    return [scatter_add_nd(_zeros(x_type), g, *indices), *[None] * len(indices)]


gather_nd: Op = linear(
    "gather",
    type_rule=_gathered_type,
    eval=_gather,
    transpose=_gather_transpose,
    batch=_batch_gather,
    samples=_gather_samples,
    fallible=True,
    raises=BoundsError,
    factors=of_gather,
)


scatter_add_nd: Op = linear(
    "scatter_add",
    type_rule=_scattered_type("scatter_add"),
    eval=_scatter_add,
    transpose=lambda g, indices: [g, gather_nd(g, *indices), *[None] * len(indices)],
    batch=batch_scatter,
    samples=_scatter_samples,
    over="joint",
    fallible=True,
    raises=BoundsError,
    in_place=True,
    factors=of_scatter_add,
)


def _scatter_transpose(g: Tensor, v_type: TensorType, indices: tuple[Any, ...]) -> list[Tensor | None]:
    rest = scatter_nd(g, _zeros(v_type), *indices)
    taken = gather_nd(g, *indices)
    shape = broadcast_shapes("scatter", [i.shape for i in indices])
    if not surely_less(size_of(shape), 2):
        wins = reshape(
            _winners(g.shape[: len(indices)], shape, indices),
            shape=(*shape, *[1] * (taken.ndim - len(shape))),
        )
        taken = select(wins, taken, _zeros(v_type))
    return [rest, taken, *[None] * len(indices)]


def _winners(places: Shape, shape: Shape, indices: tuple[Any, ...]) -> Tensor:
    """Whether each write is the last one to its place: write the numbers of the writes, and look."""
    numbers = reshape(count_to(size_of(shape), int64), shape=shape)
    return equal(gather_nd(scatter_nd(filled(places, -1, int64), numbers, *indices), *indices), numbers)


scatter_nd: Op = linear(
    "scatter",
    type_rule=_scattered_type("scatter"),
    eval=_scatter,
    transpose=_scatter_transpose,
    batch=batch_scatter,
    samples=_scatter_samples,
    over="joint",
    fallible=True,
    raises=BoundsError,
    in_place=True,
    factors=of_scatter,
)
