"""Keys of brackets: what ``x[1, ..., None, mask, ::2]`` selects, by NumPy's rules.

A key is integers, slices, None, ``...``, boolean masks and integer tensors in any mixture. It is read
for one shape into a ``Selection``, or found wrong in the user's terms.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from weft.base.dtypes import DTYPES, bool_, kind
from weft.base.records import NamedTuple
from weft.base.shapes import Shape, broadcast_shapes
from weft.base.size_bounds import range_length, size_max, size_min
from weft.base.sizes import Size
from weft.errors import ArgumentError, BoundsError, DomainError, DtypeError, WeftError
from weft.ops.index import bounds_error, index_with
from weft.ops.op import Array, Op, Tensor, TensorLike, type_of
from weft.ops.view.slices import Ints
from weft.tensor.mode import thread

ndarray = np.ndarray
asarray = np.asarray
Item: TypeAlias = (
    int | slice | EllipsisType | TensorLike | np.ndarray[Any, Any] | list[Any] | tuple[Any, ...] | None
)
Key: TypeAlias = Item | tuple[Item, ...]
_ALLOWED = "must be integers, slices, None, ... or integer or bool tensors"


class Selection(NamedTuple):
    """A key, read for one shape.

    Attributes:
        bounds: (start, stop, step) for each axis of x, as for ``range``.
        shape: of x after slicing, without the axes of integers and with new ones.
        axes: those axes of ``shape`` that integer tensors index.
        indices: the integer tensors.
        index_shape: the shape that the integer tensors broadcast to.
        place: where the axes of ``index_shape`` stand in the result.
        sources: the axis of x that each integer tensor indexes, -1 for the new axis of a 0-d mask.
    """

    bounds: tuple[tuple[int, int, int], ...]
    shape: Shape
    axes: Ints
    indices: tuple[Any, ...]
    index_shape: Shape
    place: int
    sources: Ints

    @property
    def slices(self) -> dict[str, Ints]:
        """The attributes of the slice."""
        starts, stops, steps = zip(*self.bounds, strict=True) if self.bounds else ((), (), ())
        return {"starts": starts, "stops": stops, "steps": steps}

    @property
    def front(self) -> Ints:
        """The order that brings the indexed axes to the front."""
        return (*self.axes, *[i for i in range(len(self.shape)) if i not in self.axes])

    def run(self, op: Op, *inputs: object, shape: Shape) -> Tensor:
        """Run an op of indices with those of the selection of a shape."""
        return index_with("index", op, inputs, self.indices, shape, self.sources)

    def is_whole(self, shape: Shape) -> bool:
        """Whether the slice takes all of a shape, in order."""
        return all(b == (0, s, 1) for b, s in zip(self.bounds, shape, strict=True))


class Span(NamedTuple):
    """An item of a key: elements of an axis that is known to have them all, where a run tells how many.

    Attributes:
        start: the first of them.
        length: how many there are.
        step: from one to the next.
    """

    start: Any
    length: Any
    step: int


# Reading a key


def _read_item(item: object) -> Any:
    """One item of a key: None, ``...``, a slice, an int, a boolean array, or integers as array or tensor."""
    if item is None or item is Ellipsis or isinstance(item, slice | Span):
        return item
    if isinstance(item, bool | np.bool_):
        return asarray(item)
    if isinstance(item, int | np.integer):
        return int(item)
    if isinstance(item, Size):
        return item
    if isinstance(item, list | tuple):
        return _read_array(_as_array(item))
    if isinstance(item, TensorLike | ndarray):
        return _read_array(item)
    if hasattr(item, "__index__"):
        return operator.index(item)
    raise ArgumentError("index", f"{_ALLOWED}, got {item!r}")


def _read_array(item: Any) -> Any:
    """A mask as an array; integers as they are, or an int if they are one whose value is known."""
    array = item if isinstance(item, ndarray) else item._data
    letter = kind(item.dtype) if item.dtype in DTYPES else ""
    if letter == "b":
        return item if array is item or thread.capture is not None else item._array("index")
    if letter in ("i", "u"):
        return int(array) if item.ndim == 0 and type(array) is ndarray else item
    raise DtypeError("index", f"{_ALLOWED}, got {item.dtype.name}", hint="cast it with .astype(weft.int64)")


def _as_array(items: object) -> Array:
    """A list of integers or truth values as an array."""
    try:
        array = asarray(items)
    except ValueError:
        raise ArgumentError("index", f"a list must be rectangular, got {items!r}") from None
    return array.astype(np.int64) if array.size == 0 else array


def _axes_taken(item: Any) -> int:
    """How many axes an item of a key stands for."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if _is_mask(item) else 1


