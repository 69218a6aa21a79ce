"""Numbers that decide shapes and that only a run tells: counts, ends of slices, shapes.

Where such a number has a bound, the places below it are picked out of all that there may be; else a loop
counts up to it. Either way the run tells a named size, with which the graph goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import weft
from weft import Tensor
from weft.interop.forms.elements import as_number, numbers_below
from weft.onnx.operators.registry import Call
from weft.ops.places import true_places
from weft.tensor.mode import thread
from weft.transform.control.flat import run_while
from weft.transform.fresh import fresh_size


def places_of(mask: Tensor) -> Tensor:
    """Where a vector holds true; in a graph, a vector of a size that only a run tells."""
    if thread.capture is None:
        return weft.nonzero(mask)[0]
    out: Tensor = true_places.on_tensors(mask, trips=fresh_size())
    return out


def counted(count: Tensor, most: Any = None) -> Tensor:
    """The whole numbers below one that only a run tells, and that is at most another, if that is given."""
    limit = count.reshape(()).astype(weft.int64, copy=False)
    if most is not None:
        return places_of(numbers_below(most) < limit)
    before: list[Tensor] = []

    def step(carry: Sequence[Tensor]) -> list[Tensor]:
        before[:] = carry
        return [carry[0] + 1]

    zero = weft.zeros((), dtype=weft.int64)
    return run_while(lambda c: c[0] < limit, step, [zero], collect=lambda after: list(before))[1]


def size_told(count: Tensor, most: Any = None) -> Any:
    """A number of things that only a run tells, as a size; what is negative is 0."""
    return counted(count, most).shape[0]


def counts(call: Call, x: Tensor, what: str, most: Any = None) -> tuple[Any, ...]:
    """The sizes that an input holds: ints and named sizes where they are known, else what a run tells."""
    known = call.sizes(x)
    if known is not None or not _has_known_length(x):
        return call.ints(x, what)
    call.leave_to_run(x, what)
    return tuple([size_told(part, most) for part in parts(x)])


def count(call: Call, x: Tensor, what: str, most: Any = None) -> Any:
    """The one size that an input holds."""
    if call.sizes(x) is not None or x.shape not in ((), (1,)):
        number = call.scalar(x, what)
        return int(number) if isinstance(number, float) else number
    call.leave_to_run(x, what)
    return size_told(x, most)


def _has_known_length(x: Tensor) -> bool:
    return x.ndim == 0 or isinstance(x.shape[0], int)


def parts(x: Tensor) -> list[Tensor]:
    """The elements of a vector of known length."""
    return [x] if x.ndim == 0 else [x[i] for i in range(int(x.shape[0]))]


def numbers(call: Call, x: Tensor | None, name: str) -> Any:
    """Ints that are an input or an attribute, or else tensors of the numbers that a run tells."""
    if x is None or call.sizes(x) is not None or not _has_known_length(x):
        return call.told(x, name)
    call.leave_to_run(x, name)
    return tuple([part.astype(weft.int64, copy=False) for part in parts(x)])


# Slices


def cut_at(x: Tensor, axis: int, start: Any, end: Any, step: int) -> Tensor:
    """The elements of a range along an axis, whose ends are numbers or tensors; it may reach out of it."""
    size = as_number(x.shape[axis])
    row = numbers_below(x.shape[axis])
    first, last = (_from_start(at, size) for at in (start, end))
    if step > 0:
        first = weft.maximum(first, 0)
        inside = (row >= first) & (row < last) & (weft.remainder(row - first, step) == 0)
        return weft.take(x, places_of(inside), axis=axis)
    row = size - 1 - row
    first = weft.minimum(first, size - 1)
    last = weft.maximum(last, -1)
    inside = (row <= first) & (row > last) & (weft.remainder(first - row, -step) == 0)
    return weft.take(x, weft.take(row, places_of(inside), axis=0), axis=axis)


def _from_start(at: Any, size: Any) -> Any:
    """A place that is counted from the end where it is negative, counted from the start."""
    at = at if isinstance(at, Tensor) else weft.zeros((), dtype=weft.int64) + at
    return weft.where(at < 0, at + size, at)


# Shapes


def reshaped(x: Tensor, wanted: Sequence[Tensor], *, zeros_stay: bool) -> Tensor:
    """x in a shape that only a run tells: -1 is what is left, and 0 the size that was there, if asked.

    Elements are read by their number, which is out of range where there are not as many.
    """
    total = as_number(prod(x.shape)) + weft.zeros((), dtype=weft.int64)
    sizes: list[Any] = list(wanted)
    for i, size in enumerate(sizes if zeros_stay else ()):
        if i < x.ndim:
            sizes[i] = weft.where(size == 0, as_number(x.shape[i]), size)
    known: Any = weft.ones((), dtype=weft.int64)
    for size in sizes:
        known = known * weft.where(size == -1, 1, size)
    left = weft.floor_divide(total, weft.maximum(known, 1))
    shape = tuple([size_told(weft.where(size == -1, left, size)) for size in sizes])
    count = as_number(prod(shape)) + weft.zeros((), dtype=weft.int64)
    places = numbers_below(prod(shape)) + weft.where(count == total, 0, total)
    return weft.reshape(weft.take(weft.reshape(x, (prod(x.shape),)), places, axis=0), shape)


# Borders


def padded_by(x: Tensor, sides: Mapping[int, tuple[Any, Any]], mode: str, value: Any) -> Any:
    """x with a border along each axis; how wide it is, or what it is filled with, only a run tells."""
    for axis, (low, high) in sides.items():
        if isinstance(low, Tensor) or isinstance(high, Tensor) or low or high:
            x = _padded_axis(x, axis, low, high, mode, value)
    return x


def _padded_axis(x: Tensor, axis: int, low: Any, high: Any, mode: str, value: Any) -> Any:
    size = as_number(x.shape[axis])
    total = weft.zeros((), dtype=weft.int64) + low + size + high
    at = counted(total) - low
    if mode != "constant":
        return weft.take(x, _SOURCES[mode](at, size), axis=axis)
    fill = value.astype(x.dtype) if isinstance(value, Tensor) else weft.full((), value, dtype=x.dtype)
    one = weft.broadcast_to(fill, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    inside = (at >= 0) & (at < size)
    return weft.take(weft.concat([x, one], axis=axis), weft.where(inside, at, size), axis=axis)


def _mirrored(at: Tensor, size: Any) -> Any:
    """Places beyond an end as those as far before it, again and again."""
    period = weft.maximum(2 * (size - 1) + weft.zeros((), dtype=weft.int64), 1)
    inside = weft.remainder(at, period)
    return weft.minimum(inside, period - inside)


_SOURCES: dict[str, Callable[[Tensor, Any], Any]] = {
    "replicate": lambda at, size: weft.maximum(weft.minimum(at, size - 1), 0),
    "reflect": _mirrored,
    "circular": lambda at, size: weft.remainder(at, size),
}
