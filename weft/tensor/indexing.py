"""Brackets: ``x[key]`` and ``x[key] = value``, with NumPy's rules.

Where nothing is recorded and data are arrays, NumPy does it all. Else a key is read into a ``Selection``
and becomes ops: a slice, a reshape, and for integer tensors a gather or scatter on the axes brought to the
front.

With integers and slices the result is a view. Assignment gives the tensor a new value, which its views and
its base show; values that a graph saved never change. An array that nobody else holds is written in place, so
a loop that fills a tensor costs what it writes.
"""

from __future__ import annotations

import operator
from contextlib import nullcontext
from types import EllipsisType, NoneType
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bool_, kind
from weft.base.shapes import Shape, size_of
from weft.base.size_bounds import range_length
from weft.base.sizes import Size
from weft.base.tracebacks import hide_weft
from weft.errors import BoundsError, DtypeError, WeftError
from weft.ops.alias import Step, Strides, link_taken
from weft.ops.index import check_bounds, gather_nd, scatter_nd
from weft.ops.index_axis import as_values
from weft.ops.op import Array, Operand, Tensor, TensorLike, intercepted, type_of
from weft.ops.select import cast_array, select
from weft.ops.view.primitives import permute, reshape
from weft.ops.view.slices import slice_axes, slice_axis, update_slice
from weft.tensor.alias import check_ways_up, forget_lone_twin, is_aliased, views_of, write_in_place, writing
from weft.tensor.dispatch import captured_constant, recording, stage, wrap
from weft.tensor.mode import thread
from weft.tensor.selection import Key, Selection, Span, read_int, read_key

ndarray = np.ndarray
asarray = np.asarray


# Reading elements


def _plain(item: object) -> Any:
    """An item of a key as NumPy takes it: the arrays of tensors."""
    if isinstance(item, TensorLike):
        return item._array("index")  # type: ignore[attr-defined]
    return item


def _stage(x: Tensor, key: Key) -> None:
    """Let a tensor and those of a key stand for their values, if this thread captures."""
    for t in (x, *(key if type(key) is tuple else (key,))):
        if isinstance(t, TensorLike):
            stage(t)


def getitem(x: Tensor, key: Key) -> Tensor:
    """``x[key]``: the method of Tensor."""
    if intercepted.threads:
        _stage(x, key)
    data = x._data
    if type(data) is ndarray and (x._node is None or not recording()):
        try:
            out = data[tuple(map(_plain, key)) if type(key) is tuple else _plain(key)]
        except Exception:  # noqa: S110 - the general path says what is wrong in the user's terms
            pass
        else:
            return _linked(wrap(out if type(out) is ndarray else asarray(out)), x, key)
    shape = x.shape
    try:
        if type(key) is int and shape:  # what a loop over rows asks for
            first, stop, _ = read_int(key, 0, shape[0])
            return _linked(reshape(slice_axis(x, 0, first, stop), shape=shape[1:]), x, key)
        return _linked(select_from(x, read_key(key, shape)), x, key)
    except WeftError as error:
        hide_weft(error)
        raise


def select_from(x: Tensor, at: Selection) -> Tensor:
    """The elements of x that a selection names, by ops."""
    part = _indexed_first(x, at)
    if not at.indices:
        return part
    out, n = at.run(gather_nd, part, shape=x.shape), len(at.index_shape)
    if at.place == 0:
        return out
    return permute(out, axes=(*range(n, n + at.place), *range(n), *range(n + at.place, out.ndim)))


def _indexed_first(x: Tensor, at: Selection) -> Tensor:
    """x sliced, in the shape of the selection, with the indexed axes first."""
    part = x if at.is_whole(x.shape) else slice_axes(x, **at.slices)
    part = part if part.shape == at.shape else reshape(part, shape=at.shape)
    return permute(part, axes=at.front) if at.axes != tuple(range(len(at.axes))) else part


# Views


_PLAIN = frozenset({int, NoneType, EllipsisType})


def _linked(out: Tensor, x: Tensor, key: Key) -> Tensor:
    """What brackets gave, as a view if the key is one of integers, slices, None and ``...``."""
    if out is x:
        out = reshape(x, shape=x.shape)  # a view is a tensor of its own, though it shows all of x
    if type(key) is tuple:
        for item in key:
            if type(item) not in _PLAIN and not (type(item) is slice and _has_plain_bounds(item)):
                break
        else:
            link_taken(out, x, BRACKETS, key)
            return out
    elif type(key) is int or (type(key) is slice and _has_plain_bounds(key)):
        link_taken(out, x, BRACKETS, key)
        return out
    items = _as_basic(key)
    if items is not NotImplemented:
        link_taken(out, x, BRACKETS, items)
    return out


