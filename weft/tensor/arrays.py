"""Functions that NumPy's programs use to make, join, cut and compare arrays: a line or two of others.

What they compute with numbers is in ``array_numbers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DTypeLike, default_float
from weft.base.public import public
from weft.base.shapes import normalize_shape
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.ops.arithmetic import floor_divide, pow, remainder
from weft.ops.op import Operand, type_of
from weft.ops.select import same_dtype
from weft.ops.sort import isin
from weft.ops.view.arranged import ravel
from weft.ops.view.axes import expand_dims
from weft.ops.view.padding import tril
from weft.ops.view.pieces import tensor_split
from weft.ops.view.primitives import concat
from weft.tensor import pytorch
from weft.tensor.creation import as_tensor, ones, tensor
from weft.tensor.dynamic import nonzero, unique
from weft.tensor.ranges import arange, eye
from weft.tensor.tensor import Tensor


@public
def identity(n: int, dtype: DTypeLike | None = None) -> Tensor:
    """The square matrix with ones on its diagonal and zeros elsewhere.

    >>> import weft
    >>> weft.identity(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    if isinstance(n, Tensor):
        hint = "x.clone() copies a tensor"
        raise ArgumentError("identity", f"n must be an int, got {type_of(n)}", hint=hint)
    return eye(n, dtype=dtype)


@public
def tri(n: int, m: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Ones on and below a diagonal of a matrix of n rows and m columns, and zeros above.

    >>> import weft
    >>> weft.tri(2, 3)
    tensor([[1., 0., 0.],
            [1., 1., 0.]])
    """
    return tril(ones((n, n if m is None else m), dtype=dtype), k)


@public
def geomspace(
    start: float, stop: float, num: int = 50, *, endpoint: bool = True, dtype: DTypeLike | None = None
) -> Tensor:
    """Numbers from start to stop, each the same multiple of the one before.

    >>> import weft
    >>> weft.geomspace(1, 100, 3)
    tensor([  1.,  10., 100.])
    """
    if not ((start > 0 and stop > 0) or (start < 0 and stop < 0)):
        message = f"start and stop must have one sign and not be 0, got {start} and {stop}"
        raise DomainError("geomspace", message)
    return tensor(np.geomspace(start, stop, num, endpoint), dtype=default_float() if dtype is None else dtype)


@public
def vander(x: Tensor, /, n: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of the elements of a vector, a row for each, from the highest to the 0th or in rising order.

    >>> import weft
    >>> weft.vander(weft.tensor([1, 2, 3]), increasing=True)
    tensor([[1, 1, 1],
            [1, 2, 4],
            [1, 3, 9]])
    """
    if x.ndim != 1:
        raise ShapeError("vander", f"takes a vector, got {type_of(x)}")
    count = x.shape[0] if n is None else n
    powers = arange(count) if increasing else arange(count - 1, -1, -1)
    out: Tensor = pow(expand_dims(x, 1), powers)
    return out


@public
def append(x: Tensor, values: Operand | Sequence[Any], /, axis: int | None = None) -> Tensor:
    """A tensor with values behind it along an axis; without one, all elements of both in a row.

    >>> import weft
    >>> weft.append(weft.tensor([1, 2]), [3, 4])
    tensor([1, 2, 3, 4])
    """
    more: Any = as_tensor(values) if isinstance(values, list | tuple) else values
    both = [as_tensor(part) for part in same_dtype("append", as_tensor(x), more)]
    if axis is None:
        return concat([ravel(part) for part in both], axis=0)
    return concat(both, axis=axis)


def _cut(op: str, x: Tensor, parts: int | Sequence[int], axis: int, rank: int) -> tuple[Tensor, ...]:
    if x.ndim < rank:
        raise ShapeError(op, f"the tensor must have at least {rank} axes, got {type_of(x)}")
    if isinstance(parts, int) and (parts < 1 or x.shape[axis] % parts):
        message = f"axis {axis} must divide into {parts} equal parts, got {type_of(x)}"
        raise ShapeError(op, message, hint="weft.tensor_split makes parts that differ by one")
    return tensor_split(x, parts, axis)


@public
def hsplit(x: Tensor, indices_or_sections: int | Sequence[int], /) -> tuple[Tensor, ...]:
    """Equal parts side by side, or cuts at positions, along the second axis; along the first of a vector.

    >>> import weft
    >>> weft.hsplit(weft.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return _cut("hsplit", x, indices_or_sections, min(x.ndim - 1, 1), 1)


@public
def vsplit(x: Tensor, indices_or_sections: int | Sequence[int], /) -> tuple[Tensor, ...]:
    """Equal parts one below the other, or cuts at positions, along the first axis.

    >>> import weft
    >>> weft.vsplit(weft.tensor([[1, 2], [3, 4]]), 2)
    (tensor([[1, 2]]), tensor([[3, 4]]))
    """
    return _cut("vsplit", x, indices_or_sections, 0, 2)


@public
def dsplit(x: Tensor, indices_or_sections: int | Sequence[int], /) -> tuple[Tensor, ...]:
    """Equal parts one behind the other, or cuts at positions, along the third axis.

    >>> import weft
    >>> [part.shape for part in weft.dsplit(weft.ones(2, 2, 3), [1])]
    [(2, 2, 1), (2, 2, 2)]
    """
    return _cut("dsplit", x, indices_or_sections, 2, 3)


@public
def flatnonzero(x: Tensor, /) -> Tensor:
    """Where the elements in a row are not zero.

    >>> import weft
    >>> weft.flatnonzero(weft.tensor([[0, 3], [4, 0]]))
    tensor([1, 2])
    """
    return nonzero(ravel(x))[0]


@public
def unravel_index(indices: Tensor | int, shape: Any, /) -> tuple[Tensor, ...]:
    """Positions in a row of all elements as an index of each axis, which brackets take.

    >>> import weft
    >>> x = weft.tensor([[1, 5], [7, 2]])
    >>> weft.unravel_index(weft.argmax(x), x.shape)
    (tensor(1), tensor(0))
    """
    sizes = normalize_shape("unravel_index", shape)
    left, found = as_tensor(indices), []
    for size in reversed(sizes[1:]):
        found.append(remainder(left, size))
        left = floor_divide(left, size)
    return (left, *reversed(found)) if sizes else ()


@public
def array_equal(x1: Any, x2: Any, /) -> Tensor:
    """Whether two tensors have one shape and equal elements, as a truth value: what ``x1.equal(x2)`` gives.

    >>> import weft
    >>> bool(weft.array_equal(weft.tensor([1, 2]), weft.tensor([1, 2])))
    True
    """
    return pytorch.equal(as_tensor(x1), as_tensor(x2))


@public
def union1d(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The elements that are in either of two tensors, each once and in order.

    >>> import weft
    >>> weft.union1d(weft.tensor([3, 1]), weft.tensor([1, 2]))
    tensor([1, 2, 3])
    """
    out: Tensor = unique(append(x1, x2))
    return out


@public
def intersect1d(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The elements that are in both of two tensors, each once and in order.

    >>> import weft
    >>> weft.intersect1d(weft.tensor([3, 1]), weft.tensor([1, 2]))
    tensor([1])
    """
    found: Tensor = unique(ravel(x1))
    return found[isin(found, x2)]


@public
def setdiff1d(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The elements of the first tensor that are not in the second, each once and in order.

    >>> import weft
    >>> weft.setdiff1d(weft.tensor([3, 1]), weft.tensor([1, 2]))
    tensor([3])
    """
    found: Tensor = unique(ravel(x1))
    return found[isin(found, x2, invert=True)]