def _is_mask(item: object) -> bool:
    return isinstance(item, ndarray | TensorLike) and bool(item.dtype == bool_)


def _is_fancy(item: object) -> bool:
    """Whether an item is an integer, or a tensor or array: what broadcasts together."""
    return isinstance(item, TensorLike | ndarray | int | Size)


def _is_unknown(item: object) -> bool:
    """Whether an item is one integer whose value only a run tells."""
    return isinstance(item, TensorLike) and not item.shape and not _is_mask(item)


def _read_items(key: Key, shape: Shape) -> tuple[list[Any], bool]:
    """The items of a key with full slices for ``...``, and whether those that index stand side by side."""
    items = [_read_item(item) for item in (key if type(key) is tuple else (key,))]
    missing = len(shape) - sum(map(_axes_taken, items))
    if missing < 0:
        taken = len(shape) - missing
        raise BoundsError(
            "index", f"there must be at most {len(shape)} indices for shape {shape}, got {taken}"
        )
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise ArgumentError("index", "there must be at most one ..., got more")
    at = dots[0] if dots else len(items)
    fancy = [i for i, item in enumerate(items) if _is_fancy(item)]
    adjacent = not fancy or fancy[-1] - fancy[0] == len(fancy) - 1  # a ... parts them, even if it is empty
    return [*items[:at], *[slice(None)] * missing, *items[at + 1 :]], adjacent


def with_integers(key: Key, shape: Shape, change: Callable[[Any, int], Any]) -> tuple[Item, ...]:
    """A key whose integers are what a function of them and of their axis makes of them."""
    whole, _ = _read_items(key, shape)
    items = [_read_item(item) for item in (key if type(key) is tuple else (key,))]
    out, axis = [], 0
    for item in items:
        out.append(change(item, axis) if _is_fancy(item) and not _is_mask(item) else item)
        axis += len(whole) - len(items) + 1 if item is Ellipsis else _axes_taken(item)
    return tuple(out)


def read_key(key: Key, shape: Shape) -> Selection:
    """Read a key for a tensor of a shape, or raise an error that says what is wrong with it."""
    items, adjacent = _read_items(key, shape)
    reader = _Reader(shape, joined=any(map(_is_unknown, items)))
    for item in items:
        reader.read(item)
    return reader.selection(adjacent)