def _has_plain_bounds(key: slice) -> bool:
    return type(key.start) in _PLAIN and type(key.stop) in _PLAIN and type(key.step) in _PLAIN


def _as_basic(key: Any) -> Any:
    """A key that gives a view, in which later changes of tensors do not show; of others NotImplemented."""
    if type(key) in _PLAIN or type(key) is Span:
        return key
    if type(key) is tuple:
        items = tuple(map(_as_basic, key))
        return NotImplemented if any(item is NotImplemented for item in items) else items
    if type(key) is slice:
        return key if _has_plain_bounds(key) else slice(*map(_as_basic, (key.start, key.stop, key.step)))
    if isinstance(key, bool | np.bool_):
        return NotImplemented
    if isinstance(key, int | np.integer | Size):
        return key
    if isinstance(key, TensorLike | ndarray) and not key.shape and kind(key.dtype) in "iu":
        data = key if isinstance(key, ndarray) else key._data  # type: ignore[attr-defined]
        return int(data) if type(data) is ndarray else wrap(data)
    if isinstance(key, TensorLike | ndarray):
        return NotImplemented
    return operator.index(key) if hasattr(key, "__index__") else NotImplemented


def _is_own_view(x: Tensor, key: Key, value: Any) -> bool:
    """Whether a value that is assigned at a key is the view at that very key."""
    found = getattr(value, "_link", None)
    if found is None or found[0] is not x or found[1] is not BRACKETS:
        return False
    return _is_same_key(_as_basic(key), found[2])


