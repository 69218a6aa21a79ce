"""Shapes: asking for them, and giving the same elements another one; joining and cutting."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.base.shapes import size_of
from weft.base.size_bounds import size_max
from weft.base.sizes import Size
from weft.interop.forms.elements import cut
from weft.interop.forms.window import padded
from weft.onnx.facts import Array
from weft.onnx.operators.registry import Call, all_inputs, enter_handlers, operator
from weft.onnx.operators.run_time import counts, cut_at, numbers, padded_by, reshaped


def objects(items: Any) -> Array:
    """Ints and named sizes as a vector."""
    out = np.empty(len(items), object)
    out[:] = items
    return out


@operator("Reshape", moves=True)
def reshape(call: Call, x: Tensor, to: Tensor | None = None) -> Any:
    """The same elements in another shape; 0 stands for a size that stays, -1 for what is left."""
    sizes, zeros_stay = numbers(call, to, "shape"), not call.attribute("allowzero", 0)
    if any(isinstance(s, Tensor) for s in sizes):
        return reshaped(x, sizes, zeros_stay=zeros_stay)
    if zeros_stay:
        sizes = tuple([x.shape[i] if _is(s, 0) else s for i, s in enumerate(sizes)])
    return weft.reshape(x, sizes)


def _is(size: Any, number: int) -> bool:
    return not isinstance(size, Size) and int(size) == number


@operator("Flatten", moves=True)
def flatten(call: Call, x: Tensor, *, axis: int = 1) -> Any:
    """A matrix: the axes before one as rows, the others as columns."""
    axis = axis + x.ndim if axis < 0 else axis
    return weft.reshape(x, (size_of(x.shape[:axis]), size_of(x.shape[axis:])))


@operator("Squeeze", moves=True)
def squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Without axes of size 1."""
    given = call.told(axes, "axes")
    single = [i for i, s in enumerate(x.shape) if _is(s, 1)] if given is None else given
    return weft.squeeze(x, axis=tuple(single)) if single else x


@operator("Unsqueeze", moves=True)
def unsqueeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Any:
    """With new axes of size 1."""
    given = call.told(axes, "axes")
    rank = x.ndim + len(given)
    places = {int(a) % rank for a in given}
    sizes = iter(x.shape)
    return weft.reshape(x, tuple([1 if i in places else next(sizes) for i in range(rank)]))


@operator("Expand", moves=True)
def expand(call: Call, x: Tensor, to: Tensor) -> Any:
    """Repeated along axes of size 1, by broadcasting in both directions."""
    wanted = counts(call, to, "shape")
    rank = max(x.ndim, len(wanted))
    own = (1,) * (rank - x.ndim) + tuple(x.shape)
    other = (1,) * (rank - len(wanted)) + wanted
    return weft.broadcast_to(x, tuple([b if _is(a, 1) else a for a, b in zip(own, other, strict=True)]))


