"""Functions that NumPy's programs use to compute with numbers: averages, extremes, sums that slide.

NaN are left out where a name begins with ``nan``, and by ``fmax`` and ``fmin``. How arrays are made, joined
and cut is in ``arrays``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.public import public
from weft.base.shapes import Axes, normalize_axis
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.ops import reduce, statistics
from weft.ops.arithmetic import add, clip, div, maximum, minimum, mul, sub
from weft.ops.compare import greater, greater_equal, less, not_equal
from weft.ops.complex import conj
from weft.ops.conv.layers import conv1d
from weft.ops.counting import bucketize
from weft.ops.exponential import sqrt
from weft.ops.index_axis import take
from weft.ops.op import Operand, type_of
from weft.ops.products import dot
from weft.ops.scan import diff
from weft.ops.select import same_dtype, where
from weft.ops.sort import searchsorted
from weft.ops.view.arranged import ravel
from weft.ops.view.axes import reshape
from weft.ops.view.joining import flip
from weft.tensor.creation import as_tensor, zeros_like
from weft.tensor.tensor import Tensor


@public
def average(
    x: Tensor, /, axis: Axes = None, weights: Tensor | None = None, *, keepdims: bool = False
) -> Tensor:
    """The mean over axes, in which elements count by their weights: as many as elements, or as an axis has.

    >>> import weft
    >>> weft.average(weft.tensor([1.0, 4.0]), weights=weft.tensor([2.0, 1.0]))
    tensor(2.)
    """
    if weights is None:
        return statistics.mean(x, axis=axis, keepdims=keepdims)
    weights = as_tensor(weights)
    if weights.shape != x.shape:
        if not isinstance(axis, int) or weights.ndim != 1:
            message = f"weights must have the shape of x, or of one axis, got {type_of(weights)}"
            raise ShapeError("average", message)
        along = normalize_axis("average", axis, x.ndim)
        weights = reshape(weights, (*[1] * along, -1, *[1] * (x.ndim - 1 - along)))
    total = reduce.sum(mul(x, weights), axis=axis, keepdims=keepdims)
    out: Tensor = div(total, reduce.sum(weights, axis=axis, keepdims=keepdims))
    return out


@public
def percentile(x: Tensor, q: Any, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The number below which q of a hundred elements are, between two of them in proportion.

    >>> import weft
    >>> weft.percentile(weft.tensor([1.0, 2.0, 4.0]), [50, 75])
    tensor([2., 3.])
    """
    if isinstance(q, Tensor):
        return statistics.quantile(x, div(q, 100), axis, keepdims=keepdims)
    parts = np.asarray(q, np.float64)
    if not ((parts >= 0) & (parts <= 100)).all():
        raise DomainError("percentile", f"q must be in 0..100, got {q}")
    return statistics.quantile(x, (parts / 100).tolist(), axis, keepdims=keepdims)


