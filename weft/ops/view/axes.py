"""Public functions that change the shape or the order of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.public import public
from weft.base.shapes import (
    Axes,
    PerAxis,
    ShapeLike,
    any_below,
    as_ints,
    normalize_axes,
    normalize_axis,
    normalize_shape,
    size_of,
)
from weft.base.shapes import broadcast_shapes as common_shape
from weft.base.size_bounds import surely_less
from weft.errors import AxisError, ShapeError
from weft.ops.batching import moved_order
from weft.ops.op import Tensor, plain_number, type_of
from weft.ops.public import published
from weft.ops.view.primitives import broadcast_to as broadcast_op
from weft.ops.view.primitives import permute
from weft.ops.view.primitives import reshape as reshape_op
from weft.ops.view.slices import Ints
from weft.ops.view.steps import reshaped, viewed

# Shapes


@public
def reshape(x: Tensor, /, shape: ShapeLike, *, copy: bool | None = None) -> Tensor:
    """The elements in their order in another shape; one size may be -1 and follows from the others.

    It is a view where strides can tell where the elements lie: a change of either shows in the other. With
    ``copy=True`` it is a tensor of its own, with ``copy=False`` it is a view, or an error.

    >>> import weft
    >>> weft.reshape(weft.arange(6), (2, -1))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    sizes = _completed_shape(x, shape)
    out = reshaped(x, sizes) if not copy else reshape_op(x, shape=sizes)
    if copy is False and not hasattr(out, "_link"):
        raise not_a_view("reshape", x, sizes)
    return out


def not_a_view(op: str, x: Tensor, shape: Ints) -> ShapeError:
    """The error of elements that lie too unevenly to be seen in another shape without a copy."""
    hint = "use .reshape(), which copies where it must"
    return ShapeError(
        op,
        f"must be possible without a copy, got {type_of(x)} to {shape} of axes that were permuted or cut",
        hint=hint,
    )


