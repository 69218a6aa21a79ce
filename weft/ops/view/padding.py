"""Public functions that grow or cut the borders of tensors, and those on diagonals of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.public import public
from weft.base.shapes import Shape, as_ints, normalize_axis
from weft.base.size_bounds import lower_bound, positive, size_max, size_min, surely_less
from weft.base.sizes import Size, is_known
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.ops.alias import Step, Strides, link_taken
from weft.ops.arithmetic import minimum, remainder
from weft.ops.batching import move_axis
from weft.ops.index import gather_nd, scatter_nd
from weft.ops.op import (
    Array,
    Container,
    Number,
    Operand,
    Sample,
    Tensor,
    TensorLike,
    composite,
    plain_number,
    type_of,
)
from weft.ops.public import example
from weft.ops.samples import call, joined, real_array
from weft.ops.select import select
from weft.ops.size import count_to, filled, triangle
from weft.ops.view.primitives import broadcast_to, inverse_axes, join, permute, reshape
from weft.ops.view.slices import Ints, flip_axes, pad_axes, slice_axes, slice_axis

# Borders

_MODES = ("constant", "reflect", "replicate", "circular")
_MODE_NAMES = {"edge": "replicate", "wrap": "circular"} | {m: m for m in _MODES}


@composite(
    "pad_mode",
    samples=joined(
        call((2, 3), pad_width=((1, 0), (2, 2)), mode="reflect"),
        call((2, 3), pad_width=7, mode="reflect"),
        call((2, 3), pad_width=(1, 4), mode="replicate"),
        call((2, 3), pad_width=((0, 1), (2, 8)), mode="circular"),
        call((1, 3), pad_width=2, mode="reflect"),
        call((0, 3), pad_width=((0, 0), (2, 1)), mode="replicate"),
    ),
    sampled=lambda x, pad_width, mode: pad(x, pad_width, mode),  # type: ignore[has-type]
)
def pad(x: Tensor, /, pad_width: object, mode: str = "constant", value: Number = 0) -> Tensor:
    """x with a border around it.

    Args:
        x: the tensor.
        pad_width: a number for both sides of all axes, a pair ``(before, after)`` for all axes, or one
            pair for each axis.
        mode: what the border holds: "constant" (``value``), "reflect" (mirrored without the edge),
            "replicate" (the edge element), "circular" (the other end).
        value: of a constant border.

    >>> import weft
    >>> weft.pad(weft.tensor([1, 2, 3]), 2, "reflect")
    tensor([3, 2, 1, 2, 3, 2, 1])
    >>> weft.pad(weft.tensor([[1.0]]), ((0, 0), (1, 2)), value=9)
    tensor([[9., 1., 9., 9.]])
    """
    if mode not in _MODE_NAMES:
        raise ArgumentError("pad", f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
    low, high = _widths(x, pad_width)
    if _MODE_NAMES[mode] == "constant" and _may_cut(low, high):
        return _bordered(x, low, high, _python_scalar(value))
    if _MODE_NAMES[mode] == "constant":
        return pad_axes(x, low=low, high=high, interior=(0,) * x.ndim, value=_python_scalar(value))
    if _may_cut(low, high):
        raise ShapeError("pad", f"widths must not be negative, got {pad_width!r}, which may be")
    grow = {"reflect": _reflect, "replicate": _replicate, "circular": _circular}[_MODE_NAMES[mode]]
    wanted = [not is_known(both) or any(both) for both in zip(low, high, strict=True)]
    for axis in range(x.ndim):
        if wanted[axis]:
            x = grow(x, axis, low[axis], high[axis])
    return x if any(wanted) else reshape(x, shape=x.shape)


def _widths(x: Tensor, pad_width: object) -> tuple[Ints, Ints]:
    """Numbers of elements to add before and after each axis."""
    pad_width = _plain_widths(pad_width)
    try:
        table = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    except ValueError:
        table = None
    if table is None or (table.size and not _whole(table)):
        raise ArgumentError(
            "pad", f"pad_width must be an int, a pair, or a pair for each of {x.ndim} axes, got {pad_width!r}"
        )
    if any(surely_less(n, 0) for n in table.flat):
        raise DomainError(
            "pad", f"widths must not be negative, got {pad_width!r}", hint="use weft.crop to cut"
        )
    low, high = (
        as_ints("pad", "pad_width", tuple(table[:, 0])),
        as_ints("pad", "pad_width", tuple(table[:, 1])),
    )
    return low, high


def _plain_widths(pad_width: object) -> object:
    """Widths that Python knows."""
    if isinstance(pad_width, tuple | list):
        return tuple(map(_plain_widths, pad_width))
    return plain_number(pad_width)


def _may_cut(low: Ints, high: Ints) -> bool:
    """Whether a width with a name may be negative, which would cut."""
    lows = [lower_bound(n) for n in (*low, *high)]
    return any(n is None or n < 0 for n in lows)


def _bordered(x: Tensor, low: Ints, high: Ints, value: Number) -> Tensor:
    """A constant border of tensors of its own, whose sizes are looked at when the graph runs."""
    for axis, widths in enumerate(zip(low, high, strict=True)):
        shapes = [(*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in widths]
        before, after = [filled(shape, value, x.dtype) for shape in shapes]
        x = join(before, x, after, axis=axis)
    return x


def _whole(table: Array) -> bool:
    """Whether all are integers, or sizes with names."""
    return table.dtype.kind in "iu" or all(isinstance(n, Size | int) for n in table.flat)


def _python_scalar(value: Operand) -> Any:
    value = plain_number(value)
    if isinstance(value, bool | int | float | complex):
        return value
    if getattr(value, "shape", None) == ():
        return value.item()
    raise ArgumentError("pad", f"value must be a number, got {value!r}")


def _need_elements(x: Tensor, axis: int, mode: str) -> int:
    size: int = x.shape[axis]
    if size == 0:
        raise ShapeError("pad", f"mode {mode!r} needs elements along axis {axis}, got {type_of(x)}")
    return size


def _reflect(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    """Mirror at the edges, again and again where the border is wider than the axis."""
    size = _need_elements(x, axis, "reflect")
    if not is_known((size, low, high)):
        period = size_max(2 * size - 2, 1)
        here = remainder(count_to(size + low + high, int64) - low, period)
        return _picked(x, axis, minimum(here, period - here))
    if size == 1:
        return _replicate(x, axis, low, high)
    while low or high:
        n, a, b = x.shape[axis], min(low, x.shape[axis] - 1), min(high, x.shape[axis] - 1)
        before = flip_axes(slice_axis(x, axis, 1, a + 1), [axis])
        after = flip_axes(slice_axis(x, axis, n - 1 - b, n - 1), [axis])
        x = join(before, x, after, axis=axis)
        low, high = low - a, high - b
    return x


def _replicate(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    size = _need_elements(x, axis, "replicate")

    def edge(i: int, count: int) -> Tensor:
        return broadcast_to(
            slice_axis(x, axis, i, i + 1), shape=(*x.shape[:axis], count, *x.shape[axis + 1 :])
        )

    return join(edge(0, low), x, edge(size - 1, high), axis=axis)


def _picked(x: Tensor, axis: int, places: Tensor) -> Tensor:
    """The elements at places along an axis, where its size is not known."""
    return move_axis(gather_nd(move_axis(x, axis, 0), places), 0, axis)


def _circular(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    size = _need_elements(x, axis, "circular")
    if not is_known((size, low, high)):
        return _picked(x, axis, remainder(count_to(size + low + high, int64) - low, size_max(size, 1)))
    before, after = [x] * (low // size), [x] * (high // size)
    if low % size:
        before.insert(0, slice_axis(x, axis, size - low % size, size))
    if high % size:
        after.append(slice_axis(x, axis, 0, high % size))
    return join(*before, x, *after, axis=axis)


@composite(
    samples=joined(
        call((2, 4, 5), offset=(1, 2), size=(3, 2)),
        call((4, 5), offset=(0,), size=(0,)),
        call((4, 5), offset=None, size=(2, 3)),
    )
)
def crop(x: Tensor, /, offset: Sequence[int] | None = None, *, size: Sequence[int]) -> Tensor:
    """A block of the last axes of x: of ``size``, beginning at ``offset``, or in the middle without one.

    >>> import weft
    >>> weft.crop(weft.arange(16).reshape(4, 4), (0, 1), size=(2, 2))
    tensor([[1, 2],
            [5, 6]])
    """
    sizes = as_ints("crop", "size", size)
    lead = x.ndim - len(sizes)
    if lead < 0:
        raise ShapeError("crop", f"size must have at most {x.ndim} entries, got {sizes} for {type_of(x)}")
    first = (
        tuple((n - s) // 2 for n, s in zip(x.shape[lead:], sizes, strict=True))
        if offset is None
        else tuple(offset)
    )
    if len(first) != len(sizes):
        raise ArgumentError("crop", f"offset and size must have as many entries, got {first} and {sizes}")
    for n, a, s in zip(x.shape[lead:], first, sizes, strict=True):
        if surely_less(a, 0) or surely_less(s, 0) or surely_less(n, a + s):
            raise ShapeError("crop", f"the block must lie inside {type_of(x)}, got size {sizes} at {first}")
    stops = tuple(a + s for a, s in zip(first, sizes, strict=True))
    return slice_axes(x, starts=(*[0] * lead, *first), stops=(*x.shape[:lead], *stops), steps=(1,) * x.ndim)


# Diagonals and triangles


def _triangle_samples() -> list[Sample]:
    shapes = ((3, 3), (2, 3, 4), (4, 2), (0, 3))
    return [Sample((real_array(s),), {"k": k}) for s in shapes for k in (0, 1, -2)]


@composite(samples=_triangle_samples)
def tril(x: Tensor, /, k: int = 0) -> Tensor:
    """x with zeros above the k-th diagonal of its last two axes.

    >>> import weft
    >>> weft.tril(weft.ones((2, 2)))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return _masked("tril", x, lambda n, m: triangle(n, m, k))


