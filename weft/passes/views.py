"""Simplification of what only moves elements, and of sums over nothing.

These rules compute attributes from attributes and hold for ops with any number of inputs, so they look at
nodes
themselves: ``rule(draft, node)`` gives the values that stand for the outputs of a node, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.shapes import broadcast_shapes
from weft.base.sizes import Size
from weft.ir.graph import Node, Value
from weft.ir.rewrite import Draft, Results, Rule
from weft.ops.arithmetic import add, div, mul
from weft.ops.op import OPS
from weft.ops.reduce import reduce_max, reduce_min, reduce_prod, reduce_sum
from weft.ops.select import select
from weft.ops.view.primitives import broadcast_to, join, permute, reshape
from weft.ops.view.slices import pad_axes, slice_axes, update_slice

VIEWS: list[tuple[Any, Rule]] = []


def on(*ops: object) -> Callable[[Rule], Rule]:
    """Enter a rule for ops."""

    def enter(rule: Rule) -> Rule:
        VIEWS.extend((op, rule) for op in ops)
        return rule

    return enter


# Axes and shapes


@on(permute)
def permute_nothing(draft: Draft, node: Node) -> Results | None:
    """Axes in their own order."""
    axes = node.attrs["axes"]
    return node.inputs if axes == tuple(range(len(axes))) else None


@on(permute)
def permute_permute(draft: Draft, node: Node) -> Results | None:
    """Two permutations are one."""
    inner = draft.producer(node.inputs[0], permute)
    if inner is None:
        return None
    first = inner.attrs["axes"]
    return draft.emit(permute, inner.inputs, axes=tuple(first[a] for a in node.attrs["axes"]))


@on(reshape, broadcast_to)
def same_shape(draft: Draft, node: Node) -> Results | None:
    """A shape that is there already."""
    return node.inputs if node.attrs["shape"] == node.inputs[0].type.shape else None


@on(reshape)
def reshape_reshape(draft: Draft, node: Node) -> Results | None:
    """The last shape is the one that counts."""
    inner = draft.producer(node.inputs[0], reshape)
    return None if inner is None else draft.emit(reshape, inner.inputs, shape=node.attrs["shape"])


@on(broadcast_to)
def broadcast_broadcast(draft: Draft, node: Node) -> Results | None:
    """The last shape is the one that counts."""
    inner = draft.producer(node.inputs[0], broadcast_to)
    return None if inner is None else draft.emit(broadcast_to, inner.inputs, shape=node.attrs["shape"])


@on(broadcast_to)
def broadcast_of_unit_axes(draft: Draft, node: Node) -> Results | None:
    """Axes of size 1 in front need not be made: broadcasting makes them."""
    inner = draft.producer(node.inputs[0], reshape)
    if inner is None:
        return None
    given, made = inner.inputs[0].type.shape, node.inputs[0].type.shape
    lead = len(made) - len(given)
    if lead <= 0 or made != (1,) * lead + given:
        return None
    return draft.emit(broadcast_to, inner.inputs, shape=node.attrs["shape"])


def implicit_broadcast(draft: Draft, node: Node) -> Results | None:
    """An op that broadcasts its inputs needs none that is broadcast before, if another gives the shape."""
    for i, v in enumerate(node.inputs):
        inner = draft.producer(v, broadcast_to)
        if inner is None:
            continue
        inputs: list[Value] = [*node.inputs[:i], inner.inputs[0], *node.inputs[i + 1 :]]
        types = [x.type for x in inputs]
        if broadcast_shapes(node.op.name, [t.shape for t in types], types) == node.outputs[0].type.shape:
            return draft.emit(node.op, inputs, **node.attrs)
    return None


for _op in [*OPS.values()]:
    if (_op.accepts or _op is select) and len(_op.inputs) > 1:
        on(_op)(implicit_broadcast)


# Parts


def _covers(shape: tuple[Any, ...], attrs: Any) -> bool:
    """Whether a slice takes all elements in order."""
    plain = all(s == 0 for s in attrs["starts"]) and all(s == 1 for s in attrs["steps"])
    return plain and attrs["stops"] == shape


@on(slice_axes)
def slice_all(draft: Draft, node: Node) -> Results | None:
    """A slice of everything."""
    return node.inputs if _covers(node.inputs[0].type.shape, node.attrs) else None


@on(update_slice)
def update_all(draft: Draft, node: Node) -> Results | None:
    """New values for everything."""
    return node.inputs[1:] if _covers(node.inputs[0].type.shape, node.attrs) else None


def _ranges(attrs: Any) -> list[range] | None:
    """The elements that a slice takes along each axis; None where a size is not known."""
    bounds = list(zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True))
    if any(isinstance(b, Size) for bound in bounds for b in bound):
        return None
    return [range(*bound) for bound in bounds]


@on(slice_axes)
def slice_slice(draft: Draft, node: Node) -> Results | None:
    """A slice of a slice is one slice."""
    inner = draft.producer(node.inputs[0], slice_axes)
    if inner is None:
        return None
    first, second = _ranges(inner.attrs), _ranges(node.attrs)
    if first is None or second is None:
        return None
    taken = [
        a[b.start : b.stop if b.stop >= 0 else None : b.step] for a, b in zip(first, second, strict=True)
    ]
    if any(len(t) == 0 for t in taken):
        return None
    starts, steps = tuple(t.start for t in taken), tuple(t.step for t in taken)
    stops = tuple(t[-1] + (1 if t.step > 0 else -1) for t in taken)
    return draft.emit(slice_axes, inner.inputs, starts=starts, stops=stops, steps=steps)


@on(slice_axes)
def slice_of_concat(draft: Draft, node: Node) -> Results | None:
    """A slice that lies within one of the tensors that were joined is a slice of that tensor."""
    inner = draft.producer(node.inputs[0], join)
    taken = None if inner is None else _ranges(node.attrs)
    if inner is None or taken is None:
        return None
    axis, offset = inner.attrs["axis"], 0
    along = taken[axis]
    for part in inner.inputs:
        size = part.type.shape[axis]
        if isinstance(size, Size):
            return None
        if len(along) and offset <= min(along[0], along[-1]) and max(along[0], along[-1]) < offset + size:
            return draft.emit(slice_axes, [part], **_shifted(node.attrs, axis, offset))
        offset += size
    return None


def _shifted(attrs: Any, axis: int, offset: int) -> dict[str, Any]:
    starts, stops = list(attrs["starts"]), list(attrs["stops"])
    starts[axis] -= offset
    stops[axis] = max(stops[axis] - offset, -1)
    return {"starts": tuple(starts), "stops": tuple(stops), "steps": attrs["steps"]}


@on(pad_axes)
def pad_nothing(draft: Draft, node: Node) -> Results | None:
    """Padding by nothing."""
    attrs = node.attrs
    wide = any(s != 0 for name in ("low", "high", "interior") for s in attrs[name])
    return None if wide else node.inputs


# Joins


@on(join)
def concat_one(draft: Draft, node: Node) -> Results | None:
    """A join of one tensor."""
    return node.inputs if len(node.inputs) == 1 else None


@on(join)
def concat_empty(draft: Draft, node: Node) -> Results | None:
    """Tensors without elements need not be joined."""
    axis = node.attrs["axis"]
    filled = [v for v in node.inputs if v.type.shape[axis] != 0]
    if not filled or len(filled) == len(node.inputs):
        return None
    return draft.emit(join, filled, axis=axis)


@on(join)
def concat_concat(draft: Draft, node: Node) -> Results | None:
    """A join of joins along one axis is one join."""
    axis = node.attrs["axis"]
    parts: list[Value] = []
    for v in node.inputs:
        inner = draft.producer(v, join)
        flat = inner is not None and inner.attrs["axis"] == axis and draft.uses.get(v) == 1
        parts += inner.inputs if inner is not None and flat else [v]
    return None if len(parts) == len(node.inputs) else draft.emit(join, parts, axis=axis)


# Sums and quotients


@on(reduce_sum, reduce_prod, reduce_max, reduce_min)
def reduce_nothing(draft: Draft, node: Node) -> Results | None:
    """A reduction over no axis, or axes of size 1, is what there is; a sum begins at 0, so -0 becomes 0."""
    (x,) = node.inputs
    if any(x.type.shape[a] != 1 for a in node.attrs["axes"]) or x.type.dtype != node.outputs[0].type.dtype:
        return None
    (x,) = draft.emit(reshape, [x], shape=node.outputs[0].type.shape)
    if node.op is reduce_sum and kind(x.type.dtype) in "fc":
        (x,) = draft.emit(add, [x, draft.constant(np.zeros((), x.type.dtype))])
    return [x]


@on(div)
def div_by_power_of_two(draft: Draft, node: Node) -> Results | None:
    """Dividing by a power of two is multiplying by its reciprocal, to the bit, if that is a normal number."""
    x, y = node.inputs
    array = draft.array(y)
    if array is None or array.ndim or kind(array.dtype) != "f" or array.dtype.itemsize < 4:
        return None
    fraction, exponent = np.frexp(array)
    if abs(fraction) != 0.5 or abs(int(exponent)) > 100:
        return None
    return draft.emit(mul, [x, draft.constant(np.asarray(1 / array, array.dtype))])
