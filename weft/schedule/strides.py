"""Views: where their elements lie in the input, and as strides where these describe it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.sizes import Size
from weft.errors import ShapeError
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index, Variable
from weft.schedule.arrays import Array, Shape


def source_index(node: Node, index: Sequence[Index]) -> list[Index]:
    """Where the element of a view at an index lies in its input, one term for each axis of that."""
    assert callable(node.op.view)
    return [Index.of(i) for i in node.op.view(index, node.inputs[0].type, **node.attrs)]


def reshape_index(b: Builder, index: Sequence[Index], shape: Shape, source: Shape) -> tuple[Index, ...]:
    """The index into an array of a shape, of the element that has an index in another shape."""
    start = 0
    while start < min(len(shape), len(source)) and shape[start] == source[start]:
        start += 1
    flat = Index.of(0)
    for i, size in zip(index[start:], shape[start:], strict=True):
        flat = flat * size + i
    flat = flat.folded()
    out: list[Index] = []
    for size in reversed(source[start:]):
        if not isinstance(size, Size) and size == 1:
            out.append(Index.of(0))
            continue
        out.append(b.remainder(flat, size))
        flat = b.quotient(flat, size)
    return (*index[:start], *reversed(out))


def view_of(x: Array, node: Node) -> Array | None:
    """The array that a view op gives of an array; None where no strides describe it."""
    shape = node.outputs[0].type.shape
    if node.op.view == "flat":
        return _reshaped(x, shape)
    axes = [Variable(f"i{k}", size) for k, size in enumerate(shape)]
    strides: dict[Variable, Any] = dict.fromkeys(axes, 0)
    offset = x.offset
    places = source_index(node, [Index.of(v) for v in axes])
    if 0 not in shape:
        _check_inside(node, places)
    # An index is a sum of steps along the axes of the view, so its place in memory is one, too.
    for place, stride in zip(places, x.strides, strict=True):
        if any(isinstance(step, Size) or step < 0 for step in place.terms.values()):
            return None
        offset = offset + Index.of(place.offset) * stride
        for axis, step in place.terms.items():
            strides[axis] = strides[axis] + stride * step
    return Array(x.buffer, shape, tuple(strides.values()), offset)


def _check_inside(node: Node, places: Sequence[Index]) -> None:
    """Refuse a view that reads beyond its input: nothing checks addresses when code runs."""
    name, shape = node.op.name, node.inputs[0].type.shape
    if len(places) != len(shape):
        raise ShapeError(name, f"view must give an index for each of {len(shape)} axes, got {len(places)}")
    for axis, (place, size) in enumerate(zip(places, shape, strict=True)):
        bounds = None if isinstance(size, Size) else place.bounds()
        if bounds is not None and not 0 <= bounds[0] <= bounds[1] < size:
            raise ShapeError(
                name, f"view must stay in axis {axis} of size {size}, got places {bounds[0]} to {bounds[1]}"
            )


def _reshaped(x: Array, shape: Shape) -> Array | None:
    if x.is_dense or 0 in shape:
        return x.with_shape(shape)
    strides = _split_strides(x, shape)
    return None if strides is None else Array(x.buffer, shape, strides, x.offset)


def _split_strides(x: Array, shape: Shape) -> Shape | None:
    """Strides of another shape where each of its axes is a part of one axis, or a run of axes, of x."""
    runs = _merged(x)
    strides: list[Any] = []
    axes = list(reversed(shape))
    for size, stride in reversed(runs):
        step, left = stride, size
        while axes and not (isinstance(left, int) and left == 1):
            part = axes[0]
            if isinstance(left, Size) or isinstance(part, Size):
                if left != part:
                    return None
            elif left % part:
                return None
            strides.append(step)
            step, left = step * part, 1 if left == part else left // part
            axes.pop(0)
        if not (isinstance(left, int) and left == 1):
            return None
    if any(isinstance(a, Size) or a != 1 for a in axes):
        return None
    return tuple(reversed([*strides, *[0] * len(axes)]))


def _merged(x: Array) -> list[tuple[Any, Any]]:
    """Sizes and strides with axes merged that lie in order; those of size 1 are left out."""
    runs: list[tuple[Any, Any]] = []
    for size, stride in zip(x.shape, x.strides, strict=True):
        if not isinstance(size, Size) and size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    return runs