@composite(samples=_triangle_samples)
def triu(x: Tensor, /, k: int = 0) -> Tensor:
    """x with zeros below the k-th diagonal of its last two axes.

    >>> import weft
    >>> weft.triu(weft.ones((2, 2)))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return _masked("triu", x, lambda n, m: ~triangle(n, m, k - 1))


def _masked(op: str, x: Tensor, mask: Callable[..., Tensor]) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(op, f"the tensor must have at least two axes, got {type_of(x)}")
    return select(mask(*x.shape[-2:]), x, np.zeros((), x.dtype))


@public
@example("(weft.tensor([[1, 2], [3, 4]])) -> tensor([1, 4])")
def diagonal(x: Tensor, /, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """A diagonal of the matrices along two axes, as a new last axis: a view of x."""
    if x.ndim < 2:
        raise ShapeError("diagonal", f"the tensor must have at least two axes, got {type_of(x)}")
    a, b = (normalize_axis("diagonal", axis, x.ndim) for axis in (axis1, axis2))
    if a == b:
        raise ArgumentError("diagonal", f"axis1 and axis2 must differ, got {axis1} and {axis2}")
    out: Tensor = _diagonal(x, offset=offset, axis1=a, axis2=b)
    if isinstance(x, TensorLike) and not isinstance(x, Container):
        link_taken(out, x, _DIAGONAL, (offset, a, b))
    return out


@composite(
    "diagonal",
    samples=lambda: [
        Sample((real_array((3, 4)),), {"offset": k, "axis1": 0, "axis2": 1}) for k in (0, 1, -2, 3, 4, -5)
    ] + [
        Sample((real_array((2, 3, 4)),), {"offset": 0, "axis1": 0, "axis2": 2}),
        Sample((real_array((4, 3)).T,), {"offset": 0, "axis1": 0, "axis2": 1}),
        Sample((real_array((0, 3)),), {"offset": 0, "axis1": 0, "axis2": 1}),
    ],
)  # fmt: skip
def _diagonal(x: Tensor, /, offset: int, axis1: int, axis2: int) -> Tensor:
    rest = [i for i in range(x.ndim) if i not in (axis1, axis2)]
    x = permute(x, axes=(*rest, axis1, axis2))
    rows, columns = x.shape[-2:]
    if not is_known((rows, columns)):
        return _diagonal_of_sizes(x, offset)
    first = offset if offset >= 0 else -offset * columns
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    flat = reshape(x, shape=(*x.shape[:-2], rows * columns))
    # the next element of a diagonal is one row and one column on
    stop = first + (count - 1) * (columns + 1) + 1 if count else 0
    return slice_axis(flat, flat.ndim - 1, first if count else 0, stop, columns + 1)


class _Diagonal(Step[Ints]):
    """A diagonal as a view; its arguments are the offset and the two axes."""

    def get(self, parent: Tensor, args: Ints) -> Tensor:
        """The diagonal."""
        return _diagonal(parent, offset=args[0], axis1=args[1], axis2=args[2])

    def put(self, parent: Tensor, part: Tensor, args: Ints) -> Tensor:
        """The parent with other elements on its diagonal: each row's, where the column is the right one."""
        offset, *axes = args
        order = (*[i for i in range(parent.ndim) if i not in axes], *axes)
        x = permute(parent, axes=order)
        below, right = max(-offset, 0), max(offset, 0)
        here = count_to(part.shape[-1], int64)
        front = move_axis(move_axis(x, x.ndim - 1, 0), x.ndim - 1, 0)
        new = scatter_nd(front, move_axis(part, part.ndim - 1, 0), here + below, here + right)
        new = move_axis(move_axis(new, 0, x.ndim - 1), 0, x.ndim - 1)
        return permute(new, axes=inverse_axes(order))

    def array(self, parent: Array, args: Ints) -> Array:
        """The diagonal of an array, which can be written to."""
        out = np.diagonal(parent, *args)
        out.flags.writeable = parent.flags.writeable
        return out

    def strides(self, shape: Shape, strides: Strides, args: Ints) -> Strides:
        """The next element of a diagonal is one row and one column on."""
        _, a, b = args
        return (*[s for i, s in enumerate(strides) if i not in (a, b)], strides[a] + strides[b])


