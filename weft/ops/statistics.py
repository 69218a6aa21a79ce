"""Averages over axes: mean, var, std, median, quantile, logsumexp, and those that skip NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import DTypeLike, as_dtype, bfloat16, default_float, float16, float64, int64, kind
from weft.base.shapes import Axes, normalize_axes, reduce_shape, size_of
from weft.base.size_bounds import size_max
from weft.base.sizes import Size
from weft.errors import ArgumentError, DomainError, DtypeError
from weft.ir.types import TensorType
from weft.ops.arithmetic import maximum
from weft.ops.compare import equal, isfinite, isnan
from weft.ops.complex import conj, real
from weft.ops.exponential import exp, log, root
from weft.ops.families import primitive
from weft.ops.index import gather_nd
from weft.ops.op import Op, Sample, Tensor, composite, plain_number, type_of
from weft.ops.public import example, published
from weft.ops.reduce import need_elements, reduce_any, reduce_max, reduce_sum, restore
from weft.ops.rounding import ceil, floor, round
from weft.ops.samples import complex_array, large_half, real_array
from weft.ops.select import cast, in_dtype, in_single, select, weight
from weft.ops.size import size_value
from weft.ops.sort import sort_axis
from weft.ops.stop import stop_gradient
from weft.ops.view.primitives import permute, reshape
from weft.ops.view.slices import Ints

_NAN = float("nan")


def _samples(**attrs: object) -> list[Sample]:
    return [
        Sample((real_array((3, 4)),), {"axis": None, **attrs}),
        Sample((real_array((2, 3, 4)),), {"axis": (0, 2), "keepdims": True, **attrs}),
        Sample((real_array((4, 3)).T,), {"axis": -1, **attrs}),
        Sample((real_array((5, 3)).astype(np.float32),), {"axis": 0, **attrs}, smooth=False),
    ]


def as_floating(x: Tensor) -> Tensor:
    """Integers and booleans as floats."""
    return cast(x, dtype=default_float()) if kind(x.dtype) in "biu" else x


def _narrow(out: Tensor, like: Tensor) -> Tensor:
    return cast(out, dtype=like.dtype) if like.dtype in (float16, bfloat16) else out


def _mean(x: Tensor, axes: Ints, keepdims: bool) -> Tensor:
    total = reduce_sum(x, axes=axes, keepdims=keepdims)
    count = size_of(tuple(x.shape[a] for a in axes))
    return total / count if count != 0 else total * _NAN


@composite(samples=lambda: [*_samples(), Sample((complex_array((3, 2)),), {"axis": 0})], precision="high")
@example("(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0) -> tensor([2., 3.])")
def mean(
    x: Tensor, /, axis: Axes = None, *, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """The mean over axes."""
    x = as_floating(x) if dtype is None else cast(x, dtype=as_dtype(dtype))
    return _narrow(_mean(in_single(x), normalize_axes("mean", axis, x.ndim), keepdims), x)


@composite(
    samples=lambda: [*_samples(), *_samples(correction=1), Sample((complex_array((3, 2)),), {"axis": 0})],
    precision="high",
)
def var(x: Tensor, /, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> Tensor:
    """The variance over axes: squared distances from the mean, divided by their number less ``correction``.

    >>> import weft
    >>> weft.var(weft.tensor([1.0, 2.0, 3.0]), correction=1)
    tensor(1.)
    """
    x = as_floating(x)
    return _narrow(_var("var", in_single(x), axis, correction, keepdims), x)


def _var(op: str, x: Tensor, axis: Axes, correction: float, keepdims: bool) -> Tensor:
    axes = normalize_axes(op, axis, x.ndim)
    correction = plain_number(correction)
    if not isinstance(correction, int | float):
        raise ArgumentError(op, f"correction must be a number, got {correction!r}")
    off = x - _mean(x, axes, True)
    squares = real(off * conj(off)) if kind(x.dtype) == "c" else off * off
    total = reduce_sum(squares, axes=axes, keepdims=bool(keepdims))
    size = size_of(tuple(x.shape[a] for a in axes))
    total = _without_rounding_of_mean(total, reduce_sum(off, axes=axes, keepdims=bool(keepdims)), size)
    if isinstance(size, Size):
        count = size_value(size, total.dtype) - correction
        return total / select(count > 0, count, np.asarray(_NAN, total.dtype))
    count = size - correction
    return total / count if count > 0 else total * _NAN


def _without_rounding_of_mean(total: Tensor, rest: Tensor, size: int | Size) -> Tensor:
    """A sum of squared distances from the mean, less what these have for the mean's having been rounded.

    The distances then sum to ``rest`` rather than 0 (T. Chan, G. Golub, R. LeVeque, The American Statistician
    37(3), 1983). No sum of squares is negative, even where all that is left is rounding.
    """
    squared = real(rest * conj(rest)) if kind(rest.dtype) == "c" else rest * rest
    return maximum(total - squared / (size_max(size, 1) if isinstance(size, Size) else size or 1), 0.0)


@composite(samples=lambda: [*_samples(), *_samples(correction=1)], precision="high")
@example("(weft.tensor([1.0, 2.0, 3.0]), correction=1) -> tensor(1.)")
def std(x: Tensor, /, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> Tensor:
    """The standard deviation over axes, the square root of ``var``; where it is 0, so is its gradient."""
    x = as_floating(x)
    squared = _var("std", in_single(x), axis, correction, keepdims)
    return _narrow(root(squared), x)


# Log of a sum of exponentials


def _logsumexp(x: Any, *, axes: Ints, keepdims: bool) -> Any:
    wide = in_single(x)
    if 0 in x.shape:
        out = log(reduce_sum(exp(wide), axes=axes, keepdims=True))
    else:
        top = reduce_max(wide, axes=axes, keepdims=True)
        top = select(isfinite(top), top, np.zeros((), wide.dtype))
        out = log(reduce_sum(exp(wide - top), axes=axes, keepdims=True)) + top
    shape = reduce_shape(x.shape, axes, keepdims)
    return in_dtype(out if out.shape == shape else reshape(out, shape=shape), x.dtype)


def _logsumexp_type(x: TensorType, *, axes: Ints, keepdims: bool) -> TensorType:
    if kind(x.dtype) != "f":
        raise DtypeError("logsumexp", f"dtype must be floating, got {x.dtype.name}")
    return TensorType(reduce_shape(x.shape, axes, keepdims), x.dtype)


def _logsumexp_vjp(g: Tensor, x: Tensor, out: Tensor, axes: Ints, keepdims: bool) -> Tensor:
    if not keepdims:
        g, out = (restore(t, type_of(x), axes) for t in (g, out))
    wide, top = in_single(x), in_single(out)
    # where all of x is -inf so is out; x - 0 is then -inf too, and the gradient 0
    return g * in_dtype(exp(wide - select(equal(top, -np.inf), np.zeros((), wide.dtype), top)), g.dtype)


log_sum_exp: Op = primitive(
    "logsumexp",
    type_rule=_logsumexp_type,
    decomposition=_logsumexp,
    vjp=(_logsumexp_vjp,),
    defaults={"keepdims": False},
    samples=lambda: [
        Sample((real_array((3, 4)),), {"axes": (1,), "keepdims": False}),
        Sample((real_array((2, 3, 4)),), {"axes": (0, 2), "keepdims": True}),
        Sample((real_array((3,), 1000, 1001),), {"axes": (0,), "keepdims": False}),
        Sample(
            (np.array([[-np.inf, -np.inf], [np.inf, 0.0]]),), {"axes": (1,), "keepdims": False}, smooth=False
        ),
        Sample((real_array((0, 2)),), {"axes": (0,), "keepdims": False}, smooth=False),
    ],
    total=True,
    precision="high",
    large_eval=True,
    large_vjp=True,
)


@published("(weft.tensor([1000.0, 1000.0])) -> tensor(1000.6932)")
def logsumexp(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials over axes, without overflow."""
    x = as_floating(x)
    axes = normalize_axes("logsumexp", axis, x.ndim)
    if kind(x.dtype) == "c":
        return _complex_logsumexp(x, axis=axes, keepdims=bool(keepdims))
    return log_sum_exp(x, axes=axes, keepdims=bool(keepdims))


