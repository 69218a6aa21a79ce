"""Public functions that pick or change elements along an axis by integer or boolean tensors.

All are functions of the primitives in ``index``. Those whose result's shape depends on values
(``nonzero``, ``masked_select``) are in ``weft.tensor.dynamic``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import INTEGERS, DTypeLike, as_dtype, bool_, int64
from weft.base.public import public
from weft.base.shapes import Shape, broadcast_shapes, normalize_axis, size_of
from weft.base.size_bounds import surely_less
from weft.base.sizes import Size, is_known
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError
from weft.ops.batching import move_axis
from weft.ops.compare import equal
from weft.ops.index import gather_nd, index_with, scatter_add_nd, scatter_nd
from weft.ops.op import Array, Sample, Tensor, WeakNumber, composite, plain_number, type_of
from weft.ops.public import example, published
from weft.ops.samples import int_array, real_array
from weft.ops.select import cast, select
from weft.ops.size import count_to, positions
from weft.ops.view.primitives import broadcast_to, permute, reshape


def as_index(op: str, index: object) -> Any:
    """An index as an integer array or tensor; lists of integers become arrays."""
    if isinstance(index, WeakNumber) and isinstance(index.example, int):
        return index.in_dtype(int64)
    if not hasattr(index, "dtype") or isinstance(index, np.generic):
        index = np.asarray(index)
        if index.size == 0:
            index = index.astype(np.int64)
    if index.dtype not in INTEGERS:
        raise DtypeError(op, f"indices must be integers, got {index.dtype.name}")
    return index


def as_values(op: str, value: Any, like: Tensor, shape: Shape) -> Any:
    """Values to be written into ``like``: in its dtype, broadcast to a shape."""
    if not hasattr(value, "dtype"):
        value = np.asarray(value, like.dtype)
    if value.dtype != like.dtype:
        value = cast(value, dtype=like.dtype)
    if value.shape == shape:
        return value
    if value.ndim > len(shape) or any(
        v not in (1, s) for v, s in zip(value.shape[::-1], shape[::-1], strict=False)
    ):
        raise ShapeError(op, f"values must broadcast to shape {shape}, got {type_of(value)}")
    spread = broadcast_to if is_known(shape) else broadcast_to.on_tensors
    return spread(value, shape=shape)


# Whole slices along an axis


def _take_samples() -> list[Sample]:
    x = real_array((3, 4, 2))
    return [
        Sample((x, int_array((5,), -4, 4)), {"axis": 1}),
        Sample((x, int_array((2, 3), 0, 3)), {"axis": 0}),
        Sample((x, int_array((), 0, 2)), {"axis": -1}),
        Sample((real_array((4,)), int_array((3,), 0, 4)), {}),
        Sample((x, np.zeros((0,), np.int64)), {"axis": 2}),
    ]


@composite(samples=_take_samples)
def take(x: Tensor, indices: Tensor | Array | Sequence[int], /, axis: int | None = None) -> Tensor:
    """The elements of x at positions along an axis; without ``axis``, of the flattened x.

    >>> import weft
    >>> weft.take(weft.tensor([[1, 2, 3], [4, 5, 6]]), weft.tensor([2, 0]), axis=1)
    tensor([[3, 1],
            [6, 4]])
    """
    index = as_index("take", indices)
    if axis is None:
        return take(reshape(x, shape=(size_of(x.shape),)), index, axis=0)
    where = normalize_axis("take", axis, x.ndim)
    front = move_axis(x, where, 0)
    out, n = index_with("take", gather_nd, [front], [index], x.shape, (where,)), index.ndim
    return permute(out, axes=(*range(n, n + where), *range(n), *range(n + where, out.ndim))) if where else out


@public
def index_select(x: Tensor, axis: int, index: Tensor, /) -> Tensor:
    """The slices of x at positions along an axis, which a vector gives.

    >>> import weft
    >>> weft.index_select(weft.tensor([[1, 2], [3, 4]]), 0, weft.tensor([1, 1]))
    tensor([[3, 4],
            [3, 4]])
    """
    index = as_index("index_select", index)
    if index.ndim > 1:
        raise ShapeError("index_select", f"the index must be a vector, got {type_of(index)}")
    return take(x, reshape(index, shape=(size_of(index.shape),)), axis=axis)


@composite(
    samples=lambda: [
        Sample((real_array((3, 4)), int_array((5,), 0, 4), real_array((3, 5), seed=1)), {"axis": 1}),
        Sample(
            (real_array((3, 4)), int_array((2,), -3, 3), real_array((2, 4), seed=1)), {"axis": 0, "alpha": 2}
        ),
    ]
)
def index_add(x: Tensor, index: Tensor, source: Tensor, *, axis: int, alpha: float = 1) -> Tensor:
    """x with the slices of ``source`` added at positions along an axis; duplicates add up.

    >>> import weft
    >>> weft.index_add(weft.zeros(3), weft.tensor([0, 2, 0]), weft.tensor([1.0, 2.0, 3.0]), axis=0)
    tensor([4., 0., 2.])
    """
    where = normalize_axis("index_add", axis, x.ndim)
    index = as_index("index_add", index)
    shape = (*x.shape[:where], size_of(index.shape), *x.shape[where + 1 :])
    v = as_values("index_add", source if alpha == 1 else source * alpha, x, shape)
    parts = [move_axis(x, where, 0), move_axis(v, where, 0)]
    rows = reshape(index, shape=(shape[where],))
    out = index_with("index_add", scatter_add_nd, parts, [rows], x.shape, (where,))
    return move_axis(out, 0, where)


# Single elements along an axis


def _positions(op: str, x: Tensor, axis: int, index: Tensor) -> tuple[Tensor, ...]:
    """Indices of all axes that pick along one of them; the others run along."""
    shape = index.shape
    out: list[Any] = []
    for i, size in enumerate(shape):
        if i == axis:
            out.append(index)
            continue
        if surely_less(x.shape[i], size):
            raise ShapeError(
                op, f"the index must not be longer than x but along axis {axis}, got {type_of(index)}"
            )
        out.append(positions(size, len(shape) - 1 - i))
    return tuple(out)


def _same_rank(op: str, x: Tensor, index: Tensor, axis: int) -> tuple[Any, int]:
    index = as_index(op, index)
    if index.ndim != x.ndim:
        raise ShapeError(op, f"x and the index must have as many axes, got {type_of(x)} and {type_of(index)}")
    return index, normalize_axis(op, axis, x.ndim)


def _along_samples() -> list[Sample]:
    x = real_array((3, 4))
    return [
        Sample((x, int_array((3, 2), -4, 4)), {"axis": 1}),
        Sample((x, int_array((5, 4), 0, 3)), {"axis": 0}),
        Sample((x, int_array((1, 4), 0, 3)), {"axis": 0}),
        Sample((x, np.zeros((3, 0), np.int64)), {"axis": 1}),
    ]


@composite(
    samples=lambda: [*_along_samples(), Sample((real_array((3, 4)), int_array((1, 2), 0, 4)), {"axis": 1})]
)
@example("(weft.tensor([[3, 1, 2]]), weft.tensor([[1, 2, 0]]), axis=1) -> tensor([[1, 2, 3]])")
def take_along_axis(x: Tensor, indices: Tensor, /, axis: int = -1) -> Tensor:
    """For each place of ``indices`` the element of x there but for ``axis``, where the index says which."""
    index, where = _same_rank("take_along_axis", x, indices, axis)
    rest = (
        [s for i, s in enumerate(x.shape) if i != where],
        [s for i, s in enumerate(index.shape) if i != where],
    )
    common = list(broadcast_shapes("take_along_axis", [tuple(r) for r in rest], (type_of(x), type_of(index))))
    x = broadcast_to(x, shape=(*common[:where], x.shape[where], *common[where:]))
    index = broadcast_to(index, shape=(*common[:where], index.shape[where], *common[where:]))
    positions = _positions("take_along_axis", x, where, index)
    return index_with("take_along_axis", gather_nd, [x], positions, x.shape, tuple(range(x.ndim)))


@public
def gather(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """For each place of ``index`` the element of x there but for ``axis``, where the index says which.

    >>> import weft
    >>> weft.gather(weft.tensor([[1, 2], [3, 4]]), 1, weft.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    index, where = _same_rank("gather", x, index, axis)
    return gather_nd(x, *_positions("gather", x, where, index))


composite("gather_axis", samples=_along_samples)(lambda x, index, axis: gather(x, axis, index))


@published("(weft.zeros(3), 0, weft.tensor([0, 2, 0]), weft.tensor([1.0, 2.0, 3.0])) -> tensor([4., 0., 2.])")
def scatter_add(x: Tensor, axis: int, index: Tensor, src: Tensor) -> Tensor:
    """x with each element of ``src`` added at its own place but for ``axis``, where the index says which."""
    index, where = _same_rank("scatter_add", x, index, axis)
    v = as_values("scatter_add", _cut("scatter_add", src, index.shape), x, index.shape)
    return scatter_add_nd(x, v, *_positions("scatter_add", x, where, index))


@public
def scatter(x: Tensor, axis: int, index: Tensor, src: Tensor, *, reduce: str | None = None) -> Tensor:
    """x with each element of ``src`` put at its own place but for ``axis``, where the index says which.

    With ``reduce`` of "add" or "multiply" it is added to or multiplied with what is there.

    >>> import weft
    >>> weft.scatter(weft.zeros((2, 3)), 1, weft.tensor([[0], [2]]), 1.0)
    tensor([[1., 0., 0.],
            [0., 0., 1.]])
    """
    if reduce is not None:
        from weft.ops.scattering import scatter_reduce  # which builds on this module

        if reduce not in ("add", "multiply"):
            raise DomainError("scatter", f"reduce must be None, 'add' or 'multiply', got {reduce!r}")
        return scatter_reduce(x, axis, index, src, reduce)
    places, v = positions_along("scatter", x, axis, index, src)
    return scatter_nd(x, v, *places)


def positions_along(op: str, x: Tensor, axis: int, index: Tensor, src: Tensor) -> tuple[tuple[Any, ...], Any]:
    """The indices of all axes for elements put along one of them, and the elements, in the dtype of x."""
    index, where = _same_rank(op, x, index, axis)
    v = as_values(op, _cut(op, src, index.shape), x, index.shape)
    return _positions(op, x, where, index), v


def _cut(op: str, src: Tensor, shape: Shape) -> Tensor:
    """The part of ``src`` that an index of a shape uses: it may be larger than the index."""
    if not hasattr(src, "shape") or len(src.shape) != len(shape) or src.shape == shape:
        return src
    if any(n < s and n != 1 for n, s in zip(src.shape, shape, strict=True)):
        raise ShapeError(
            op, f"src must not be smaller than the index, got {type_of(src)} for an index of {shape}"
        )
    return src[tuple(slice(0, s) for s in shape)]


def _put_samples() -> list[Sample]:
    out = []
    for sample in _along_samples():
        x, index = sample.inputs
        out.append(Sample((x, index, real_array(index.shape, seed=5)), sample.attrs))
    return out


composite("scatter_add_axis", samples=_put_samples)(
    lambda x, index, src, axis: scatter_add(x, axis, index, src)
)


@composite(samples=lambda: [s for s in _put_samples() if s.inputs[1].shape != (5, 4)])
@example("(weft.zeros((1, 3)), weft.tensor([[2]]), 5.0, axis=1) -> tensor([[0., 0., 5.]])")
def put_along_axis(x: Tensor, indices: Tensor, values: Any, axis: int = -1) -> Tensor:
    """x with ``values`` at the places that ``take_along_axis`` would take; of duplicates the last counts."""
    return scatter(x, axis, indices, values)


@composite(
    samples=lambda: [
        Sample((real_array((3, 4)), real_array((3, 4), seed=1) > 0), {"value": 2.5}),
        Sample((real_array((3, 4)), real_array((4,), seed=1) > 0), {"value": -1}),
    ]
)
@example("(weft.tensor([1.0, 2.0]), weft.tensor([True, False]), -1) -> tensor([-1.,  2.])")
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """x with ``value`` where the mask holds."""
    if mask.dtype != bool_:
        raise DtypeError("masked_fill", f"the mask must be bool, got {mask.dtype.name}")
    if getattr(value, "ndim", 0) != 0:
        raise ShapeError(
            "masked_fill", f"the value must be a number, got {type_of(value)}", hint="use weft.where"
        )
    return select(mask, as_values("masked_fill", value, x, ()), x)


@composite(
    samples=lambda: [
        Sample((int_array((2, 3), 0, 4),), {"num_classes": 4}),
        Sample((np.zeros((0,), np.int64),), {"num_classes": 3}),
        Sample((int_array((), 0, 4),), {"num_classes": 5}),
    ]
)
def one_hot(x: Tensor, /, num_classes: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """Vectors that are 1 at the class of each element of x and 0 elsewhere; -1 means as many as x needs.

    >>> import weft
    >>> weft.one_hot(weft.tensor([0, 2]), 3)
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    index = as_index("one_hot", x)
    if num_classes == -1:
        num_classes = int(index.max()) + 1 if index.size else 0
    num_classes = plain_number(num_classes)
    if not isinstance(num_classes, int | Size) or surely_less(num_classes, 0):
        raise ArgumentError("one_hot", f"num_classes must be a number of classes, got {num_classes!r}")
    hot = equal(reshape(index, shape=(*index.shape, 1)), count_to(num_classes, index.dtype))
    return cast(hot, dtype=int64 if dtype is None else as_dtype(dtype))
