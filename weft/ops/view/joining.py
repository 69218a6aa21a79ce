"""Public functions that cut, repeat and reorder elements along an axis; joining is in ``view``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.public import public
from weft.base.shapes import Axes, ShapeLike, as_ints, normalize_axes, normalize_axis, size_of
from weft.base.size_bounds import same_size, size_max
from weft.base.sizes import Size
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.ops.arithmetic import remainder
from weft.ops.index_axis import as_index, take
from weft.ops.op import Tensor, composite, plain_number, type_of
from weft.ops.public import example, published
from weft.ops.samples import call, joined
from weft.ops.size import count_to
from weft.ops.view.primitives import broadcast_to, join, reshape
from weft.ops.view.slices import flip_axes, slice_axis
from weft.ops.view.steps import reshaped, sliced


@published("(weft.tensor([[1, 2], [3, 4]])) -> (tensor([1, 2]), tensor([3, 4]))")
def unstack(x: Tensor, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, without that axis."""
    index = normalize_axis("unstack", axis, x.ndim)
    shape = (*x.shape[:index], *x.shape[index + 1 :])
    return tuple(reshaped(sliced(x, index, i, i + 1), shape) for i in range(x.shape[index]))


unbind = unstack


@public
def split(x: Tensor, /, size: ShapeLike, axis: int = 0) -> tuple[Tensor, ...]:
    """x cut along an axis into pieces of a size (the last may be smaller), or of the sizes given.

    >>> import weft
    >>> weft.split(weft.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> weft.split(weft.arange(5), (1, 4))
    (tensor([0]), tensor([1, 2, 3, 4]))
    """
    index = normalize_axis("split", axis, x.ndim)
    total = x.shape[index]
    if isinstance(size, tuple | list):
        sizes = list(as_ints("split", "size", size))
        if sum(sizes) != total or any(s < 0 for s in sizes):
            raise ShapeError("split", f"sizes must add up to {total} along axis {index}, got {tuple(sizes)}")
    else:
        step = _positive("split", "size", size)
        sizes = [min(step, total - i) for i in range(0, total, step)] or [0]
    parts, start = [], 0
    for s in sizes:
        parts.append(sliced(x, index, start, start + s))
        start += s
    return tuple(parts)


def _positive(op: str, name: str, value: ShapeLike) -> int:
    (out,) = as_ints(op, name, value)
    if out < 1:
        raise DomainError(op, f"{name} must be positive, got {out}")
    return out


