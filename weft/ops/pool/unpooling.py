"""Unpooling: the values that a max pool kept, put back to where they were, zeros elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from weft.base.dtypes import kind
from weft.base.shapes import PerAxis, Shape
from weft.errors import DtypeError, ShapeError
from weft.ops.conv.layers import per_axis
from weft.ops.index import scatter_nd
from weft.ops.op import Sample, Samples, Tensor, type_of
from weft.ops.pool.windowed import need_pool_rank
from weft.ops.samples import real_array, rng
from weft.ops.size import filled, positions
from weft.ops.variants import of_ranks
from weft.ops.view.primitives import reshape


def _sizes(
    op: str,
    rank: int,
    x: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None,
    padding: PerAxis,
    output_size: Sequence[int] | None,
) -> Shape:
    """The sizes of the tensor that was pooled: as asked for, or the least that is possible."""
    kernel = per_axis(op, "kernel_size", kernel, rank, 1)
    stride = kernel if stride is None else per_axis(op, "stride", stride, rank, 1)
    pads = per_axis(op, "padding", padding, rank, 0)
    given = zip(x.shape[x.ndim - rank :], kernel, stride, pads, strict=True)
    least = tuple((n - 1) * s - 2 * p + k for n, k, s, p in given)
    if output_size is None:
        return least
    wanted = tuple(output_size)[-rank:]
    near = [n - s < w < n + s for n, s, w in zip(least, stride, wanted, strict=False)]
    if len(wanted) != rank or not all(near):
        raise ShapeError(op, f"output_size must be within a stride of {least}, got {tuple(output_size)}")
    return wanted


def _max_unpool(
    op: str,
    rank: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """What a max pool over {axes} with ``return_indices`` gave, put back: zeros but for the largest elements.

    ``output_size`` chooses among the sizes that the pool may have started from.
    """
    need_pool_rank(op, rank, x)
    if indices.shape != x.shape:
        raise ShapeError(op, f"indices must have the shape of x, got {type_of(indices)} for {type_of(x)}")
    if kind(indices.dtype) not in "iu":
        raise DtypeError(op, f"indices must be integers, got {indices.dtype.name}")
    sizes, lead = _sizes(op, rank, x, kernel_size, stride, padding, output_size), x.shape[: x.ndim - rank]
    rows, taken = prod(lead), prod(x.shape[x.ndim - rank :])
    values, places = (reshape(t, shape=(rows, taken)) for t in (x, indices))
    zeros = filled((rows, prod(sizes)), 0, x.dtype)
    return reshape(scatter_nd(zeros, values, positions(rows, 1), places), shape=(*lead, *sizes))


def _samples(rank: int) -> Samples:
    def generate() -> list[Sample]:
        counts, sizes = (2, 3, 2)[:rank], (4, 6, 4)[:rank]
        chosen = [rng(i).permutation(prod(sizes))[: prod(counts)] for i in range(6)]
        places = np.stack(chosen).reshape((2, 3, *counts))
        x = real_array((2, 3, *counts))
        return [
            Sample((x, places), {"kernel_size": 2}),
            Sample((x[0], places[0]), {"kernel_size": 2, "output_size": tuple(n + 1 for n in sizes)}),
        ]

    return generate


max_unpool1d, max_unpool2d, max_unpool3d = of_ranks(
    _max_unpool,
    examples={
        1: "(weft.tensor([[3.0, 2.0]]), weft.tensor([[1, 2]]), 2) -> tensor([[0., 3., 2., 0.]])",
        2: "(*weft.max_pool2d(weft.ones((1, 5, 5)), 2, return_indices=True), 2, output_size=(5, 5)).shape -> "
        "(1, 5, 5)",
        3: "(*weft.max_pool3d(weft.ones((1, 4, 4, 4)), 2, return_indices=True), 2).sum() -> tensor(8.)",
    },
    samples=_samples,
)