_DIAGONAL = _Diagonal()


def _diagonal_of_sizes(x: Tensor, offset: int) -> Tensor:
    """The diagonal of the last two axes where a size is not known: element by element."""
    rows, columns = x.shape[-2:]
    below, right = max(-offset, 0), max(offset, 0)
    here = count_to(positive(size_min(rows - below, columns - right)), int64)
    front = move_axis(move_axis(x, x.ndim - 1, 0), x.ndim - 1, 0)
    return move_axis(gather_nd(front, here + below, here + right), 0, x.ndim - 2)


@composite(
    samples=lambda: (
        [Sample((real_array((3,)),), {"offset": k}) for k in (0, 1, -2)]
        + [Sample((real_array((2, 3)),), {"offset": 0}), Sample((real_array((0,)),), {"offset": 1})]
        + [Sample((real_array((2, 3)),), {"offset": 1, "axis1": a, "axis2": b}) for a, b in ((0, 2), (-1, 0))]
    )
)
def diag_embed(x: Tensor, /, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Matrices with x along a diagonal and zeros elsewhere; the last axis of x is the diagonal.

    The rows of the matrices lie along ``axis1`` of the result, their columns along ``axis2``.

    >>> import weft
    >>> weft.diag_embed(weft.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    if x.ndim == 0:
        raise ShapeError("diag_embed", f"the tensor must have at least one axis, got {type_of(x)}")
    size = x.shape[-1]
    n = size + abs(offset)
    low = offset if offset >= 0 else -offset * n
    used = low + size + positive(size - 1) * n
    zeros, last = (0,) * (x.ndim - 1), n * n - used
    flat = pad_axes(x, low=(*zeros, low), high=(*zeros, last), interior=(*zeros, n), value=0)
    out = reshape(flat, shape=(*x.shape[:-1], n, n))
    rows, columns = (normalize_axis("diag_embed", a, out.ndim) for a in (axis1, axis2))
    if rows == columns:
        raise ArgumentError("diag_embed", f"axis1 and axis2 must differ, got {axis1} and {axis2}")
    if (rows, columns) == (out.ndim - 2, out.ndim - 1):
        return out
    rest = iter(range(out.ndim - 2))
    order = {rows: out.ndim - 2, columns: out.ndim - 1}
    return permute(out, axes=tuple(order[i] if i in order else next(rest) for i in range(out.ndim)))


@public
def diag(x: Tensor, /, k: int = 0) -> Tensor:
    """The k-th diagonal of a matrix, or the matrix with a vector on its k-th diagonal.

    >>> import weft
    >>> weft.diag(weft.tensor([1, 2])), weft.diag(weft.tensor([[1, 2], [3, 4]]), 1)
    (tensor([[1, 0],
            [0, 2]]), tensor([2]))
    """
    if x.ndim not in (1, 2):
        raise ShapeError("diag", f"the tensor must have one or two axes, got {type_of(x)}")
    return diag_embed(x, k) if x.ndim == 1 else diagonal(x, k)
