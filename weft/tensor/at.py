"""Changes without a change: ``x.at[i].set(v)`` is x with v at i, and x stays as it was, as JAX writes it."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from weft.base.dtypes import DType, int64, kind, uint64
from weft.base.public import name_methods
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.errors import ArgumentError
from weft.ops import index_axis, scattering
from weft.ops.arithmetic import maximum, minimum
from weft.ops.op import Operand, TensorLike
from weft.ops.select import where
from weft.ops.view import axes
from weft.ops.view.padding import pad
from weft.ops.view.primitives import concat
from weft.tensor.creation import as_tensor
from weft.tensor.ranges import arange
from weft.tensor.selection import Key, with_integers
from weft.tensor.tensor import Tensor

Mode = Literal["clip", "drop", "fill", "promise_in_bounds"] | None
_MODES = (None, "clip", "drop", "fill", "promise_in_bounds")


class Promises(TypedDict, total=False):
    """What a program of JAX's says of its indices, so that they can be used faster; nothing depends on it."""

    indices_are_sorted: bool
    unique_indices: bool


class At:
    """What ``x.at`` is: brackets choose a place.

    >>> import weft
    >>> x = weft.zeros(3)
    >>> x.at[0].set(5.0), x.at[weft.tensor([1, 1])].add(2.0), x
    (tensor([5., 0., 0.]), tensor([0., 4., 0.]), tensor([0., 0., 0.]))
    """

    __slots__ = ("x",)

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __getitem__(self, key: Key) -> Place:
        return Place(self.x, key)


class Place:
    """A place of a tensor: its methods give the tensor with something else there.

    Each takes ``mode``, which says what is done with integers that are out of bounds: None and
    "promise_in_bounds" raise an error, "clip" takes the nearest that is there, "drop" and "fill", which are
    one, leave them out of a change, and ``get`` gives ``fill_value`` for them. JAX's ``indices_are_sorted``
    and ``unique_indices`` are taken, and change nothing.

    >>> import weft
    >>> x = weft.zeros(3)
    >>> x.at[weft.tensor([0, 7])].set(5.0, mode="drop"), x.at[7].add(1.0, mode="clip")
    (tensor([5., 0., 0.]), tensor([0., 0., 1.]))
    >>> x.at[weft.tensor([0, 7])].get(mode="fill", fill_value=-1.0)
    tensor([ 0., -1.])
    """

    __slots__ = ("key", "x")

    def __init__(self, x: Tensor, key: Key) -> None:
        self.x = x
        self.key = key

    def get(self, *, mode: Mode = None, fill_value: Any = None, **promises: Unpack[Promises]) -> Tensor:
        """What is there; ``fill_value`` is NaN by default, or the least or largest integer, as in JAX."""
        if not _drops("get", mode, promises):
            return self.x[self._key(mode)]
        fill = _fill_value(self.x.dtype) if fill_value is None else fill_value
        return self._longer(fill)[self._places()]

    def set(self, values: Operand, *, mode: Mode = None, **promises: Unpack[Promises]) -> Tensor:
        """With values there; of several for one place the last counts."""
        if _drops("set", mode, promises):
            out = self._longer(0)
            out[self._places()] = values
            return axes.reshape(out[:-1], self.x.shape)
        out = self.x.clone()
        out[self._key(mode)] = values
        return out

    def add(self, values: Operand, *, mode: Mode = None, **promises: Unpack[Promises]) -> Tensor:
        """With values added; several for one place add up."""
        return self._combined("add", "sum", lambda a, b: a + b, values, mode, promises)

    def subtract(self, values: Operand, *, mode: Mode = None, **promises: Unpack[Promises]) -> Tensor:
        """With values subtracted; several for one place add up."""
        return self._combined("subtract", "sum", lambda a, b: a + b, -as_tensor(values), mode, promises)

    def multiply(self, values: Operand, *, mode: Mode = None, **promises: Unpack[Promises]) -> Tensor:
        """Multiplied by values."""
        return self._combined("multiply", "prod", lambda a, b: a * b, values, mode, promises)

    mul = multiply

    def divide(self, values: Operand, *, mode: Mode = None, **promises: Unpack[Promises]) -> Tensor:
        """Divided by values."""
        return self._combined("divide", "prod", lambda a, b: a * b, 1 / as_tensor(values), mode, promises)

    def power(self, values: Operand, *, mode: Mode = None, **promises: Unpack[Promises]) -> Tensor:
        """Raised to powers."""
        return self.set(self.get(mode=mode, **promises) ** values, mode=mode)

    def min(self, values: Operand, *, mode: Mode = None, **promises: Unpack[Promises]) -> Tensor:
        """With the smaller of what is there and values."""
        return self._combined("min", "amin", minimum, values, mode, promises)

    def max(self, values: Operand, *, mode: Mode = None, **promises: Unpack[Promises]) -> Tensor:
        """With the larger of what is there and values."""
        return self._combined("max", "amax", maximum, values, mode, promises)

    def apply(self, function: Any, *, mode: Mode = None, **promises: Unpack[Promises]) -> Tensor:
        """With a function of what is there."""
        return self.set(function(self.get(mode=mode, **promises)), mode=mode)

    def _combined(
        self, op: str, how: str, function: Any, values: Operand, mode: Mode, promises: Promises
    ) -> Tensor:
        drops = _drops(op, mode, promises)
        if not drops and not _may_repeat(self.key):
            return self.set(function(self.get(mode=mode), values), mode=mode)
        x, count = self.x, size_of(self.x.shape)
        places = self._places() if drops else arange(count).reshape(x.shape)[self._key(mode)]
        given = values if isinstance(values, TensorLike) else as_tensor(values)
        given = axes.broadcast_to(given.astype(x.dtype), places.shape)
        flat = self._longer(0) if drops else axes.reshape(x, (count,))
        index = axes.reshape(places, (size_of(places.shape),))
        source = axes.reshape(given, index.shape)
        if how == "sum":
            out = index_axis.scatter_add(flat, 0, index, source)
        else:
            out = scattering.scatter_reduce(flat, 0, index, source, how)
        return axes.reshape(out[:count] if drops else out, x.shape)

    # Integers out of bounds

    def _key(self, mode: Mode) -> Key:
        """The key, its integers within bounds if they are to be clipped."""
        if mode != "clip":
            return self.key
        shape = self.x.shape
        return with_integers(self.key, shape, lambda item, axis: _clipped(item, shape[axis]))

    def _longer(self, last: Any) -> Tensor:
        """The elements in a row, and one more: what stands for all places that are out of bounds."""
        x = self.x
        return concat([axes.reshape(x, (size_of(x.shape),)), as_tensor([last], dtype=x.dtype).to(x.device)])

    def _places(self) -> Tensor:
        """Numbers of the elements that the key names, the one after the last where it is out of bounds."""
        shape, count = self.x.shape, size_of(self.x.shape)
        borders = [0] * len(shape)

        def bordered(item: Any, axis: int) -> Any:
            borders[axis] = 1
            return _beside(item, shape[axis])

        key = with_integers(self.key, shape, bordered)
        numbers = pad(arange(count).reshape(shape), [(0, b) for b in borders], value=count) if shape else None
        return arange(count)[self.key] if numbers is None else numbers[key]