@composite(
    "logsumexp_complex",
    samples=lambda: [
        Sample((complex_array((3, 4)),), {"axis": (1,), "keepdims": False}),
        Sample((complex_array((2, 3)) * 500,), {"axis": (0, 1), "keepdims": True}),
    ],
)
def _complex_logsumexp(x: Tensor, axis: Ints, keepdims: bool) -> Tensor:
    """The same of complex numbers; the largest real part is taken out, which has no gradient of its own."""
    top = stop_gradient(reduce_max(real(x), axes=axis, keepdims=True))
    top = select(isfinite(top), top, np.zeros((), top.dtype))
    out = log(reduce_sum(exp(x - top), axes=axis, keepdims=True)) + top
    return out if keepdims else reshape(out, shape=reduce_shape(x.shape, axis, False))


# Quantiles


def _between(a: Tensor, b: Tensor, part: Tensor) -> Tensor:
    """The point that divides the way from a to b; a where there is no way."""
    return select(equal(part, np.zeros((), part.dtype)) | equal(a, b), a, a + (b - a) * part)


# Which element, or what of its neighbours a and b, a position between them means.
_BETWEEN: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "linear": _between,
    "lower": lambda a, b, part: a,
    "higher": lambda a, b, part: b,
    "midpoint": lambda a, b, part: _between(a, b, part * 0.0 + 0.5),
    "nearest": lambda a, b, part: a,
}