def _completed_shape(x: Tensor, shape: ShapeLike) -> Ints:
    """A shape whose -1, if there is one, stands for what is left of the elements of x."""
    sizes = as_ints("reshape", "shape", shape)
    total = size_of(x.shape)
    out = sizes
    if -1 in sizes:
        if sizes.count(-1) > 1:
            raise ShapeError("reshape", f"at most one size may be -1, got {sizes}")
        known = -size_of(sizes)
        out = tuple(total // known if s == -1 and not surely_less(known, 1) else s for s in sizes)
    if size_of(out) != total or any_below(out, 0):
        if any_below(sizes, -1):
            raise ShapeError("reshape", f"sizes must not be negative, got {sizes}")
        message = f"the number of elements must stay {total}, got {type_of(x)} to {sizes}"
        raise ShapeError("reshape", message, clash=None if -1 in sizes else (total, size_of(out)))
    return out


@published("(weft.ones((2, 3, 4)), 1).shape -> (2, 12)")
def flatten(x: Tensor, /, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """x with the axes from ``start_axis`` to ``end_axis`` made one."""
    if x.ndim == 0:
        return reshaped(x, (1,))
    first, last = (normalize_axis("flatten", a, x.ndim) for a in (start_axis, end_axis))
    if first > last:
        raise AxisError(
            "flatten", f"start_axis must not come after end_axis, got {start_axis} and {end_axis}"
        )
    middle = size_of(x.shape[first : last + 1])
    return reshaped(x, (*x.shape[:first], middle, *x.shape[last + 1 :]))


@published("(weft.ones((2, 12)), 1, (3, -1)).shape -> (2, 3, 4)")
def unflatten(x: Tensor, /, axis: int, shape: ShapeLike) -> Tensor:
    """x with one axis made several, of the given sizes; one of them may be -1."""
    index = normalize_axis("unflatten", axis, x.ndim)
    sizes = list(as_ints("unflatten", "shape", shape))
    known = size_of(tuple(s for s in sizes if s != -1))
    if sizes.count(-1) == 1 and known:
        sizes[sizes.index(-1)] = x.shape[index] // known
    parts = normalize_shape("unflatten", sizes)
    if size_of(parts) != x.shape[index]:
        raise ShapeError("unflatten", f"sizes must multiply to {x.shape[index]}, got {shape}")
    return reshaped(x, (*x.shape[:index], *parts, *x.shape[index + 1 :]))


@published("(weft.ones((2, 3)), axis=-1).shape -> (2, 3, 1)")
def expand_dims(x: Tensor, /, axis: Axes = 0) -> Tensor:
    """x with a new axis of size 1 at each position of ``axis`` in the result."""
    count = len(axis) if isinstance(axis, tuple | list) else 1
    new = normalize_axes("expand_dims", axis, x.ndim + count)
    rest = iter(x.shape)
    return reshaped(x, tuple(1 if i in new else next(rest) for i in range(x.ndim + count)))


unsqueeze = expand_dims


@published("(weft.ones((1, 3, 1)), axis=0).shape -> (3, 1)")
def squeeze(x: Tensor, /, axis: Axes = None) -> Tensor:
    """x without the given axes, which must be of size 1; without ``axis``, without all such axes."""
    if axis is None:
        axis = tuple(i for i, s in enumerate(x.shape) if s == 1)
    gone = normalize_axes("squeeze", axis, x.ndim)
    for i in gone:
        if x.shape[i] != 1:
            message = f"axis {i} must be of size 1, got {type_of(x)}"
            raise ShapeError("squeeze", message, clash=(x.shape[i], 1))
    return reshaped(x, tuple(s for i, s in enumerate(x.shape) if i not in gone))


def _each(
    grow: Callable[[Tensor], Tensor], x: Tensor | tuple[Tensor, ...] | list[Tensor], more: tuple[Any, ...]
) -> Any:
    """What grow gives of a tensor, or of several in a tuple."""
    if isinstance(x, tuple | list):
        return tuple(grow(t) for t in (*x, *more))
    return (grow(x), *map(grow, more)) if more else grow(x)


@published("(weft.tensor(2.0)) -> tensor([2.])")
def atleast_1d(x: Tensor | tuple[Tensor, ...] | list[Tensor], /, *more: Tensor) -> Any:
    """x with at least one axis; of several tensors a tuple."""
    return _each(lambda t: reshaped(t, (1,)) if t.ndim == 0 else t, x, more)


@published("(weft.ones(3)).shape -> (1, 3)")
def atleast_2d(x: Tensor | tuple[Tensor, ...] | list[Tensor], /, *more: Tensor) -> Any:
    """x with at least two axes; new ones come first. Of several tensors a tuple."""
    return _each(lambda t: t if t.ndim >= 2 else reshaped(t, (*[1] * (2 - t.ndim), *t.shape)), x, more)


@published("(weft.ones((2, 3))).shape, weft.atleast_3d(weft.ones(3)).shape -> ((2, 3, 1), (1, 3, 1))")
def atleast_3d(x: Tensor | tuple[Tensor, ...] | list[Tensor], /, *more: Tensor) -> Any:
    """x with at least three axes; a matrix gets a last one, a vector one on each side. Of several a tuple."""
    return _each(_with_three, x, more)


def _with_three(x: Tensor) -> Tensor:
    if x.ndim >= 3:
        return x
    return reshaped(x, {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}[x.ndim])


# Broadcasting


@public
def broadcast_to(x: Tensor, /, shape: ShapeLike) -> Tensor:
    """x repeated along axes of size 1 and new leading axes, to a shape.

    >>> import weft
    >>> weft.broadcast_to(weft.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return viewed(broadcast_op, x, shape=normalize_shape("broadcast_to", shape))


@public
def broadcast_shapes(*shapes: ShapeLike) -> tuple[int, ...]:
    """The shape that arrays of several shapes have when they are broadcast together.

    >>> import weft
    >>> weft.broadcast_shapes((3, 1), 4, (2, 1, 1))
    (2, 3, 4)
    """
    given = [normalize_shape("broadcast_shapes", shape) for shape in shapes]
    return common_shape("broadcast_shapes", given)


@public
def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All arrays broadcast to their common shape.

    >>> import weft
    >>> [a.shape for a in weft.broadcast_arrays(weft.ones((3, 1)), weft.ones(4))]
    [(3, 4), (3, 4)]
    """
    shape = common_shape("broadcast_arrays", [a.shape for a in arrays], [type_of(a) for a in arrays])
    return [a if a.shape == shape else viewed(broadcast_op, a, shape=shape) for a in arrays]


@published("(weft.ones((3, 1)), -1, 4).shape -> (3, 4)")
def expand(x: Tensor, /, *shape: int | Sequence[int]) -> Tensor:
    """x repeated along axes of size 1 and new leading axes; -1 keeps a size."""
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    sizes = as_ints("expand", "shape", given)
    lead = len(sizes) - x.ndim
    if lead < 0:
        raise ShapeError("expand", f"the shape must have at least {x.ndim} axes, got {type_of(x)} to {sizes}")
    kept = [x.shape[i - lead] if s == -1 and i >= lead else s for i, s in enumerate(sizes)]
    return viewed(broadcast_op, x, shape=normalize_shape("expand", kept))


# Order of axes


@published("(weft.ones((2, 3, 4)), (2, 0, 1)).shape -> (4, 2, 3)")
def permute_dims(x: Tensor, /, axes: Axes) -> Tensor:
    """x with its axes in another order."""
    order = tuple(normalize_axis("permute_dims", a, x.ndim) for a in as_ints("permute_dims", "axes", axes))
    if sorted(order) != list(range(x.ndim)):
        raise AxisError("permute_dims", f"axes must name each of {x.ndim} axes once, got {axes}")
    return viewed(permute, x, axes=order)


@published("(weft.ones((2, 3, 4)), 0, 2).shape -> (4, 3, 2)")
def swapaxes(x: Tensor, axis0: int, axis1: int, /) -> Tensor:
    """x with two axes exchanged."""
    a, b = (normalize_axis("swapaxes", axis, x.ndim) for axis in (axis0, axis1))
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return viewed(permute, x, axes=tuple(order))


@published("(weft.ones((2, 3, 4)), 0, 1).shape -> (3, 2, 4)")
def transpose(x: Tensor, axis0: Axes = None, axis1: int | None = None, /, *more: int) -> Tensor:
    """x with two axes exchanged; with all of them in another order, given as such; or in reversed order."""
    axis0, axis1 = plain_number(axis0), plain_number(axis1)
    if isinstance(axis0, int) and isinstance(axis1, int) and not more:
        return swapaxes(x, axis0, axis1)
    if axis0 is None:
        return viewed(permute, x, axes=tuple(range(x.ndim))[::-1])
    given = axis0 if not isinstance(axis0, int) else (axis0, *([] if axis1 is None else [axis1]), *more)
    if isinstance(axis0, int) and len(given) != x.ndim:
        raise AxisError("transpose", f"takes two axes to exchange, or all {x.ndim} in order, got {given}")
    return permute_dims(x, given)


@published("(weft.ones((5, 2, 3))).shape -> (5, 3, 2)")
def matrix_transpose(x: Tensor, /) -> Tensor:
    """x with its last two axes exchanged."""
    if x.ndim < 2:
        raise ShapeError("matrix_transpose", f"the tensor must have at least two axes, got {type_of(x)}")
    return viewed(permute, x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@published("(weft.ones((2, 3, 4)), 0, -1).shape -> (3, 4, 2)")
def moveaxis(x: Tensor, source: PerAxis, destination: PerAxis, /) -> Tensor:
    """x with some axes moved to new positions, the others in their order."""
    sources, targets = ([a] if not isinstance(a, tuple | list) else list(a) for a in (source, destination))
    if len(sources) != len(targets):
        raise AxisError(
            "moveaxis", f"as many axes must be moved as places given, got {source} and {destination}"
        )
    if len(sources) == 1:
        old, new = (normalize_axis("moveaxis", a[0], x.ndim) for a in (sources, targets))
        return viewed(permute, x, axes=moved_order(x.ndim, old, new))
    normalize_axes("moveaxis", sources, x.ndim)
    normalize_axes("moveaxis", targets, x.ndim)
    places = {
        normalize_axis("moveaxis", t, x.ndim): normalize_axis("moveaxis", s, x.ndim)
        for s, t in zip(sources, targets, strict=True)
    }
    rest = (i for i in range(x.ndim) if i not in places.values())
    return viewed(permute, x, axes=tuple(places[i] if i in places else next(rest) for i in range(x.ndim)))
