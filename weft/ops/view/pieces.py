"""Public functions that put tensors side by side, and that cut pieces out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.public import public
from weft.base.shapes import ShapeLike, as_ints, normalize_axis, size_of
from weft.base.sizes import is_known
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.ops.index import gather_nd
from weft.ops.op import Sample, Samples, Tensor, composite, type_of
from weft.ops.public import published
from weft.ops.samples import call, joined, real_array
from weft.ops.size import positions
from weft.ops.view.axes import atleast_1d, atleast_2d, atleast_3d, expand
from weft.ops.view.primitives import broadcast_to, concat, reshape
from weft.ops.view.steps import sliced

# Side by side


def _stacks(*shapes: tuple[int, ...]) -> Samples:
    return lambda: [Sample(tuple(real_array(s, seed=i) for i, s in enumerate(shapes)))]


@composite(
    samples=joined(_stacks((2,), (3,)), _stacks((2, 1), (2, 3)), _stacks((), ())),
    sampled=lambda *xs: hstack(xs),  # type: ignore[has-type]
)
def hstack(arrays: Sequence[Tensor], /) -> Tensor:
    """Tensors side by side: along the first axis of vectors, else along the second.

    >>> import weft
    >>> weft.hstack([weft.tensor([1, 2]), weft.tensor([3])])
    tensor([1, 2, 3])
    """
    parts = [atleast_1d(x) for x in arrays]
    return concat(parts, axis=0 if parts and parts[0].ndim == 1 else 1)


@composite(samples=joined(_stacks((2,), (2,)), _stacks((1, 2), (3, 2))), sampled=lambda *xs: vstack(xs))  # type: ignore[has-type]
def vstack(arrays: Sequence[Tensor], /) -> Tensor:
    """Tensors one below the other: along the first axis, vectors as rows.

    >>> import weft
    >>> weft.vstack([weft.tensor([1, 2]), weft.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return concat([atleast_2d(x) for x in arrays], axis=0)


@composite(samples=joined(_stacks((2,), (2,)), _stacks((2, 3), (2, 3))), sampled=lambda *xs: dstack(xs))  # type: ignore[has-type]
def dstack(arrays: Sequence[Tensor], /) -> Tensor:
    """Tensors one behind the other: along a third axis.

    >>> import weft
    >>> weft.dstack([weft.tensor([1, 2]), weft.tensor([3, 4])])
    tensor([[[1, 3],
             [2, 4]]])
    """
    return concat([atleast_3d(x) for x in arrays], axis=2)


# Pieces


@published("(weft.arange(5), 0, 1, 3) -> tensor([1, 2, 3])")
def narrow(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    """A piece of x along an axis, so long from a start on: a view of x."""
    where = normalize_axis("narrow", axis, x.ndim)
    first, count = as_ints("narrow", "start and length", (start, length))
    size = x.shape[where]
    first = first + size if first < 0 else first
    if count < 0 or not 0 <= first <= size - count:
        raise DomainError(
            "narrow", f"the piece must lie in 0..{size} of axis {where}, got {start} and {length}"
        )
    return sliced(x, where, first, first + count)


@published("(weft.tensor([[1], [2]]), weft.ones((2, 3))).shape -> (2, 3)")
def expand_as(x: Tensor, other: Tensor, /) -> Tensor:
    """x repeated along axes of size 1 and new leading axes, to the shape of another tensor."""
    return expand(x, other.shape)


@public
def tensor_split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """x cut along an axis into so many pieces as equal as can be, or before each of the places given.

    >>> import weft
    >>> weft.tensor_split(weft.arange(5), 3)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> weft.tensor_split(weft.arange(5), (1, 3))
    (tensor([0]), tensor([1, 2]), tensor([3, 4]))
    """
    where = normalize_axis("tensor_split", axis, x.ndim)
    size = x.shape[where]
    given = indices_or_sections.tolist() if hasattr(indices_or_sections, "tolist") else indices_or_sections
    if isinstance(given, tuple | list):
        cuts = [slice(c).indices(size)[1] for c in as_ints("tensor_split", "indices", given)]
    else:
        (count,) = as_ints("tensor_split", "sections", given)
        if count < 1:
            raise DomainError("tensor_split", f"sections must be positive, got {count}")
        cuts = [i * (size // count) + min(i, size % count) for i in range(1, count)]
    starts, stops = [0, *cuts], [*cuts, size]
    return tuple(sliced(x, where, a, max(a, b)) for a, b in zip(starts, stops, strict=True))


@composite(
    samples=joined(
        call((3, 4), size=(2, 3), stride=(1, 2)),
        call((10,), size=(4, 3), stride=(2, 1), storage_offset=1),
        call((3, 2), size=(), stride=(), storage_offset=5),
    )
)
def as_strided(x: Tensor, size: ShapeLike, stride: ShapeLike, storage_offset: int = 0) -> Tensor:
    """The elements of x, taken in order, that lie so many places apart along each axis of a new shape.

    What may stand at several places is copied, so this is never a view; its gradient adds up.

    >>> import weft
    >>> weft.as_strided(weft.arange(5), (3, 2), (1, 1))
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """
    sizes, steps = as_ints("as_strided", "size", size), as_ints("as_strided", "stride", stride)
    if len(sizes) != len(steps):
        raise ArgumentError("as_strided", f"each size needs a stride, got {sizes} and {steps}")
    places: Any = np.asarray(storage_offset, np.int64)
    for i, (n, step) in enumerate(zip(sizes, steps, strict=True)):
        after = len(sizes) - 1 - i
        row: Any = np.arange(n).reshape(-1, *[1] * after) if is_known((n,)) else positions(n, after)
        places = places + row * step
    count = size_of(x.shape)
    if not is_known((*sizes, count)):  # a gather looks at its places when it runs
        return gather_nd(reshape(x, shape=(count,)), broadcast_to(places, shape=sizes))
    if places.size and not 0 <= places.min() <= places.max() < count:
        raise ShapeError(
            "as_strided", f"places must be in 0..{count - 1} of {type_of(x)}, got {places.max()}"
        )
    return gather_nd(reshape(x, shape=(count,)), np.broadcast_to(places, sizes))
