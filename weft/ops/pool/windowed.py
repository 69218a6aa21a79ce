"""Pooling over sliding windows: the largest element, the average, the p-norm; and windows as columns.

Sizes are given as one int or one for each axis, on x (N, C, *S) or (C, *S).
Pooling into a fixed number of bins is in ``adaptive``.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import DType, kind
from weft.base.shapes import PerAxis, Shape
from weft.base.sizes import is_known
from weft.errors import DomainError, DtypeError, ShapeError
from weft.ops.arithmetic import maximum, minimum, pow
from weft.ops.complex import absolute
from weft.ops.conv.kernel import Ints, output_size
from weft.ops.conv.layers import per_axis
from weft.ops.op import Array, Attrs, Sample, Samples, Tensor, composite, type_of
from weft.ops.pool.maximum import max_indices, max_values, separated
from weft.ops.public import example
from weft.ops.samples import call, joined, real_array
from weft.ops.select import cast
from weft.ops.size import positions
from weft.ops.variants import of_ranks
from weft.ops.view.primitives import permute, reshape
from weft.ops.windows import overlap_add, window_attrs, window_positions, window_sum, windows

# From the user's arguments to attributes


def need_pool_rank(op: str, rank: int, x: Tensor) -> None:
    """Raise unless x is (N, C, *S) or (C, *S) with ``rank`` sizes."""
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(op, f"the tensor must have {rank + 1} or {rank + 2} axes, got {type_of(x)}")


def _pool_attrs(
    op: str,
    rank: int,
    x: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None,
    padding: PerAxis,
    dilation: PerAxis,
    ceil_mode: bool,
) -> Attrs:
    need_pool_rank(op, rank, x)
    kernel = per_axis(op, "kernel_size", kernel, rank, 1)
    stride = kernel if stride is None else per_axis(op, "stride", stride, rank, 1)
    dilation, pads = per_axis(op, "dilation", dilation, rank, 1), per_axis(op, "padding", padding, rank, 0)
    if any(2 * p > (k - 1) * d + 1 for p, k, d in zip(pads, kernel, dilation, strict=True)):
        raise DomainError(op, f"padding must be at most half of the window, got {padding!r} for {kernel}")
    both = tuple((p, p) for p in pads)
    if ceil_mode:
        axes = zip(x.shape[x.ndim - rank :], kernel, stride, pads, dilation, strict=True)
        both = tuple(_cover(*axis) for axis in axes)
    attrs = window_attrs(kernel, stride, both, dilation)
    if 0 in window_positions(x.shape[x.ndim - rank :], **attrs):
        raise ShapeError(op, f"the window {kernel} must fit into the padded input, got {type_of(x)}")
    return attrs


def _cover(size: int, kernel: int, stride: int, pad: int, dilation: int) -> tuple[int, int]:
    """Padding with which windows cover the whole axis; each must start in the input or before it."""
    reach = (kernel - 1) * dilation + 1
    count = -(-(size + 2 * pad - reach) // stride) + 1
    if (count - 1) * stride >= size + pad:
        count -= 1
    return pad, max(pad, (count - 1) * stride + reach - size - pad)


def _max_pool(
    op: str,
    rank: int,
    x: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The largest element of each window over {axes}; with ``return_indices`` also where it is."""
    attrs = _pool_attrs(op, rank, x, kernel_size, stride, padding, dilation, ceil_mode)
    max_values.type_rule(type_of(x), **attrs)
    out = max_values(x, **attrs)
    return (out, max_indices(x, **attrs)) if return_indices else out  # type: ignore[return-value]


def _divisor_of_sizes(sizes: Shape, attrs: Attrs, pads: Ints, count_include_pad: bool, dtype: DType) -> Any:
    """The same as a tensor, where a size is not known."""
    out: Any = np.ones((1,) * len(sizes), dtype)
    axes = zip(sizes, attrs["kernel"], attrs["stride"], attrs["padding"], pads, strict=True)
    for axis, (size, k, s, (lo, hi), pad) in enumerate(axes):
        starts = positions(output_size(size, k, s, lo, hi, 1, 1), len(sizes) - 1 - axis) * s - lo
        first, last = (-pad, size + pad) if count_include_pad else (0, size)
        out = cast(minimum(starts + k, last) - maximum(starts, first), dtype=dtype) * out
    return out


