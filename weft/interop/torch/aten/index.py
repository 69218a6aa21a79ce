"""ATen operators that take and put elements at places that tensors tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.base.dtypes import bool_
from weft.base.shapes import size_of
from weft.interop.forms.elements import along, astype
from weft.interop.forms.scatter import scatter_along
from weft.interop.torch.calls import Call, aten
from weft.tensor.indexing import updated
from weft.tensor.tensor import Tensor

_UNKNOWN = "the number of results depends on the values of a tensor, and shapes of a graph do not"
_HINT = "use weft.where or torch.where with a mask of fixed shape"


@aten("index.Tensor", "_unsafe_index.Tensor")
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


_REDUCE = {"sum": "sum", "prod": "prod", "mean": "mean", "amax": "max", "amin": "min"}


@aten("scatter.src", "scatter.value")
def scatter(call: Call, x: Any, dim: int, index: Any, src: Any) -> Any:
    """x with elements put at places along an axis."""
    src = src if isinstance(src, Tensor) else weft.full(index.shape, src, dtype=x.dtype)
    return scatter_along(x, dim, index, src)


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


_BAG = ("scale_grad_by_freq", "mode", "sparse", "per_sample_weights", "include_last_offset", "padding_idx")


@aten("_embedding_bag", "_embedding_bag_forward_only", "embedding_bag.padding_idx")
def embedding_bag(call: Call, weight: Any, indices: Any, offsets: Any, *settings: Any, **named: Any) -> Any:
    """Sums, means or maxima of rows of a table, one for each bag; what else it gives only gradients use."""
    given: dict[str, Any] = {**dict(zip(_BAG, settings, strict=False)), **named}
    kept = {name: given[name] for name in ("per_sample_weights", "include_last_offset") if name in given}
    how, padding = ("sum", "mean", "max")[given.get("mode", 0)], _row(given.get("padding_idx", -1))
    out = weft.embedding_bag(indices, weight, offsets, mode=how, padding_idx=padding, **kept)
    return out, None, None, None


def _row(padding_idx: int | None) -> int | None:
    return None if padding_idx is None or padding_idx < 0 else padding_idx


def _sorted_place(x: Any, values: Any, right: bool, side: str | None = None) -> Any:
    return weft.searchsorted(x, values, side="right" if right or side == "right" else "left")


aten.enter(
    {
        "index_select": lambda call, x, dim, i: weft.take(x, i, axis=dim) if x.ndim else weft.reshape(x, ()),
        "take": lambda call, x, i: weft.take(weft.reshape(x, (-1,)), i, axis=0),
        "gather": lambda call, x, dim, i, **rest: (
            weft.gather(x, dim, i) if x.ndim else weft.broadcast_to(x, i.shape)
        ),
        "scatter_add": lambda call, x, dim, i, src: scatter_along(x, dim, i, src, "sum"),
        "scatter_reduce.two": lambda call, x, dim, i, src, reduce, *, include_self=True: scatter_along(
            x, dim, i, src, _REDUCE[reduce], include_self
        ),
        "index_add": lambda call, x, dim, i, source, *, alpha=1: weft.index_add(
            x, i, source, axis=dim, alpha=alpha
        ),
        "index_copy": lambda call, x, dim, i, source: updated(x, along(dim % x.ndim, i), source),
        "index_fill.int_Scalar": lambda call, x, dim, i, value: updated(
            x, along(dim % x.ndim, i), weft.full((), value, dtype=x.dtype)
        ),
        "embedding": lambda call, weight, indices, padding_idx=-1, scale=False, sparse=False: weft.embedding(
            indices, weight, _row(padding_idx)
        ),
        "searchsorted.Tensor": lambda call, x, values, *, right=False, side=None, **rest: _sorted_place(
            x, values, right, side
        ),
        "bucketize.Tensor": lambda call, x, boundaries, *, right=False, **rest: _sorted_place(
            boundaries, x, right
        ),
        "one_hot": lambda call, x, classes=-1: weft.one_hot(x, classes, dtype=call.dtype),
    }
)
