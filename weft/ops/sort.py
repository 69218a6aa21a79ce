"""Order along an axis: sort, argsort, topk; and search in what is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bfloat16, float32, int32, int64, kind
from weft.base.records import NamedTuple
from weft.base.shapes import as_ints, normalize_axis, size_of
from weft.base.size_bounds import surely_less
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import to_front
from weft.ops.compare import equal
from weft.ops.factors import along
from weft.ops.families import primitive
from weft.ops.index import gather_nd
from weft.ops.index_axis import take_along_axis
from weft.ops.op import Array, Attrs, Op, Sample, Tensor, composite, no_gradient, type_of
from weft.ops.public import example, published
from weft.ops.samples import call, int_array, joined, real_array
from weft.ops.select import cast, need_real, same_dtype, select
from weft.ops.view.primitives import reshape

# Sorting. It is stable always; NaN counts as larger than everything.


def _samples(**attrs: object) -> list[Sample]:
    return [
        Sample((real_array((3, 5)),), {"axis": 1, **attrs}),
        Sample((real_array((5, 3)).T,), {"axis": 0, **attrs}),
        Sample((real_array((0, 3)),), {"axis": 0, **attrs}),
        Sample((int_array((4, 6), 0, 3),), {"axis": 1, **attrs}),
        Sample((np.array([2.0, np.nan, -np.inf, 1.0]),), {"axis": 0, **attrs}, smooth=False),
        Sample((np.array([True, False, True]),), {"axis": 0, **attrs}),
    ]


def _comparable(x: Array) -> Array:
    """bfloat16 as float32: its own sort leaves NaN in the middle."""
    return x.astype(float32) if x.dtype == bfloat16 else x


def _order(x: Array, *, axis: int, descending: bool) -> Array:
    x = _comparable(x)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable").astype(int64, copy=False)
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")  # ties come out last first
    out: Array = np.flip(x.shape[axis] - 1 - backwards, axis).astype(int64, copy=False)
    return out


def _sorted(x: Array, *, axis: int, descending: bool) -> Array:
    out = np.sort(_comparable(x), axis=axis).astype(x.dtype, copy=False)
    return np.flip(out, axis) if descending else out


def _order_type(x: TensorType, *, axis: int, descending: bool) -> TensorType:
    need_real("argsort", x)
    return TensorType(x.shape, int64)


order_axis: Op = primitive(
    "argsort",
    type_rule=_order_type,
    eval=_order,
    vjp=no_gradient("returns indices"),
    factors=along("axis"),
    samples=lambda: _samples(descending=False) + _samples(descending=True),
    defaults={"descending": False},
    total=True,
)


def _sort_vjp(g: Tensor, x: Tensor, axis: int, descending: bool) -> Tensor:
    order = order_axis(x, axis=axis, descending=descending)
    return take_along_axis(g, order_axis(order, axis=axis, descending=False), axis=axis)


def _sort_type(x: TensorType, *, axis: int, descending: bool) -> TensorType:
    need_real("sort", x)
    return x


sort_axis: Op = primitive(
    "sort",
    type_rule=_sort_type,
    eval=_sorted,
    vjp=(_sort_vjp,),
    factors=along("axis"),
    samples=lambda: _samples(descending=False) + _samples(descending=True),
    defaults={"descending": False},
    total=True,
)


@published("(weft.tensor([3, 1, 2]), descending=True) -> tensor([3, 2, 1])")
def sort(x: Tensor, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis; along ``None`` all of them in a row."""
    need_real("sort", x)
    if axis is None:
        x, axis = reshape(x, shape=(size_of(x.shape),)), 0
    return sort_axis(x, axis=normalize_axis("sort", axis, x.ndim), descending=bool(descending))


