"""Pooling into a fixed number of bins: each axis is cut into parts as equal as whole elements allow."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import int64, kind
from weft.base.shapes import PerAxis, Shape
from weft.errors import DtypeError, ShapeError
from weft.ops.batching import move_axis
from weft.ops.conv.kernel import Ints
from weft.ops.conv.layers import per_axis
from weft.ops.index import gather_nd
from weft.ops.op import Array, Attrs, Sample, Samples, Tensor, type_of
from weft.ops.pool.maximum import max_indices, max_values, separated
from weft.ops.pool.windowed import need_floating, need_pool_rank
from weft.ops.reduce import argmax, reduce_sum
from weft.ops.select import select
from weft.ops.size import count_to, divided
from weft.ops.variants import of_ranks
from weft.ops.view.primitives import permute, reshape
from weft.ops.windows import window_sum


def _output_sizes(op: str, rank: int, x: Tensor, output_size: PerAxis) -> Ints:
    """One size for each axis; None keeps the size of the input."""
    sizes = x.shape[x.ndim - rank :]
    if output_size is None:
        output_size = (None,) * rank
    if isinstance(output_size, tuple | list) and len(output_size) == rank:
        output_size = tuple(n if o is None else o for o, n in zip(output_size, sizes, strict=True))
    if 0 in sizes:
        raise ShapeError(op, f"the pooled axes must not be empty, got {type_of(x)}")
    return per_axis(op, "output_size", output_size, rank, 0)


def _bins(size: int, count: int) -> tuple[Array, Array]:
    """The elements of each bin along an axis, (count, longest), and which of them belong to it."""
    starts = np.arange(count) * size // count
    stops = -(-(np.arange(1, count + 1) * size) // count)
    longest = int((stops - starts).max(initial=1))
    index = starts[:, None] + np.arange(longest)
    return np.minimum(index, stops[:, None] - 1), index < stops[:, None]


def _equal_windows(sizes: Shape, counts: Ints) -> Attrs | None:
    """Attributes of windows that are the bins, where all bins are equally long and none overlap."""
    if any(c == 0 or n % c for n, c in zip(sizes, counts, strict=True)):
        return None
    kernel = tuple(n // c for n, c in zip(sizes, counts, strict=True))
    rank = len(sizes)
    return {"kernel": kernel, "stride": kernel, "padding": ((0, 0),) * rank, "dilation": (1,) * rank}


def _average_axis(x: Tensor, axis: int, count: int) -> Tensor:
    index, inside = _bins(x.shape[axis], count)
    bins = gather_nd(move_axis(x, axis, 0), index)
    shape = (*index.shape, *(1,) * (x.ndim - 1))
    kept = select(inside.reshape(shape), bins, np.zeros((), x.dtype))
    scale = (1.0 / inside.sum(axis=1)).astype(x.dtype).reshape(count, *(1,) * (x.ndim - 1))
    return move_axis(reduce_sum(kept, axes=(1,), keepdims=False) * scale, 0, axis)


def _adaptive_avg_pool(op: str, rank: int, x: Tensor, output_size: PerAxis) -> Tensor:
    """The averages of ``output_size`` bins over {axes}; None for an axis keeps its size."""
    need_pool_rank(op, rank, x)
    need_floating(op, x)
    counts = _output_sizes(op, rank, x, output_size)
    attrs = _equal_windows(x.shape[x.ndim - rank :], counts)
    if attrs is not None:
        return divided(window_sum(x, **attrs), prod(attrs["kernel"]))
    for axis, count in enumerate(counts, x.ndim - rank):
        x = _average_axis(x, axis, count)
    return x


def _adaptive_max_pool(
    op: str, rank: int, x: Tensor, output_size: PerAxis, return_indices: bool = False
) -> Tensor:
    """The largest elements of ``output_size`` bins over {axes}; also where they are, if asked."""
    need_pool_rank(op, rank, x)
    if kind(x.dtype) not in "iuf":
        raise DtypeError(op, f"dtype must be integer or floating, got {x.dtype.name}")
    counts = _output_sizes(op, rank, x, output_size)
    sizes, lead = x.shape[x.ndim - rank :], x.ndim - rank
    attrs = _equal_windows(sizes, counts)
    if attrs is not None:
        out = max_values(x, **attrs)
        return (out, max_indices(x, **attrs)) if return_indices else out  # type: ignore[return-value]
    shape = (*x.shape[:lead], *counts)
    flat = _flat_bins(sizes, counts)
    rows = reshape(x, shape=(prod(x.shape[:lead]), prod(sizes)))
    bins = gather_nd(permute(rows, axes=(1, 0)), flat)  # (bins, elements, rows)
    winner = argmax(bins, axis=1)
    each, every = np.arange(flat.shape[0])[:, None], count_to(rows.shape[0], int64)
    out = reshape(permute(gather_nd(bins, each, winner, every), axes=(1, 0)), shape=shape)
    if not return_indices:
        return out
    return out, reshape(permute(gather_nd(flat, each, winner), axes=(1, 0)), shape=shape)  # type: ignore[return-value]


def _flat_bins(sizes: Shape, counts: Ints) -> Array:
    """The elements of each bin over several axes, counted over all of them; shorter bins repeat one."""
    flat = np.zeros((1, 1), np.int64)
    for size, count in zip(sizes, counts, strict=True):
        index, _ = _bins(size, count)
        both = flat[:, None, :, None] * size + index[None, :, None, :]
        flat = both.reshape(flat.shape[0] * count, flat.shape[1] * index.shape[1])
    return flat


def _samples(rank: int, *more: Attrs) -> Samples:
    def generate() -> list[Sample]:
        x = separated((2, 3, *(7, 6, 4)[:rank]))
        sizes: list[Any] = [3, (7, 2, 4)[:rank], 1, (9, 4, 2)[:rank]]
        cases = [{"output_size": s} for s in sizes] + [{"output_size": 3, **m} for m in more]
        return [Sample((x,), case) for case in cases] + [Sample((x[0],), {"output_size": 2})]

    return generate


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = of_ranks(
    _adaptive_avg_pool,
    examples={
        1: "(weft.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]]), 2) -> tensor([[[2., 4.]]])",
        2: "(weft.ones((8, 64, 7, 9)), (1, None)).shape -> (8, 64, 1, 9)",
        3: "(weft.ones((1, 2, 5, 6, 7)), 2).shape -> (1, 2, 2, 2, 2)",
    },
    samples=_samples,
    single=True,
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = of_ranks(
    _adaptive_max_pool,
    examples={
        1: "(weft.tensor([[[1.0, 5.0, 3.0, 4.0, 2.0]]]), 2) -> tensor([[[5., 4.]]])",
        2: "(weft.ones((8, 64, 7, 9)), (2, 3)).shape -> (8, 64, 2, 3)",
        3: "(weft.ones((1, 2, 5, 6, 7)), 2).shape -> (1, 2, 2, 2, 2)",
    },
    samples=lambda rank: _samples(rank, {"return_indices": True}),
)
