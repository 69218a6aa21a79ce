"""Functions whose result has a shape that depends on values, so that they need concrete tensors.

The values they give are picked out of their input by ``gather``, and so have gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import DType, bfloat16, bool_, float32, float64, int64, kind
from weft.base.public import public
from weft.base.records import NamedTuple
from weft.base.shapes import as_ints, broadcast_shapes, normalize_axis, size_of
from weft.errors import DomainError, DtypeError, ShapeError
from weft.ops.index import gather_nd, scatter_add_nd
from weft.ops.index_axis import as_index, take
from weft.ops.op import Array, type_of
from weft.ops.reduce import amax
from weft.ops.view.primitives import broadcast_to, reshape, stack
from weft.tensor.counted import distinct, ones_of, positions, runs_of
from weft.tensor.dispatch import wrap
from weft.tensor.mode import thread
from weft.tensor.moving import moved, moved_like
from weft.tensor.tensor import Tensor


def _concrete(op: str, x: Any) -> Array:
    """The array of a tensor, or an array itself."""
    return x._array(op) if isinstance(x, Tensor) else np.asarray(x)


def _ints(array: Array, beside: object = None) -> Tensor:
    """Whole numbers as a tensor, on the device of another one, or on the default one."""
    tensor: Tensor = wrap(np.asarray(array, int64))
    return moved_like(tensor, None, beside) if isinstance(beside, Tensor) else moved(tensor, None)


# Where elements are


@public
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero, one tensor for each axis.

    >>> import weft
    >>> weft.nonzero(weft.tensor([[0, 1], [2, 0]]))
    (tensor([0, 1]), tensor([1, 0]))
    """
    if x.ndim == 0:
        raise ShapeError("nonzero", f"the tensor must have at least one axis, got {type_of(x)}")
    if thread.capture is not None:
        return tuple(positions(x))
    return tuple([_ints(places, x) for places in _concrete("nonzero", x).nonzero()])