@published("(weft.tensor([3, 1, 2])) -> tensor([1, 2, 0])")
def argsort(x: Tensor, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that put the elements in order along an axis; equal ones stay in their order.

    Along ``None`` they are positions among all elements in a row.
    """
    need_real("argsort", x)
    if axis is None:
        x, axis = reshape(x, shape=(size_of(x.shape),)), 0
    return order_axis(x, axis=normalize_axis("argsort", axis, x.ndim), descending=bool(descending))


# The k largest


class TopK(NamedTuple):
    """The largest (or smallest) elements along an axis, and where they are."""

    values: Tensor
    indices: Tensor


def _places_of_top(x: Array, *, k: int, axis: int, largest: bool) -> Array:
    size, first = x.shape[axis], np.arange(k)
    if k == 0 or k * 8 > size:
        return _order(x, axis=axis, descending=largest).take(first, axis=axis)
    x = np.moveaxis(_comparable(x), axis, -1)
    some = _first_of_top(x, k, largest)
    order = _order(np.take_along_axis(x, some, -1), axis=-1, descending=largest)
    return np.moveaxis(np.take_along_axis(some, order, -1), -1, axis).astype(int64, copy=False)


def _first_of_top(x: Array, k: int, largest: bool) -> Array:
    """The indices of the k largest along the last axis, in rising order; of equal elements the first."""
    place = x.shape[-1] - k if largest else k - 1
    parted = np.argpartition(x, place, axis=-1)
    last = np.take_along_axis(x, parted[..., place, None], -1)  # the last one that is in
    some = np.sort(parted[..., place:] if largest else parted[..., :k], axis=-1)
    counts = [np.count_nonzero(a == last, axis=-1) for a in (x, np.take_along_axis(x, some, -1))]
    if np.array_equal(*counts) and not np.isnan(last).any():
        return some
    better = ~(x <= last) & ~np.isnan(last) if largest else (x < last) | (np.isnan(last) & ~np.isnan(x))
    equal = (x == last) | (np.isnan(last) & np.isnan(x))
    missing = k - better.sum(axis=-1, keepdims=True)
    chosen = better | (equal & (np.cumsum(equal, axis=-1) <= missing))
    return np.nonzero(chosen)[-1].reshape(*x.shape[:-1], k)


def _top_type(x: TensorType, *, k: int, axis: int, largest: bool) -> TensorType:
    need_real("topk", x)
    _check_k(x.shape[axis], axis, k)
    return TensorType((*x.shape[:axis], k, *x.shape[axis + 1 :]), int64)


def _check_k(size: int, axis: int, k: int) -> None:
    if surely_less(k, 0) or surely_less(size, k):
        raise DomainError("topk", f"k must be in 0..{size} for axis {axis}, got {k}")


places_of_top: Op = primitive(
    "topk_index",
    type_rule=_top_type,
    eval=_places_of_top,
    vjp=no_gradient("returns indices"),
    factors=along("axis"),
    samples=lambda: [
        Sample((real_array((3, 5)),), {"k": 2, "axis": 1, "largest": True}),
        Sample((int_array((6, 3), 0, 3),), {"k": 3, "axis": 0, "largest": False}),
        Sample((real_array((0, 3)),), {"k": 0, "axis": 0, "largest": True}),
        Sample((real_array((2, 100)),), {"k": 5, "axis": 1, "largest": True}),
        Sample((real_array((100,)),), {"k": 3, "axis": 0, "largest": False}),
    ],
)


@composite(samples=joined(call((3, 5), k=2), call((5, 3), k=5, axis=0, largest=False), call((3, 5), k=0)))
@example("(weft.tensor([1.0, 4.0, 3.0]), 2) -> TopK(values=tensor([4., 3.]), indices=tensor([1, 2]))")
def topk(x: Tensor, /, k: int, axis: int = -1, *, largest: bool = True, sorted: bool = True) -> TopK:
    """The k largest elements along an axis in order, and their indices; the smallest if not ``largest``."""
    need_real("topk", x)
    index = normalize_axis("topk", axis, x.ndim)
    (k,) = as_ints("topk", "k", k)
    _check_k(x.shape[index], index, k)
    places = places_of_top(x, k=k, axis=index, largest=bool(largest))
    return TopK(take_along_axis(x, places, axis=index), places)


# Search


def _search(x1: Array, x2: Array, *, side: Any) -> Array:
    x1, x2 = _comparable(x1), _comparable(x2)
    if x1.ndim == 1:
        return np.asarray(np.searchsorted(x1, x2, side=side), int64)
    count = size_of(x1.shape[:-1])
    rows, keys = x1.reshape(count, x1.shape[-1]), x2.reshape(count, x2.shape[-1])
    found = [np.searchsorted(r, k, side=side) for r, k in zip(rows, keys, strict=True)]
    return np.asarray(found, int64).reshape(x2.shape)


def _search_type(x1: TensorType, x2: TensorType, *, side: str) -> TensorType:
    if x1.ndim == 0 or (x1.ndim > 1 and x1.shape[:-1] != x2.shape[:-1]):
        raise ShapeError(
            "searchsorted", f"x1 must be a vector or have the leading axes of x2, got {x1} and {x2}"
        )
    need_real("searchsorted", x1)
    if x1.dtype != x2.dtype:
        raise DtypeError("searchsorted", f"dtypes must be equal, got {x1.dtype.name} and {x2.dtype.name}")
    return TensorType(x2.shape, int64)


def _batch_search(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    (x1, x2), (axis1, axis2) = inputs, axes
    if axis1 is None and x1.ndim == 1:
        return op(x1, x2, **attrs), axis2
    x1, x2 = to_front(x1, axis1, size), to_front(x2, axis2, size)
    keys = reshape(x2, shape=(*x1.shape[:-1], size_of(x2.shape) // max(1, size_of(x1.shape[:-1]))))
    return reshape(op(x1, keys, **attrs), shape=x2.shape), 0


search_sorted: Op = primitive(
    "searchsorted",
    type_rule=_search_type,
    eval=_search,
    vjp=no_gradient("returns indices"),
    batch=_batch_search,
    samples=lambda: [
        Sample((np.sort(int_array((6,))), int_array((2, 3), seed=1)), {"side": "left"}),
        Sample((np.sort(int_array((6,))), int_array((2, 3), seed=1)), {"side": "right"}),
        Sample((np.array([]), real_array((2,))), {"side": "left"}),
        Sample((np.sort(real_array((2, 5))), real_array((2, 3), seed=1)), {"side": "left"}),
    ],
)


@published('(weft.tensor([1, 3, 5]), weft.tensor([3, 4]), side="right") -> tensor([2, 2])')
def searchsorted(
    x1: Tensor,
    x2: Tensor,
    /,
    *,
    side: str = "left",
    sorter: Tensor | None = None,
    right: bool = False,
    out_int32: bool = False,
) -> Tensor:
    """Where the elements of ``x2`` would go into the sorted vector ``x1``, before or after equal ones."""
    if side not in ("left", "right"):
        raise ArgumentError("searchsorted", f"side must be 'left' or 'right', got {side!r}")
    x1, x2 = same_dtype("searchsorted", x1, x2)
    need_real("searchsorted", x1)
    if sorter is not None:
        x1 = gather_nd(x1, sorter) if x1.ndim == 1 else take_along_axis(x1, sorter, axis=-1)
    search_sorted.type_rule(type_of(x1), type_of(x2), side=side)
    places: Tensor = search_sorted(x1, x2, side="right" if right else side)
    return cast(places, dtype=int32) if out_int32 else places


@composite(
    samples=lambda: [
        Sample((int_array((2, 3)), int_array((4,), seed=1)), {}),
        Sample((int_array((2, 3)), np.zeros((0,), np.int64)), {}),
        Sample((real_array((3,)), real_array((3,))), {"invert": True}),
    ]
)
@example("(weft.tensor([1, 2, 3]), weft.tensor([3, 1])) -> tensor([ True, False,  True])")
def isin(x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Tensor:
    """Whether each element of ``x1`` is one of the elements of ``x2``."""
    if isinstance(x2, list | tuple):
        listed = np.asarray(x2)
        weak = listed.dtype.kind == "f" and kind(x1.dtype) == "f"  # as Python's numbers are
        x2 = listed.astype(x1.dtype) if weak else listed
    x1, x2 = same_dtype("isin", x1, x2)
    size = size_of(x2.shape)
    if size == 0:
        found = equal(x1, x1) if invert else equal(x1, x1) != equal(x1, x1)
        return found
    known = sort(reshape(x2, shape=(size,)))
    place = search_sorted(known, x1, side="left")
    hit = equal(gather_nd(known, select(place == size, np.asarray(size - 1), place)), x1)
    return hit != np.asarray(True) if invert else hit
