"""Points of the ops on windows that slide over the last axes: elements, sums, largest ones, transposes.

All are rules for one element, so that what is computed before and after a pool can be part of its loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod
from typing import Any

from weft.base.dtypes import int64, kind
from weft.base.records import NamedTuple
from weft.base.sizes import Size, is_known
from weft.ir.graph import Node
from weft.ir.graph import Value as GraphValue
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.ops.scalar import is_nan
from weft.schedule.extents import identity, sum_dtype, sum_instruction
from weft.schedule.pointwise.rules import Indices, Reader, pointwise
from weft.schedule.pointwise.views import both

UNROLLED = 16  # taps of a window that are written out


class Axis(NamedTuple):
    """How windows lie along one axis.

    Attributes:
        size: of the axis.
        taps: of a window.
        stride: from window to window.
        low: zeros before the axis.
        dilation: from tap to tap.
        count: of windows.
    """

    size: Any
    taps: int
    stride: int
    low: int
    dilation: int
    count: Any

    @property
    def is_inside(self) -> bool:
        """Whether every tap of every window is an element."""
        if isinstance(self.size, Size) or isinstance(self.count, Size):
            return False
        reached = (self.count - 1) * self.stride + (self.taps - 1) * self.dilation
        return self.low <= 0 and reached < self.size + self.low


def _axes(sizes: Sequence[Any], counts: Sequence[Any], attrs: Any) -> list[Axis]:
    lows = [low for low, _ in attrs["padding"]]
    columns = zip(sizes, attrs["kernel"], attrs["stride"], lows, attrs["dilation"], counts, strict=True)
    return [Axis(*column) for column in columns]


def _of_pool(node: Node) -> list[Axis]:
    """The axes of an op that makes one element of each window."""
    rank = len(node.attrs["kernel"])
    return _axes(node.inputs[0].type.shape[-rank:], node.outputs[0].type.shape[-rank:], node.attrs)


def _tap_place(b: Builder, axis: Axis, position: Index, tap: Index) -> tuple[Index, Any]:
    """Where a tap of a window is, and whether that is an element; None where it surely is."""
    place = position * axis.stride + tap * axis.dilation + -axis.low
    if axis.is_inside:
        return place, None
    return place, b.and_(b.le(Index.of(0), place), b.lt(place, Index.of(axis.size)))


def _read_tap(
    r: Reader, x: GraphValue, axes: Sequence[Axis], index: Indices, taps: Sequence[Index], mask: Value | None
) -> tuple[Value, Any]:
    """The element at a tap of the window that an index names, and whether there is one."""
    lead = len(index) - len(axes)
    inside, places = None, []
    for axis, position, tap in zip(axes, index[lead:], taps, strict=True):
        place, holds = _tap_place(r.builder, axis, position, tap)
        places.append(place)
        inside = both(r.builder, inside, holds)
    return r.read(x, (*index[:lead], *places), both(r.builder, mask, inside)), inside


def _over_taps(b: Builder, axes: Sequence[Axis], visit: Callable[[list[Index]], None]) -> None:
    """Visit all taps of a window, written out where they are few."""
    taps = [axis.taps for axis in axes]
    if is_known(taps) and prod(taps) <= UNROLLED:
        for tap in product(*map(range, taps)):
            visit([Index.of(t) for t in tap])
        return
    with ExitStack() as stack:
        visit([stack.enter_context(b.loop(count)) for count in taps])


# One element of each window


@pointwise("windows")
def _windows(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    rank = len(node.attrs["kernel"])
    x, shape = node.inputs[0], node.outputs[0].type.shape
    axes = _axes(x.type.shape[-rank:], shape[-2 * rank : -rank], node.attrs)
    value, inside = _read_tap(r, x, axes, index[:-rank], index[-rank:], mask)
    return value if inside is None else r.builder.select(inside, value, 0)


@pointwise("window_sum")
def _window_sum(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    b, axes, x = r.builder, _of_pool(node), node.inputs[0]
    dtype = x.type.dtype
    total = b.local(0, sum_dtype(dtype))

    def add(taps: list[Index]) -> None:
        value, inside = _read_tap(r, x, axes, index, taps, mask)
        value = b.cast(value, total.dtype)
        value = value if inside is None else b.select(inside, value, 0)
        b.set(total, getattr(b, sum_instruction(dtype))(b.get(total), value))

    _over_taps(b, axes, add)
    return b.cast(b.get(total), dtype)


@pointwise("max_pool")
def _max_pool(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    b, axes, x = r.builder, _of_pool(node), node.inputs[0]
    lowest = identity("max", x.type.dtype)
    best = b.local(lowest, x.type.dtype)

    def meet(taps: list[Index]) -> None:
        value, inside = _read_tap(r, x, axes, index, taps, mask)
        value = value if inside is None else b.select(inside, value, lowest)
        b.set(best, b.max(b.get(best), value))

    _over_taps(b, axes, meet)
    return b.get(best)


@pointwise("max_pool_indices")
def _max_pool_indices(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    b, axes, x = r.builder, _of_pool(node), node.inputs[0]
    dtype = x.type.dtype
    first, moved = _first_place(b, axes, index[-len(axes) :])
    best, won = b.local(identity("max", dtype), dtype), b.local(0, int64)

    def meet(taps: list[Index]) -> None:
        value, inside = _read_tap(r, x, axes, index, taps, mask)
        old = b.get(best)
        better = b.lt(old, value)
        if kind(dtype) == "f":
            better = b.or_(better, b.and_(is_nan(b, value), b.not_(is_nan(b, old))))
        better = both(b, better, inside)
        b.set(best, b.select(better, value, old))
        step = _flat([tap * axis.dilation for tap, axis in zip(taps, axes, strict=True)], axes)
        b.set(won, b.select(better, step, b.get(won)))

    b.set(won, moved)
    _over_taps(b, axes, meet)
    place: Value = b.add(first, b.get(won))
    if all(axis.is_inside for axis in axes):
        return place
    last = _flat([Index.of(axis.size - 1) for axis in axes], axes)
    clipped: Value = b.min(b.max(place, 0), last)
    return clipped


def _flat(places: Sequence[Index], axes: Sequence[Axis]) -> Index:
    """The number of an element, counted over all axes of windows."""
    flat = Index.of(0)
    for place, axis in zip(places, axes, strict=True):
        flat = flat * axis.size + place
    return flat


def _first_place(b: Builder, axes: Sequence[Axis], position: Sequence[Index]) -> tuple[Index, Value]:
    """Where the first tap of a window is, and how far after it the first tap that is an element."""
    starts = [p * axis.stride + -axis.low for p, axis in zip(position, axes, strict=True)]
    missed: list[Index] = []
    for axis, start in zip(axes, starts, strict=True):
        if axis.low <= 0:
            missed.append(Index.of(0))
            continue
        behind = b.term(b.max(b.neg(start), 0), axis.low + 1)
        tap = b.min(b.quotient(behind + (axis.dilation - 1), axis.dilation), axis.taps - 1)
        missed.append(b.term(tap, axis.taps) * axis.dilation)
    return _flat(starts, axes), _flat(missed, axes)


# The transposes: each element of the result gathers from the windows that it is in


def _of_transpose(node: Node) -> list[Axis]:
    sizes = node.attrs["sizes"]
    rank = len(sizes)
    shape = node.inputs[0].type.shape
    return _axes(sizes, shape[len(node.outputs[0].type.shape) - rank :][:rank], node.attrs)


class _Covering(NamedTuple):
    """A window that an element may be in: its position, the tap at which it is there, and whether it is."""

    position: Index
    tap: Index
    holds: Value


def _covering(b: Builder, axis: Axis, place: Index, number: Index) -> _Covering:
    """One of the windows along an axis that an element may be in."""
    shift = max(0, -(-((axis.taps - 1) * axis.dilation - axis.low) // axis.stride))
    if axis.dilation == 1:  # windows are counted back from the last that begins before the element
        last = b.quotient(place + (axis.low + shift * axis.stride), axis.stride)
        position = last - (number + shift)
        tap = place + axis.low - position * axis.stride
        holds = b.lt(tap, axis.taps)
    else:  # each tap in turn
        tap = number
        behind = place + (axis.low + shift * axis.stride) - tap * axis.dilation
        position = b.quotient(behind, axis.stride) - shift
        holds = b.eq(position * axis.stride + tap * axis.dilation, place + axis.low)
    inside = b.and_(b.le(Index.of(0), position), b.lt(position, Index.of(axis.count)))
    return _Covering(position, tap, b.and_(inside, holds))


def _over_windows(
    b: Builder, axes: Sequence[Axis], places: Sequence[Index], visit: Callable[[list[_Covering]], None]
) -> None:
    """Visit all windows that an element may be in, written out where they are few."""
    counts = [-(-a.taps // a.stride) if a.dilation == 1 else a.taps for a in axes]

    def meet(numbers: Sequence[Index]) -> None:
        visit([_covering(b, a, p, n) for a, p, n in zip(axes, places, numbers, strict=True)])

    if prod(counts) <= UNROLLED:
        for numbers in product(*map(range, counts)):
            meet([Index.of(n) for n in numbers])
        return
    with ExitStack() as stack:
        meet([stack.enter_context(b.loop(count)) for count in counts])


def _gathered(r: Reader, node: Node, index: Indices, mask: Value | None, taps: bool) -> Value:
    b, axes, x = r.builder, _of_transpose(node), node.inputs[0]
    lead = len(index) - len(axes)
    dtype = x.type.dtype
    total = b.local(0, sum_dtype(dtype))

    def add(windows: list[_Covering]) -> None:
        holds = None
        for window in windows:
            holds = both(b, holds, window.holds)
        places = [w.position for w in windows] + ([w.tap for w in windows] if taps else [])
        value = b.cast(r.read(x, (*index[:lead], *places), both(b, mask, holds)), total.dtype)
        value = value if holds is None else b.select(holds, value, 0)
        b.set(total, getattr(b, sum_instruction(dtype))(b.get(total), value))

    _over_windows(b, axes, index[lead:], add)
    return b.cast(b.get(total), dtype)


@pointwise("window_spread")
def _window_spread(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    return _gathered(r, node, index, mask, taps=False)


@pointwise("overlap_add")
def _overlap_add(r: Reader, node: Node, index: Indices, mask: Value | None) -> Value:
    return _gathered(r, node, index, mask, taps=True)