@public
def argwhere(x: Tensor, /) -> Tensor:
    """The indices of the elements that are not zero, one row for each element.

    >>> import weft
    >>> weft.argwhere(weft.tensor([[0, 1], [2, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    if thread.capture is not None and x.ndim:
        return stack(positions(x), axis=1)
    return _ints(np.argwhere(_concrete("argwhere", x)), x)


@public
def masked_select(x: Tensor, mask: Tensor | Array, /) -> Tensor:
    """The elements of x where a mask holds, as a vector; both broadcast together.

    >>> import weft
    >>> weft.masked_select(weft.tensor([1.0, 2.0, 3.0]), weft.tensor([True, False, True]))
    tensor([1., 3.])
    """
    if mask.dtype != bool_:
        raise DtypeError("masked_select", f"the mask must be bool, got {mask.dtype.name}")
    shape = broadcast_shapes("masked_select", [x.shape, mask.shape], [type_of(x), type_of(mask)])
    flat = reshape(broadcast_to(x, shape=shape), shape=(size_of(shape),))
    if thread.capture is not None:
        return gather_nd(flat, *positions(reshape(broadcast_to(mask, shape=shape), shape=(size_of(shape),))))
    where = np.broadcast_to(_concrete("masked_select", mask), shape).reshape(-1).nonzero()[0]
    return gather_nd(flat, _ints(where, flat))


def _matrix(op: str, n: int, k: int, m: int | None) -> tuple[int, ...]:
    """Rows, diagonal and columns, checked."""
    return as_ints(op, "n, k and m", (n, k, n if m is None else m))


@public
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """The rows and columns of the elements on and below the k-th diagonal of an n by m matrix.

    >>> import weft
    >>> weft.tril_indices(2)
    (tensor([0, 1, 1]), tensor([0, 0, 1]))
    """
    rows, columns = np.tril_indices(*_matrix("tril_indices", n, k, m))
    return _ints(rows), _ints(columns)


@public
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """The rows and columns of the elements on and above the k-th diagonal of an n by m matrix.

    >>> import weft
    >>> weft.triu_indices(2)
    (tensor([0, 0, 1]), tensor([0, 1, 1]))
    """
    rows, columns = np.triu_indices(*_matrix("triu_indices", n, k, m))
    return _ints(rows), _ints(columns)


# Distinct elements


class UniqueAll(NamedTuple):
    """What ``unique_all`` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` gives."""

    values: Tensor
    inverse_indices: Tensor


def _unique(op: str, x: Tensor) -> UniqueAll:
    if thread.capture is not None:
        return UniqueAll(*distinct(x))
    array = _concrete(op, x)
    keys = array.astype(float32) if array.dtype == bfloat16 else array
    found = np.unique(keys, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    first, inverse, counts = found[1:]
    values = gather_nd(reshape(x, shape=(size_of(x.shape),)), _ints(first, x))
    return UniqueAll(values, _ints(first, x), _ints(inverse.reshape(x.shape), x), _ints(counts, x))


@public
def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements in order, where each first stands, which one each element is, and how many.

    >>> import weft
    >>> weft.unique_all(weft.tensor([3, 1, 3])).inverse_indices
    tensor([1, 0, 1])
    """
    return _unique("unique_all", x)


@public
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements in order, and how many there are of each; each NaN is distinct.

    >>> import weft
    >>> weft.unique_counts(weft.tensor([3, 1, 3]))
    UniqueCounts(values=tensor([1, 3]), counts=tensor([1, 2]))
    """
    found = _unique("unique_counts", x)
    return UniqueCounts(found.values, found.counts)


@public
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements in order, and for each element of x which of them it is.

    >>> import weft
    >>> weft.unique_inverse(weft.tensor([3, 1, 3]))
    UniqueInverse(values=tensor([1, 3]), inverse_indices=tensor([1, 0, 1]))
    """
    found = _unique("unique_inverse", x)
    return UniqueInverse(found.values, found.inverse_indices)


@public
def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements in order; each NaN is distinct.

    >>> import weft
    >>> weft.unique_values(weft.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    return _unique("unique_values", x).values


@public
def unique(
    x: Tensor,
    /,
    *,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    sorted: bool = True,
) -> Any:
    """The distinct elements in order, or slices along an axis; with more if asked for.

    They are in order also if not ``sorted``, which only says that no one asks for it.

    >>> import weft
    >>> weft.unique(weft.tensor([[1, 2], [1, 2], [0, 5]]), axis=0, return_counts=True)
    (tensor([[0, 5],
            [1, 2]]), tensor([1, 2]))
    """
    if axis is None:
        values, _, inverse, counts = _unique("unique", x)
    else:
        where = normalize_axis("unique", axis, x.ndim)
        found = np.unique(
            _concrete("unique", x), return_index=True, return_inverse=True, return_counts=True, axis=where
        )
        values = take(x, _ints(found[1], x), axis=where)
        inverse, counts = _ints(found[2].reshape(-1), x), _ints(found[3], x)
    more = [t for t, wanted in ((inverse, return_inverse), (counts, return_counts)) if wanted]
    return (values, *more) if more else values


@public
def unique_consecutive(
    x: Tensor, /, *, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None
) -> Any:
    """The first of each run of equal elements, or of equal slices along an axis; with more if asked for.

    >>> import weft
    >>> weft.unique_consecutive(weft.tensor([1, 1, 2, 2, 3, 1, 1]), return_counts=True)
    (tensor([1, 2, 3, 1]), tensor([2, 2, 1, 2]))
    """
    where = 0 if axis is None else normalize_axis("unique_consecutive", axis, x.ndim)
    flat = reshape(x, shape=(size_of(x.shape),)) if axis is None else x
    if thread.capture is not None and flat.ndim == 1 and flat.shape[0] != 0:
        runs = runs_of(flat)
        places = reshape(runs.number, shape=x.shape)
        picked = [t for t, wanted in ((places, return_inverse), (runs.lengths, return_counts)) if wanted]
        firsts = gather_nd(flat, runs.starts)
        return (firsts, *picked) if picked else firsts
    rows = np.moveaxis(_concrete("unique_consecutive", flat), where, 0)
    changes = (rows[1:] != rows[:-1]).any(axis=tuple(range(1, rows.ndim)))
    first = np.concatenate([np.ones(min(len(rows), 1), bool), changes])
    starts = first.nonzero()[0]
    more = []
    if return_inverse:
        inverse = np.cumsum(first) - 1
        more.append(_ints(inverse.reshape(x.shape) if axis is None else inverse, x))
    if return_counts:
        more.append(_ints(np.diff(np.append(starts, len(rows))), x))
    values = take(flat, _ints(starts, x), axis=where)
    return (values, *more) if more else values


# Counting


@public
def bincount(x: Tensor, /, weights: Tensor | None = None, *, minlength: int = 0) -> Tensor:
    """How often each number from 0 on stands in a vector, or the sum of its weights; integer ones in float64.

    >>> import weft
    >>> weft.bincount(weft.tensor([1, 3, 1]))
    tensor([0, 2, 0, 1])
    >>> weft.bincount(weft.tensor([1, 0, 1]), weft.tensor([0.5, 2.0, 0.25]))
    tensor([2.0000, 0.7500])
    """
    index = as_index("bincount", x)
    if index.ndim != 1:
        raise ShapeError("bincount", f"the tensor must be a vector, got {type_of(index)}")
    if thread.capture is not None:
        return _bincount_captured(index, weights, minlength)
    places = _concrete("bincount", index)
    if places.size and places.min() < 0:
        raise DomainError("bincount", f"numbers must not be negative, got {places.min()}")
    size = max(minlength, int(places.max()) + 1 if places.size else 0)
    if weights is None:
        return _ints(np.bincount(places.astype(np.intp), minlength=size), index)
    if weights.shape != index.shape:
        raise ShapeError(
            "bincount", f"each number needs a weight, got {type_of(index)} and {type_of(weights)}"
        )
    dtype = _weights_dtype(weights)
    weights = weights if weights.dtype == dtype else weights.astype(dtype)
    return scatter_add_nd(np.zeros(size, dtype), weights, index)


def _weights_dtype(weights: Tensor) -> DType:
    """The dtype that weights are added up in: integers in float64, as NumPy has it."""
    return weights.dtype if kind(weights.dtype) in "fc" else float64


def _bincount_captured(index: Tensor, weights: Tensor | None, minlength: int) -> Tensor:
    """As ``bincount``, in a capture: the largest number is guarded, since the size follows from it."""
    size = max(minlength, int(amax(index)) + 1 if size_of(index.shape) else 0)
    dtype = int64 if weights is None else _weights_dtype(weights)
    amounts = ones_of(index.shape, dtype) if weights is None else weights.astype(dtype)
    return scatter_add_nd(np.zeros(size, dtype), amounts, index)
