"""Points of the ops that look elements up by integers that only a run tells.

An index that is out of range is noted as a failure; what is read in its place is safe, and not used.
"""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import int64, kind
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.extents import is_number
from weft.schedule.pointwise.rules import Indices, Reader, broadcast_index, pointwise
from weft.schedule.pointwise.views import both


@pointwise("gather")
def _gather(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    x, *indices = node.inputs
    rank = len(index) - (len(x.type.shape) - len(indices))
    places, safe = [], mask
    for axis, value in enumerate(indices):
        number = r.read(value, broadcast_index(index[:rank], value.type.shape), mask)
        size = x.type.shape[axis]
        place, outside = place_on_axis(r.builder, number, size)
        r.fail(node, both(r.builder, mask, outside), "bounds", *bounds_values(r.builder, axis, size, number))
        if not (is_number(size) and size > 0):  # there may be nothing that could be read instead
            safe = both(r.builder, safe, r.builder.not_(outside))
        places.append(place)
    return r.read(x, (*places, *index[rank:]), safe)


def place_on_axis(b: Builder, number: Value, size: Any) -> tuple[Index, Value]:
    """An integer as a place on an axis, counted from the end where it is negative; and whether it is outside.

    What is outside is taken for 0.
    """
    extent = Index.of(size)
    wide = b.cast(number, int64)
    if kind(number.dtype) != "u":
        wide = b.select(b.lt(wide, 0), b.add(wide, extent), wide)
    outside = b.or_(b.lt(wide, 0), b.le(extent, wide))
    return b.term(b.select(outside, b.constant(0, int64), wide), size), outside


def bounds_values(b: Builder, axis: int, size: Any, number: Value) -> tuple[Value, ...]:
    """The values of a failure of kind "bounds"."""
    return b.constant(axis, int64), Index.of(size), b.cast(number, int64)


@pointwise("take_class")
def _take_class(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    x, _ = node.inputs
    axis, b = node.attrs["axis"], r.builder
    classes = x.type.shape[axis]
    target, kept, inside = _class(r, node, index, classes, mask)
    place = b.term(b.select(inside, target, b.constant(0, int64)), classes)
    safe = mask if is_number(classes) and classes > 0 else both(b, mask, inside)
    read = r.read(x, (*index[:axis], place, *index[axis:]), safe)
    return b.select(kept, read, b.constant(0, read.dtype))


@pointwise("put_class")
def _put_class(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    x, _ = node.inputs
    axis, b = node.attrs["axis"], r.builder
    rest = (*index[:axis], *index[axis + 1 :])
    target, kept, _ = _class(r, node, rest, node.attrs["classes"], mask)
    hit = b.and_(kept, b.eq(index[axis], target))
    read = r.read(x, rest, mask)
    return b.select(hit, read, b.constant(0, read.dtype))


def _class(
    r: Reader, node: Node, index: Indices, classes: Any, mask: Value | None
) -> tuple[Value, Value, Value]:
    """The number of a class, whether it counts, and whether there is such a class; a wrong one fails."""
    b = r.builder
    number = r.read(node.inputs[1], index, mask)
    wide = b.cast(number, int64)
    ignore = b.constant(node.attrs["ignore"], int64)
    kept = b.not_(b.eq(wide, ignore))
    inside = b.and_(b.le(0, wide), b.lt(wide, Index.of(classes)))
    wrong = b.and_(kept, b.not_(inside))
    r.fail(node, both(b, mask, wrong), "class", Index.of(classes), ignore, wide)
    return wide, kept, inside