@operator("Split", moves=True)
def split(call: Call, x: Tensor, parts: Tensor | None = None, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Cut along an axis: into parts of sizes, or so many of equal size, of which the last may be smaller."""
    sizes = None if parts is None else counts(call, parts, "split", most=x.shape[axis])
    sizes = call.attribute("split") if sizes is None else sizes
    if sizes is None:
        total, before = x.shape[axis], call.attribute("num_outputs", len(call.outputs)) - 1
        step = -(-total // (before + 1))
        sizes = (*(step,) * before, total - step * before)
    elif parts is None or call.sizes(parts) is not None:
        call.agree(x.shape[axis], sum(sizes), "the size of the axis and those of its parts")
    return tuple(cut(x, axis, sizes))


_WHOLE = 2**31 - 1  # ends from here on mean all that there is


@operator("Slice", moves=True)
def slice_axes(call: Call, x: Tensor, *given: Tensor | None) -> Tensor:
    """A part along each of some axes, in steps."""
    first, last, along, by = all_inputs(given, 4)
    starts, ends = numbers(call, first, "starts"), numbers(call, last, "ends")
    axes, steps = call.told(along, "axes"), call.told(by, "steps")
    index: list[Any] = [slice(None)] * x.ndim
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis, step = int(axes[i]) % x.ndim if axes is not None else i, 1 if steps is None else int(steps[i])
        if isinstance(start, Tensor) or isinstance(end, Tensor):
            x = cut_at(x, axis, start, end, step)
        else:
            index[axis] = _part(x.shape[axis], start, end, step)
    return x[tuple(index)]


def _part(size: Any, start: Any, end: Any, step: int) -> slice:
    """A slice as Python writes it; what lies outside is left out."""
    if isinstance(size, Size):
        return slice(_first(size, start, step), _stop(size, end, step), step)
    if isinstance(start, Size) or isinstance(end, Size):
        return slice(start, end, step)
    high = size if step > 0 else size - 1
    first = min(max(int(start) + size if start < 0 else int(start), 0), high)
    last = min(max(int(end) + size if end < 0 else int(end), 0 if step > 0 else -1), high)
    return slice(first, None if last < 0 else last, step)


def _first(size: Size, start: Any, step: int) -> Any:
    """Where a slice of an open size begins. Backwards, what lies before the first element means that one."""
    if isinstance(start, Size):
        return start
    if step > 0:
        return 0 if start <= -_WHOLE else size if start >= _WHOLE else int(start)
    if start <= -_WHOLE:
        return 0
    return None if start >= _WHOLE else size_max(size + int(start), 0) if start < 0 else int(start)


def _stop(size: Size, end: Any, step: int) -> Any:
    """Where it ends; an end out of all bounds is before the first element or beyond the last."""
    if isinstance(end, Size) or -_WHOLE < end < _WHOLE:
        return end if isinstance(end, Size) else int(end)
    if (end > 0) == (step > 0):
        return None
    return 0 if step > 0 else size


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@operator("Pad", moves=True)
def pad(call: Call, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    """With a border; where it is negative, elements are taken away."""
    if call.version < 11:
        widths, value = call.attribute("pads", call.attribute("paddings")), call.attribute("value", 0.0)
    else:
        widths = numbers(call, pads, "pads")
        value = 0 if value is None else _filling(call, value)
    along = range(x.ndim) if axes is None else [int(a) % x.ndim for a in call.ints(axes, "axes")]
    count = len(widths) // 2
    both: dict[int, tuple[Any, Any]] = dict.fromkeys(range(x.ndim), (0, 0))
    both |= {a: (widths[i], widths[i + count]) for i, a in enumerate(along)}
    mode = _PAD_MODES[call.attribute("mode", "constant")]
    if any(isinstance(w, Tensor) for w in widths):
        return padded_by(x, both, mode, value)
    if not isinstance(value, Tensor):
        return padded(x, list(both.values()), mode, value)
    inside = padded(weft.ones_like(x, dtype=weft.bool), list(both.values()), "constant", False)
    return weft.where(inside, padded(x, list(both.values()), mode), value.astype(x.dtype))


def _filling(call: Call, value: Tensor) -> Any:
    """What a border is filled with: a number, or a tensor that a run tells."""
    return call.scalar(value, "constant_value") if call.sizes(value) is not None else value.reshape(())


enter_handlers(
    {
        "Shape": lambda call, x, *, start=0, end=None: objects(x.shape[start:end]),
        "Size": lambda call, x: objects([size_of(x.shape)]).reshape(()),
    }
)
enter_handlers(
    {"Tile": lambda call, x, times: weft.tile(x, counts(call, times, "repeats"))}, moves=True, since=6
)
enter_handlers(
    {
        "Transpose": lambda call, x, *, perm=None: weft.permute_dims(x, perm or tuple(range(x.ndim))[::-1]),
        "Concat": lambda call, *inputs, axis=None: weft.concat(
            list(inputs), axis=(1 if call.version < 4 else 0) if axis is None else axis
        ),
    },
    moves=True,
)
