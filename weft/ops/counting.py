"""Statistics by counting and sorting: histograms, the k-th and the most frequent value; integrals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.base.dtypes import int64, kind, real_dtype
from weft.base.shapes import as_ints, normalize_axis, size_of
from weft.base.size_bounds import positive, size_min, surely_less
from weft.base.sizes import Size
from weft.errors import DomainError, ShapeError
from weft.ops.arithmetic import minimum
from weft.ops.compare import equal, not_equal
from weft.ops.complex import conj
from weft.ops.contract import matmul, transpose_last
from weft.ops.exponential import logaddexp, sqrt
from weft.ops.index import scatter_add_nd
from weft.ops.index_axis import take, take_along_axis
from weft.ops.op import Array, Sample, Tensor, composite, type_of
from weft.ops.public import example, published
from weft.ops.recurrence import carried
from weft.ops.reduce import argmax, max, min, reduce_sum
from weft.ops.rounding import floor
from weft.ops.samples import call, complex_array, int_array, joined, real_array
from weft.ops.scan import place_of_running, shift
from weft.ops.select import cast, need_real, same_dtype, select
from weft.ops.size import filled, positions, size_value
from weft.ops.sort import argsort, searchsorted
from weft.ops.statistics import as_floating, mean
from weft.ops.view.padding import diagonal
from weft.ops.view.primitives import join, reshape
from weft.ops.view.slices import slice_axis


class Placed(NamedTuple):
    """Values, and where they stand along the axis."""

    values: Tensor
    indices: Tensor


class Histogram(NamedTuple):
    """What ``histogram`` gives."""

    hist: Tensor
    bin_edges: Tensor


# Histograms


@published("(weft.tensor([1, 3, 6]), weft.tensor([1, 3, 5])) -> tensor([0, 1, 3])")
def bucketize(x: Tensor, boundaries: Tensor, *, right: bool = False, out_int32: bool = False) -> Tensor:
    """Between which boundaries, a sorted vector, an element lies; with ``right`` above equal ones."""
    return searchsorted(boundaries, x, side="right" if right else "left", out_int32=out_int32)


def _counts(places: Tensor, inside: Tensor, amounts: Tensor, bins: int) -> Tensor:
    """The sum of amounts in each bin, of those that are inside."""
    zero = np.zeros((), amounts.dtype)
    at = select(inside, places, np.zeros((), int64))
    return scatter_add_nd(filled((bins,), 0, amounts.dtype), select(inside, amounts, zero), at)


@composite(
    samples=lambda: [
        Sample((real_array((30,)),), {"bins": 5, "min": -1.0, "max": 1.5}, smooth=False),
        Sample((real_array((4, 5)),), {"bins": 4}, smooth=False),
        Sample((np.array([1.0, 2.0, 1.0, np.nan]),), {"bins": 4, "min": 0.0, "max": 3.0}, smooth=False),
    ],
    single=True,
)
@example("(weft.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3) -> tensor([0., 2., 1., 0.])")
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of equal bins from ``min`` to ``max``, or over all of x if both are 0."""
    x = as_floating(x)
    (count,) = as_ints("histc", "bins", bins)
    if count < 1 or min > max:
        raise DomainError("histc", f"needs bins, and min not above max, got {bins}, {min} and {max}")
    flat = reshape(x, shape=(size_of(x.shape),))
    low, high = _ends(flat, min, max)
    inside = (flat >= low) & (flat <= high)
    part = (select(inside, flat, low) - low) / (high - low)
    places = minimum(cast(floor(part * count), dtype=int64), np.asarray(count - 1))
    return _counts(places, inside, filled(flat.shape, 1, x.dtype), count)


def _ends(x: Tensor, low: float, high: float) -> tuple[Any, Any]:
    """The ends of a range in x's dtype: those of the elements if both are 0; they are never equal."""
    if low != high or size_of(x.shape) == 0:
        low, high = (low, high) if low != high else (0.0, 1.0)
        return np.asarray(low, x.dtype), np.asarray(high, x.dtype)
    if low != 0:
        return np.asarray(low - 1, x.dtype), np.asarray(high + 1, x.dtype)
    least, most = min(x), max(x)
    same = equal(least, most)
    return select(same, least - 1, least), select(same, most + 1, most)


