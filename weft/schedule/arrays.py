"""Arrays: shaped views of buffers, so that lowerings speak of elements and not of addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DType
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.loop.builder import Builder
from weft.loop.index import Index
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

    def row(self, index: Any) -> Array:
        """The array at an index of the first axis."""
        return Array(
            self.buffer, self.shape[1:], self.strides[1:], self.offset + Index.of(index) * self.strides[0]
        )

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
    if max(map(abs, (start, second, last))) >> 61 or last != start + step * (array.size - 1):
        return None
    even = (array.astype(np.int64) == start + step * np.arange(array.size)).all()
    return Progression(start, step, array.size, array.dtype) if even else None
