"""Oracles of sliding windows and pools: every window by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from tests.ops.plain import each, enter_into

Array = Any
ORACLES: dict[str, Callable[..., Any]] = {}
oracle = enter_into(ORACLES)

# Windows, one after another


def _places(size: int, k: int, s: int, pad: tuple[int, int], d: int) -> list[list[int]]:
    """The positions that each window over one axis meets, those in the padding included."""
    count = max(0, (size + sum(pad) - (k - 1) * d - 1) // s + 1)
    return [[i * s + t * d - pad[0] for t in range(k)] for i in range(count)]


def _window_places(
    sizes: Sequence[int], kernel: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], list[Any]]]]:
    """How many windows there are, and for each its index and taps: (tap, position or None if padding)."""
    axes = [_places(*a) for a in zip(sizes, kernel, stride, padding, dilation, strict=True)]
    counts = tuple(map(len, axes))
    out = []
    for p in np.ndindex(*counts):
        taps = []
        for k in np.ndindex(*kernel):
            at = tuple(axes[a][p[a]][k[a]] for a in range(len(sizes)))
            inside = all(0 <= v < n for v, n in zip(at, sizes, strict=True))
            taps.append((k, at if inside else None))
        out.append((p, taps))
    return counts, out


@oracle
def windows(x: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Array:
    lead = x.shape[: x.ndim - len(kernel)]
    counts, all_windows = _window_places(x.shape[len(lead) :], kernel, stride, padding, dilation)
    out = np.zeros((*lead, *counts, *kernel), x.dtype)
    for p, taps in all_windows:
        for k, at in taps:
            if at is not None:
                out[(..., *p, *k)] = x[(..., *at)]
    return out


@oracle
def overlap_add(x: Array, *, sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Array:
    _, all_windows = _window_places(sizes, kernel, stride, padding, dilation)
    out = np.zeros((*x.shape[: x.ndim - 2 * len(sizes)], *sizes), x.dtype)
    for p, taps in all_windows:
        for k, at in taps:
            if at is not None:
                out[(..., *at)] += x[(..., *p, *k)]
    return out


@oracle
def window_sum(x: Array, *, kernel: Any, **attrs: Any) -> Array:
    return windows(x, kernel=kernel, **attrs).sum(axis=tuple(range(-len(kernel), 0)))


@oracle
def window_spread(x: Array, *, kernel: Any, **attrs: Any) -> Array:
    taps = np.broadcast_to(x.reshape(*x.shape, *(1,) * len(kernel)), (*x.shape, *kernel))
    return overlap_add(taps, kernel=kernel, **attrs)


def _max_pool_with_indices(
    x: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Array, Array]:
    lead = x.shape[: x.ndim - len(kernel)]
    sizes = x.shape[len(lead) :]
    counts, all_windows = _window_places(sizes, kernel, stride, padding, dilation)
    out, index = np.zeros((*lead, *counts), x.dtype), np.zeros((*lead, *counts), np.int64)
    for (p, taps), row in product(all_windows, np.ndindex(*lead)):
        inside = [at for _, at in taps if at is not None]
        best = max(inside, key=lambda at: x[(*row, *at)])
        out[(*row, *p)], index[(*row, *p)] = x[(*row, *best)], np.ravel_multi_index(best, sizes)
    return out, index


ORACLES["max_pool"] = lambda x, **attrs: _max_pool_with_indices(x, **attrs)[0]
ORACLES["max_pool_indices"] = lambda x, **attrs: _max_pool_with_indices(x, **attrs)[1]


def _pool_windows(
    x: Array, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> dict[str, Any]:
    """Attributes of the windows of a pool; with ceil_mode the padding grows so that they cover the input."""
    kernel = each(kernel_size, rank)
    s = kernel if stride is None else each(stride, rank)
    p, d = each(padding, rank), each(dilation, rank)
    pads = []
    for size, k, a, b, c in zip(x.shape[x.ndim - rank :], kernel, s, p, d, strict=True):
        extra = 0
        reach = (k - 1) * c + 1
        # one more window is allowed if it starts before the end of the input
        while (
            ceil_mode
            and (size + 2 * b + extra - reach) % a
            and (size + 2 * b - reach) // a * a + a < size + b
        ):
            extra += 1
        pads.append((b, b + extra))
    return {"kernel": kernel, "stride": s, "padding": tuple(pads), "dilation": d}


def _max_pool_nd(rank: int) -> Callable[..., Any]:
    def function(
        x: Array,
        *,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        attrs = _pool_windows(x, rank, kernel_size, stride, padding, dilation, ceil_mode)
        both = _max_pool_with_indices(x, **attrs)
        return both if return_indices else both[0]

    return function


def _avg_pool_nd(rank: int) -> Callable[..., Any]:
    def function(
        x: Array,
        *,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        attrs = _pool_windows(x, rank, kernel_size, stride, padding, 1, ceil_mode)
        sizes = x.shape[x.ndim - rank :]
        ones = np.ones(sizes)
        if count_include_pad:
            p = each(padding, rank)
            inner = tuple((lo - a, hi - a) for (lo, hi), a in zip(attrs["padding"], p, strict=True))
            counts = window_sum(
                np.ones([n + 2 * a for n, a in zip(sizes, p, strict=True)]), **{**attrs, "padding": inner}
            )
        else:
            counts = window_sum(ones, **attrs)
        return window_sum(x, **attrs) / (counts if divisor_override is None else divisor_override)

    return function


def _lp_pool_nd(rank: int) -> Callable[..., Any]:
    def function(
        x: Array, *, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Array:
        attrs = _pool_windows(x, rank, kernel_size, stride, 0, 1, ceil_mode)
        full = window_sum(np.ones_like(x), **attrs) / np.prod(attrs["kernel"])
        return (window_sum(np.abs(x) ** norm_type, **attrs) / full) ** (1 / norm_type)

    return function


def _adaptive_nd(rank: int, reduce: str) -> Callable[..., Any]:
    def function(x: Array, *, output_size: Any, return_indices: bool = False) -> Any:
        counts, sizes = each(output_size, rank), x.shape[x.ndim - rank :]
        lead = x.shape[: x.ndim - rank]
        out, index = np.zeros((*lead, *counts)), np.zeros((*lead, *counts), np.int64)
        flat = np.arange(int(np.prod(sizes))).reshape(sizes)
        for p in np.ndindex(*counts):
            cut = tuple(
                slice(i * n // c, -(-(i + 1) * n // c)) for i, n, c in zip(p, sizes, counts, strict=True)
            )
            part = x[(..., *cut)].reshape(*lead, -1)
            out[(..., *p)] = part.mean(-1) if reduce == "mean" else part.max(-1)
            index[(..., *p)] = flat[cut].ravel()[part.argmax(-1)]
        return (out, index) if return_indices else out

    return function


def _unpool_nd(rank: int) -> Callable[..., Any]:
    def function(x: Array, indices: Array, *, kernel_size: int, output_size: Any = None) -> Array:
        lead = x.shape[: x.ndim - rank]
        sizes = output_size or tuple(n * kernel_size for n in x.shape[len(lead) :])
        out = np.zeros((*lead, int(np.prod(sizes))))
        for at in np.ndindex(x.shape):
            out[(*at[: len(lead)], indices[at])] = x[at]
        return out.reshape(*lead, *sizes)

    return function


for _rank in (1, 2, 3):
    ORACLES[f"max_unpool{_rank}d"] = _unpool_nd(_rank)
    ORACLES[f"max_pool{_rank}d"] = _max_pool_nd(_rank)
    ORACLES[f"avg_pool{_rank}d"] = _avg_pool_nd(_rank)
    ORACLES[f"adaptive_avg_pool{_rank}d"] = _adaptive_nd(_rank, "mean")
    ORACLES[f"adaptive_max_pool{_rank}d"] = _adaptive_nd(_rank, "max")
    ORACLES[f"lp_pool{_rank}d"] = _lp_pool_nd(_rank)


def _columns(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> dict[str, Any]:
    kernel, s, d = (each(v, 2) for v in (kernel_size, stride, dilation))
    return {"kernel": kernel, "stride": s, "padding": tuple((p, p) for p in each(padding, 2)), "dilation": d}


@oracle
def unfold(x: Array, *, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Array:
    attrs = _columns(kernel_size, dilation, padding, stride)
    view = np.moveaxis(windows(x, **attrs), (-2, -1), (-4, -3))
    return view.reshape(*x.shape[:-3], x.shape[-3] * int(np.prod(attrs["kernel"])), -1)


@oracle
def fold(
    x: Array, *, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Array:
    attrs, sizes = _columns(kernel_size, dilation, padding, stride), each(output_size, 2)
    counts, _ = _window_places(sizes, attrs["kernel"], attrs["stride"], attrs["padding"], attrs["dilation"])
    view = x.reshape(*x.shape[:-2], -1, *attrs["kernel"], *counts)
    return overlap_add(np.moveaxis(view, (-2, -1), (-4, -3)), sizes=sizes, **attrs)