def _histogram_samples() -> list[Sample]:
    x, edges, w = real_array((30,)), np.array([-2.0, -1.0, 0.5, 2.0]), real_array((30,), 0.1, 1.0, seed=1)
    return [
        Sample((x,), {"bins": 5, "range": (-1.0, 1.5)}, smooth=False),
        Sample((x, edges), {}, smooth=False),
        Sample((x, edges, w), {}, smooth=False),
        Sample((x, edges, w), {"density": True}, smooth=False),
    ]


def _sampled_histogram(
    x: Tensor, edges: Tensor | None = None, weight: Tensor | None = None, bins: int | None = None, **rest: Any
) -> Histogram:
    return histogram(x, bins if edges is None else edges, weight=weight, **rest)


@composite(samples=_histogram_samples, sampled=_sampled_histogram, single=True)
def histogram(
    x: Tensor,
    bins: Any = 10,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """How many elements, or how much of their weight, lies in each bin, and the edges of the bins.

    Args:
        x: the elements.
        bins: the number of equal bins, or their edges as a sorted vector; the last bin has both its ends.
        range: from where to where equal bins reach; over all of x by default.
        weight: of each element.
        density: whether the sum over bins, times their widths, is to be 1.

    >>> import weft
    >>> weft.histogram(weft.tensor([1.0, 2.0, 1.0]), 2, range=(0.0, 3.0)).hist
    tensor([2., 1.])
    """
    x = as_floating(x)
    flat = reshape(x, shape=(size_of(x.shape),))
    edges, ends = _edges(flat, bins, range)
    count = edges.shape[0] - 1
    amounts = filled(flat.shape, 1, x.dtype) if weight is None else reshape(weight, shape=flat.shape)
    first, last = ends or (slice_axis(edges, 0, 0, 1), slice_axis(edges, 0, count, count + 1))
    inside = (flat >= first) & (flat <= last)
    if ends is None:
        places = minimum(searchsorted(edges, flat, side="right") - 1, np.asarray(count - 1))
    else:
        places = _equal_bins(select(inside, flat, first), edges, first, last, count)
    hist = _counts(places, inside, amounts, count)
    if density:
        widths = slice_axis(edges, 0, 1, count + 1) - slice_axis(edges, 0, 0, count)
        hist = hist / (reduce_sum(hist, axes=(0,), keepdims=False) * widths)
    return Histogram(hist, edges)


def _edges(
    x: Tensor, bins: Any, range: tuple[float, float] | None
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """The edges of bins, and, of equal ones, where the first begins and the last ends."""
    if isinstance(bins, list | tuple):
        bins = np.asarray(bins, x.dtype)
    if hasattr(bins, "dtype"):
        if bins.ndim != 1 or bins.shape[0] < 2:
            raise ShapeError("histogram", f"edges must be a vector of at least two, got {type_of(bins)}")
        return cast(bins, dtype=x.dtype), None
    (count,) = as_ints("histogram", "bins", bins)
    if count < 1:
        raise DomainError("histogram", f"bins must be positive, got {count}")
    low, high = _ends(x, *(range or (0.0, 0.0)))
    steps = np.arange(count + 1)
    edges = cast.on_tensors(steps, dtype=x.dtype) * ((high - low) / count) + low
    return select(steps == count, high, edges), (low, high)


def _equal_bins(x: Tensor, edges: Tensor, low: Tensor, high: Tensor, count: int) -> Tensor:
    """The bin of each element, by a product, put right by one where rounding and the edges disagree."""
    last = np.asarray(count - 1)
    at = minimum(cast(floor((x - low) * (count / (high - low))), dtype=int64), last)
    at = select(x < take(edges, at, axis=0), at - 1, at)
    return select((x >= take(edges, at + 1, axis=0)) & (at < last), at + 1, at)


# By order


@composite(samples=joined(call((3, 5), k=2), call((5, 3), k=5, axis=0, keepdims=True)))
@example("(weft.tensor([3.0, 1.0, 2.0]), 2) -> Placed(values=tensor(2.), indices=tensor(2))")
def kthvalue(x: Tensor, k: int, axis: int = -1, *, keepdims: bool = False) -> Placed:
    """The k-th smallest element along an axis, counted from 1, and where it is."""
    need_real("kthvalue", x)
    where = normalize_axis("kthvalue", axis, x.ndim)
    (k,) = as_ints("kthvalue", "k", k)
    if k < 1 or surely_less(x.shape[where], k):  # of an open size the run tells
        raise DomainError("kthvalue", f"k must be in 1..{x.shape[where]} for axis {where}, got {k}")
    order = slice_axis(argsort(x, axis=where, stable=True), where, k - 1, k)
    return _placed(x, order, where, keepdims)


def _placed(x: Tensor, index: Tensor, axis: int, keepdims: bool) -> Placed:
    found = take_along_axis(x, index, axis=axis)
    if keepdims:
        return Placed(found, index)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return Placed(reshape(found, shape=shape), reshape(index, shape=shape))


@composite(
    samples=lambda: [
        Sample((int_array((3, 9), 0, 4),), {}),
        Sample((int_array((7, 2), 0, 3).astype(np.float64),), {"axis": 0, "keepdims": True}, smooth=False),
    ]
)
@example("(weft.tensor([3, 1, 3, 1, 2])) -> Placed(values=tensor(1), indices=tensor(3))")
def mode(x: Tensor, axis: int = -1, *, keepdims: bool = False) -> Placed:
    """The most frequent element along an axis, the smallest of several, and where it stands last."""
    need_real("mode", x)
    where = normalize_axis("mode", axis, x.ndim)
    if x.shape[where] == 0:
        raise ShapeError("mode", f"there must be elements along axis {where}, got {type_of(x)}")
    order = argsort(x, axis=where, stable=True)
    ordered = take_along_axis(x, order, axis=where)
    place = positions(x.shape[where], x.ndim - 1 - where)
    begins = not_equal(ordered, shift(ordered, where, 1)) | (place == 0)
    # the newest beginning of a run up to each place, so that the distance from it counts equal elements
    since = place_of_running(cast(begins, dtype=int64) * (place + 1), axis=where, largest=True)
    longest = argmax(place - since, axis=where, keepdims=True)
    return _placed(x, take_along_axis(order, longest, axis=where), where, keepdims)


# Sums of logarithms, integrals, covariances


@composite(
    samples=lambda: [
        Sample((real_array((3, 5)),), {"axis": 1}),
        Sample((real_array((4, 3)) * 100,), {"axis": 0}),
        Sample((np.array([-np.inf, 0.0, 1000.0, -np.inf]),), {"axis": 0}, smooth=False),
    ],
    single=True,
)
@example("(weft.tensor([0.0, 0.0, 1000.0]), 0) -> tensor([0.0000e+00, 6.9315e-01, 1.0000e+03])")
def logcumsumexp(x: Tensor, axis: int) -> Tensor:
    """The logarithm of the running sum of exponentials along an axis, without overflow.

    By doubling: after each step an element covers twice as many before it. Along an axis whose size has a
    name one element after the other.
    """
    x = as_floating(x)
    where, reach = normalize_axis("logcumsumexp", axis, x.ndim), 1
    size = x.shape[where]
    if isinstance(size, Size):
        head, rest = _cut(x, where, size_min(1, size))
        init = reduce_sum(head, axes=(where,), keepdims=False)
        return join(head, carried((logaddexp,), init, (rest,), where), axis=where)
    while reach < size:
        head, rest = _cut(x, where, reach)
        x = join(head, logaddexp(rest, slice_axis(x, where, 0, size - reach)), axis=where)
        reach *= 2
    return x


def _cut(x: Tensor, axis: int, place: int) -> tuple[Tensor, Tensor]:
    """What comes before a place along an axis, and the others."""
    return slice_axis(x, axis, 0, place), slice_axis(x, axis, place, x.shape[axis])


@composite(
    samples=lambda: [
        Sample((real_array((3, 5)),), {"dx": 0.5}),
        Sample((real_array((3, 5)), np.sort(real_array((5,), seed=1))), {}),
        Sample((real_array((4, 3)), np.sort(real_array((4, 3), seed=1), axis=0)), {"axis": 0}),
    ],
    single=True,
)
@example("(weft.tensor([1.0, 5.0, 10.0]), weft.tensor([1.0, 3.0, 6.0])) -> tensor(28.5000)")
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The integral along an axis by the trapezoidal rule, of samples at x, or ``dx`` apart."""
    y = as_floating(y)
    where = normalize_axis("trapezoid", axis, y.ndim)
    middles = _neighbours(y, where, lambda a, b: a + b) * 0.5
    if x is None:
        return reduce_sum(middles * dx, axes=(where,), keepdims=False)
    y, x = same_dtype("trapezoid", y, x)
    if x.ndim == 1:
        x = reshape(x, shape=(*x.shape, *[1] * (y.ndim - 1 - where)))
    widths = _neighbours(x, x.ndim - y.ndim + where, lambda a, b: b - a)
    return reduce_sum(middles * widths, axes=(where,), keepdims=False)


def _neighbours(x: Tensor, axis: int, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    size = x.shape[axis]
    count = positive(size - 1)
    return combine(slice_axis(x, axis, 0, count), slice_axis(x, axis, size - count, size))


trapz = trapezoid


@composite(
    samples=lambda: [
        Sample((real_array((3, 6)),)),
        Sample((real_array((3, 6)),), {"correction": 0}),
        Sample((real_array((6,)),)),
        Sample((complex_array((2, 5)),)),
    ],
    single=True,
)
def cov(
    x: Tensor, *, correction: float = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariances of variables, the rows of x, over their observations, the columns.

    ``fweights`` says how often each observation was made, ``aweights`` how much it counts.

    >>> import weft
    >>> weft.cov(weft.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    x = as_floating(x)
    if x.ndim > 2:
        raise ShapeError("cov", f"the tensor must have at most two axes, got {type_of(x)}")
    rows = x if x.ndim == 2 else reshape(x, shape=(1, size_of(x.shape)))
    if fweights is not None or aweights is not None:
        out = _weighted_cov(rows, correction, fweights, aweights)
    else:
        off = rows - mean(rows, axis=1, keepdims=True)
        product = matmul(off, transpose_last(conj(off)))
        out = product / _degrees(rows.shape[1], correction, product)
    return out if x.ndim == 2 else reshape(out, shape=())


def _weighted_cov(rows: Tensor, correction: float, often: Tensor | None, important: Tensor | None) -> Tensor:
    """Of observations that count differently, as NumPy and PyTorch have it."""
    dtype = real_dtype(rows.dtype) if kind(rows.dtype) == "c" else rows.dtype
    for name, weights in (("fweights", often), ("aweights", important)):
        if weights is not None and weights.shape != rows.shape[1:]:
            got = f"{type_of(weights)} and {type_of(rows)}"
            raise ShapeError("cov", f"{name} must have a number for each observation, got {got}")
    each = [cast(weights, dtype=dtype) for weights in (often, important) if weights is not None]
    weights = each[0] if len(each) == 1 else each[0] * each[1]
    total = reduce_sum(weights, axes=(0,), keepdims=False)
    off = rows - reduce_sum(rows * weights, axes=(1,), keepdims=True) / total
    degrees = total - correction
    if important is not None:
        degrees = total - reduce_sum(weights * each[-1], axes=(0,), keepdims=False) * correction / total
    product = matmul(off * weights, transpose_last(conj(off)))
    return product / select(degrees > 0, degrees, np.asarray(np.nan, dtype))


def _degrees(count: int, correction: float, like: Tensor) -> Tensor | Array:
    """How many observations are left after a correction; NaN where there is none."""
    dtype = real_dtype(like.dtype) if kind(like.dtype) == "c" else like.dtype
    if not isinstance(count, Size):
        left = count - correction
        return np.asarray(left if left > 0 else np.nan, dtype)
    open_left = size_value(count, dtype) - correction
    return select(open_left > 0, open_left, np.asarray(np.nan, dtype))


@composite(samples=lambda: [Sample((real_array((3, 6)),)), Sample((real_array((6,)),))], single=True)
def corrcoef(x: Tensor) -> Tensor:
    """The correlations of variables, the rows of x, over their observations, the columns.

    >>> import weft
    >>> weft.corrcoef(weft.tensor([[0.0, 1.0, 2.0], [4.0, 2.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    found = cov(x)
    if found.ndim == 0:
        return found / found
    deviation = sqrt(diagonal(found) if kind(found.dtype) == "f" else diagonal(found).real)
    size = deviation.shape[0]
    return found / reshape(deviation, shape=(size, 1)) / deviation
