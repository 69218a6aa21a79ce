"""Views as strides: the result of a view of an array, where it is an array of the same buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.loop.index import Index
from weft.schedule.arrays import Array


def view_of(x: Array, node: Node) -> Array | None:
    """The array that a view op gives of an array; None where no strides describe it."""
    rule = _VIEWS.get(node.op.name)
    return None if rule is None else rule(x, node)


def _reshape(x: Array, node: Node) -> Array | None:
    shape = node.attrs["shape"]
    if x.is_dense or 0 in shape:
        return x.with_shape(shape)
    strides = _split_strides(x, shape)
    return None if strides is None else Array(x.buffer, shape, strides, x.offset)


def _split_strides(x: Array, shape: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Strides of another shape where each of its axes is a part of one axis, or a run of axes, of x."""
    runs = _merged(x)
    strides: list[Any] = []
    axes = list(reversed(shape))
    for size, stride in reversed(runs):
        step, left = stride, size
        while axes and not (isinstance(left, int) and left == 1):
            part = axes[0]
            if isinstance(left, Size) or isinstance(part, Size):
                if left != part:
                    return None
            elif left % part:
                return None
            strides.append(step)
            step, left = step * part, 1 if left == part else left // part
            axes.pop(0)
        if not (isinstance(left, int) and left == 1):
            return None
    if any(isinstance(a, Size) or a != 1 for a in axes):
        return None
    return tuple(reversed([*strides, *[0] * len(axes)]))


def _merged(x: Array) -> list[tuple[Any, Any]]:
    """Sizes and strides with axes merged that lie in order; those of size 1 are left out."""
    runs: list[tuple[Any, Any]] = []
    for size, stride in zip(x.shape, x.strides, strict=True):
        if not isinstance(size, Size) and size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    return runs


def _permute(x: Array, node: Node) -> Array:
    axes = node.attrs["axes"]
    return Array(x.buffer, tuple(x.shape[a] for a in axes), tuple(x.strides[a] for a in axes), x.offset)


def _broadcast(x: Array, node: Node) -> Array:
    shape = node.attrs["shape"]
    lead = len(shape) - x.ndim
    strides = [0] * lead
    for own, stride, size in zip(x.shape, x.strides, shape[lead:], strict=True):
        strides.append(stride if own == size else 0)
    return Array(x.buffer, shape, tuple(strides), x.offset)


def _slice(x: Array, node: Node) -> Array | None:
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    if any(isinstance(s, Size) or s < 0 for s in steps):
        return None
    offset = x.offset
    for start, stride in zip(starts, x.strides, strict=True):
        offset = offset + Index.of(start) * stride
    strides = tuple(stride * step for stride, step in zip(x.strides, steps, strict=True))
    return Array(x.buffer, node.outputs[0].type.shape, strides, offset)


_VIEWS: dict[str, Callable[[Array, Node], Array | None]] = {
    "reshape": _reshape,
    "permute": _permute,
    "broadcast_to": _broadcast,
    "slice": _slice,
}
