"""Where elements are, in a capture, and which are distinct: shapes depend on how many these are.

``nonzero``, ``unique`` and indexing by a mask are made of these while a graph is captured. Where the capture
has data, the count is asked for and so guarded: calls of the graph may then have other elements, as long as
there are as many. Where it has none, as in a graph for types or in a loop, each run tells the count, a named
size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import DTypeLike, int64
from weft.base.hooks import hooks
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.ops.arithmetic import add, floor_divide, maximum, minimum, remainder, sub
from weft.ops.compare import equal, logical_or, not_equal
from weft.ops.index import gather_nd, scatter_nd
from weft.ops.op import Array, Tensor
from weft.ops.places import true_places
from weft.ops.reduce import count_nonzero
from weft.ops.scan import cumsum
from weft.ops.select import cast, select
from weft.ops.size import count_to, size_value
from weft.ops.sort import argsort
from weft.ops.view.primitives import broadcast_to, reshape
from weft.ops.view.slices import slice_axis
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread


def positions(x: Tensor) -> list[Tensor]:
    """The indices of the elements that are not zero, one tensor for each axis."""
    data: Any = x._data
    if thread.capture is None or getattr(data, "capture", None) is not thread.capture:
        return _positions(x)
    capture = data.capture
    # What is picked by one mask twice must have one size, a[mask] + b[mask], and is looked for once.
    found = capture.places.get(data.value)
    if found is None or any(part._data.value in capture.dropped for part in found):
        capture.places[data.value] = found = _positions(x)
    return list(found)


def _counts_are_open() -> bool:
    """Whether a run tells how many elements there are: in loops and branches, and where there is no data."""
    capture = thread.capture
    if capture is None:
        return False
    return bool(capture.region or capture.root.open_counts or capture.root.examples is None)


def _positions(x: Tensor) -> list[Tensor]:
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
    """Where a vector holds true, in order; where a run tells how many there are, they have a named size."""
    if _counts_are_open():
        return true_places.on_tensors(mask, trips=hooks.fresh_size())
    count = int(count_nonzero(mask))
    if count == 0:
        return captured_constant(np.zeros(0, int64))
    return slice_axis(argsort(mask, descending=True), 0, 0, count)  # sorting puts these first


def distinct(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The distinct elements in order, where each first stands, which one each element is, and how many."""
    size = size_of(x.shape)
    flat = reshape(x, shape=(size,))
    if size == 0:
        none = captured_constant(np.zeros(0, int64))
        return flat, none, reshape(none, shape=x.shape), none
    order = argsort(flat)
    runs = runs_of(gather_nd(flat, order))
    inverse = scatter_nd(ones_of((size,), int64), runs.number, order)
    first = gather_nd(order, runs.starts)
    return gather_nd(flat, first), first, reshape(inverse, shape=x.shape), runs.lengths


class Runs(NamedTuple):
    """The runs of equal elements of a vector: where each begins, how long it is, in which an element is."""

    starts: Tensor
    lengths: Tensor
    number: Tensor


def runs_of(x: Tensor) -> Runs:
    """The runs of equal elements of a vector that is not empty; each NaN is a run."""
    size = x.shape[0]
    row = _numbers(size)
    before = gather_nd(x, maximum(sub(row, 1), 0))
    begins = logical_or(equal(row, 0), not_equal(x, before))
    starts = _true_positions(begins)
    count = starts.shape[0]
    place = _numbers(count)
    after = gather_nd(starts, minimum(add(place, 1), count - 1))
    ends = select(equal(place, count - 1), _held(size_value(size, int64)), after)
    number = sub(cumsum(cast(begins, dtype=int64), axis=0), 1)
    return Runs(starts, sub(ends, starts), number)


def _numbers(size: int) -> Tensor:
    """The numbers below a size."""
    return _held(count_to(size, int64))


def _held(x: Array | Tensor) -> Tensor:
    """An array as a constant of the graph; a tensor of it stays one."""
    return captured_constant(x) if isinstance(x, np.ndarray) else x


def ones_of(shape: tuple[int, ...], dtype: DTypeLike | None) -> Tensor:
    """Ones of a shape."""
    return broadcast_to(captured_constant(np.ones((), dtype)), shape=shape)