@public
@example("(weft.arange(5), 2) -> (tensor([0, 1, 2]), tensor([3, 4]))")
def chunk(x: Tensor, /, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """x cut along an axis into at most ``chunks`` pieces of equal size (the last may be smaller)."""
    count = _positive("chunk", "chunks", chunks)
    index = normalize_axis("chunk", axis, x.ndim)
    parts: tuple[Any, ...] = split(x, max(1, -(-x.shape[index] // count)), index)
    return parts


@composite(
    samples=joined(
        call((2, 3), repetitions=(2, 1, 3)), call((2, 3), repetitions=(2,)), call((), repetitions=(2, 0))
    )
)
def tile(x: Tensor, /, repetitions: object) -> Tensor:
    """x repeated as a whole along each axis.

    >>> import weft
    >>> weft.tile(weft.tensor([1, 2]), (2, 2))
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    counts = list(as_ints("tile", "repetitions", repetitions))
    if any(c < 0 for c in counts):
        raise DomainError("tile", f"repetitions must not be negative, got {tuple(counts)}")
    rank = max(len(counts), x.ndim)
    counts = [1] * (rank - len(counts)) + counts
    shape = (*[1] * (rank - x.ndim), *x.shape)
    spaced = reshape(x, shape=tuple(n for s in shape for n in (1, s)))
    wide = broadcast_to(spaced, shape=tuple(n for c, s in zip(counts, shape, strict=True) for n in (c, s)))
    return reshape(wide, shape=tuple(c * s for c, s in zip(counts, shape, strict=True)))


@composite(
    samples=joined(
        call((2, 3), repeats=2, axis=1),
        call((2, 3), repeats=3),
        call((2, 3), repeats=(2, 0, 1), axis=-1),
        call((0, 3), repeats=2, axis=0),
    )
)
def repeat(x: Tensor, /, repeats: object, axis: int | None = None) -> Tensor:
    """x with each element along an axis repeated, all as often or each its own number of times.

    >>> import weft
    >>> weft.repeat(weft.tensor([1, 2]), 2), weft.repeat(weft.tensor([1, 2]), weft.tensor([0, 3]))
    (tensor([1, 1, 2, 2]), tensor([2, 2, 2]))
    """
    if axis is None:
        x, axis = reshape(x, shape=(size_of(x.shape),)), 0
    where = normalize_axis("repeat", axis, x.ndim)
    size = x.shape[where]
    if isinstance(repeats, Size):
        return _each_repeated(x, where, repeats)  # type: ignore[arg-type]
    repeats = plain_number(repeats)
    counts = as_index("repeat", repeats._array("repeat") if hasattr(repeats, "_array") else repeats)
    if counts.shape not in ((), (1,), (size,)):
        raise ShapeError(
            "repeat", f"repeats must be a number or one for each of {size}, got {type_of(counts)}"
        )
    if (counts < 0).any():
        raise DomainError("repeat", f"repeats must not be negative, got {counts.tolist()}")
    if counts.size != 1:
        return take(x, np.repeat(np.arange(size), counts.astype(np.int64)), axis=where)
    return _each_repeated(x, where, int(counts.reshape(())))


@published("(weft.tensor([5, 7]), weft.tensor([2, 1])) -> tensor([5, 5, 7])")
def repeat_interleave(
    x: Tensor, /, repeats: object = None, axis: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """x with each element along an axis repeated, as by ``repeat``; of repeats alone, their places.

    ``output_size`` is how many elements there are afterwards, for those who know it.
    """
    if repeats is None:
        x, repeats, axis = count_to(x.shape[0] if x.ndim else 1, int64), x, 0
    out: Tensor = repeat(x, repeats, axis)
    found = out.shape[0 if axis is None else normalize_axis("repeat_interleave", axis, out.ndim)]
    if output_size is not None and not same_size(found, output_size):
        raise ShapeError("repeat_interleave", f"output_size must be {found}, got {output_size}")
    return out


def _each_repeated(x: Tensor, axis: int, times: int) -> Tensor:
    """Each element along an axis so many times, a number or a named size."""
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    spaced = reshape(x, shape=(*before, size, 1, *after))
    wide = broadcast_to(spaced, shape=(*before, size, times, *after))
    return reshape(wide, shape=(*before, size * times, *after))


@composite(samples=joined(call((2, 3), axis=None), call((2, 3), axis=(0, -1)), call((0, 3), axis=0)))
@example("(weft.tensor([1, 2, 3])) -> tensor([3, 2, 1])")
def flip(x: Tensor, /, axis: Axes = None) -> Tensor:
    """x with the order of elements reversed along axes; along all without ``axis``."""
    axes = normalize_axes("flip", axis, x.ndim)
    return flip_axes(x, axes) if axes else reshape(x, shape=x.shape)


@composite(
    samples=joined(
        call((2, 3), shift=2, axis=1),
        call((2, 3), shift=(1, -4), axis=(0, 1)),
        call((2, 3), shift=-2, axis=None),
        call((0, 3), shift=2, axis=0),
    )
)
@example("(weft.tensor([1, 2, 3, 4]), 1) -> tensor([4, 1, 2, 3])")
def roll(x: Tensor, /, shift: object, axis: Axes = None) -> Tensor:
    """x with its elements moved on along axes; those that fall off the end come in at the start."""
    if axis is None:
        return reshape(roll(reshape(x, shape=(size_of(x.shape),)), shift, 0), shape=x.shape)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    shifts = as_ints("roll", "shift", shift)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    if len(shifts) != len(axes):
        raise ArgumentError("roll", f"each axis needs one shift, got {shift} for {axis}")
    for s, a in zip(shifts, axes, strict=True):
        x = _roll_axis(x, s, normalize_axis("roll", a, x.ndim))
    return x


def _roll_axis(x: Tensor, shift: int, axis: int) -> Tensor:
    size = x.shape[axis]
    if isinstance(size, Size):
        places = remainder(count_to(size, int64) - shift, size_max(size, 1))
        return take(x, places, axis=axis)
    cut = -shift % size if size else 0
    if cut == 0:
        return reshape(x, shape=x.shape)  # a tensor of its own
    return join(slice_axis(x, axis, cut, size), slice_axis(x, axis, 0, cut), axis=axis)
