"""Oracles in plain NumPy and SciPy for views, indexing, reductions, scans and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special


def _slices(x: Any, starts: Any, stops: Any, steps: Any) -> Any:
    return np.ix_(*[np.array(range(*b), int) for b in zip(starts, stops, steps, strict=True)])


def _slice(x: Any, starts: Any, stops: Any, steps: Any) -> Any:
    return x[_slices(x, starts, stops, steps)] if x.ndim else x


def _update_slice(x: Any, v: Any, starts: Any, stops: Any, steps: Any) -> Any:
    if x.ndim == 0:
        return v
    out = x.copy()
    out[_slices(x, starts, stops, steps)] = v
    return out


def _pad(x: Any, low: Any, high: Any, interior: Any, value: Any) -> Any:
    for axis in range(x.ndim):
        if x.shape[axis] > 1:
            places = np.repeat(np.arange(1, x.shape[axis]), interior[axis])
            x = np.insert(x, places, value, axis=axis)
    return np.pad(x, list(zip(low, high, strict=True)), constant_values=value) if x.ndim else x


def _pad_mode(x: Any, pad_width: Any, mode: str) -> Any:
    return np.pad(x, pad_width, {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])


def _crop(x: Any, size: Any, offset: Any = None) -> Any:
    for k, n in enumerate(size):
        axis = x.ndim - len(size) + k
        first = (x.shape[axis] - n) // 2 if offset is None else offset[k]
        x = np.take(x, np.arange(first, first + n), axis=axis)
    return x


def _diag_embed(x: Any, offset: int, axis1: int = -2, axis2: int = -1) -> Any:
    if x.size == 0:
        return np.zeros((abs(offset), abs(offset)))
    return np.moveaxis(np.apply_along_axis(np.diag, -1, x, offset), (-2, -1), (axis1, axis2))


def _scatter(x: Any, v: Any, *indices: Any) -> Any:
    out = x.copy()
    broadcast = np.broadcast_arrays(*indices)
    for at in np.ndindex(broadcast[0].shape):
        out[tuple(int(i[at]) for i in broadcast)] = v[at]
    return out


def _scatter_add(x: Any, v: Any, *indices: Any) -> Any:
    out = x.copy()
    np.add.at(out, tuple(i.astype(int) for i in indices), v)
    return out


def _index_add(x: Any, index: Any, source: Any, axis: int, alpha: float = 1) -> Any:
    out = np.moveaxis(x.copy(), axis, 0)
    for k, row in zip(index, np.moveaxis(source, axis, 0), strict=True):
        out[k] = out[k] + alpha * row
    return np.moveaxis(out, 0, axis)


def _gather_axis(x: Any, index: Any, axis: int) -> Any:
    out = np.empty(index.shape, x.dtype)
    for at in np.ndindex(index.shape):
        source = list(at)
        source[axis] = index[at]
        out[at] = x[tuple(source)]
    return out


def _put_axis(x: Any, index: Any, src: Any, axis: int, add: bool = False) -> Any:
    out = x.copy()
    for at in np.ndindex(index.shape):
        target = list(at)
        target[axis] = index[at]
        out[tuple(target)] = src[at] + (out[tuple(target)] if add else 0)
    return out


def _one_hot(x: Any, num_classes: int) -> Any:
    return np.eye(num_classes, dtype=np.int64)[x]


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def oracle(x: Any, axes: Any, keepdims: bool) -> Any:
        out = function(x.astype(np.float64) if x.dtype == np.float16 else x, axis=axes, keepdims=keepdims)
        return np.asarray(out).astype(np.float16) if x.dtype == np.float16 else out

    return oracle


def _cumulative(function: Callable[..., Any], x: Any, axis: int, reverse: bool = False) -> Any:
    return np.flip(function(np.flip(x, axis), axis=axis), axis) if reverse else function(x, axis=axis)


def _running_place(x: Any, axis: int, largest: bool) -> Any:
    def one(row: Any) -> Any:
        out, best = [], 0
        for i, value in enumerate(row):
            if (value >= row[best]) if largest else (value <= row[best]):
                best = i
            out.append(best)
        return np.array(out, np.int64)

    return np.apply_along_axis(one, axis, x) if x.size else np.zeros(x.shape, np.int64)


def _running_extreme(x: Any, axis: int, largest: bool) -> Any:
    place = _running_place(x, axis, largest)
    return np.take_along_axis(x, place, axis), place


def _order(x: Any, axis: int, descending: bool) -> Any:
    """Stable, with NaN as the largest, by Python's sort."""

    def key(value: Any) -> tuple[bool, Any]:
        return (value != value, value if value == value else 0)

    def one(row: Any) -> Any:
        out = sorted(range(len(row)), key=lambda i: key(row[i]), reverse=descending)
        return np.array(out, np.int64)

    return np.apply_along_axis(one, axis, x) if x.size else np.zeros(x.shape, np.int64)


def _top(x: Any, k: int, axis: int = -1, largest: bool = True) -> Any:
    return np.take(_order(x, axis, largest), np.arange(k), axis=axis)


def _search(x1: Any, x2: Any, side: str) -> Any:
    if x1.ndim == 1:
        return np.searchsorted(x1, x2, side=side)
    return np.stack([np.searchsorted(a, b, side=side) for a, b in zip(x1, x2, strict=True)])


