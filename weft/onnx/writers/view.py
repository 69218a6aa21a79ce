"""Writers of ops that move elements: shapes, slices, borders, joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.sizes import Size, is_known
from weft.onnx.writers.registry import composite_writer, enter_writers, writer
from weft.onnx.writers.writer import Ref, Writer

_LAST = np.iinfo(np.int64).max
_BEFORE_FIRST = np.iinfo(np.int64).min
Ints = tuple[Any, ...]


# Shapes


@writer("reshape")
def write_reshape(w: Writer, x: Ref, *, shape: Ints) -> Ref:
    """x in another shape; sizes that it has already, and one that follows, are not computed."""
    if x.shape == shape:
        return x
    if is_known(shape) and 0 in shape:
        return w.full(shape, 0, x.dtype)
    short = _short_shape(x.shape, shape)
    if short is not None:
        out: Ref = w.emit("Reshape", x, w.ints(short))
        return out
    exact = 1 if w.opset >= 14 else None
    return w.emit("Reshape", x, w.ints(shape), allowzero=exact)  # type: ignore[no-any-return]


@writer("again")
def write_again(w: Writer, x: Ref) -> Ref:
    """The tensor itself: no runtime merges what is computed from it."""
    return x


def _short_shape(old: Ints | None, new: Ints) -> list[int] | None:
    """A shape in which 0 stands for the size that was there, and -1 for what is left; None if none fits."""
    if is_known(new):
        return list(new)
    out: list[int] = []
    for i, size in enumerate(new):
        if not isinstance(size, Size):
            out.append(size)
        elif old is not None and i < len(old) and isinstance(old[i], Size) and str(old[i]) == str(size):
            out.append(0)
        else:
            out.append(-1)
    literal = any(s == 0 and not isinstance(s, Size) for s in new)
    alone = out.count(-1) <= 1 and not (out.count(-1) == 1 and 0 in out and literal)
    return out if alone and not literal else None


@composite_writer("stack")
def write_stack(w: Writer, arrays: Sequence[Ref], axis: int) -> Any:
    """Tensors side by side along a new axis."""
    if len({x.dtype for x in arrays}) > 1:
        return None
    place = axis % (len(w.type.shape))
    return w.emit("Concat", *[w.unsqueeze(x, place) for x in arrays], axis=place)


@composite_writer("tile")
def write_tile(w: Writer, x: Ref, repetitions: Any) -> Any:
    """x repeated along each axis."""
    times = (repetitions,) if isinstance(repetitions, int) else tuple(repetitions)
    if len(times) > x.ndim:
        x = w.reshape(x, (*(1,) * (len(times) - x.ndim), *x.shape))
    return w.emit("Tile", x, w.ints((*(1,) * (x.ndim - len(times)), *times)))


@composite_writer("tril", "triu")
def write_triangle(w: Writer, x: Ref, k: int) -> Any:
    """One triangle of matrices, zeros in the other."""
    if w.opset < 14:
        return None
    assert w.node is not None
    return w.emit("Trilu", x, w.constant(k, int64), upper=int(w.node.attrs["function"] == "triu"))


# Sizes as values


enter_writers(
    {
        "permute": lambda w, x, *, axes: (
            x if axes == tuple(range(len(axes))) else w.emit("Transpose", x, perm=axes)
        ),
        "broadcast_to": lambda w, x, *, shape: x if x.shape == shape else w.emit("Expand", x, w.ints(shape)),
        "concat": lambda w, *xs, axis: xs[0] if len(xs) == 1 else w.emit("Concat", *xs, axis=axis),
        "rows": lambda w, x, *, count: [
            w.emit("Gather", x, w.constant(i, int64), axis=0) for i in range(count)
        ],
        "size": lambda w, *, value, dtype: w.cast(w.scalar_size(value), dtype),
        "iota": lambda w, *, size, dtype: w.cast(count_to(w, size), dtype),
    }
)


def count_to(w: Writer, size: Any, after: int = 0) -> Ref:
    """The numbers below a size, as int64, along an axis with so many axes after it."""
    if isinstance(size, Size):
        row = w.emit("Range", w.constant(0, int64), w.scalar_size(size), w.constant(1, int64))
    else:
        row = w.constant(np.arange(size), int64)
    row = row._replace(shape=(size,))
    return w.reshape(row, (size, *(1,) * after)) if after else row


# Slices


@writer("slice")
def write_slice(w: Writer, x: Ref, *, starts: Ints, stops: Ints, steps: Ints) -> Any:
    """The elements of a range along each axis; axes that are taken whole are left out."""
    parts = list(zip(range(x.ndim), x.shape, starts, stops, steps, strict=True))
    single = [(axis, _from_end(a, n)) for axis, n, a, b, _ in parts if _is_element(n, a, b)]
    for axis, place in single:
        x = w.emit("Gather", x, w.ints((place,)), axis=axis)
    whole = [axis for axis, n, a, b, s in parts if a == 0 and b == n and s == 1]
    done = {*whole, *[axis for axis, _ in single]}
    cut = [(axis, *_ends(n, a, b, s), s) for axis, n, a, b, s in parts if axis not in done]
    if not cut:
        return x
    axes, first, last, step = zip(*cut, strict=True)
    steps_given = () if all(s == 1 for s in step) else (w.ints(step),)
    return w.emit("Slice", x, w.ints(first), w.ints(last), w.ints(axes), *steps_given)


def _is_element(size: Any, start: Any, stop: Any) -> bool:
    """Whether a range is one element of an open size: it must be there, where a slice gives what there is."""
    return isinstance(size, Size) and not isinstance(stop - start, Size) and stop - start == 1


def _ends(size: Any, start: Any, stop: Any, step: int) -> tuple[Any, Any]:
    """Both ends of a slice, counted from the end of the axis where that makes them numbers."""
    if isinstance(start, Size):
        start = _from_end(start, size)
    if step < 0:
        return start, _BEFORE_FIRST if not isinstance(stop, Size) and stop < 0 else stop
    if isinstance(stop, Size):
        stop = _LAST if stop - size == 0 else _from_end(stop, size)
    return start, stop


def _from_end(place: Any, size: Any) -> Any:
    away = place - size
    return away if not isinstance(away, Size) and away < 0 else place


def cut(w: Writer, x: Ref, axis: int, start: Any, stop: Any, step: int = 1) -> Ref:
    """The elements of a range along one axis."""
    steps = () if step == 1 else (w.ints((step,)),)
    out: Ref = w.emit("Slice", x, w.ints((start,)), w.ints((stop,)), w.ints((axis,)), *steps)
    return out


def flipped(w: Writer, x: Ref, axis: int) -> Ref:
    """x backwards along an axis."""
    return cut(w, x, axis, -1, _BEFORE_FIRST, -1)


@composite_writer("flip")
def write_flip(w: Writer, x: Ref, axis: Any) -> Any:
    """x backwards along axes."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    for a in axes:
        x = flipped(w, x, a % x.ndim)._replace(shape=x.shape)
    return x


