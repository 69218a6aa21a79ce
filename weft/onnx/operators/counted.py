"""Operators whose results are as long as a run tells: the places of true elements, distinct elements."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.base.shapes import size_of
from weft.onnx.operators.registry import Call, operator
from weft.ops.places import true_places
from weft.tensor.mode import thread
from weft.transform.fresh import fresh_size


def places_of(mask: Tensor) -> Tensor:
    """Where a vector holds true; in a graph, a vector of a size that only a run tells."""
    if thread.capture is None:
        return weft.nonzero(mask)[0]
    out: Tensor = true_places.on_tensors(mask, trips=fresh_size())
    return out


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
def compress(call: Call, x: Tensor, condition: Tensor) -> Any:
    """The slices along an axis for which a condition holds."""
    axis = call.attribute("axis")
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
    begins = _begins(weft.take(rows, order, axis=0))
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


def _begins(rows: Tensor) -> Any:
    """Whether a row differs from the one before it."""
    changed = weft.any(rows[1:] != rows[:-1], axis=1)
    return weft.concat([weft.ones(1, dtype=weft.bool), changed])


def _starts(order: Tensor, begins: Tensor) -> Any:
    """For each row in order the number of the first one that equals it."""
    steps = weft.arange(order.shape[0])
    start: Any = weft.cummax(weft.where(begins, steps, weft.zeros_like(steps)), axis=0)[0]
    return weft.take(order, start, axis=0)


def _placed(values: Tensor, at: Tensor) -> Any:
    """Values put in places that are a permutation."""
    return weft.scatter(weft.zeros_like(values), 0, at, values)
