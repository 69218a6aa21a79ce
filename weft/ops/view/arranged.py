"""Short names for common arrangements: rows turned round, columns side by side, one slice or value taken."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations as _combinations
from itertools import combinations_with_replacement as _with_replacement
from typing import overload

import numpy as np

from weft.base.dtypes import bool_
from weft.base.public import public
from weft.base.shapes import normalize_axis, size_of
from weft.errors import ArgumentError, DtypeError, ShapeError
from weft.ops.alias import is_contiguous
from weft.ops.index_axis import take
from weft.ops.op import Operand, Tensor, TensorLike, type_of
from weft.ops.public import published
from weft.ops.select import same_dtype, where
from weft.ops.view import axes as axes_of
from weft.ops.view.axes import atleast_2d, swapaxes
from weft.ops.view.joining import flip
from weft.ops.view.padding import pad
from weft.ops.view.primitives import broadcast_to, concat, reshape, stack
from weft.ops.view.steps import sliced


@published("(weft.tensor([[1, 2], [3, 4]])) -> tensor([1, 2, 3, 4])")
def ravel(x: Tensor, /) -> Tensor:
    """All elements in one axis; a view where they lie one after another."""
    return axes_of.reshape(x if is_contiguous(x) else x.clone(), (size_of(x.shape),))


@public
def fliplr(x: Tensor, /) -> Tensor:
    """The order reversed along the second axis.

    >>> import weft
    >>> weft.fliplr(weft.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    _need_rank("fliplr", x, 2)
    return flip(x, 1)


@published("(weft.tensor([1, 2, 3])) -> tensor([3, 2, 1])")
def flipud(x: Tensor, /) -> Tensor:
    """The order reversed along the first axis."""
    _need_rank("flipud", x, 1)
    return flip(x, 0)


@public
def rot90(x: Tensor, /, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Turned by k quarters, from the first of two axes to the second.

    >>> import weft
    >>> weft.rot90(weft.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    if len(axes) != 2:
        raise ArgumentError("rot90", f"axes must be two, got {axes!r}")
    a, b = (normalize_axis("rot90", axis, x.ndim) for axis in axes)
    if a == b:
        raise ArgumentError("rot90", f"axes must be different, got {axes!r}")
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (a, b))
    return swapaxes(flip(x, b), a, b) if turns == 1 else flip(swapaxes(x, a, b), b)


@overload
def select(x: Tensor, /, axis: int, index: int) -> Tensor: ...
@overload
def select(
    x: Sequence[Tensor], /, axis: Sequence[Operand], index: Operand | None = None, *, default: Operand = 0
) -> Tensor: ...
@public
def select(
    x: Tensor | Sequence[Tensor],
    /,
    axis: int | Sequence[Operand],
    index: Operand | None = None,
    *,
    default: Operand = 0,
) -> Tensor:
    """The slice at a position of an axis, or NumPy's choice of values by the first condition that holds.

    ``select(x, 1, i)`` is PyTorch's: without the axis, and a view, as ``x[:, i]`` is. With a list of
    conditions and one of values first, elements are those of the first value whose condition holds, or
    ``default``, which may stand third.

    >>> import weft
    >>> weft.select(weft.tensor([[1, 2], [3, 4]]), 1, 0)
    tensor([1, 3])
    >>> x = weft.arange(5)
    >>> weft.select([x < 2, x > 2], [x, x * 10], default=-1)
    tensor([ 0,  1, -1, 30, 40])
    """
    if isinstance(x, Sequence):
        return _first_choice(x, axis, default if index is None else index)
    if isinstance(axis, TensorLike | np.ndarray) and type_of(axis).ndim:
        hint = "use weft.where(condition, x, y)"
        raise ArgumentError("select", f"axis must be an int, got {type_of(axis)}", hint=hint)
    if index is None:
        raise ArgumentError("select", "missing 1 required positional argument: 'index'")
    return x[(slice(None),) * normalize_axis("select", axis, x.ndim) + (index,)]


def _first_choice(conditions: Sequence[Tensor], values: int | Sequence[Operand], default: Operand) -> Tensor:
    if not isinstance(values, list | tuple) or len(values) != len(conditions) or not conditions:
        got = len(values) if isinstance(values, list | tuple) else type(values).__name__
        raise ArgumentError("select", f"takes as many values as conditions, got {len(conditions)} and {got}")
    for condition in conditions:
        dtype = getattr(condition, "dtype", np.dtype(type(condition)))
        if dtype != bool_:
            raise DtypeError("select", f"conditions must be bool, got {dtype.name}")
    out: Tensor
    *values, out = same_dtype("select", *values, default)
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        out = where(condition, value, out)
    return out


@public
def column_stack(arrays: Sequence[Tensor], /) -> Tensor:
    """Vectors as columns side by side, and matrices as they are.

    >>> import weft
    >>> weft.column_stack([weft.tensor([1, 2]), weft.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    columns = [reshape(x, shape=(size_of(x.shape), 1)) if x.ndim < 2 else x for x in arrays]
    return concat(columns, axis=1)


@public
def block_diag(*arrays: Tensor) -> Tensor:
    """Matrices along the diagonal of one that is zero elsewhere.

    >>> import weft
    >>> weft.block_diag(weft.tensor([[1, 2]]), weft.tensor(3))
    tensor([[1, 2, 0],
            [0, 0, 3]])
    """
    blocks = [atleast_2d(x) for x in arrays]
    if not blocks or any(b.ndim != 2 for b in blocks):
        raise ShapeError("block_diag", f"takes matrices, got {', '.join(str(type_of(b)) for b in blocks)}")
    width, done, rows = sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        rows.append(pad(block, ((0, 0), (done, width - done - block.shape[1]))))
        done += block.shape[1]
    return concat(rows, axis=0)


@public
def cartesian_prod(*arrays: Tensor) -> Tensor:
    """All ways to take one element of each vector, a row for each.

    >>> import weft
    >>> weft.cartesian_prod(weft.tensor([1, 2]), weft.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    if not arrays or any(x.ndim != 1 for x in arrays):
        raise ShapeError("cartesian_prod", f"takes vectors, got {', '.join(str(type_of(x)) for x in arrays)}")
    if len(arrays) == 1:
        return arrays[0]
    sizes = tuple(x.shape[0] for x in arrays)
    grids = []
    for i, x in enumerate(arrays):
        one = reshape(x, shape=(1,) * i + (sizes[i],) + (1,) * (len(sizes) - 1 - i))
        grids.append(reshape(broadcast_to(one, shape=sizes), shape=(size_of(sizes),)))
    return stack(grids, axis=1)


@public
def combinations(x: Tensor, /, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All ways to take r elements of a vector, in its order, a row for each.

    >>> import weft
    >>> weft.combinations(weft.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    _need_rank("combinations", x, 1, exactly=True)
    ways = _with_replacement if with_replacement else _combinations
    index = np.array([*ways(range(x.shape[0]), r)], np.int64).reshape(-1, r)
    return take(x, index, axis=0)


def windows(x: Tensor, /, axis: int, size: int, step: int) -> Tensor:
    """All slices of a length along an axis, every ``step`` positions, as a new last axis."""
    where = normalize_axis("unfold", axis, x.ndim)
    length = x.shape[where]
    if not 0 < size <= length or step < 1:
        raise ArgumentError("unfold", f"size must be in 1..{length} and step positive, got {size} and {step}")
    pieces = [sliced(x, where, start, start + size) for start in range(0, length - size + 1, step)]
    return axes_of.moveaxis(stack(pieces, axis=where), where + 1, -1)


def _need_rank(op: str, x: Tensor, rank: int, *, exactly: bool = False) -> None:
    if x.ndim < rank or (exactly and x.ndim != rank):
        least = "" if exactly else "at least "
        raise ShapeError(op, f"the tensor must have {least}{rank} axes, got {type_of(x)}")