def _drops(op: str, mode: Mode, promises: Promises) -> bool:
    """Whether integers that are out of bounds are left out."""
    if unknown := [name for name in promises if name not in Promises.__annotations__]:
        hint = f"it takes mode, {', '.join(Promises.__annotations__)}"
        raise ArgumentError(op, f"unknown keyword {unknown[0]!r}", hint=hint)
    if mode not in _MODES:
        listed = ", ".join(map(repr, _MODES))
        raise ArgumentError(op, f"mode must be one of {listed}, got {mode!r}")
    return mode in ("drop", "fill")


def _clipped(item: Any, size: Any) -> Any:
    """The nearest integers that are in bounds; negative ones count from the end."""
    if isinstance(item, int):
        return min(max(item + size if item < 0 else item, 0), size - 1)
    return minimum(maximum(_counted(item, size), 0), size - 1)


def _beside(item: Any, size: Any) -> Any:
    """Integers, or the one after the last if they are out of bounds; negative ones count from the end."""
    if isinstance(item, int):
        return item % size if -size <= item < size else size
    index = _counted(item, size)
    return where((index < 0) | (index >= size), size, index)


def _counted(item: Operand, size: int | Size) -> Tensor:
    """Integers with the size added to negative ones, in a dtype that holds both."""
    index = as_tensor(item)
    if index.dtype == uint64:
        index = minimum(index, np.iinfo(np.int64).max)
    index = index.astype(int64)
    return where(index < 0, index + size, index)


def _fill_value(dtype: DType) -> float:
    """What JAX gives for elements that are not there."""
    letter = kind(dtype)
    if letter == "b":
        return True
    if letter in "iu":
        return np.iinfo(dtype).min if letter == "i" else np.iinfo(dtype).max
    return float("nan")


def _may_repeat(key: Key) -> bool:
    """Whether a key may name a place twice: one of integers in tensors, arrays or lists."""
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, list):
            return True
        if isinstance(part, TensorLike | np.ndarray) and part.ndim and kind(part.dtype) in "iu":  # type: ignore[union-attr]
            return True
    return False


name_methods(Place)
