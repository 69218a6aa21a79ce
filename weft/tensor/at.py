"""Changes without a change: ``x.at[i].set(v)`` is x with v at i, and x stays as it was, as JAX writes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.shapes import size_of
from weft.ops import index_axis, scattering
from weft.ops.arithmetic import maximum, minimum
from weft.ops.op import Operand, TensorLike
from weft.ops.view import axes
from weft.tensor.creation import as_tensor
from weft.tensor.ranges import arange
from weft.tensor.selection import Key
from weft.tensor.tensor import Tensor


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
    """A place of a tensor: its methods give the tensor with something else there."""

    __slots__ = ("key", "x")

    def __init__(self, x: Tensor, key: Key) -> None:
        self.x = x
        self.key = key

    def get(self) -> Tensor:
        """What is there."""
        return self.x[self.key]

    def set(self, values: Operand) -> Tensor:
        """With values there; of several for one place the last counts."""
        out = self.x.clone()
        out[self.key] = values
        return out

    def add(self, values: Operand) -> Tensor:
        """With values added; several for one place add up."""
        return self._combined("sum", lambda a, b: a + b, values)

    def subtract(self, values: Operand) -> Tensor:
        """With values subtracted; several for one place add up."""
        return self.add(-as_tensor(values))

    def multiply(self, values: Operand) -> Tensor:
        """Multiplied by values."""
        return self._combined("prod", lambda a, b: a * b, values)

    mul = multiply

    def divide(self, values: Operand) -> Tensor:
        """Divided by values."""
        return self.multiply(1 / as_tensor(values))

    def power(self, values: Operand) -> Tensor:
        """Raised to powers."""
        return self.set(self.get() ** values)

    def min(self, values: Operand) -> Tensor:
        """With the smaller of what is there and values."""
        return self._combined("amin", minimum, values)

    def max(self, values: Operand) -> Tensor:
        """With the larger of what is there and values."""
        return self._combined("amax", maximum, values)

    def apply(self, function: Any) -> Tensor:
        """With a function of what is there."""
        return self.set(function(self.get()))

    def _combined(self, how: str, function: Any, values: Operand) -> Tensor:
        if not _may_repeat(self.key):
            return self.set(function(self.get(), values))
        x, count = self.x, size_of(self.x.shape)
        places = arange(count).reshape(x.shape)[self.key]
        given = values if isinstance(values, TensorLike) else as_tensor(values)
        given = axes.broadcast_to(given.astype(x.dtype), places.shape)
        flat, index = axes.reshape(x, (count,)), axes.reshape(places, (size_of(places.shape),))
        source = axes.reshape(given, index.shape)
        if how == "sum":
            out = index_axis.scatter_add(flat, 0, index, source)
        else:
            out = scattering.scatter_reduce(flat, 0, index, source, how)
        return axes.reshape(out, x.shape)


def _may_repeat(key: Key) -> bool:
    """Whether a key may name a place twice: one of integers in tensors, arrays or lists."""
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, list):
            return True
        if isinstance(part, TensorLike | np.ndarray) and part.ndim and kind(part.dtype) in "iu":  # type: ignore[union-attr]
            return True
    return False
