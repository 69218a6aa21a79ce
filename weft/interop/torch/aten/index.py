"""ATen operators that take and put elements at places that tensors tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.base.dtypes import bool_
from weft.base.shapes import size_of
from weft.interop.scattering import scatter_reduced
from weft.interop.torch.calls import Call, astype, aten
from weft.tensor.indexing import updated
from weft.tensor.tensor import Tensor

_UNKNOWN = "the number of results depends on the values of a tensor, and shapes of a graph do not"
_HINT = "use weft.where or torch.where with a mask of fixed shape"


@aten("index.Tensor")
def index(call: Call, x: Any, indices: Any) -> Any:
    """The elements at places."""
    if any(i is not None and i.dtype == bool_ for i in indices):
        raise call.error(_UNKNOWN, _HINT)
    return x[_key(indices)]


def _key(indices: Sequence[Any]) -> tuple[Any, ...]:
    """Indices as brackets take them."""
    return tuple(slice(None) if i is None else i for i in indices)


@aten("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(call: Call, x: Any, indices: Any, values: Any, accumulate: bool = False, *rest: Any) -> Any:
    """x with other values at places, or with values added there."""
    values = astype(values, x.dtype)
    if any(i is not None and i.dtype == bool_ for i in indices):
        return _put_masked(call, x, indices, values, accumulate)
    if not accumulate:
        return updated(x, _key(indices), values)
    count = size_of(x.shape)
    places = weft.reshape(weft.arange(count), x.shape)[_key(indices)]
    given = weft.reshape(weft.broadcast_to(values, places.shape), (-1,))
    added = weft.index_add(weft.reshape(x, (-1,)), weft.reshape(places, (-1,)), given, axis=0)
    return weft.reshape(added, x.shape)


def _put_masked(call: Call, x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    """x with one value where a mask holds."""
    mask = indices[0]
    several = len(indices) > 1 or mask is None or (values.ndim and size_of(values.shape) != 1)
    if several:
        raise call.error(_UNKNOWN, "with a mask there must be one value")
    mask = weft.reshape(mask, (*mask.shape, *[1] * (x.ndim - mask.ndim)))
    value = weft.reshape(values, ())
    return weft.where(mask, x + value if accumulate else value, x)


aten("_unsafe_index.Tensor")(index)
aten("index_select")(lambda call, x, dim, i: weft.take(x, i, axis=dim) if x.ndim else weft.reshape(x, ()))
aten("take")(lambda call, x, i: weft.take(weft.reshape(x, (-1,)), i, axis=0))


@aten("gather")
def gather(call: Call, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """For each place of an index the element of x there, but for one axis."""
    if x.ndim == 0:
        return weft.broadcast_to(x, index.shape)
    return weft.gather(x, dim, index)


@aten("scatter.src", "scatter.value")
def scatter(call: Call, x: Any, dim: int, index: Any, src: Any) -> Any:
    """x with elements put at places along an axis."""
    src = astype(src, x.dtype) if isinstance(src, Tensor) else weft.full(index.shape, src, dtype=x.dtype)
    return weft.scatter(x, dim, index, src)


aten("scatter_add")(lambda call, x, dim, i, src: weft.scatter_add(x, dim, i, src))


@aten("scatter_reduce.two")
def scatter_reduce(
    call: Call, x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """x reduced with elements at places along an axis."""
    return scatter_reduced(x, dim, index, src, reduce, include_self)


@aten("index_add")
def index_add(call: Call, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """x with slices added at places along an axis."""
    return weft.index_add(x, index, source, axis=dim, alpha=alpha)


@aten("index_copy")
def index_copy(call: Call, x: Any, dim: int, index: Any, source: Any) -> Any:
    """x with slices put at places along an axis."""
    return updated(x, (*[slice(None)] * (dim % x.ndim), index), source)


@aten("index_fill.int_Scalar")
def index_fill(call: Call, x: Any, dim: int, index: Any, value: Any) -> Any:
    """x with one number in slices of an axis."""
    return updated(x, (*[slice(None)] * (dim % x.ndim), index), weft.full((), value, dtype=x.dtype))


@aten("masked_scatter")
def masked_scatter(call: Call, x: Any, mask: Any, source: Any) -> Any:
    """x with the first elements of a source, in their order, where a mask holds."""
    shape = weft.broadcast_arrays(x, mask)[0].shape
    x, mask = weft.broadcast_to(x, shape), weft.broadcast_to(mask, shape)
    flat = weft.reshape(mask, (-1,))
    places = weft.maximum(weft.cumsum(flat.astype("int64"), axis=0) - 1, 0)
    elements = weft.reshape(source, (-1,))
    taken = weft.take(elements, weft.minimum(places, elements.shape[0] - 1), axis=0)
    return weft.where(mask, weft.reshape(taken, shape), x)


@aten("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "nonzero_numpy")
def nonzero(call: Call, *args: Any, **options: Any) -> Any:
    """Not possible: how many elements there are is known to a run alone."""
    raise call.error(_UNKNOWN, _HINT)


@aten("embedding")
def embedding(
    call: Call, weight: Any, indices: Any, padding_idx: int = -1, scale: bool = False, sparse: bool = False
) -> Any:
    """Rows of a table."""
    return weft.embedding(indices, weight, padding_idx if padding_idx >= 0 else None)


@aten("_embedding_bag", "_embedding_bag_forward_only", "embedding_bag.padding_idx")
def embedding_bag(
    call: Call,
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: Any = -1,
) -> Any:
    """Sums, means or maxima of rows of a table, one for each bag; what else it gives only gradients use."""
    out = weft.embedding_bag(
        indices,
        weight,
        offsets,
        mode=("sum", "mean", "max")[mode],
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=None if padding_idx is None or padding_idx < 0 else padding_idx,
    )
    return out, None, None, None


@aten("searchsorted.Tensor")
def searchsorted(
    call: Call,
    x: Any,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Any:
    """Where values belong in a sorted vector."""
    return weft.searchsorted(x, values, side="right" if right or side == "right" else "left")


@aten("bucketize.Tensor")
def bucketize(call: Call, x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    """Between which of sorted boundaries each element lies."""
    return weft.searchsorted(boundaries, x, side="right" if right else "left")


aten("one_hot")(lambda call, x, classes=-1: weft.one_hot(x, classes, dtype=call.dtype))
