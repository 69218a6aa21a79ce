"""Elements chosen by indices, and put where indices say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft import Tensor
from weft.interop.forms.elements import along, as_number, numbers_below
from weft.interop.forms.reduce import ranked
from weft.interop.forms.scatter import scatter_along, scatter_at
from weft.onnx.operators.registry import Call, enter_handlers, operator


@operator("Gather", moves=True)
def gather(call: Call, x: Tensor, index: Tensor) -> Any:
    """Slices along an axis."""
    known = call.known(index) if index.ndim == 0 else None
    return x[along(call.attribute("axis", 0) % x.ndim, index if known is None else int(known))]


@operator("GatherND", moves=True)
def gather_nd(call: Call, x: Tensor, index: Tensor) -> Tensor:
    """Slices at tuples of indices, example by example if asked."""
    batch = call.attribute("batch_dims", 0)
    depth = index.shape[-1]
    own = [numbers_below(index.shape[axis], index.ndim - 2 - axis) for axis in range(batch)]
    return x[(*own, *[index[..., i] for i in range(depth)])]


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
def one_hot(call: Call, index: Tensor, depth: Tensor, values: Tensor) -> Any:
    """One value at the place that an index says along a new axis, another one elsewhere."""
    count = call.scalar(depth, "depth")
    count = int(count) if isinstance(count, float) else count
    axis = call.attribute("axis", -1)
    axis = axis + index.ndim + 1 if axis < 0 else axis
    places = weft.expand_dims(index, axis=axis).astype(weft.int64, copy=False)
    places = weft.where(places < 0, places + count, places)
    return weft.where(places == numbers_below(count, index.ndim - axis), values[1], values[0])


@operator("TopK")
def top_k(call: Call, x: Tensor, k: Any = None) -> tuple[Tensor, Tensor]:
    """The largest or smallest elements along an axis, and their places; of equal ones the first."""
    count = call.attribute("k") if k is None else call.scalar(k, "K")
    axis = call.attribute("axis", -1) % x.ndim
    largest = bool(call.attribute("largest", 1))
    return ranked(x, axis, descending=largest, count=count)


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


enter_handlers(
    {"GatherElements": lambda call, x, index: weft.gather(x, call.attribute("axis", 0) % x.ndim, index)},
    moves=True,
)