def _quantile_samples() -> list[Sample]:
    return [
        *_samples(q=0.3),
        Sample((real_array((3, 4)),), {"q": (0.0, 0.25, 1.0), "axis": 1}),
        Sample((np.array([1.0, np.nan, 2.0]),), {"q": 0.5}, smooth=False),
        Sample((large_half(2049, "float16"),), {"q": (0.1, 0.5, 0.9)}, smooth=False),
        *(Sample((real_array((3, 5)),), {"q": (0.1, 0.5, 0.6), "axis": 1, "interpolation": how})
          for how in _BETWEEN),
    ]  # fmt: skip


@composite(samples=_quantile_samples, single=True)
@example("(weft.tensor([0.0, 1.0, 2.0, 3.0]), 0.5) -> tensor(1.5000)")
def quantile(
    x: Tensor, /, q: Any, axis: Axes = None, *, keepdims: bool = False, interpolation: str = "linear"
) -> Tensor:
    """The value below which a part q (0 to 1) of the elements over axes lies.

    Several q make a new first axis. Where it lies between two elements, ``interpolation`` says what is meant:
    "linear", "lower", "higher", "nearest" (of two as near the one at an even place) or "midpoint".
    """
    x = as_floating(x)
    if interpolation not in _BETWEEN:
        names = ", ".join(_BETWEEN)
        raise DomainError("quantile", f"interpolation must be one of {names}, got {interpolation!r}")
    axes = normalize_axes("quantile", axis, x.ndim)
    need_elements("quantile", type_of(x), axes)
    q = q if hasattr(q, "dtype") else np.asarray(plain_number(q))
    if q.dtype.kind not in "iuf":
        raise DtypeError("quantile", f"q must be real, got {q.dtype.name}")
    known = getattr(q, "_data", q)
    if isinstance(known, np.ndarray) and not ((known >= 0) & (known <= 1)).all():
        raise DomainError("quantile", f"q must be between 0 and 1, got {known.tolist()}")
    rows, kept = _sorted_rows(x, axes)
    parts = reshape(cast(q, dtype=float64), shape=(size_of(q.shape),))  # single precision counts to 2 ** 24
    out = _interpolate(rows, parts * (rows.shape[0] - 1), interpolation)
    bad = reduce_any(isnan(rows), axes=(0,), keepdims=False)
    out = select(bad, np.asarray(_NAN, x.dtype), out)
    return reshape(out, shape=(*q.shape, *(reduce_shape(x.shape, axes, keepdims) if keepdims else kept)))


def _sorted_rows(x: Tensor, axes: Ints) -> tuple[Any, tuple[int, ...]]:
    """x with the elements over axes sorted along a first axis, and the shape of the others."""
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    kept = tuple(x.shape[i] for i in rest)
    moved = reshape(permute(x, axes=(*axes, *rest)), shape=(size_of(tuple(x.shape[a] for a in axes)), *kept))
    return sort_axis(moved, axis=0, descending=False), kept


def _interpolate(rows: Tensor, position: Tensor, interpolation: str) -> Tensor:
    """The rows at positions between them."""
    position = round(position) if interpolation == "nearest" else position
    below = floor(position)
    a = gather_nd(rows, cast(below, dtype=int64))
    b = gather_nd(rows, cast(ceil(position), dtype=int64))
    part = reshape(position - below, shape=(position.shape[0], *[1] * (rows.ndim - 1)))
    return _BETWEEN[interpolation](a, b, in_dtype(part, rows.dtype))


@composite(samples=lambda: [*_samples(), Sample((large_half(4098, "float16"),), {}, smooth=False)])
@example("(weft.tensor([3.0, 1.0, 2.0])) -> tensor(2.)")
def median(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The middle element over axes, or the mean of the two in the middle."""
    return quantile(x, 0.5, axis, keepdims=keepdims)


# Without NaN


def _nan_samples() -> list[Sample]:
    holes = real_array((3, 4))
    holes[0, 1] = holes[2, 0] = np.nan
    return [Sample((holes,), {"axis": a}, smooth=False) for a in (None, 0, 1)] + [
        Sample((real_array((2, 3)),), {})
    ]


@composite(samples=_nan_samples, precision="high")
@example('(weft.tensor([1.0, float("nan"), 2.0])) -> tensor(3.)')
def nansum(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The sum over axes of the elements that are not NaN."""
    x = as_floating(x)
    known = select(isnan(x), np.zeros((), x.dtype), x)
    return reduce_sum(known, axes=normalize_axes("nansum", axis, x.ndim), keepdims=bool(keepdims))


@composite(
    samples=lambda: [*_nan_samples(), Sample((large_half(5000, "float16", 100.0),), {}, smooth=False)],
    precision="high",
    single=True,
)
@example('(weft.tensor([1.0, float("nan"), 2.0])) -> tensor(1.5000)')
def nanmean(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The mean over axes of the elements that are not NaN."""
    x = as_floating(x)
    axes = normalize_axes("nanmean", axis, x.ndim)
    count = reduce_sum(weight(equal(x, x), x), axes=axes, keepdims=bool(keepdims))
    return nansum(x, axes, keepdims=keepdims) / count
