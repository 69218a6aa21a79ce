"""Points of the ops that move elements: where an element of the result comes from.

Some look elements up by integers that only a run tells. An index that is out of range is noted as a failure;
what is read in its place is safe, and not used.
"""

from __future__ import annotations

from typing import Any, overload

from weft.base.dtypes import int64, kind
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Shape
from weft.schedule.extents import is_number, is_positive, weight
from weft.schedule.pointwise.rules import Indices, Reader, broadcast_index, pointwise


@pointwise("iota")
def _iota(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    return r.builder.cast(index[0], node.attrs["dtype"])


@pointwise("size")
def _size(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    return r.builder.cast(Index.of(node.attrs["value"]), node.attrs["dtype"])


# Elements that come from one input or another


MOST_PARTS = 4  # that an element is searched for in


@pointwise("concat", where=lambda node: len(node.inputs) <= MOST_PARTS)
def _concat(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    axis, b = node.attrs["axis"], r.builder
    parts = [v for v in node.inputs if not is_number(v.type.shape[axis], 0)] or list(node.inputs[:1])
    place, start, read = index[axis], 0, []
    for k, value in enumerate(parts):
        stop = start + value.type.shape[axis]
        inside = None if k == len(parts) - 1 else b.lt(place, Index.of(stop))
        here = both(b, inside, None if k == 0 else b.le(Index.of(start), place))
        moved = (*index[:axis], place - start, *index[axis + 1 :])
        read.append((inside, r.read(value, moved, both(b, mask, here))))
        start = stop
    out = read[-1][1]
    for inside, x in reversed(read[:-1]):
        assert inside is not None  # it is for the last part alone
        out = b.select(inside, x, out)
    return out


@pointwise("pad")
def _pad(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    (x,), attrs, b = node.inputs, node.attrs, r.builder
    steps = tuple(i + 1 for i in attrs["interior"])
    inside, moved = part_of(b, index, attrs["low"], steps, x.type.shape, node.outputs[0].type.shape)
    read = r.read(x, moved, both(b, mask, inside))
    return read if inside is None else b.select(inside, read, b.constant(attrs["value"], read.dtype))


def _is_large_part(node: Node) -> bool:
    """Whether a good part of an array is new, so that writing all of it is no waste."""
    x, v = node.inputs
    return 4 * weight(*v.type.shape) >= weight(*x.type.shape)


@pointwise("update_slice", where=_is_large_part)
def _update_slice(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    (x, v), attrs, b = node.inputs, node.attrs, r.builder
    inside, moved = part_of(b, index, attrs["starts"], attrs["steps"], v.type.shape, x.type.shape)
    new = r.read(v, moved, both(b, mask, inside))
    if inside is None:
        return new
    return b.select(inside, new, r.read(x, index, both(b, mask, b.not_(inside))))


def part_of(
    b: Builder, index: Indices, starts: Shape, steps: Shape, part: Shape, whole: Shape
) -> tuple[Value | None, Indices]:
    """Whether the element at an index is in a slice (None: all are), and its index there.

    The slice has the elements ``start + i * step``, i below the part's size, of each axis of the whole.
    """
    inside: Value | None = None
    moved = []
    for i, start, step, count, size in zip(index, starts, steps, part, whole, strict=True):
        if is_number(step, 1) and is_number(start, 0) and count == size:
            moved.append(i)
            continue
        condition, place = _in_range(b, i, start, step, count)
        inside = both(b, inside, condition)
        moved.append(place)
    return inside, tuple(moved)


def _in_range(b: Builder, i: Index, start: Any, step: Any, count: Any) -> tuple[Value, Index]:
    """Whether i is one of ``start + k * step`` with k below a count, and k."""
    away = i - start if is_positive(step) else Index.of(start) - i
    by = step if is_positive(step) else -step
    condition = both(b, b.le(0, away), b.lt(away, Index.of(count) * by))
    if is_number(by, 1):
        return condition, away
    steps = Index.of(by)
    condition = both(b, condition, b.eq(b.rem(away, steps), 0))
    return condition, b.term(b.div(away, steps), count)


@overload
def both(b: Builder, x: Value, y: Value | None) -> Value: ...
@overload
def both(b: Builder, x: Value | None, y: Value) -> Value: ...
@overload
def both(b: Builder, x: Value | None, y: Value | None) -> Value | None: ...
def both(b: Builder, x: Value | None, y: Value | None) -> Value | None:
    """The conjunction of two conditions, of which either may be None for one that always holds."""
    if x is None or y is None:
        return y if x is None else x
    return b.and_(x, y)


@pointwise("cross")
def _cross(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    x, y = node.inputs
    axis, b = node.attrs["axis"], r.builder
    i = index[axis]
    following = b.term(b.select(b.lt(i, 2), i + 1, i - 2), 3)
    last = b.term(b.select(b.lt(i, 1), i + 2, i - 1), 3)

    def at(value: Any, place: Index) -> Value:
        whole = (*index[:axis], place, *index[axis + 1 :])
        return r.read(value, broadcast_index(whole, value.type.shape), mask)

    out: Value = b.sub(b.mul(at(x, following), at(y, last)), b.mul(at(x, last), at(y, following)))
    return out


@pointwise("gather")
def _gather(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    x, *indices = node.inputs
    rank = len(index) - (len(x.type.shape) - len(indices))
    places, safe = [], mask
    for axis, value in enumerate(indices):
        number = r.read(value, broadcast_index(index[:rank], value.type.shape), mask)
        size = x.type.shape[axis]
        place, outside = place_on_axis(r.builder, number, size, node.attrs.get("from_end", True))
        r.fail(node, both(r.builder, mask, outside), "bounds", *bounds_values(r.builder, axis, size, number))
        if not (is_number(size) and size > 0):  # there may be nothing that could be read instead
            safe = both(r.builder, safe, r.builder.not_(outside))
        places.append(place)
    return r.read(x, (*places, *index[rank:]), safe)


def place_on_axis(b: Builder, number: Value, size: Any, from_end: bool = True) -> tuple[Index, Value]:
    """An integer as a place on an axis, and whether it is outside; a negative one may count from the end.

    What is outside is taken for 0.
    """
    extent = Index.of(size)
    wide = b.cast(number, int64)
    if from_end and kind(number.dtype) != "u":
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
