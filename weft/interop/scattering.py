"""Elements that meet at one place along an axis, reduced: what the scatter of other frameworks can do."""

from __future__ import annotations

from typing import Any

import weft
from weft.base.dtypes import kind
from weft.errors import DomainError
from weft.tensor.tensor import Tensor


def scatter_reduced(x: Tensor, axis: int, index: Any, src: Any, how: str, include_self: bool = True) -> Any:
    """x with the elements of ``src`` reduced into it, each at its own place but for ``axis``.

    Args:
        x: the tensor.
        axis: along which the index tells places.
        index: of the shape of the part of ``src`` that counts.
        src: the elements.
        how: "sum", "prod", "mean", "amax" or "amin".
        include_self: whether what x has at a place counts too.
    """
    if how not in ("sum", "prod", "mean", "amax", "amin"):
        raise DomainError("scatter_reduce", f"must be sum, prod, mean, amax or amin, got {how!r}")
    src = src[tuple(slice(0, n) for n in index.shape)].astype(x.dtype)
    hits = weft.scatter_add(
        weft.zeros(x.shape, dtype="int64"), axis, index, weft.ones(index.shape, dtype="int64")
    )
    if how in ("sum", "mean"):
        total = weft.scatter_add(
            x if include_self else weft.where(hits > 0, _like(x, 0), x), axis, index, src
        )
        return total if how == "sum" else _mean(x, total, hits, include_self)
    if how == "prod":
        found = _product(x, axis, index, src)
        combined = x * found if include_self else found
    else:
        found = _extreme(x, axis, index, src, largest=how == "amax")
        combined = (weft.maximum if how == "amax" else weft.minimum)(x, found) if include_self else found
    return weft.where(hits > 0, combined, x)


def _like(x: Any, value: Any) -> Any:
    return weft.full(x.shape, value, dtype=x.dtype)


def _mean(x: Any, total: Any, hits: Any, include_self: bool) -> Any:
    count = weft.maximum(hits + 1 if include_self else hits, 1)
    if kind(x.dtype) in "fc":
        return total / count.astype(x.dtype)
    return weft.floor_divide(total, count.astype(x.dtype))


def _extreme(x: Any, axis: int, index: Any, src: Any, *, largest: bool) -> Any:
    """The largest or smallest element that comes to each place: put in order, so that it is the last one."""
    order = weft.argsort(src, axis=axis, descending=not largest)
    put = weft.take_along_axis(src, order, axis=axis)
    return weft.scatter(x, axis, weft.take_along_axis(index.astype("int64"), order, axis=axis), put)


def _product(x: Any, axis: int, index: Any, src: Any) -> Any:
    """The product of what comes to each place: of a table with a row for each place of the axis."""
    along = axis % x.ndim
    size = x.shape[along]
    places = weft.reshape(weft.arange(size), (size, *[1] * x.ndim))
    meets = weft.expand_dims(index, axis=0) == places
    products = weft.prod(weft.where(meets, weft.expand_dims(src, axis=0), _one(src)), axis=along + 1)
    products = weft.moveaxis(products, 0, along)
    if products.shape == x.shape:
        return products
    widths = tuple((0, n - m) for n, m in zip(x.shape, products.shape, strict=True))
    return weft.pad(products, widths, value=1)


def _one(src: Any) -> Any:
    return weft.ones((), dtype=src.dtype)
