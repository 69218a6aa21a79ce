"""Arrays: shaped views of buffers, so that lowerings speak of elements and not of addresses.

A view op gives another array of the same memory, where strides describe it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DType
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.errors import ShapeError
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index, Variable
from weft.loop.ir import Buffer

Shape = tuple[Any, ...]


def row_major(shape: Shape) -> Shape:
    """The strides of an array whose elements lie in order, the last axis first."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


class Progression:
    """Whole numbers at even distances, in no memory: ``start + step * i``.

    Attributes:
        start, step: numbers.
        shape: one size.
        dtype: of an element.
    """

    __slots__ = ("dtype", "shape", "start", "step")

    def __init__(self, start: int, step: int, size: Any, dtype: DType) -> None:
        self.start = start
        self.step = step
        self.shape = (size,)
        self.dtype = dtype

    def element(self, builder: Builder, index: Any) -> Any:
        """The number at an index, as a scalar."""
        return builder.cast(Index.of(index) * self.step + self.start, self.dtype)


class Array:
    """A view of a buffer: element [i, j] lies at ``offset + i * strides[0] + j * strides[1]``.

    Attributes:
        buffer: that it lies in.
        shape: sizes, ints or named.
        strides: in elements.
        offset: of the first element, an Index.
    """

    __slots__ = ("buffer", "offset", "shape", "strides")

    def __init__(self, buffer: Buffer, shape: Shape, strides: Shape | None = None, offset: Any = 0) -> None:
        self.buffer = buffer
        self.shape = shape
        self.strides = row_major(shape) if strides is None else strides
        self.offset = Index.of(offset)

    @property
    def dtype(self) -> DType:
        """Of an element."""
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return size_of(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether its elements lie in order without gaps."""
        expected = row_major(self.shape)
        pairs = zip(self.shape, self.strides, expected, strict=True)
        # An axis of one element is never stepped along, whatever its stride.
        return all(a == b or (not isinstance(s, Size) and s == 1) for s, a, b in pairs)

    def at(self, *index: Any) -> Index:
        """Where an element lies in the buffer."""
        place = self.offset
        for i, stride in zip(index, self.strides, strict=True):
            place = place + Index.of(i) * stride
        return place.folded()

    def flat(self, index: Any) -> Index:
        """Where an element lies, by its number; the array must be dense."""
        return self.offset + Index.of(index)

    def on(self, buffer: Buffer, offset: Any = 0) -> Array:
        """The same view of another buffer."""
        return Array(buffer, self.shape, self.strides, offset)

    def with_shape(self, shape: Sequence[Any]) -> Array:
        """A dense array seen with another shape."""
        return Array(self.buffer, tuple(shape), None, self.offset)

    def in_layout(self, axes: Sequence[int]) -> Array:
        """A dense array in the same memory, with its axes lying there in another order."""
        strides = list(self.strides)
        for axis, stride in zip(axes, row_major(tuple(self.shape[a] for a in axes)), strict=True):
            strides[axis] = stride
        return Array(self.buffer, self.shape, tuple(strides), self.offset)

    def reshaped(self, shape: Shape) -> Array | None:
        """The same elements with another shape; None where no strides describe that."""
        return _reshaped(self, shape)

    def row(self, index: Any) -> Array:
        """The array at an index of the first axis."""
        offset = self.offset + Index.of(index) * self.strides[0]
        return Array(self.buffer, self.shape[1:], self.strides[1:], offset)

    @property
    def span(self) -> Any:
        """How many elements of the buffer it reaches over, from its offset on; strides are not negative."""
        total: Any = 1
        for size, stride in zip(self.shape, self.strides, strict=True):
            total = total + (size - 1) * stride
        return total

    def __repr__(self) -> str:
        return f"{self.buffer.name}{list(self.shape)}"


def as_progression(array: Any) -> Progression | None:
    """A constant as a progression, if it is one."""
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size < 2:
        return None
    start, second, last = (int(array[i]) for i in (0, 1, -1))
    step = second - start
    # The ends tell most constants apart, before all elements are computed; and nothing may overflow.
    if max(map(abs, (start, second, last))) >> 61 or last != start + step * (array.size - 1):
        return None
    even = (array.astype(np.int64) == start + step * np.arange(array.size)).all()
    return Progression(start, step, array.size, array.dtype) if even else None


def source_index(node: Node, index: Sequence[Index]) -> list[Index]:
    """Where the element of a view at an index lies in its input, one term for each axis of that."""
    assert callable(node.op.view)
    return [Index.of(i) for i in node.op.view(index, node.inputs[0].type, **node.attrs)]


def reshape_index(b: Builder, index: Sequence[Index], shape: Shape, source: Shape) -> tuple[Index, ...]:
    """The index into an array of a shape, of the element that has an index in another shape."""
    # Axes in front that both shapes share need no division, which costs more than most elements do.
    start = 0
    while start < min(len(shape), len(source)) and shape[start] == source[start]:
        start += 1
    flat = Index.of(0)
    for i, size in zip(index[start:], shape[start:], strict=True):
        flat = flat * size + i
    flat = flat.folded()
    out: list[Index] = []
    # From the last axis on, so that each quotient is made of the one before, by a size that is known.
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
        # Spans are counted from the offset up, so what goes backward is no array.
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
            message = f"view must stay in axis {axis} of size {size}, got places {bounds[0]} to {bounds[1]}"
            raise ShapeError(name, message)


def _reshaped(x: Array, shape: Shape) -> Array | None:
    if x.is_dense or 0 in shape:
        return x.with_shape(shape)
    strides = _split_strides(x, shape)
    return None if strides is None else Array(x.buffer, shape, strides, x.offset)


def _split_strides(x: Array, shape: Shape) -> Shape | None:
    """Strides of another shape where each of its axes is a part of one axis, or a run of axes, of x."""
    # Axes are taken from the last one on, since strides of an axis that is split grow toward the front.
    runs = _merged(x)
    strides: list[Any] = []
    axes = list(reversed(shape))
    for size, stride in reversed(runs):
        step, left = stride, size
        while axes and not (isinstance(left, int) and left == 1):
            part = axes[0]
            # Whether an open size is divided by another one only a call would tell.
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
