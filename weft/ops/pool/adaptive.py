"""Pooling into a number of bins: each axis is cut into parts as equal as whole elements allow.

Averages take open sizes, of the input and of the output: the bins are then computed by the graph.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import DType, int64, kind
from weft.base.shapes import PerAxis, Shape, as_ints
from weft.base.size_bounds import same_size, size_max
from weft.base.sizes import is_known
from weft.errors import ArgumentError, DtypeError, ShapeError
from weft.ops.arithmetic import minimum
from weft.ops.batching import move_axis
from weft.ops.conv.kernel import Ints
from weft.ops.conv.layers import per_axis
from weft.ops.index import gather_nd
from weft.ops.op import Array, Attrs, Sample, Samples, Tensor, type_of
from weft.ops.pool.maximum import max_indices, max_values, separated
from weft.ops.pool.windowed import need_floating, need_pool_rank
from weft.ops.reduce import argmax, reduce_sum
from weft.ops.select import cast, select
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
    items = output_size if isinstance(output_size, tuple | list) else (output_size,) * rank
    if is_known(items):
        return per_axis(op, "output_size", output_size, rank, 0)
    if len(items) != rank:
        raise ArgumentError(op, f"output_size must be an int or {rank} of them, got {output_size!r}")
    return as_ints(op, "output_size", items)


def _bins(size: int, count: int) -> tuple[Array, Array]:
    """The elements of each bin along an axis, (count, longest), and which of them belong to it."""
    starts = np.arange(count) * size // count
    stops = -(-(np.arange(1, count + 1) * size) // count)
    longest = int((stops - starts).max(initial=1))
    index = starts[:, None] + np.arange(longest)
    return np.minimum(index, stops[:, None] - 1), index < stops[:, None]


def _open_bins(size: int, count: int) -> tuple[Tensor, Tensor]:
    """``_bins`` of sizes of which one is open: where no bin is longer than another, each has spare places."""
    first, longest = count_to(count, int64), size // size_max(count, 1) + 2
    starts, stops = (first * size) // count, -(-((first + 1) * size) // count)
    index = reshape(starts, shape=(count, 1)) + count_to(longest, int64)
    ends = reshape(stops, shape=(count, 1))
    return minimum(index, ends - 1), index < ends


def _equal_windows(sizes: Shape, counts: Ints) -> Attrs | None:
    """Attributes of windows that are the bins, where all bins are equally long and none overlap."""
    if any(same_size(c, 0) or not same_size(n % c, 0) for n, c in zip(sizes, counts, strict=True)):
        return None
    kernel = tuple(n // c for n, c in zip(sizes, counts, strict=True))
    rank = len(sizes)
    return {"kernel": kernel, "stride": kernel, "padding": ((0, 0),) * rank, "dilation": (1,) * rank}


def _average_axis(x: Tensor, axis: int, count: int) -> Tensor:
    size = x.shape[axis]
    index, inside = _bins(size, count) if is_known((size, count)) else _open_bins(size, count)
    bins = gather_nd(move_axis(x, axis, 0), index)
    shape = (*index.shape, *(1,) * (x.ndim - 1))
    kept = select(reshape(inside, shape=shape), bins, np.zeros((), x.dtype))
    scale = reshape(_reciprocal_lengths(inside, x.dtype), shape=(count, *(1,) * (x.ndim - 1)))
    return move_axis(reduce_sum(kept, axes=(1,), keepdims=False) * scale, 0, axis)


def _reciprocal_lengths(inside: Tensor | Array, dtype: DType) -> Tensor | Array:
    """One over the number of elements of each bin."""
    if isinstance(inside, np.ndarray):
        lengths: Array = (1.0 / inside.sum(axis=1)).astype(dtype)
        return lengths
    counts: Tensor = reduce_sum(cast(inside, dtype=dtype), axes=(1,), keepdims=False)
    return 1.0 / counts


def _summed_bins(x: Tensor, counts: Ints, lengths: Ints) -> Tensor:
    """The sums of equal bins of open lengths over the last axes."""
    lead = x.ndim - len(counts)
    cut = [n for both in zip(counts, lengths, strict=True) for n in both]
    inner = tuple(range(lead + 1, lead + len(cut), 2))
    return reduce_sum(reshape(x, shape=(*x.shape[:lead], *cut)), axes=inner, keepdims=False)


def _adaptive_avg_pool(op: str, rank: int, x: Tensor, output_size: PerAxis) -> Tensor:
    """The averages of ``output_size`` bins over {axes}; None for an axis keeps its size."""
    need_pool_rank(op, rank, x)
    need_floating(op, x)
    counts = _output_sizes(op, rank, x, output_size)
    attrs = _equal_windows(x.shape[x.ndim - rank :], counts)
    if attrs is not None:
        summed = (
            window_sum(x, **attrs) if is_known(attrs["kernel"]) else _summed_bins(x, counts, attrs["kernel"])
        )
        return divided(summed, prod(attrs["kernel"]))
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