def _divisor(sizes: Shape, attrs: Attrs, pads: Ints, count_include_pad: bool) -> Array:
    """The number of elements that each window averages: those in the input, or in it and its padding."""
    out = np.ones((1,) * len(sizes))
    axes = zip(sizes, attrs["kernel"], attrs["stride"], attrs["padding"], pads, strict=True)
    for axis, (size, k, s, (lo, hi), pad) in enumerate(axes):
        starts = np.arange((size + lo + hi - k) // s + 1) * s - lo
        first, last = (-pad, size + pad) if count_include_pad else (0, size)
        counts = np.minimum(starts + k, last) - np.maximum(starts, first)
        out = out * counts.reshape(-1, *(1,) * (len(sizes) - 1 - axis))
    return out


def _avg_pool(
    op: str,
    rank: int,
    x: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The average of each window over {axes}; the padding counts as zeros, or not at all."""
    attrs = _pool_attrs(op, rank, x, kernel_size, stride, padding, 1, ceil_mode)
    need_floating(op, x)
    total = window_sum(x, **attrs)
    if divisor_override is not None:
        if divisor_override == 0:
            raise DomainError(op, "divisor_override must not be 0")
        return total / divisor_override
    sizes, pads = x.shape[x.ndim - rank :], per_axis(op, "padding", padding, rank, 0)
    if not is_known(sizes):
        return total / _divisor_of_sizes(sizes, attrs, pads, bool(count_include_pad), x.dtype)  # type: ignore[no-any-return]
    counts = _divisor(sizes, attrs, pads, bool(count_include_pad))
    if (counts == counts.flat[0]).all():
        return total * (1.0 / float(counts.flat[0]))
    return total * (1.0 / counts).astype(x.dtype)


def need_floating(op: str, x: Tensor) -> None:
    """Raise unless x is of a floating or complex dtype."""
    if kind(x.dtype) not in "fc":
        raise DtypeError(
            op, f"dtype must be floating, got {x.dtype.name}", hint="cast with .astype(weft.float32)"
        )


def _lp_pool(
    op: str,
    rank: int,
    x: Tensor,
    norm_type: float,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window over {axes}."""
    p, attrs = norm_type, _pool_attrs(op, rank, x, kernel_size, stride, 0, 1, ceil_mode)
    need_floating(op, x)
    if p == np.inf:
        return max_values(absolute(x), **attrs)
    powers = x * x if p == 2 else pow(absolute(x), p)
    total = window_sum(powers, **attrs)
    if ceil_mode:  # a last window that is not full counts as if all of it were like the part that is there
        sizes, none = x.shape[x.ndim - rank :], (0,) * rank
        if is_known(sizes):
            counts = _divisor(sizes, attrs, none, True).astype(x.dtype)
        else:
            counts = _divisor_of_sizes(sizes, attrs, none, True, x.dtype)
        total = total * (prod(attrs["kernel"]) / counts)
    return pow(total, 1.0 / p)


# Public functions


def _pool_samples(rank: int, *more: Attrs) -> Samples:
    def generate() -> list[Sample]:
        x = separated((2, 3, *(7, 6, 5)[:rank]))
        cases: list[Attrs] = [
            {"kernel_size": 2},
            {"kernel_size": (3, 2, 2)[:rank], "stride": (2, 1, 1)[:rank], "padding": 1},
            {"kernel_size": 3, "stride": 2, "ceil_mode": True},
            *more,
        ]
        return [Sample((x,), case) for case in cases] + [Sample((x[0],), {"kernel_size": 2})]

    return generate


_DILATED: Attrs = {"kernel_size": 2, "stride": 1, "dilation": 2}
_INDEXED: Attrs = {"kernel_size": 2, "return_indices": True}
_INCLUDED: Attrs = {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}
_EXCLUDED: Attrs = {**_INCLUDED, "count_include_pad": False}
_DIVIDED: Attrs = {"kernel_size": 2, "divisor_override": 3}


def _norm_samples(rank: int) -> Samples:
    cases: list[Attrs] = [
        {"norm_type": 2, "kernel_size": 2},
        {"norm_type": 3.0, "kernel_size": 3, "stride": 1},
        {"norm_type": 2, "kernel_size": 2, "stride": 2, "ceil_mode": True},
    ]
    return lambda: [Sample((real_array((2, 2, *(5, 4, 3)[:rank]), 0.5, 2.0),), case) for case in cases]


max_pool1d, max_pool2d, max_pool3d = of_ranks(
    _max_pool,
    examples={
        1: "(weft.tensor([[[1.0, 3.0, 2.0, 5.0]]]), 2) -> tensor([[[3., 5.]]])",
        2: "(weft.ones((8, 3, 32, 32)), 3, stride=2, padding=1).shape -> (8, 3, 16, 16)",
        3: "(weft.ones((1, 2, 4, 6, 8)), 2).shape -> (1, 2, 2, 3, 4)",
    },
    samples=lambda rank: _pool_samples(rank, _DILATED, _INDEXED),
    whole=("x",),
)
avg_pool2d, avg_pool3d = of_ranks(
    _avg_pool,
    examples={
        2: "(weft.ones((8, 3, 32, 32)), 2).shape -> (8, 3, 16, 16)",
        3: "(weft.ones((1, 2, 4, 6, 8)), 2).shape -> (1, 2, 2, 3, 4)",
    },
    samples=lambda rank: _pool_samples(rank, _EXCLUDED, _INCLUDED, *[_DIVIDED] * (rank == 2)),
    whole=("x",),
    single=True,
)
lp_pool1d, lp_pool2d, lp_pool3d = of_ranks(
    _lp_pool,
    examples={
        1: "(weft.tensor([[[3.0, 4.0]]]), 2, 2) -> tensor([[[5.]]])",
        2: "(weft.ones((1, 1, 2, 2)), 2, 2) -> tensor([[[[2.]]]])",
        3: "(weft.ones((1, 1, 2, 2, 2)), 1, 2) -> tensor([[[[[8.]]]]])",
    },
    samples=_norm_samples,
    single=True,
)


@composite(samples=_pool_samples(1, _EXCLUDED, _INCLUDED), whole=("x",), single=True)
@example("(weft.tensor([[[1.0, 3.0, 2.0, 5.0]]]), 2) -> tensor([[[2.0000, 3.5000]]])")
def avg_pool1d(
    x: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The average of each window over the last axis; the padding counts as zeros, or not at all."""
    return _avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


# Windows as columns


def _column_attrs(op: str, kernel: PerAxis, stride: PerAxis, padding: PerAxis, dilation: PerAxis) -> Attrs:
    return window_attrs(
        per_axis(op, "kernel_size", kernel, 2, 1),
        per_axis(op, "stride", stride, 2, 1),
        tuple((p, p) for p in per_axis(op, "padding", padding, 2, 0)),
        per_axis(op, "dilation", dilation, 2, 1),
    )


@composite(
    samples=joined(
        call((2, 3, 4, 5), kernel_size=(2, 3)),
        call((3, 5, 5), kernel_size=2, dilation=2, padding=1, stride=(2, 1)),
    )
)
@example("(weft.ones((1, 3, 4, 5)), (2, 3)).shape -> (1, 18, 9)")
def unfold(
    x: Tensor, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1
) -> Tensor:
    """The windows over x (N, C, H, W) as columns: (N, C * taps, positions)."""
    need_pool_rank("unfold", 2, x)
    attrs = _column_attrs("unfold", kernel_size, stride, padding, dilation)
    view = windows(x, **attrs)
    lead = x.ndim - 3
    view = permute(view, axes=(*range(lead + 1), lead + 3, lead + 4, lead + 1, lead + 2))
    taps, positions = prod(view.shape[lead : lead + 3]), prod(view.shape[lead + 3 :])
    return reshape(view, shape=(*x.shape[:lead], taps, positions))


@composite(
    samples=joined(
        call((2, 18, 9), output_size=(4, 5), kernel_size=(2, 3)),
        call((8, 15), output_size=5, kernel_size=2, dilation=2, padding=1, stride=(2, 1)),
    )
)
def fold(
    x: Tensor,
    output_size: PerAxis,
    kernel_size: PerAxis,
    dilation: PerAxis = 1,
    padding: PerAxis = 0,
    stride: PerAxis = 1,
) -> Tensor:
    """The transpose of ``unfold``: columns (N, C * taps, positions) added up into (N, C, *output_size).

    >>> import weft
    >>> weft.fold(weft.ones((1, 4, 4)), (3, 3), 2)
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    need_pool_rank("fold", 1, x)
    attrs = _column_attrs("fold", kernel_size, stride, padding, dilation)
    sizes = per_axis("fold", "output_size", output_size, 2, 1)
    counts, kernel, lead = window_positions(sizes, **attrs), attrs["kernel"], x.ndim - 2
    if x.shape[lead] % prod(kernel) != 0 or x.shape[lead + 1] != prod(counts):
        expected = f"(C * {prod(kernel)}, {prod(counts)})"
        raise ShapeError("fold", f"the last axes must be {expected} to give {sizes}, got {type_of(x)}")
    view = reshape(x, shape=(*x.shape[:lead], x.shape[lead] // prod(kernel), *kernel, *counts))
    view = permute(view, axes=(*range(lead + 1), lead + 3, lead + 4, lead + 1, lead + 2))
    return overlap_add(view, sizes=sizes, **attrs)