def _is_same_key(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if type(a) is tuple or type(a) is Span:
        return len(a) == len(b) and all(map(_is_same_key, a, b))
    if type(a) is slice:
        return _is_same_key((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return a._data is b._data if isinstance(a, TensorLike) else bool(a == b)  # type: ignore[attr-defined]


def _with_ellipsis(key: Key) -> Any:
    items = key if type(key) is tuple else (key,)
    return items if any(item is Ellipsis for item in items) else (*items, ...)


class _Brackets(Step[Key]):
    """Brackets with integers and slices; the key is their argument."""

    def get(self, parent: Tensor, args: Key) -> Tensor:
        """The elements at the key, by ops."""
        return select_from(parent, read_key(args, parent.shape))

    def put(self, parent: Tensor, part: Tensor, args: Key) -> Tensor:
        """The parent with other elements at the key."""
        return updated(parent, args, part)

    def array(self, parent: Array, args: Key) -> Array:
        """The elements of an array, in its memory; a single one NumPy copies unless ``...`` is in the key."""
        out: Array = parent[_with_ellipsis(args)]
        return out

    def strides(self, shape: Shape, strides: Strides, args: Key) -> Strides:
        """Those of the axes that are left, times the steps; new axes have size 1."""
        items = _with_ellipsis(args)
        taken = sum(1 for item in items if item is not None and item is not Ellipsis)
        out: list[Any] = []
        axis = 0
        for item in items:
            if item is Ellipsis:
                rest = len(shape) - taken
                out += strides[axis : axis + rest]
                axis += rest
            elif item is None:
                out.append(1)
            else:
                if isinstance(item, slice | Span):
                    out.append(strides[axis] * (1 if item.step is None else item.step))
                axis += 1
        return tuple(out)


BRACKETS = _Brackets()


# Writing elements


def setitem(x: Tensor, key: Key, value: Operand) -> None:
    """``x[key] = value``: the method of Tensor."""
    if _is_own_view(x, key, value):
        return  # the second half of ``x[key] += y``
    if intercepted.threads:
        _stage(x, key)
    recorded = recording() and (x._node is not None or getattr(value, "_node", None) is not None)
    tensors = [t for t in (x, value, *(key if type(key) is tuple else (key,))) if isinstance(t, TensorLike)]
    if recorded or any(type(t._data) is not ndarray for t in tensors):  # type: ignore[attr-defined]
        new = updated(x, key, _as_values(value, x.dtype))
        x._rebind("setitem", x._beside(new if isinstance(new, TensorLike) else _constant(new)))
        return
    del tensors
    plain = tuple(map(_plain, key)) if type(key) is tuple else _plain(key)
    array = _as_values(value, x.dtype)
    array = array._data if isinstance(array, TensorLike) else array  # type: ignore[attr-defined]
    with writing if is_aliased(x) else nullcontext():
        _write(x, plain, array)


def _constant(array: Array) -> Tensor:
    """An array, where it takes the place of a whole tensor."""
    captures = intercepted.threads and thread.capture is not None
    return captured_constant(array) if captures else wrap(array)


def _write(x: Tensor, key: Key, value: object) -> None:
    """Write arrays: in place if nobody else holds the data of x, else into a copy."""
    in_place = _may_be_written(x)
    data = x._data if in_place else x._data.copy()
    try:
        data[key] = value
    except (IndexError, ValueError, TypeError, OverflowError):
        at = read_key(key, x.shape)
        check_bounds("index", at.indices, x.shape, at.sources)
        _broadcast_values(x, at, value)
        raise
    if not in_place:
        x._rebind("setitem", wrap(data))


def _may_be_written(x: Any) -> bool:
    """Whether nobody but x and its views and their base hold its data."""
    forget_lone_twin(x)
    if hasattr(x, "_link") or (hasattr(x, "_views") and views_of(x)):  # views that are gone do not count
        check_ways_up(x, "setitem")
        return write_in_place(x) is not None
    return x._is_unshared() and x._data.flags.writeable  # type: ignore[no-any-return]


def _as_values(value: object, dtype: DType) -> Any:
    """What is assigned, as an array or tensor of the dtype of what it is assigned to."""
    if isinstance(value, TensorLike):
        return value if value.dtype == dtype else value.astype(dtype)  # type: ignore[attr-defined]
    try:
        with np.errstate(all="ignore"):
            if isinstance(value, ndarray | np.generic):
                return cast_array(asarray(value), dtype)
            return asarray(value, dtype)
    except (TypeError, ValueError, OverflowError):
        raise DtypeError("setitem", f"{dtype.name} must be able to hold the value, got {value!r}") from None


def updated(x: Tensor, key: Key, value: Any) -> Tensor:
    """x with other values at a key, by ops."""
    key = key[0] if type(key) is tuple and len(key) == 1 else key
    if isinstance(key, TensorLike) and key.dtype == bool_ and value.ndim <= x.ndim - key.ndim:  # type: ignore[attr-defined]
        return _where_masked(x, key, value)
    at = read_key(key, x.shape)
    value = _broadcast_values(x, at, value)
    if at.indices:
        n = len(at.index_shape)
        rest = tuple(i for i in range(value.ndim) if not at.place <= i < at.place + n)
        value = permute(value, axes=(*range(at.place, at.place + n), *rest)) if at.place else value
        value = at.run(scatter_nd, _indexed_first(x, at), value, shape=x.shape)
        if at.front != tuple(range(len(at.front))):
            value = permute(value, axes=tuple(int(i) for i in np.argsort(at.front)))
    shape = tuple(range_length(*b) for b in at.bounds)
    if not at.indices or value.shape != shape:
        value = reshape(value, shape=shape)
    return value if at.is_whole(x.shape) else update_slice(x, value, **at.slices)


def _where_masked(x: Tensor, mask: Any, value: object) -> Tensor:
    """x with a value where a mask holds: needs no concrete mask."""
    covered = x.shape[: mask.ndim]
    if mask.shape != covered:
        raise BoundsError(
            "index", f"a mask must have the shape {covered} of the axes it covers, got {type_of(mask)}"
        )
    value = as_values("setitem", value, x, x.shape[mask.ndim :])
    return select(reshape(mask, shape=(*mask.shape, *[1] * (x.ndim - mask.ndim))), value, x)


def _broadcast_values(x: Tensor, at: Selection, value: Any) -> Any:
    """Values in the shape that a selection names; leading axes of size 1 too many are dropped."""
    kept = tuple(s for i, s in enumerate(at.shape) if i not in at.axes)
    shape = (*kept[: at.place], *at.index_shape, *kept[at.place :])
    extra = value.ndim - len(shape)
    if extra > 0 and size_of(value.shape[:extra]) == 1:
        value = reshape(value, shape=value.shape[extra:])
    return as_values("setitem", value, x, shape)
