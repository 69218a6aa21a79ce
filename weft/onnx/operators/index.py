"""Elements chosen by indices, and put where indices say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.base.shapes import size_of
from weft.onnx.operators.registry import Call, operator


@operator("Gather", moves=True)
def gather(call: Call, x: Tensor, index: Tensor) -> Any:
    """Slices along an axis."""
    before = (slice(None),) * (call.attribute("axis", 0) % x.ndim)
    known = call.known(index) if index.ndim == 0 else None
    return x[(*before, index if known is None else int(known))]


@operator("GatherElements", moves=True)
def gather_elements(call: Call, x: Tensor, index: Tensor) -> Any:
    """At each place the element there, but for an axis, where the index says which."""
    axis = call.attribute("axis", 0) % x.ndim
    return weft.gather(x, axis, index)


@operator("GatherND", moves=True)
def gather_nd(call: Call, x: Tensor, index: Tensor) -> Tensor:
    """Slices at tuples of indices, example by example if asked."""
    batch = call.attribute("batch_dims", 0)
    depth = index.shape[-1]
    own = [_counting(index.shape, axis) for axis in range(batch)]
    return x[(*own, *[index[..., i] for i in range(depth)])]


def _counting(shape: tuple[Any, ...], axis: int) -> Tensor:
    """The number of the place along an axis, for all places of an index without its last axis."""
    after = len(shape) - 2 - axis
    return weft.arange(shape[axis]).reshape((shape[axis], *(1,) * after))


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": weft.add,
    "mul": weft.mul,
    "max": weft.maximum,
    "min": weft.minimum,
}


@operator("Scatter", "ScatterElements", moves=True)
def scatter_elements(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Any:
    """With elements put at their own places, but for an axis, where the index says which."""
    axis = call.attribute("axis", 0) % x.ndim
    how = call.attribute("reduction", "none")
    if how == "none":
        return weft.scatter(x, axis, index, updates)
    if how == "add":
        return weft.scatter_add(x, axis, index, updates)
    combine = _COMBINE[how]

    def put(state: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        at, new = weft.expand_dims(row[0], axis=axis), weft.expand_dims(row[1], axis=axis)
        return weft.scatter(state, axis, at, combine(weft.gather(state, axis, at), new)), None

    rows = (weft.moveaxis(index, axis, 0), weft.moveaxis(updates, axis, 0))
    out: Tensor = weft.scan(put, x, rows)[0]
    return out


@operator("ScatterND", moves=True)
def scatter_nd(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Any:
    """With slices put at tuples of indices."""
    depth, how = index.shape[-1], call.attribute("reduction", "none")
    count = size_of(index.shape[:-1])
    places = index.reshape((count, depth))
    rows = updates.reshape((count, *x.shape[depth:]))
    if how == "none":
        return _with(x, tuple([places[:, i] for i in range(depth)]), rows)
    combine = _COMBINE[how]

    def put(state: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        at = tuple([row[0][i] for i in range(depth)])
        return _with(state, at, combine(state[at], row[1])), None

    out: Tensor = weft.scan(put, x, (places, rows))[0]
    return out


def _with(x: Tensor, at: tuple[Tensor, ...], new: Tensor) -> Any:
    """A tensor with other elements at some places."""
    out = weft.positive(x) if weft.isdtype(x.dtype, "numeric") else weft.logical_or(x, x)
    out[at] = new
    return out


@operator("OneHot")
def one_hot(call: Call, index: Tensor, depth: Tensor, values: Tensor) -> Any:
    """One value at the place that an index says along a new axis, another one elsewhere."""
    count = call.scalar(depth, "depth")
    count = int(count) if isinstance(count, float) else count
    axis = call.attribute("axis", -1)
    axis = axis + index.ndim + 1 if axis < 0 else axis
    places = weft.expand_dims(index, axis=axis).astype(weft.int64, copy=False)
    places = weft.where(places < 0, places + count, places)
    classes = weft.arange(count).reshape((count, *(1,) * (index.ndim - axis)))
    return weft.where(places == classes, values[1], values[0])


@operator("TopK")
def top_k(call: Call, x: Tensor, k: Any = None) -> tuple[Tensor, Tensor]:
    """The largest or smallest elements along an axis, and their places; of equal ones the first."""
    count = call.attribute("k") if k is None else call.scalar(k, "K")
    axis = call.attribute("axis", -1) % x.ndim
    largest = bool(call.attribute("largest", 1))
    order = weft.argsort(x, axis=axis, descending=largest, stable=True)
    places = order[(*(slice(None),) * axis, slice(0, count))]
    return weft.gather(x, axis, places), places


@operator("Trilu", moves=True)
def triangle(call: Call, x: Tensor, k: Any = None) -> Any:
    """The upper or lower triangle of matrices, 0 elsewhere."""
    offset = 0 if k is None else int(call.scalar(k, "k"))
    return (weft.triu if call.attribute("upper", 1) else weft.tril)(x, k=offset)


@operator("ReverseSequence", moves=True)
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Any:
    """The first elements of each example in reverse order, as many as a length says."""
    batch, time = call.attribute("batch_axis", 1), call.attribute("time_axis", 0)
    steps = weft.arange(x.shape[time]).reshape([x.shape[time] if a == time else 1 for a in range(x.ndim)])
    ends = lengths.reshape([x.shape[batch] if a == batch else 1 for a in range(x.ndim)])
    places = weft.where(steps < ends, ends - 1 - steps, steps)
    return weft.gather(x, time, weft.broadcast_to(places, x.shape))
