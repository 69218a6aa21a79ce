"""Keys that hold Numbers: ``x[i, j]``, ``x[i : i + 2]`` and ``items[i]`` where ``i`` is a value of the graph.

A slice whose bounds only a run tells has sizes of its own in regions (``extents``), and fixed bounds, with a
guard, elsewhere; one whose length is known, though it may leave the tensor, is a window. An item of a Python
sequence is picked by the graph where all items are alike.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import int64, kind
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.capture.program.slots import MISSING
from weft.capture.runtime.extents import as_size, made_alike, span_of, surely_leaves, surely_within
from weft.capture.runtime.lists import GraphList
from weft.capture.runtime.number import KINDS, PLAIN, Number, number_of
from weft.capture.runtime.picked import pick_tensor
from weft.capture.runtime.places import note_read
from weft.capture.runtime.whole import items
from weft.ops.op import type_of
from weft.ops.select import cast, select
from weft.ops.view.primitives import stack
from weft.tensor.creation import asarray
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread
from weft.tensor.selection import Span
from weft.tensor.tensor import Tensor
from weft.tensor.window import WINDOW, window

# Tensors


def read_tensor(tensor: Any, key: Any) -> Any:
    """``tensor[key]``, with Numbers in the key."""
    view, rest = _at_windows(tensor, _graph_key(tensor, key))
    return view if rest is MISSING else view[rest]


def _holds_number(item: Any) -> bool:
    if isinstance(item, slice):
        return any(isinstance(x, Number | Tensor) for x in (item.start, item.stop, item.step))
    return isinstance(item, Number) or _is_list_of_indices(item)


def _is_list_of_indices(item: Any) -> bool:
    """Whether an item of a key is a list of ints, of which a run tells some: ``x[[i, j]]``."""
    return (
        isinstance(item, list)
        and any(isinstance(x, Number | Tensor) for x in item)
        and all(isinstance(x, int | Number) or (isinstance(x, Tensor) and x.ndim == 0) for x in item)
    )


def _stacked(indices: Sequence[Any]) -> Tensor:
    """Indices as one tensor."""
    return stack([_as_index(x) if isinstance(x, Number) else asarray(x, dtype=int64) for x in indices])


def _graph_key(tensor: Any, key: Any) -> Any:
    """A key with tensors for Numbers; slices that begin at one are windows, and others have fixed bounds."""
    items = key if isinstance(key, tuple) else (key,)
    if not any(map(_holds_number, items)):
        return key
    if thread.capture.region:
        key = _spanned(tensor, items)
        items = key if type(key) is tuple else (key,)
        if not any(map(_holds_number, items)):
            return key
    out: list[Any] = []
    for item, axis in zip(items, _axes_of(tensor, items), strict=True):
        if isinstance(item, Number):
            out.append(_as_index(item))
        elif isinstance(item, list) and _holds_number(item):
            out.append(_stacked(item))
        elif _holds_number(item):
            out.append(_slice_or_window(item, tensor.shape[axis]))
        else:
            out.append(item)
    return tuple(out) if len(out) > 1 else out[0]


def _spanned(tensor: Any, items: tuple[Any, ...]) -> Any:
    """A key with spans for slices that a run bounds, and sizes for indices beside them that surely fit."""
    axes = _axes_of(tensor, items)
    spans: list[Any] = list(items)
    for k, (item, axis) in enumerate(zip(items, axes, strict=True)):
        if isinstance(item, slice) and _holds_number(item) and axis < tensor.ndim:
            spans[k] = _span(item, tensor.shape[axis])
    if any(isinstance(x, Span) for x in spans) or _is_inner(items):
        for k, (item, axis) in enumerate(zip(items, axes, strict=True)):
            if isinstance(item, Number) and axis < tensor.ndim and surely_within(item, tensor.shape[axis]):
                spans[k] = as_size(item)
    return tuple(spans) if len(spans) > 1 else spans[0]


def _span(item: slice, size: Any) -> Any:
    """A slice with numbers of a run; itself if it is a window of which only a run tells whether it fits."""
    item = slice(*[_read_bound(x) for x in (item.start, item.stop, item.step)])
    if _window_length(item) is not None:
        start, stop = number_of(item.start), number_of(item.stop)
        inside = surely_within(start, size) and surely_within(stop, size + 1)
        if not inside and not (surely_leaves(start.form) or surely_leaves(size - stop.form)):
            return item
    return span_of(item, size) or item


def _read_bound(x: Any) -> Any:
    """A bound of a slice; a tensor of one whole number is a number, and a float no bound."""
    if isinstance(x, Number) and x.kind is float:
        operator.index(x)  # raises as Python does
    is_int = isinstance(x, Tensor) and x.ndim == 0 and kind(x.dtype) in "iu"
    return Number(int, cast(x, dtype=int64)) if is_int else x


def _is_inner(items: Sequence[Any]) -> bool:
    """Whether a key takes more than whole rows: a part of one, or a column."""
    numbers = [isinstance(x, Number) for x in items]
    rest = items[sum(numbers) :] if any(numbers) else items
    plain = all(
        x is None or x is Ellipsis or isinstance(x, slice | int) for x in items if not isinstance(x, Number)
    )
    whole = all(isinstance(x, slice) and x == slice(None) for x in rest)
    return plain and any(isinstance(x, slice) for x in items) and not (all(numbers[: sum(numbers)]) and whole)


def _axes_of(tensor: Any, items: Sequence[Any]) -> list[int]:
    """The axis of the tensor that each item of a key stands at."""
    taken = [0 if x is None or x is Ellipsis else getattr(x, "ndim", 1) if _is_mask(x) else 1 for x in items]
    missing = tensor.ndim - sum(taken)
    axes, axis = [], 0
    for item, count in zip(items, taken, strict=True):
        axes.append(axis)
        axis += missing if item is Ellipsis else count
    return axes


def _is_mask(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.bool_


def _as_index(number: Number) -> Any:
    if number.kind is float:
        operator.index(number)  # raises as Python does
    return number.as_kind(int)


class _Window(NamedTuple):
    """A slice whose length is known though its start is not."""

    start: Tensor
    length: int
    step: int


def _slice_or_window(item: slice, size: Any) -> Any:
    """A slice with a number in it: a window, or one with the bounds that it has in this version."""
    length = _window_length(item)
    if length is not None:
        start, step = _as_number(item.start), 1 if item.step is None else item.step
        assert start is not None
        return _Window(_guarded(start, size), len(range(0, length, step)), step)
    return slice(
        *[int(x) if isinstance(x, Number | Tensor) else x for x in (item.start, item.stop, item.step)]
    )


def _at_windows(tensor: Any, key: Any) -> tuple[Any, Any]:
    """A view of the windows in a key, and the key of what is left to take of it; ``MISSING`` if nothing is.

    What else the key takes is taken first, which is less to gather, unless lists or tensors of indices are
    in it.
    """
    items = key if type(key) is tuple else (key,)
    if not any(type(item) is _Window for item in items):
        return tensor, key
    rest = tuple(slice(None) if type(item) is _Window else item for item in items)
    is_first = not all(map(_is_basic, rest))
    axes = _axes_of(tensor, items) if is_first else _axes_left(tensor, items)
    is_whole = all(type(item) is slice and item == slice(None) for item in rest)
    view = tensor if is_first or is_whole else tensor[rest]
    for item, axis in zip(items, axes, strict=True):
        if type(item) is _Window:
            view = window(view, (axis, item.start, item.length, item.step))
    return view, rest if is_first else MISSING


def _is_basic(item: Any) -> bool:
    """Whether an item of a key takes a view."""
    if item is None or item is Ellipsis or isinstance(item, slice | Span | Size):
        return True
    is_number = isinstance(item, int | np.integer) and not isinstance(item, bool)
    return is_number or (isinstance(item, Tensor) and item.ndim == 0 and kind(item.dtype) in "iu")


def _axes_left(tensor: Any, items: Sequence[Any]) -> list[int]:
    """The axis of what a key of basic items takes that each of them stands at."""
    missing = tensor.ndim - sum(item is not None and item is not Ellipsis for item in items)
    axes, axis = [], 0
    for item in items:
        axes.append(axis)
        is_kept = item is None or isinstance(item, slice | Span) or type(item) is _Window
        axis += missing if item is Ellipsis else int(is_kept)
    return axes


def _window_length(item: slice) -> int | None:
    """How far the stop of a slice is from its start, if that is known, though they are not."""
    step = 1 if item.step is None else item.step
    start, stop = _as_number(item.start), _as_number(item.stop)
    if not isinstance(step, int) or step <= 0 or start is None or stop is None:
        return None
    length = None if start.form is None or stop.form is None else stop.form - start.form
    if not isinstance(length, int) or length < 0:  # a stop before the start may be counted from the end
        return None
    return length


def _as_number(x: Any) -> Number | None:
    if isinstance(x, Tensor):
        return None
    return None if x is None else number_of(x)


def _guarded(start: Number, size: Any) -> Any:
    """The start of a slice; a negative one, which Python counts from the end, is made out of bounds."""
    form = start.form
    if isinstance(form, int) or (isinstance(form, Size) and _is_sure(form)):
        return start.tensor
    return select(start.tensor < 0, number_of(size).tensor, start.tensor)


def _is_sure(form: Size) -> bool:
    try:
        return bool(form >= 0)
    except Exception:  # its sign depends on the values of the names
        return False


def write_tensor(tensor: Any, key: Any, value: Any) -> None:
    """``tensor[key] = value``, with Numbers in the key or as the value."""
    value = value.in_dtype(tensor.dtype) if isinstance(value, Number) else value
    view, rest = _at_windows(tensor, _graph_key(tensor, key))
    if rest is MISSING and _is_same_window(view, value):
        return  # the second half of ``x[i : i + 2] += y``
    view[... if rest is MISSING else rest] = value


def _is_same_window(view: Any, value: Any) -> bool:
    """Whether a value is a view of the same window."""
    a, b = getattr(view, "_link", None), getattr(value, "_link", None)
    if a is None or b is None or a[0] is not b[0] or a[1] is not b[1] or a[1] is not WINDOW:
        return False
    (axis, start, *rest), (other_axis, other_start, *other_rest) = a[2], b[2]
    return (axis, rest) == (other_axis, other_rest) and made_alike(start, other_start)


# Python sequences, indexed by a Number


def pick(obj: Any, key: Number) -> Any:
    """An item of a sequence, which the graph picks of tensors that are alike, or numbers; else MISSING."""
    if isinstance(obj, GraphList) and obj.is_grown:
        note_read(obj)
        return obj[key]
    if isinstance(obj, list | tuple | range) and len(items(obj)) > 1 and key.kind is not float:
        note_read(obj)
        if all(isinstance(x, Tensor) for x in obj) and len({type_of(x) for x in obj}) == 1:  # type: ignore[arg-type]
            return pick_tensor(obj, key)
        kinds = {type(x) for x in obj}
        if len(kinds) == 1 and kinds <= set(PLAIN):
            (kind,) = kinds
            table = captured_constant(np.asarray(list(obj), KINDS[kind]))
            return Number(kind, table[key.as_kind(int)])
    return MISSING