@writer("update_slice")
def write_update_slice(w: Writer, x: Ref, v: Ref, *, starts: Ints, stops: Ints, steps: Ints) -> Any:
    """x with a part of it replaced: along one axis after another what is before, the part, what is after."""
    if any(s != 1 for s in steps):
        return _scattered(w, x, v, starts, stops, steps)
    return _replaced(w, x, v, starts, stops, 0)


def _replaced(w: Writer, x: Ref, v: Ref, starts: Ints, stops: Ints, axis: int) -> Ref:
    while axis < len(starts) and starts[axis] == 0 and stops[axis] == v.shape[axis] == x.shape[axis]:
        axis += 1
    if axis == len(starts):
        return v
    start, stop = starts[axis], stops[axis]
    middle = cut(w, x, axis, start, stop)
    middle = middle._replace(shape=(*x.shape[:axis], v.shape[axis], *x.shape[axis + 1 :]))
    inner = _replaced(w, middle, v, starts, stops, axis + 1)
    parts = [cut(w, x, axis, 0, start)] if start != 0 else []
    parts.append(inner)
    if stop != x.shape[axis]:
        parts.append(cut(w, x, axis, stop, _LAST))
    joined: Ref = w.emit("Concat", *parts, axis=axis)
    return joined


def _scattered(w: Writer, x: Ref, v: Ref, starts: Ints, stops: Ints, steps: Ints) -> Any:
    """Places that are apart are written one by one."""
    if not is_known((*x.shape, *starts, *stops)):
        w.fail("a part that is written with a step must have known sizes, got open ones")
    ranges = [np.arange(a, b, s) for a, b, s in zip(starts, stops, steps, strict=True)]
    places = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1)
    return w.emit("ScatterND", x, w.constant(places, int64), v)


# Borders


@writer("pad")
def write_pad(w: Writer, x: Ref, *, low: Ints, high: Ints, interior: Ints, value: Any) -> Any:
    """x with elements before, after and between its own."""
    for axis, gap in enumerate(interior):
        if gap != 0:
            x = _spaced(w, x, axis, gap, value)
    return padded(w, x, low, high, value)


def padded(w: Writer, x: Ref, low: Ints, high: Ints, value: Any = 0) -> Ref:
    """x with a border."""
    if all(isinstance(n, int) and n == 0 for n in (*low, *high)):
        return x
    fill = () if isinstance(value, int) and value == 0 else (w.constant(value, x.dtype),)
    out: Ref = w.emit("Pad", x, w.ints((*low, *high)), *fill)
    return out


def _spaced(w: Writer, x: Ref, axis: int, gap: Any, value: Any) -> Ref:
    """x with a gap between its elements along an axis: each gets its gap, and the last one loses it."""
    size = x.shape[axis]
    shape = (*x.shape[:axis], size * (gap + 1), *x.shape[axis + 1 :])
    new = padded(
        w, w.unsqueeze(x, axis + 1), (0,) * (x.ndim + 1), _one_axis(x.ndim + 1, axis + 1, gap), value
    )
    joined = w.reshape(new, shape)
    kept = cut(w, joined, axis, 0, -gap if not isinstance(gap, Size) else shape[axis] - gap)
    return kept._replace(shape=(*x.shape[:axis], size * (gap + 1) - gap, *x.shape[axis + 1 :]))


def _one_axis(rank: int, axis: int, value: Any) -> Ints:
    return tuple(value if i == axis else 0 for i in range(rank))


def pad_axis(w: Writer, x: Ref, axis: int, low: Any, high: Any, value: Any = 0) -> Ref:
    """x with a border along one axis."""
    return padded(w, x, _one_axis(x.ndim, axis, low), _one_axis(x.ndim, axis, high), value)


_MODES = {"reflect": "reflect", "replicate": "edge", "edge": "edge"}


@composite_writer("pad_mode")
def write_pad_mode(w: Writer, x: Ref, pad_width: Any, mode: str, value: Any) -> Any:
    """A border that repeats or mirrors what is inside."""
    if mode not in _MODES or not is_known(x.shape):
        return None
    table = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    room = np.array(x.shape)[:, None] - (1 if mode == "reflect" else 0)
    if 0 in x.shape or (mode == "reflect" and (table > room).any()):
        return None
    return w.emit("Pad", x, w.ints([int(n) for n in table.T.reshape(-1)]), mode=_MODES[mode])
