"""Writers of indexing with integer tensors, of class numbers, and of places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import int32, int64
from weft.base.shapes import broadcast_shapes
from weft.onnx.writers.registry import composite_writer, enter_writers, writer
from weft.onnx.writers.view import count_to
from weft.onnx.writers.writer import Ref, Writer


def _index(w: Writer, index: Ref) -> Ref:
    """An index in a dtype that ONNX indexes with."""
    return index if index.dtype in (int32, int64) else w.cast(index, int64)._replace(shape=index.shape)


def _stacked(w: Writer, indices: Sequence[Ref]) -> Ref:
    """Indices of several axes as the rows of one."""
    shape = broadcast_shapes("gather", [i.shape for i in indices])
    rows = []
    for index in indices:
        wide = w.cast(index, int64)
        spread = wide if index.shape == shape else w.emit("Expand", wide, w.ints(shape))
        rows.append(w.unsqueeze(spread, len(shape)))
    return rows[0] if len(rows) == 1 else w.emit("Concat", *rows, axis=len(shape))


@writer("gather")
def write_gather(w: Writer, x: Ref, *indices: Ref, from_end: bool = True) -> Any:
    """The elements at indices of the first axes."""
    if len(indices) == 1:
        return w.emit("Gather", x, _index(w, indices[0]), axis=0)
    return w.emit("GatherND", x, _stacked(w, indices)) if indices else x


@composite_writer("take")
def write_take(w: Writer, x: Ref, indices: Any, axis: int | None) -> Any:
    """The elements at indices along an axis."""
    if not isinstance(indices, Ref) or (axis is None and x.ndim != 1):
        return None
    return w.emit("Gather", x, _index(w, indices), axis=0 if axis is None else axis % x.ndim)


@composite_writer("take_along_axis")
def write_take_along_axis(w: Writer, x: Ref, indices: Ref, axis: int) -> Any:
    """An element for each index along an axis."""
    place = axis % x.ndim
    same = [a == b for i, (a, b) in enumerate(zip(x.shape, indices.shape, strict=False)) if i != place]
    if x.ndim != indices.ndim or not all(same):
        return None
    return w.emit("GatherElements", x, _index(w, indices), axis=place)


@writer("scatter_add")
def write_scatter_add(w: Writer, x: Ref, v: Ref, *indices: Ref) -> Any:
    """x with values added at indices of its first axes."""
    if not indices:
        return w.emit("Add", x, v)
    if w.opset < 16:
        w.fail(f"opset {w.opset} cannot add at indices", hint="export with opset=16 or above")
    return w.emit("ScatterND", x, _stacked(w, indices), v, reduction="add")


@writer("scatter_fold")
def write_scatter_fold(w: Writer, x: Ref, v: Ref, *indices: Ref, fold: str) -> Any:
    """x with values folded into what is at indices of its first axes."""
    if w.opset < 18:
        w.fail(f"opset {w.opset} cannot fold at indices", hint="export with opset=18 or above")
    return w.emit("ScatterND", x, _stacked(w, indices), v, reduction=fold)


# Class numbers


@writer("take_class", "pick_class")
def write_take_class(w: Writer, x: Ref, target: Ref, *, axis: int, ignore: int) -> Any:
    """The score of a class for each target, 0 where it is ignored."""
    wide = w.cast(target, int64)
    ignored = w.emit("Equal", wide, ignore)
    safe = w.emit("Where", ignored, w.constant(0, int64), wide)
    taken = w.emit("GatherElements", x, w.unsqueeze(safe, axis), axis=axis)
    taken = w.emit("Squeeze", taken, w.ints((axis,)))
    return w.emit("Where", ignored, w.constant(0, x.dtype), taken)


@writer("put_class")
def write_put_class(w: Writer, x: Ref, target: Ref, *, classes: int, axis: int, ignore: int) -> Any:
    """Zeros with a value at the class of each target."""
    wide = w.cast(target, int64)
    numbers = count_to(w, classes, x.ndim - axis)
    here = w.emit("Equal", w.unsqueeze(wide, axis), numbers)
    kept = w.emit("Not", w.emit("Equal", wide, ignore))
    values = w.emit("Where", kept, x, w.constant(0, x.dtype))
    return w.emit("Where", here, w.unsqueeze(values, axis), w.constant(0, x.dtype))


# Places


@writer("searchsorted")
def write_searchsorted(w: Writer, x1: Ref, x2: Ref, *, side: str) -> Any:
    """How many elements are before each key."""
    operator = "Less" if side == "left" else "LessOrEqual"
    known = x1 if x1.ndim == 1 else w.unsqueeze(x1, x1.ndim - 1)
    before = w.emit(operator, known, w.unsqueeze(x2, x2.ndim))
    return w.emit("ReduceSum", w.cast(before, int64), w.ints((x2.ndim,)), keepdims=0)


enter_writers(
    {
        "scatter": lambda w, x, v, *at: w.emit("ScatterND", x, _stacked(w, at), v) if at else v,
        "true_places": lambda w, mask, *, trips: w.emit("Squeeze", w.emit("NonZero", mask), w.ints((0,))),
        "count_below": lambda w, number, *, trips: w.emit(
            "Range", w.constant(0, int64), number, w.constant(1, int64)
        ),
    }
)