@public
def ptp(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The largest less the smallest element over axes.

    >>> import weft
    >>> weft.ptp(weft.tensor([3, 7, 5]))
    tensor(4)
    """
    high, low = (f(x, axis=axis, keepdims=keepdims) for f in (reduce.max, reduce.min))
    out: Tensor = sub(high, low)
    return out


def _unless_nan(op: str, choose: Any, x1: Operand, x2: Operand) -> Tensor:
    x1, x2 = same_dtype(op, x1, x2)
    return where(not_equal(x1, x1), x2, where(not_equal(x2, x2), x1, choose(x1, x2)))


@public
def fmax(x1: Tensor, x2: Operand, /) -> Tensor:
    """The larger of both; where one is NaN, the other.

    >>> import weft
    >>> weft.fmax(weft.tensor([1.0, weft.nan]), 0.0)
    tensor([1., 0.])
    """
    return _unless_nan("fmax", maximum, x1, x2)


@public
def fmin(x1: Tensor, x2: Operand, /) -> Tensor:
    """The smaller of both; where one is NaN, the other.

    >>> import weft
    >>> weft.fmin(weft.tensor([1.0, weft.nan]), 0.0)
    tensor([0., 0.])
    """
    return _unless_nan("fmin", minimum, x1, x2)


def _extreme(find: Any, worst: float, x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    if kind(x.dtype) != "f":
        out: Tensor = find(x, axis=axis, keepdims=keepdims)
        return out
    missing = not_equal(x, x)
    found = find(where(missing, worst, x), axis=axis, keepdims=keepdims)
    return where(reduce.all(missing, axis=axis, keepdims=keepdims), nan, found)


@public
def nanmax(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The largest element over axes that is not NaN; NaN where all are.

    >>> import weft
    >>> weft.nanmax(weft.tensor([1.0, weft.nan]))
    tensor(1.)
    """
    return _extreme(reduce.max, -inf, x, axis, keepdims)


@public
def nanmin(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The smallest element over axes that is not NaN; NaN where all are.

    >>> import weft
    >>> weft.nanmin(weft.tensor([1.0, weft.nan]))
    tensor(1.)
    """
    return _extreme(reduce.min, inf, x, axis, keepdims)


@public
def nanvar(x: Tensor, /, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> Tensor:
    """The variance over axes of the elements that are not NaN; their number less ``correction`` divides.

    >>> import weft
    >>> weft.nanvar(weft.tensor([1.0, 3.0, weft.nan]))
    tensor(1.)
    """
    x = statistics.as_floating(x)
    there = not_equal(x, x).logical_not()
    centre = statistics.nanmean(x, axis=axis, keepdims=True)
    apart = where(there, sub(x, centre), 0.0)
    squares = reduce.sum(mul(apart, apart), axis=axis, keepdims=keepdims)
    count = sub(reduce.sum(there.astype(x.dtype), axis=axis, keepdims=keepdims), correction)
    out: Tensor = div(squares, where(greater(count, 0), count, nan))
    return out


@public
def nanstd(x: Tensor, /, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> Tensor:
    """The standard deviation over axes of the elements that are not NaN.

    >>> import weft
    >>> weft.nanstd(weft.tensor([1.0, 5.0, weft.nan]))
    tensor(2.)
    """
    out: Tensor = sqrt(nanvar(x, axis, correction=correction, keepdims=keepdims))
    return out


@public
def digitize(x: Tensor, bins: Tensor, /, right: bool = False) -> Tensor:
    """The numbers of the bins that elements are in, 0 for what is below all of their rising edges.

    >>> import weft
    >>> weft.digitize(weft.tensor([0.5, 1.0, 9.0]), weft.tensor([1.0, 2.0]))
    tensor([0, 1, 2])
    """
    return bucketize(x, as_tensor(bins), right=not right)


@public
def interp(
    x: Operand, xp: Tensor, fp: Tensor, /, left: Operand | None = None, right: Operand | None = None
) -> Tensor:
    """The values at x of the line through points with rising ``xp``; beyond them the first and last value.

    >>> import weft
    >>> weft.interp(weft.tensor([0.0, 1.5, 9.0]), weft.tensor([1.0, 2.0]), weft.tensor([10.0, 20.0]))
    tensor([10., 15., 20.])
    """
    given = [as_tensor(part) for part in same_dtype("interp", x, as_tensor(xp), as_tensor(fp))]
    at, xp, fp = (statistics.as_floating(part) for part in given)
    if xp.ndim != 1 or xp.shape != fp.shape or xp.shape[0] < 1:
        message = f"xp and fp must be vectors of one length, got {type_of(xp)} and {type_of(fp)}"
        raise ShapeError("interp", message)
    last = xp.shape[0] - 1
    after = clip(searchsorted(xp, at, side="right"), 1, max(last, 1))
    before = sub(after, 1)
    after = minimum(after, last)
    (low, high), (start, stop) = ([take(part, i) for i in (before, after)] for part in (xp, fp))
    inside = less(at, xp[last])
    width = where(inside, sub(high, low), 1.0)
    found = add(start, mul(sub(stop, start), div(sub(at, low), width)))
    found = where(greater_equal(at, xp[last]), fp[last], found)
    found = where(less(at, xp[0]), fp[0] if left is None else left, found)
    return found if right is None else where(greater(at, xp[last]), right, found)


@public
def ediff1d(x: Tensor, /) -> Tensor:
    """The differences of neighbours among all elements in a row.

    >>> import weft
    >>> weft.ediff1d(weft.tensor([[1, 2], [4, 7]]))
    tensor([1, 2, 3])
    """
    return diff(ravel(x))


def _vectors(op: str, x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    first, second = (as_tensor(part) for part in same_dtype(op, as_tensor(x1), as_tensor(x2)))
    if first.ndim != 1 or second.ndim != 1 or 0 in (*first.shape, *second.shape):
        message = f"takes two vectors that have elements, got {type_of(first)} and {type_of(second)}"
        raise ShapeError(op, message)
    return first, second


def _slide(op: str, x: Tensor, taps: Tensor, mode: str) -> Tensor:
    """The sums of products of the shorter vector, which stands second, along the longer."""
    count = taps.shape[0]
    pads = {"valid": (0, 0), "same": (count // 2, (count - 1) // 2), "full": (count - 1, count - 1)}
    if mode not in pads:
        raise ArgumentError(op, f"mode must be 'full', 'same' or 'valid', got {mode!r}")
    wide = x[None, None].pad(((0, 0), (0, 0), pads[mode]))
    return conv1d(wide, taps[None, None])[0, 0]


@public
def convolve(x1: Tensor, x2: Tensor, /, mode: str = "full") -> Tensor:
    """The convolution of two vectors: where they meet at all, as long as the longer, or fully (``valid``).

    >>> import weft
    >>> weft.convolve(weft.tensor([1, 2, 3]), weft.tensor([1, 1]))
    tensor([1, 3, 5, 3])
    """
    long, short = _vectors("convolve", x1, x2)
    if short.shape[0] > long.shape[0]:
        long, short = short, long
    return _slide("convolve", long, flip(short), mode)


@public
def correlate(x1: Tensor, x2: Tensor, /, mode: str = "valid") -> Tensor:
    """The sums of products of one vector with the conjugate of another at each shift; see ``convolve``.

    >>> import weft
    >>> weft.correlate(weft.tensor([1, 2, 3]), weft.tensor([0, 1]))
    tensor([2, 3])
    """
    first, second = _vectors("correlate", x1, x2)
    if second.shape[0] > first.shape[0]:
        return flip(_slide("correlate", conj(second), first, mode))
    return _slide("correlate", first, conj(second), mode)


@public
def vdot(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The sum of products of the conjugates of one tensor's elements with another's, all in a row.

    >>> import weft
    >>> weft.vdot(weft.tensor([[1, 2]]), weft.tensor([3, 4]))
    tensor(11)
    """
    out: Tensor = dot(conj(ravel(x1)), ravel(x2))
    return out


@public
def polyval(p: Tensor | Sequence[Any], x: Operand, /) -> Tensor:
    """The value at x of the polynomial with coefficients p, that of the highest power first.

    >>> import weft
    >>> weft.polyval([1, 0, 2], weft.tensor([3.0]))
    tensor([11.])
    """
    at = as_tensor(x)
    out = zeros_like(at)
    for coefficient in p:
        out = add(mul(out, at), coefficient)
    return out
