"""Where elements are, in a capture: the count, on which shapes depend, is asked for and so guarded.

``nonzero``, ``unique`` and indexing by a mask are made of these while a graph is captured. Calls of the graph
may then have other elements, as long as there are as many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import DTypeLike, int8, int64
from weft.base.shapes import size_of
from weft.ops.arithmetic import floor_divide, remainder, sub
from weft.ops.compare import not_equal
from weft.ops.index import gather_nd, scatter_nd
from weft.ops.op import Tensor
from weft.ops.reduce import count_nonzero
from weft.ops.scan import cumsum
from weft.ops.select import cast
from weft.ops.sort import argsort
from weft.ops.view.primitives import broadcast_to, concat, reshape
from weft.ops.view.slices import slice_axis
from weft.tensor.dispatch import captured_constant


def positions(x: Tensor) -> list[Tensor]:
    """The indices of the elements that are not zero, one tensor for each axis."""
    shape = x.shape
    flat = _true_positions(reshape(not_zero(x), shape=(size_of(shape),)))
    out: list[Any] = []
    for size in reversed(shape[1:]):
        out.insert(0, remainder(flat, size))
        flat = floor_divide(flat, size)
    return [flat, *out]


def not_zero(x: Tensor) -> Tensor:
    """Whether elements are not zero."""
    return x if x.dtype == np.bool_ else not_equal(x, 0)


def _true_positions(mask: Tensor) -> Any:
    """Where a vector holds true, in order: sorting puts these first."""
    count = int(count_nonzero(mask))
    if count == 0:
        return captured_constant(np.zeros(0, int64))
    return slice_axis(argsort(cast(~mask, dtype=int8)), 0, 0, count)


def distinct(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The distinct elements in order, where each first stands, which one each element is, and how many."""
    size = size_of(x.shape)
    flat = reshape(x, shape=(size,))
    if size == 0:
        none = captured_constant(np.zeros(0, int64))
        return flat, none, reshape(none, shape=x.shape), none
    order = argsort(flat)
    ordered = gather_nd(flat, order)
    begins = not_equal(slice_axis(ordered, 0, 1, size), slice_axis(ordered, 0, 0, size - 1))
    begins = concat([captured_constant(np.ones(1, np.bool_)), begins], axis=0)
    starts = _true_positions(begins)
    last = captured_constant(np.full(1, size, int64))
    ends = concat([slice_axis(starts, 0, 1, starts.shape[0]), last], axis=0)
    number = sub(cumsum(cast(begins, dtype=int64), axis=0), 1)
    inverse = scatter_nd(captured_constant(np.zeros(size, int64)), number, order)
    first = gather_nd(order, starts)
    return gather_nd(flat, first), first, reshape(inverse, shape=x.shape), sub(ends, starts)


def ones_of(shape: tuple[int, ...], dtype: DTypeLike | None) -> Tensor:
    """Ones of a shape."""
    return broadcast_to(captured_constant(np.ones((), dtype)), shape=shape)
