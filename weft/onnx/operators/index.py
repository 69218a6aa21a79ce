"""Elements chosen by indices or conditions, and put where indices say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft import Tensor
from weft.base.shapes import size_of
from weft.interop.forms.elements import along, as_number, numbers_below
from weft.interop.forms.reduce import ranked
from weft.interop.forms.scatter import scatter_along, scatter_at
from weft.onnx.operators.registry import Call, enter_handlers, operator
from weft.onnx.operators.run_time import count as count_of
from weft.onnx.operators.run_time import places_of


@operator("Gather", moves=True)
def gather(call: Call, x: Tensor, index: Tensor, *, axis: int = 0) -> Any:
    """Slices along an axis."""
    known = call.known(index) if index.ndim == 0 else None
    return x[along(axis % x.ndim, index if known is None else int(known))]


@operator("GatherND", moves=True)
def gather_nd(call: Call, x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Slices at tuples of indices, example by example if asked."""
    own = [numbers_below(index.shape[axis], index.ndim - 2 - axis) for axis in range(batch_dims)]
    return x[(*own, *[index[..., i] for i in range(index.shape[-1])])]


_HOW = {"none": "set", "add": "sum", "mul": "prod", "max": "max", "min": "min"}


@operator("Scatter", "ScatterElements", moves=True)
def scatter_elements(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """With elements put at their own places, but for an axis, where the index says which."""
    axis, how = call.attribute("axis", 0) % x.ndim, _HOW[call.attribute("reduction", "none")]
    (places,) = _from_start(call, index, [index], x.shape[axis : axis + 1])
    return scatter_along(x, axis, places, updates, how)


@operator("ScatterND", moves=True)
def scatter_nd(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """With slices put at tuples of indices."""
    columns = [index[..., i] for i in range(index.shape[-1])]
    places = _from_start(call, index, columns, x.shape[: len(columns)])
    return scatter_at(x, places, updates, _HOW[call.attribute("reduction", "none")])


def _from_start(call: Call, whole: Tensor, parts: list[Tensor], sizes: Sequence[Any]) -> list[Any]:
    """Parts of an index, without numbers that count from the end of axes."""
    known = call.known(whole)
    if known is not None and (known >= 0).all():
        return parts
    return [weft.where(i < 0, i + as_number(n), i) for i, n in zip(parts, sizes, strict=True)]


@operator("OneHot")
def one_hot(call: Call, index: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Any:
    """One value at the place that an index says along a new axis, another one elsewhere."""
    count = count_of(call, depth, "depth")
    axis = axis + index.ndim + 1 if axis < 0 else axis
    places = weft.expand_dims(index, axis=axis).astype(weft.int64, copy=False)
    places = weft.where(places < 0, places + count, places)
    return weft.where(places == numbers_below(count, index.ndim - axis), values[1], values[0])


@operator("TopK")
def top_k(call: Call, x: Tensor, k: Any = None, *, axis: int = -1, largest: int = 1) -> tuple[Tensor, Tensor]:
    """The largest or smallest elements along an axis, and their places; of equal ones the first."""
    axis %= x.ndim
    count = call.attribute("k") if k is None else count_of(call, k, "K", most=x.shape[axis])
    return ranked(x, axis, descending=bool(largest), count=count)


@operator("ReverseSequence", moves=True)
def reverse_sequence(
    call: Call, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Any:
    """The first elements of each example in reverse order, as many as a length says."""
    steps = numbers_below(x.shape[time_axis], x.ndim - 1 - time_axis)
    ends = lengths.reshape((-1, *(1,) * (x.ndim - 1 - batch_axis)))
    places = weft.where(steps < ends, ends - 1 - steps, steps)
    return weft.gather(x, time_axis, weft.broadcast_to(places, x.shape))


enter_handlers(
    {"GatherElements": lambda call, x, index, *, axis=0: weft.gather(x, axis % x.ndim, index)}, moves=True
)


@operator("Trilu", moves=True)
def triangle(call: Call, x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Any:
    """One triangle of matrices, from a diagonal on; zeros in the other."""
    if k is None or call.known(k) is not None:
        return (weft.triu if upper else weft.tril)(x, k=0 if k is None else int(call.scalar(k, "k")))
    rows, columns = numbers_below(x.shape[-2], 1), numbers_below(x.shape[-1])
    away = columns - rows - k.reshape(())
    return weft.where(away >= 0 if upper else away <= 0, x, weft.zeros((), dtype=x.dtype))


# Results as long as a run tells: the places of true elements, distinct elements


@operator("NonZero")
def nonzero(call: Call, x: Tensor) -> Any:
    """The places of elements that are not 0, a column for each."""
    shape = x.shape or (1,)
    flat = places_of(x.reshape((size_of(shape),)) != 0)
    rows: list[Tensor] = []
    for size in shape[:0:-1]:
        rows.insert(0, weft.remainder(flat, size))
        flat = weft.floor_divide(flat, size)
    return weft.stack([flat, *rows])


@operator("Compress", moves=True)
def compress(call: Call, x: Tensor, condition: Tensor, *, axis: int | None = None) -> Any:
    """The slices along an axis for which a condition holds."""
    rows = x.reshape((size_of(x.shape),)) if axis is None else x
    return weft.take(rows, places_of(condition), axis=0 if axis is None else axis % x.ndim)


@operator("Unique")
def unique(call: Call, x: Tensor) -> tuple[Tensor, ...]:
    """Distinct elements or slices, where each first is, which one each is, and how often each is there."""
    axis = call.attribute("axis")
    whole = x.reshape((size_of(x.shape),)) if axis is None else x
    along = 0 if axis is None else axis % x.ndim
    count = whole.shape[along]
    rows = weft.moveaxis(whole, along, 0).reshape((count, -1))
    order = _order(rows)
    sorted_rows = weft.take(rows, order, axis=0)
    changed = weft.any(sorted_rows[1:] != sorted_rows[:-1], axis=1)
    begins = weft.concat([weft.ones(1, dtype=weft.bool), changed])
    if call.attribute("sorted", 1):
        number = weft.cumsum(begins.astype(weft.int64), axis=0) - 1
        inverse = _placed(number, order)
        first = weft.take(order, places_of(begins), axis=0)
    else:
        is_first = _placed(begins, order)
        first = places_of(is_first)
        ranks = weft.cumsum(is_first.astype(weft.int64), axis=0) - 1
        inverse = weft.take(ranks, _placed(_starts(order, begins), order), axis=0)
    each = weft.scatter_add(weft.zeros(count, dtype=weft.int64), 0, inverse, weft.ones_like(inverse))
    counts = weft.take(each, weft.take(inverse, first, axis=0), axis=0)
    return weft.take(whole, first, axis=along), first, inverse, counts


def _order(rows: Tensor) -> Any:
    """The order of rows by their first element, then their second, and so on."""
    order = weft.argsort(rows[:, -1], stable=True)
    for column in range(int(rows.shape[1]) - 2, -1, -1):
        order = weft.take(order, weft.argsort(weft.take(rows[:, column], order, axis=0), stable=True), axis=0)
    return order


def _starts(order: Tensor, begins: Tensor) -> Any:
    """For each row in order the number of the first one that equals it."""
    steps = weft.arange(order.shape[0])
    start: Any = weft.cummax(weft.where(begins, steps, weft.zeros_like(steps)), axis=0)[0]
    return weft.take(order, start, axis=0)


def _placed(values: Tensor, at: Tensor) -> Any:
    """Values put in places that are a permutation."""
    return weft.scatter(weft.zeros_like(values), 0, at, values)
