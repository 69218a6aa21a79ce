"""Windows: as many elements of an axis as the code says, from where only a run tells: ``x[i : i + 3]``.

A window is a view, whose step gathers its elements and scatters new ones, so that a start which leaves the
axis is an error of the run. Where its start is known it is a slice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.shapes import Shape
from weft.ops.alias import Step, Strides, link_taken
from weft.ops.op import Array, Tensor
from weft.tensor.dispatch import captured_constant
from weft.tensor.indexing import select_from, updated
from weft.tensor.selection import read_key

Place = tuple[int, Any, int, int]  # the axis, the first element, how many, and the step between them


class _Window(Step[Place]):
    """A window of a tensor; a start that a run tells is a tensor of one int."""

    def get(self, parent: Tensor, args: Place) -> Tensor:
        """The elements, by ops."""
        return select_from(parent, read_key(_key(args), parent.shape))

    def put(self, parent: Tensor, part: Tensor, args: Place) -> Tensor:
        """The parent with other elements there."""
        return updated(parent, _key(args), part)

    def array(self, parent: Array, args: Place) -> Array:
        """The elements of an array, in its memory."""
        out: Array = parent[_key(args)]
        return out

    def strides(self, shape: Shape, strides: Strides, args: Place) -> Strides:
        """That of the axis, times the step."""
        axis, _, _, step = args
        return (*strides[:axis], strides[axis] * step, *strides[axis + 1 :])


def _key(args: Place) -> Any:
    axis, start, count, step = args
    if isinstance(start, int):
        at: Any = slice(start, start + count * step, step)
    else:
        at = start + captured_constant(np.arange(count) * step)
    return (*[slice(None)] * axis, at)


WINDOW = _Window()


def window(x: Tensor, args: Place) -> Tensor:
    """A view of a window of x."""
    out = WINDOW.get(x, args)
    link_taken(out, x, WINDOW, args)
    return out