class _Reader:
    """Reads the items of a key one after the other; see ``Selection`` for what it gathers."""

    __slots__ = ("axes", "bounds", "indices", "joined", "place", "shape", "sizes", "sources")

    def __init__(self, shape: Shape, joined: bool) -> None:
        self.shape = shape
        self.joined = joined  # integers join the tensors: ``x[i, 0] = v`` touches one element, not a column
        self.bounds: list[tuple[int, int, int]] = []
        self.sizes: list[int] = []
        self.axes: list[int] = []
        self.indices: list[Any] = []
        self.sources: list[int] = []
        self.place: int | None = None

    def read(self, item: Any) -> None:
        """Take in one item."""
        axis = len(self.bounds)
        if self.place is None and _is_fancy(item):
            self.place = len(self.sizes)
        if item is None:
            self.sizes.append(1)
        elif isinstance(item, Span):
            self.bounds.append((item.start, item.start + item.length * item.step, item.step))
            self.sizes.append(item.length)
        elif isinstance(item, slice):
            self.bounds.append(_read_slice(item, self.shape[axis]))
            self.sizes.append(range_length(*self.bounds[-1]))
        elif self.joined and isinstance(item, int) and isinstance(self.shape[axis], int):
            self._add_indices([asarray(read_int(item, axis, self.shape[axis])[0])], 1)
        elif isinstance(item, int | Size):
            self.bounds.append(read_int(item, axis, self.shape[axis]))
        elif _is_mask(item):
            self._add_indices(_read_mask(item, axis, self.shape), item.ndim)
        else:
            self._add_indices([item], 1)

    def _add_indices(self, indices: list[Any], count: int) -> None:
        """Take in indices of the next ``count`` axes; none of them means a new axis."""
        axis = len(self.bounds)
        taken = self.shape[axis : axis + count]
        self.axes.extend(range(len(self.sizes), len(self.sizes) + len(indices)))
        self.sizes.extend(taken or (1,))
        self.bounds.extend((0, s, 1) for s in taken)
        self.sources.extend(range(axis, axis + count) if count else (-1,))
        self.indices.extend(indices)

    def selection(self, adjacent: bool) -> Selection:
        """What was read."""
        common = broadcast_shapes("index", [i.shape for i in self.indices], list(map(type_of, self.indices)))
        return Selection(
            bounds=tuple(self.bounds),
            shape=tuple(self.sizes),
            axes=tuple(self.axes),
            indices=tuple(self.indices),
            index_shape=common,
            place=self.place or 0 if adjacent else 0,
            sources=tuple(self.sources),
        )


def read_int(index: Any, axis: int, size: Any) -> tuple[Any, Any, int]:
    """The bounds of the one element at an index, maybe a negative one; of a named size, a run checks them."""
    if isinstance(size, Size) or isinstance(index, Size):
        index += size if not isinstance(index, Size) and index < 0 else 0
        return index, index + 1, 1
    if not -size <= index < size:
        raise bounds_error("index", axis, size, index)
    index += size if index < 0 else 0
    return index, index + 1, 1


def _slice_of_size(item: slice, size: Any) -> tuple[Any, Any, int]:
    """The bounds of a slice of a named size, or with named sizes as bounds: those of ``slice.indices``."""
    step = 1 if item.step is None else operator.index(item.step)
    if step == 0:
        raise DomainError("index", "the step of a slice must not be 0")
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def counted(bound: Any, default: object) -> Any:
        """A bound counted from the start, not below the lowest."""
        if bound is None:
            return default
        if not isinstance(bound, Size):
            bound = operator.index(bound)
            bound = bound if bound >= 0 else bound + size
        return size_max(low, bound)

    # a bound that passes the other one is set to it, so that the difference is the length
    if step > 0:
        stop = size_min(high, counted(item.stop, high))
        return size_min(stop, counted(item.start, low)), stop, step
    start = size_min(high, counted(item.start, high))
    return start, size_min(start, counted(item.stop, low)), step


def _read_slice(item: slice, size: int) -> tuple[int, int, int]:
    if isinstance(size, Size) or isinstance(item.start, Size) or isinstance(item.stop, Size):
        return _slice_of_size(item, size)
    try:
        bounds = item.indices(size)
    except ValueError:
        raise DomainError("index", "the step of a slice must not be 0") from None
    except TypeError as error:
        if isinstance(error, WeftError):
            raise
        raise ArgumentError("index", f"the bounds of a slice must be ints or None, got {item!r}") from None
    return bounds if len(range(*bounds)) else (0, 0, 1)


def _read_mask(mask: Tensor, axis: int, shape: Shape) -> list[Tensor]:
    covered = shape[axis : axis + mask.ndim]
    if any(
        m not in (0, s) for m, s in zip(mask.shape, covered, strict=True)
    ):  # NumPy lets an empty mask pass
        raise BoundsError(
            "index", f"a mask must have the shape {covered} of the axes it covers, got {type_of(mask)}"
        )
    if mask.ndim and not isinstance(mask, ndarray):
        from weft.tensor.counted import positions

        return positions(mask)
    return list(mask.nonzero()) if mask.ndim else [np.zeros(int(mask), np.int64)]  # type: ignore[list-item]