ORACLES: dict[str, Callable[..., Any]] = {
    # views
    "reshape": lambda x, shape: np.array(x.tolist()).astype(x.dtype).reshape(shape),
    "again": lambda x: np.array(x, copy=True),
    "permute": lambda x, axes: np.einsum(x, list(range(x.ndim)), list(axes)),
    "broadcast_to": lambda x, shape: x + np.zeros(shape),
    "slice": _slice,
    "update_slice": _update_slice,
    "pad": _pad,
    "pad_mode": _pad_mode,
    "iota": lambda *, size, dtype: np.array(list(range(size)), dtype),
    "size": lambda *, value, dtype: np.array(value, dtype),
    "concat": lambda *xs, axis: np.concatenate(xs, axis),
    "stack": lambda *xs, axis: np.stack(xs, axis),
    "tile": lambda x, repetitions: np.tile(x, repetitions),
    "flip": lambda x, axis: np.flip(x, axis),
    "roll": lambda x, shift, axis: np.roll(x, shift, axis),
    "repeat": lambda x, repeats, axis=None: np.repeat(x, repeats, axis),
    "crop": _crop,
    "tril": lambda x, k: np.tril(x, k),
    "triu": lambda x, k: np.triu(x, k),
    "diagonal": lambda x, offset=0, axis1=-2, axis2=-1: np.diagonal(x, offset, axis1, axis2),
    "diag_embed": _diag_embed,
    # indices
    "gather": lambda x, *indices, from_end=True: x[indices],
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "take": lambda x, indices, axis=None: np.take(x, indices, axis=axis),
    "take_along_axis": lambda x, indices, axis: np.take_along_axis(
        x,
        np.broadcast_to(
            indices,
            [
                n if i == axis else max(n, s)
                for i, (n, s) in enumerate(zip(indices.shape, x.shape, strict=True))
            ],
        ),
        axis,
    ),
    "gather_axis": _gather_axis,
    "scatter_add_axis": lambda x, index, src, axis: _put_axis(x, index, src, axis, add=True),
    "put_along_axis": _put_axis,
    "index_add": _index_add,
    "masked_fill": lambda x, mask, value: np.where(mask, value, x),
    "one_hot": _one_hot,
    # reductions
    "sum": _reduction(np.sum),
    "prod": _reduction(np.prod),
    "max": _reduction(np.max),
    "min": _reduction(np.min),
    "any": lambda x, axes, keepdims: np.any(x, axis=axes, keepdims=keepdims),
    "all": lambda x, axes, keepdims: np.all(x, axis=axes, keepdims=keepdims),
    "argmax": lambda x, axis, keepdims: np.argmax(x, axis=axis, keepdims=keepdims),
    "argmin": lambda x, axis, keepdims: np.argmin(x, axis=axis, keepdims=keepdims),
    "logsumexp": lambda x, axes, keepdims: (
        scipy.special.logsumexp(x, axis=axes, keepdims=keepdims)
        if x.size
        else np.full(np.sum(x, axis=axes, keepdims=keepdims).shape, -np.inf)
    ),
    "mean": lambda x, axis, keepdims=False: np.mean(x, axis=axis, keepdims=keepdims),
    "var": lambda x, axis, keepdims=False, correction=0: np.var(
        x, axis=axis, keepdims=keepdims, ddof=correction
    ),
    "std": lambda x, axis, keepdims=False, correction=0: np.std(
        x, axis=axis, keepdims=keepdims, ddof=correction
    ),
    "quantile": lambda x, q, axis=None, keepdims=False, interpolation="linear": np.quantile(
        x, q, axis=axis, keepdims=keepdims, method=interpolation
    ),
    "median": lambda x, axis=None, keepdims=False: np.median(x, axis=axis, keepdims=keepdims),
    "nansum": lambda x, axis=None: np.nansum(x, axis=axis),
    "nanmean": lambda x, axis=None: np.nanmean(x, axis=axis),
    # scans
    "cumsum": lambda x, axis, reverse: _cumulative(np.cumsum, x, axis, reverse),
    "cumprod": lambda x, axis: np.cumprod(x, axis=axis),
    "cummax_index": _running_place,
    "cummax": lambda x, axis: _running_extreme(x, axis, largest=True),
    "cummin": lambda x, axis: _running_extreme(x, axis, largest=False),
    "diff": lambda x, axis=-1, n=1: np.diff(x, axis=axis, n=n),
    # rows
    "rows": lambda x, count: tuple(x),
    # order
    "true_places": lambda mask, trips: np.array([i for i, x in enumerate(mask) if x]),
    "count_below": lambda number, trips: np.array([*range(number)], np.int64),
    "argsort": _order,
    "sort": lambda x, axis, descending: np.take_along_axis(x, _order(x, axis, descending), axis),
    "topk_index": _top,
    "topk": lambda x, k, axis=-1, largest=True: (
        np.take_along_axis(x, _top(x, k, axis, largest), axis),
        _top(x, k, axis, largest),
    ),
    "searchsorted": _search,
    "isin": lambda x1, x2, invert=False: np.isin(x1, x2, invert=invert),
}
