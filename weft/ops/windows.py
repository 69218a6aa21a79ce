"""Windows that slide over the last axes: looking at them, summing them, and the transposes of both.

A window has ``kernel`` elements set ``dilation`` apart and moves by ``stride``; the input is first extended
by ``padding`` zeros, or cut where that is negative. All are attributes with one entry for each axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import bfloat16, float16, float32
from weft.base.shapes import Shape
from weft.errors import ShapeError
from weft.ir.types import TensorType
from weft.ops.conv.kernel import Ints, Padding, output_size, pad_array, window_view
from weft.ops.factors import of_windows
from weft.ops.families import linear
from weft.ops.op import Array, Attrs, Op, Sample, Typed
from weft.ops.samples import complex_array, like_array, real_array


def window_positions(sizes: Shape, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> Ints:
    """How many windows there are along each axis."""
    axes = zip(sizes, kernel, stride, padding, dilation, strict=True)
    return tuple(output_size(n, k, s, lo, hi, d, 1) for n, k, s, (lo, hi), d in axes)


def _spatial(x: Typed, rank: int) -> Shape:
    return x.shape[len(x.shape) - rank :]


def _need_axes(op: str, x: TensorType, rank: int) -> None:
    if x.ndim < rank:
        raise ShapeError(op, f"the tensor must have at least {rank} axes, got {x}")


def _as_key(starts: Ints, counts: Ints, steps: Ints) -> tuple[Any, ...]:
    return (..., *(slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, counts, steps, strict=True)))


def tap_key(axis: int, rank: int, start: int, count: int, step: int) -> tuple[Any, ...]:
    """The elements along one of the last ``rank`` axes that one tap of every window is at."""
    return (..., slice(start, start + (count - 1) * step + 1, step), *(slice(None),) * (rank - 1 - axis))


def reduce_windows(
    ufunc: np.ufunc, x: Array, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints, fill: Any
) -> Any:
    """Windows reduced by a binary ufunc, one axis after another."""
    rank = len(kernel)
    counts = window_positions(_spatial(x, rank), kernel, stride, padding, dilation)
    if 0 in counts:
        return np.zeros((*x.shape[: x.ndim - rank], *counts), x.dtype)
    out = pad_array(x, padding, fill)
    for axis, (k, s, d, n) in enumerate(zip(kernel, stride, dilation, counts, strict=True)):
        if k == s == 1 and n == out.shape[out.ndim - rank + axis]:
            continue
        total = out[tap_key(axis, rank, 0, n, s)].copy()
        for tap in range(1, k):
            ufunc(total, out[tap_key(axis, rank, tap * d, n, s)], out=total)
        out = total
    return out if out is not x else x.copy()


def _widened(x: Array) -> Array:
    return x.astype(float32) if x.dtype in (float16, bfloat16) else x


# The windows themselves, and their overlap added up


def _windows_type(
    x: TensorType, *, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints
) -> TensorType:
    rank = len(kernel)
    _need_axes("windows", x, rank)
    counts = window_positions(_spatial(x, rank), kernel, stride, padding, dilation)
    return TensorType((*x.shape[: x.ndim - rank], *counts, *kernel), x.dtype)


def _windows(x: Array, *, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> Any:
    rank = len(kernel)
    counts = window_positions(_spatial(x, rank), kernel, stride, padding, dilation)
    if 0 in counts:
        return np.zeros((*x.shape[: x.ndim - rank], *counts, *kernel), x.dtype)
    return window_view(pad_array(x, padding), kernel, counts, stride, dilation)


def _added_type(
    x: TensorType, *, sizes: Shape, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints
) -> TensorType:
    _need_axes("overlap_add", x, 2 * len(sizes))
    expected = (*window_positions(sizes, kernel, stride, padding, dilation), *kernel)
    if _spatial(x, 2 * len(sizes)) != expected:
        raise ShapeError("overlap_add", f"the last axes must be {expected} to give {sizes}, got {x}")
    return TensorType((*x.shape[: x.ndim - 2 * len(sizes)], *sizes), x.dtype)


def _overlap_add(
    x: Array, *, sizes: Shape, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints
) -> Any:
    rank = len(sizes)
    x, dtype = _widened(x), x.dtype
    padded = [n + lo + hi for n, (lo, hi) in zip(sizes, padding, strict=True)]
    total = np.zeros((*x.shape[: x.ndim - 2 * rank], *padded), x.dtype)
    counts = x.shape[x.ndim - 2 * rank : x.ndim - rank]
    if 0 not in counts:
        for tap in np.ndindex(kernel):
            starts = tuple(k * d for k, d in zip(tap, dilation, strict=True))
            total[_as_key(starts, counts, stride)] += x[(..., *tap)]
    return pad_array(total, tuple((-lo, -hi) for lo, hi in padding)).astype(dtype, copy=False)


def window_attrs(kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> Attrs:
    """The attributes of an op on windows."""
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}


def _cases() -> list[tuple[Array, Attrs]]:
    return [
        (real_array((2, 6)), window_attrs((3,), (1,), ((0, 0),), (1,))),
        (real_array((2, 5, 6)), window_attrs((2, 3), (2, 1), ((1, 0), (1, 2)), (1, 2))),
        (real_array((4, 5)), window_attrs((2, 2), (3, 2), ((0, 0), (-1, 1)), (1, 1))),
        (
            real_array((2, 2, 3, 3, 2)),
            window_attrs((2, 2, 1), (1, 2, 1), ((1, 1), (0, 0), (0, 1)), (1, 1, 1)),
        ),
        (real_array((2, 3)), window_attrs((1,), (1,), ((0, 0),), (1,))),
        (real_array((0, 4)), window_attrs((2,), (1,), ((0, 0),), (1,))),
        (real_array((2, 1)), window_attrs((3,), (1,), ((0, 0),), (1,))),
        (real_array((6, 2)).T, window_attrs((3,), (2,), ((1, 1),), (1,))),
        (complex_array((5,)), window_attrs((3,), (1,), ((1, 0),), (2,))),
    ]


def _samples() -> list[Sample]:
    return [Sample((x,), attrs) for x, attrs in _cases()]


def _transposed_samples(taps: bool) -> list[Sample]:
    """Inputs of the shape that windows (with their taps) or sums over them have."""
    out = []
    for x, attrs in _cases():
        sizes = _spatial(x, len(attrs["kernel"]))
        counts = window_positions(sizes, **attrs)
        shape = (*x.shape[: x.ndim - len(sizes)], *counts, *(attrs["kernel"] if taps else ()))
        out.append(Sample((like_array(x, shape),), {"sizes": sizes, **attrs}))
    return out


windows: Op = linear(
    "windows",
    type_rule=_windows_type,
    eval=_windows,
    transpose=(
        lambda g, x_type, kernel, stride, padding, dilation: overlap_add(
            g, sizes=_spatial(x_type, len(kernel)), **window_attrs(kernel, stride, padding, dilation)
        ),
    ),
    factors=of_windows,
    samples=_samples,
)

overlap_add: Op = linear(
    "overlap_add",
    type_rule=_added_type,
    eval=_overlap_add,
    transpose=(
        lambda g, kernel, stride, padding, dilation: windows(
            g, **window_attrs(kernel, stride, padding, dilation)
        ),
    ),
    factors=of_windows,
    samples=lambda: _transposed_samples(taps=True),
)

# Sums over windows, and one value spread over each


def pooled_type(x: TensorType, *, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> TensorType:
    """The type of an op that makes one element of each window."""
    rank = len(kernel)
    _need_axes("pool", x, rank)
    counts = window_positions(_spatial(x, rank), kernel, stride, padding, dilation)
    return TensorType((*x.shape[: x.ndim - rank], *counts), x.dtype)


def _window_sum(x: Array, *, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> Any:
    return reduce_windows(np.add, _widened(x), kernel, stride, padding, dilation, 0).astype(
        x.dtype, copy=False
    )


def _spread_type(
    x: TensorType, *, sizes: Shape, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints
) -> TensorType:
    _need_axes("window_spread", x, len(sizes))
    expected = window_positions(sizes, kernel, stride, padding, dilation)
    if _spatial(x, len(sizes)) != expected:
        raise ShapeError("window_spread", f"the last axes must be {expected} to give {sizes}, got {x}")
    return TensorType((*x.shape[: x.ndim - len(sizes)], *sizes), x.dtype)


def _window_spread(
    x: Array, *, sizes: Shape, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints
) -> Any:
    rank, dtype = len(sizes), x.dtype
    out = _widened(x)
    if out.size == 0:
        return np.zeros((*x.shape[: x.ndim - rank], *sizes), dtype)
    for axis, (size, (lo, hi), k, s, d) in enumerate(
        zip(sizes, padding, kernel, stride, dilation, strict=True)
    ):
        where = out.ndim - rank + axis
        count = out.shape[where]
        total = np.zeros((*out.shape[:where], size + lo + hi, *out.shape[where + 1 :]), out.dtype)
        for tap in range(k):
            total[tap_key(axis, rank, tap * d, count, s)] += out
        out = total
    return pad_array(out, tuple((-lo, -hi) for lo, hi in padding)).astype(dtype, copy=False)


window_sum: Op = linear(
    "window_sum",
    type_rule=pooled_type,
    eval=_window_sum,
    transpose=(
        lambda g, x_type, kernel, stride, padding, dilation: window_spread(
            g, sizes=_spatial(x_type, len(kernel)), **window_attrs(kernel, stride, padding, dilation)
        ),
    ),
    factors=of_windows,
    samples=_samples,
    fold="add",
    fold_over="windows",
)

window_spread: Op = linear(
    "window_spread",
    type_rule=_spread_type,
    eval=_window_spread,
    transpose=(
        lambda g, kernel, stride, padding, dilation: window_sum(
            g, **window_attrs(kernel, stride, padding, dilation)
        ),
    ),
    factors=of_windows,
    samples=lambda: _transposed_samples(taps=False),
)
