"""Elements put at places that indices tell, and combined with what is there and what meets them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.base.dtypes import kind
from weft.base.shapes import size_of
from weft.errors import DomainError
from weft.interop.forms.elements import astype, is_float
from weft.ops.index import scatter_add_nd, scatter_nd
from weft.tensor.tensor import Tensor

_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": weft.add,
    "prod": weft.mul,
    "max": weft.maximum,
    "min": weft.minimum,
}


def scatter_along(
    x: Tensor, axis: int, index: Tensor, src: Tensor, how: str = "set", include_self: bool = True
) -> Tensor:
    """x with the elements of ``src`` combined into it, each at its own place but for ``axis``.

    Args:
        x: the tensor.
        axis: along which the index tells places.
        index: of the shape of the part of ``src`` that counts.
        src: the elements.
        how: "set", "sum", "prod", "mean", "max" or "min".
        include_self: whether what x has at a place counts too.
    """
    src = astype(src, x.dtype)
    out: Tensor
    if how == "set" or (how == "sum" and include_self):
        out = (weft.scatter if how == "set" else weft.scatter_add)(x, axis, index, src)
        return out
    if how != "mean" and how not in _COMBINE:
        raise DomainError("scatter", f"must be set, sum, prod, mean, max or min, got {how!r}")
    src = src[tuple(slice(0, n) for n in index.shape)]
    ones = weft.ones(index.shape, dtype=weft.int64)
    hits = weft.scatter_add(weft.zeros(x.shape, dtype=weft.int64), axis, index, ones)
    if how in ("sum", "mean"):
        start = x if include_self else weft.where(hits > 0, weft.full((), 0, dtype=x.dtype), x)
        total = weft.scatter_add(start, axis, index, src)
        out = total if how == "sum" else _mean(x, total, hits, include_self)
        return out
    found = _product(x, axis, index, src) if how == "prod" else _extreme(how, x, axis, index, src)
    out = weft.where(hits > 0, _COMBINE[how](x, found) if include_self else found, x)
    return out


def scatter_at(x: Tensor, indices: Sequence[Tensor], values: Tensor, how: str = "set") -> Tensor:
    """x with values combined into it at places of its first axes, of which each has an index.

    ``how`` is "set", "sum", "prod", "max" or "min".
    """
    if not indices:
        values = weft.reshape(values, x.shape)
        return values if how == "set" else _COMBINE[how](x, values)
    out: Tensor
    if how in ("set", "sum"):
        out = (scatter_nd if how == "set" else scatter_add_nd).on_tensors(x, values, *indices)
        return out
    places: Any = weft.zeros((), dtype=weft.int64)
    for index, size in zip(indices, x.shape, strict=False):
        places = places * size + index
    each = size_of(x.shape[len(indices) :])
    rows = weft.reshape(x, (size_of(x.shape[: len(indices)]), each))
    values = weft.reshape(values, (size_of(places.shape), each))
    at = weft.broadcast_to(weft.reshape(places, (size_of(places.shape), 1)), values.shape)
    out = weft.reshape(scatter_along(rows, 0, at, values, how), x.shape)
    return out


def _mean(x: Tensor, total: Tensor, hits: Tensor, include_self: bool) -> Any:
    count = weft.maximum(hits + 1 if include_self else hits, 1).astype(x.dtype)
    return total / count if is_float(x) else weft.floor_divide(total, count)


def _extreme(how: str, x: Tensor, axis: int, index: Tensor, src: Tensor) -> Any:
    """The largest or smallest element that comes to each place: put in order, so that it is the last one."""
    if how == "min" and kind(x.dtype) == "f":  # with its sign changed, so that NaN is last here too
        return -_extreme("max", -x, axis, index, -src)
    order = weft.argsort(src, axis=axis, descending=how == "min")
    put = weft.take_along_axis(src, order, axis=axis)
    return weft.scatter(x, axis, weft.take_along_axis(index.astype("int64"), order, axis=axis), put)


def _product(x: Tensor, axis: int, index: Tensor, src: Tensor) -> Any:
    """The product of what comes to each place, one slice of the index after the other."""

    def put(state: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        at, factor = (weft.expand_dims(part, axis=axis) for part in row)
        return weft.scatter(state, axis, at, weft.gather(state, axis, at) * factor), None

    rows = tuple(weft.moveaxis(part, axis, 0) for part in (index, src))
    return weft.scan(put, weft.ones(x.shape, dtype=x.dtype), rows)[0]
