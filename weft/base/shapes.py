"""Arithmetic on shapes and axes, with errors in the name of the op that asked."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod

from weft.base.size_bounds import surely_less
from weft.base.sizes import Size
from weft.errors import ArgumentError, AxisError, ShapeError

Shape = tuple[int, ...]
ShapeLike = int | Sequence[int]
PerAxis = int | Sequence[int]  # one for all axes, or one for each
Axes = int | Sequence[int] | None  # None: all
_SEQUENCE = (tuple, list)  # for isinstance; a union written in place would be made anew at each call


def broadcast_shapes(op: str, shapes: Sequence[Shape], names: Sequence[object] | None = None) -> Shape:
    """The shape that all of ``shapes`` broadcast to; ``names`` are printed in the error."""
    rank = max(map(len, shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size == out[axis] or size == 1:
                continue
            if out[axis] != 1:
                listed = " and ".join(map(str, names if names is not None else shapes))
                clash = f"{out[axis]} vs {size} on axis {axis}"
                raise ShapeError(
                    op, f"shapes must broadcast together, got {listed} ({clash})", clash=(out[axis], size)
                )
            out[axis] = size
    return tuple(out)


def as_ints(op: str, name: str, values: object) -> tuple[int, ...]:
    """An int or a sequence of ints, or named sizes, as a tuple; else an error that names the argument."""
    items = values if isinstance(values, _SEQUENCE) else (values,)
    try:
        return tuple(map(operator.index, items))
    except ShapeError:  # of a size that is not known, which stays
        return tuple([i if isinstance(i, Size) else as_ints(op, name, i)[0] for i in items])  # type: ignore[misc]
    except TypeError:
        raise ArgumentError(op, f"{name} must be an int or a tuple of ints, got {values!r}") from None


def normalize_axis(op: str, axis: object, rank: int) -> int:
    """A non-negative axis, or an AxisError."""
    try:
        index = operator.index(axis)  # type: ignore[arg-type]
    except TypeError:
        hint = f"tensors are given as one list: {op}([x, y])" if hasattr(axis, "shape") else None
        raise ArgumentError(op, f"axis must be an int, got {axis!r}", hint=hint) from None
    if not -rank <= index < rank:
        allowed = f"in {-rank}..{rank - 1}" if rank else "absent"
        raise AxisError(op, f"axis must be {allowed} for rank {rank}, got {index}")
    return index + rank if index < 0 else index


def normalize_axes(op: str, axes: object, rank: int) -> tuple[int, ...]:
    """Sorted, distinct, non-negative axes; None means all of them."""
    if axes is None:
        return tuple(range(rank))
    if not isinstance(axes, _SEQUENCE):
        return (normalize_axis(op, axes, rank),)
    out = tuple(normalize_axis(op, a, rank) for a in axes)
    if len(set(out)) != len(out):
        raise AxisError(op, f"axes must be distinct, got {tuple(axes)}")
    return tuple(sorted(out))


def normalize_shape(op: str, shape: object) -> Shape:
    """A shape as a tuple of ints, from an int or a sequence of ints."""
    out = as_ints(op, "shape", shape)
    if any_below(out, 0):
        raise ShapeError(op, f"sizes must not be negative, got {out}")
    return out


def any_below(sizes: Shape, least: int) -> bool:
    """Whether some size is surely less than another; of named ones it may not be known."""
    try:
        return min(sizes, default=least) < least
    except ShapeError:
        return any(surely_less(size, least) for size in sizes)


def reduce_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape after reducing ``axes``."""
    if keepdims:
        return tuple(1 if i in axes else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in axes)


def size_of(shape: Shape) -> int:
    """The number of elements of a shape."""
    return prod(shape)


def broadcast_axes(small: Shape, large: Shape) -> tuple[int, ...]:
    """The axes of ``large`` along which ``small`` was repeated to become it."""
    lead = len(large) - len(small)
    return tuple(range(lead)) + tuple(
        lead + i for i, s in enumerate(small) if s == 1 and large[lead + i] != 1
    )
