"""Random changes of arrays, for ``pipeline.augment``. Each draws from four random words of its element.

A change is a frozen object called with an array and the words; a function of an array and a key will do, too.
Axes are counted from the end, so images may have channels before rows and columns, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.philox import Block, random_words
from weft.data.keys import below, raw_words, unit
from weft.data.stage import Change
from weft.errors import ShapeError

Array = Any


@dataclass(frozen=True)
class Flip(Change):
    """Reverse an axis, with probability p.

    >>> import numpy as np
    >>> from weft import data
    >>> images = data.from_arrays(np.arange(6).reshape(1, 2, 3)).augment(data.Flip(p=1.0))
    >>> next(iter(images))
    tensor([[2, 1, 0],
            [5, 4, 3]])
    """

    axis: int = -1
    p: float = 0.5

    def __call__(self, x: Array, words: Block) -> Array:
        if unit(words[0]) >= self.p:
            return x
        if not -x.ndim <= self.axis < x.ndim:
            raise ShapeError(
                "augment", f"there must be an axis {self.axis} to flip, got an array of {x.shape}"
            )
        whole = [slice(None)] * x.ndim
        whole[self.axis] = slice(None, None, -1)
        return x[tuple(whole)]


@dataclass(frozen=True)
class Rotate(Change):
    """Turn by a random number of right angles; there must be as many rows as columns.

    >>> import weft
    >>> from weft import data
    >>> images = data.from_arrays(weft.ones((1, 2, 2))).augment(data.Rotate())
    >>> next(iter(images)).shape
    (2, 2)
    """

    axes: tuple[int, int] = (-2, -1)

    def __call__(self, x: Array, words: Block) -> Array:
        if x.ndim < 2 or x.shape[self.axes[0]] != x.shape[self.axes[1]]:
            raise ShapeError("augment", f"rows and columns must be as many to be turned, got {x.shape}")
        return np.rot90(x, below(words[0], 4), self.axes)


@dataclass(frozen=True)
class Shift(Change):
    """Move by up to so many steps along the last axes; what comes in from outside is ``fill``.

    >>> import weft
    >>> from weft import data
    >>> images = data.from_arrays(weft.ones((1, 3, 3))).augment(data.Shift(1))
    >>> next(iter(images)).shape
    (3, 3)
    """

    most: int
    axes: tuple[int, ...] = (-2, -1)
    fill: float = 0.0

    def __call__(self, x: Array, words: Block) -> Array:
        out = np.full(x.shape, self.fill, x.dtype)
        source, target = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        for axis, word in zip(self.axes, _many(words, len(self.axes)), strict=True):
            step, size = below(word, 2 * self.most + 1) - self.most, x.shape[axis]
            source[axis] = slice(max(0, -step), max(0, min(size, size - step)))
            target[axis] = slice(max(0, step), max(0, min(size, size + step)))
        out[tuple(target)] = x[tuple(source)]
        return out


@dataclass(frozen=True)
class Noise(Change):
    """Add normal noise.

    >>> import weft
    >>> from weft import data
    >>> rows = data.from_arrays(weft.zeros((1, 4))).augment(data.Noise(0.1))
    >>> bool((abs(next(iter(rows))) > 0).all())
    True
    """

    std: float

    def __call__(self, x: Array, words: Block) -> Array:
        drawn = normals(words, x.size).reshape(x.shape)
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
        return (x + self.std * drawn).astype(dtype)


@dataclass(frozen=True)
class Scale(Change):
    """Multiply by a number between ``low`` and ``high``: brightness, or contrast of what is centred at 0.

    >>> import weft
    >>> from weft import data
    >>> next(iter(data.from_arrays(weft.ones((1, 2))).augment(data.Scale(2.0, 2.0))))
    tensor([2., 2.])
    """

    low: float = 0.8
    high: float = 1.2

    def __call__(self, x: Array, words: Block) -> Array:
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
        return (x * (self.low + (self.high - self.low) * unit(words[0]))).astype(dtype)


@dataclass(frozen=True)
class Erase(Change):
    """Put ``fill`` into a random box of the last axes.

    >>> import weft
    >>> from weft import data
    >>> next(iter(data.from_arrays(weft.ones((1, 4, 4))).augment(data.Erase((2, 2))))).sum()
    tensor(12.)
    """

    size: tuple[int, ...]
    fill: float = 0.0

    def __call__(self, x: Array, words: Block) -> Array:
        out = x.copy()
        out[_box("augment", x.shape, self.size, words)] = self.fill
        return out


@dataclass(frozen=True)
class RandomCrop(Change):
    """A random part of the last axes, after ``pad`` rows and columns of ``fill`` were put around.

    >>> import weft
    >>> from weft import data
    >>> images = data.from_arrays(weft.ones((1, 8, 8))).augment(data.RandomCrop((8, 8), pad=2))
    >>> next(iter(images)).shape
    (8, 8)
    """

    size: tuple[int, ...]
    pad: int = 0
    fill: float = 0.0

    def __call__(self, x: Array, words: Block) -> Array:
        if self.pad:
            around = [(0, 0)] * (x.ndim - len(self.size)) + [(self.pad, self.pad)] * len(self.size)
            x = np.pad(x, around, constant_values=self.fill)
        return x[_box("crop", x.shape, self.size, words)]


def _box(op: str, shape: tuple[int, ...], size: tuple[int, ...], words: Block) -> Any:
    """A random box of a size in the last axes of a shape."""
    check_fits(op, shape, size)
    inner = shape[len(shape) - len(size) :]
    starts = [
        below(word, whole - part + 1)
        for word, whole, part in zip(_many(words, len(size)), inner, size, strict=True)
    ]
    return (..., *[slice(a, a + part) for a, part in zip(starts, size, strict=True)])


def centre_box(op: str, shape: tuple[int, ...], size: tuple[int, ...]) -> Any:
    """The box of a size in the middle of the last axes of a shape."""
    check_fits(op, shape, size)
    inner = shape[len(shape) - len(size) :]
    starts = [(whole - part) // 2 for whole, part in zip(inner, size, strict=True)]
    return (..., *[slice(a, a + part) for a, part in zip(starts, size, strict=True)])


def check_fits(op: str, shape: tuple[int, ...], size: tuple[int, ...]) -> None:
    """Say so if a part is larger than the whole."""
    inner = shape[len(shape) - len(size) :] if len(shape) >= len(size) else ()
    if len(inner) != len(size) or any(part > whole for whole, part in zip(inner, size, strict=True)):
        raise ShapeError(op, f"the part must fit into the last axes, got size {size} for an array of {shape}")


def _many(words: Block, count: int) -> tuple[int, ...]:
    """So many words: those given, or if they do not suffice those of the key that they are."""
    return words[:count] if count <= len(words) else tuple(random_words((words[0], words[1]), count))


def normals(words: Block, count: int) -> Array:
    """Standard normal numbers, float64, from the key that is the first two words: Box and Muller."""
    pairs = -(-count // 2)
    drawn = (raw_words((words[0], words[1]), 0, 2 * pairs) >> np.uint64(11)).astype(np.float64)
    radius = np.sqrt(-2.0 * np.log((drawn[:pairs] + 1.0) * 2.0**-53))
    angle = drawn[pairs:] * (2.0 * np.pi * 2.0**-53)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
