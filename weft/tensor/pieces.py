"""Gradients of slices of a large array, put together once all have come.

Each slice alone would have its gradient padded with zeros to the size of the whole, and all these added up.
Here the pieces wait beside one another, and are written into one array when the node they go to runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from weft.ir.types import TensorType
from weft.ops.op import Operand, Tensor
from weft.tensor.large import empty
from weft.tensor.rules import Backward, Saved

Piece = tuple[tuple[slice, ...], Any]  # where it lies, and an array


class Pieces:
    """A sum of arrays that are zero outside of slices.

    >>> import numpy as np
    >>> from weft.ir.types import TensorType
    >>> kind = TensorType((4,), np.dtype("f4"))
    >>> left, right = (Pieces(kind, [((s,), np.ones(2, "f4"))]) for s in (slice(0, 2), slice(1, 3)))
    >>> (left + right).array()
    array([1., 2., 1., 0.], dtype=float32)
    """

    __slots__ = ("kind", "parts")

    def __init__(self, kind: TensorType, parts: Sequence[Piece]) -> None:
        self.kind = kind
        self.parts = parts

    def __add__(self, other: Operand) -> Any:
        if isinstance(other, Pieces):
            return Pieces(self.kind, [*self.parts, *other.parts])
        return self._added_to(np.array(other))

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, out: Any = None, **_: object
    ) -> Any:
        """An array plus this, or with this added in place."""
        if ufunc is not np.add or method != "__call__" or inputs[1] is not self:
            return NotImplemented
        return self._added_to(np.array(inputs[0]) if out is None else out[0])

    def _added_to(self, array: Any) -> Any:
        for key, part in self.parts:
            array[key] += part
        return array

    def array(self) -> Any:
        """The sum as one array."""
        out = empty(self.kind.shape, self.kind.dtype)
        if self._fills_all():
            for key, part in self.parts:
                out[key] = part
            return out
        out[...] = 0
        return self._added_to(out)

    def _fills_all(self) -> bool:
        """Whether the pieces lie side by side along one axis, and nothing is left over."""
        shape, keys = self.kind.shape, [key for key, _ in self.parts]
        axes = {i for key in keys for i, s in enumerate(key) if s.stop - s.start != shape[i]}
        if len(axes) != 1 or any(s.step != 1 for key in keys for s in key):
            return False
        (axis,) = axes
        ends = sorted((key[axis].start, key[axis].stop) for key in keys)
        return [0, *[stop for _, stop in ends]] == [*[start for start, _ in ends], shape[axis]]


@cache
def in_pieces(rule: Backward) -> Backward:
    """The rule of a slice, able to give its gradient as a piece."""
    return rule.replace(piece=_piece)


def _piece(g: Tensor, saved: Saved) -> Any:
    x_type, starts, stops, steps = saved
    if any(s < 0 for s in steps):
        return None
    return Pieces(x_type, [(tuple(map(slice, starts, stops, steps)), g)])
