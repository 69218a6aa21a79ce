"""Running sums, products and extremes along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import (
    DTypeLike,
    as_dtype,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int64,
    kind,
)
from weft.base.public import public
from weft.base.shapes import as_ints, normalize_axis, size_of
from weft.base.size_bounds import positive, size_min
from weft.base.sizes import Size
from weft.errors import ArgumentError
from weft.ir.types import TensorType
from weft.ops.factors import along
from weft.ops.families import linear, primitive
from weft.ops.index_axis import take_along_axis
from weft.ops.op import OPS, Array, Op, Operand, Sample, Tensor, composite, no_gradient
from weft.ops.public import example, published
from weft.ops.recurrence import carried
from weft.ops.reduce import widened
from weft.ops.samples import call, complex_array, int_array, joined, real_array
from weft.ops.select import cast, need_real, same_dtype
from weft.ops.size import filled, positions
from weft.ops.view.primitives import join, reshape
from weft.ops.view.slices import pad_axes, slice_axis

_WIDE = {float16: float32, bfloat16: float32, float32: float64, complex64: complex128}


def _accumulate(ufunc: np.ufunc, x: Array, axis: int) -> Array:
    """Each result is made of the one before, so single precision is accumulated in double."""
    out = ufunc.accumulate(x, axis=axis, dtype=_WIDE.get(x.dtype, x.dtype))
    return out if out.dtype == x.dtype else out.astype(x.dtype)


def _cumulative_sum(x: Array, *, axis: int, reverse: bool) -> Array:
    if not reverse:
        return _accumulate(np.add, x, axis)
    return np.flip(_accumulate(np.add, np.flip(x, axis), axis), axis)


def _scan_samples(**attrs: object) -> list[Sample]:
    return [
        Sample((real_array((3, 4)),), {"axis": 1, **attrs}),
        Sample((real_array((4, 3)).T,), {"axis": 0, **attrs}),
        Sample((real_array((0, 3)),), {"axis": 0, **attrs}),
        Sample((complex_array((5,)),), {"axis": 0, **attrs}),
        Sample((int_array((2, 3)),), {"axis": 1, **attrs}),
    ]


running_sum: Op = linear(
    "cumsum",
    type_rule=lambda x, *, axis, reverse: x,
    eval=_cumulative_sum,
    transpose=(lambda g, axis, reverse: running_sum(g, axis=axis, reverse=not reverse),),
    factors=along("axis"),
    samples=lambda: _scan_samples(reverse=False) + _scan_samples(reverse=True),
    defaults={"reverse": False},
    precision="high",
    fold="add",
    fold_over="prefix",
)


def shift(x: Tensor, axis: int, steps: int, value: Operand = 0) -> Tensor:
    """x moved on along an axis (back for negative steps), with a value where nothing moved to."""
    size = x.shape[axis]
    on, back = size_min(max(steps, 0), size), size_min(max(-steps, 0), size)
    zeros, ahead, behind = (0,) * x.ndim, [0] * x.ndim, [0] * x.ndim
    ahead[axis], behind[axis] = on, back
    kept = slice_axis(x, axis, back, size - on)
    return pad_axes(kept, low=tuple(ahead), high=tuple(behind), interior=zeros, value=value)


def _running_prod_vjp(g: Tensor, x: Tensor, out: Tensor, axis: int) -> Tensor:
    """Exact where elements are 0: nothing is divided.

    With r[j] = g[j] + x[j+1] r[j+1], the gradient is r[j] times the product of what comes before j. The
    recurrence is solved by doubling: after each step, r[j] covers twice as many terms.
    """
    if kind(x.dtype) == "c":
        x, out = x.conj(), out.conj()
    r, factor, reach = g, shift(x, axis, -1), 1
    if isinstance(x.shape[axis], Size):
        r = carried((OPS["mul"], OPS["add"]), None, (factor, g), axis, reverse=True)
    while not isinstance(x.shape[axis], Size) and reach < x.shape[axis]:
        r = r + factor * shift(r, axis, -reach)
        factor = factor * shift(factor, axis, -reach)
        reach *= 2
    return r * shift(out, axis, 1, value=1)


def _prod_samples() -> list[Sample]:
    zeros = real_array((3, 6))
    zeros[0, 2] = zeros[1, 0] = zeros[1, 3] = zeros[2, 5] = 0
    return [*_scan_samples(), Sample((zeros,), {"axis": 1}), Sample((zeros,), {"axis": 0})]


running_prod: Op = primitive(
    "cumprod",
    type_rule=lambda x, *, axis: x,
    eval=lambda x, *, axis: _accumulate(np.multiply, x, axis),
    vjp=(_running_prod_vjp,),
    factors=along("axis"),
    samples=_prod_samples,
    total=True,
    precision="high",
    fold="mul",
    fold_over="prefix",
)


def _scan_input(op: str, x: Tensor, axis: int | None, dtype: DTypeLike | None) -> tuple[Any, int]:
    x = widened(x) if dtype is None else cast(x, dtype=as_dtype(dtype))
    if axis is None:
        if x.ndim > 1:
            raise ArgumentError(op, f"axis must be given for a tensor with {x.ndim} axes")
        return (reshape(x, shape=(1,)) if x.ndim == 0 else x), 0
    return x, normalize_axis(op, axis, x.ndim)


def _with_initial(out: Tensor, axis: int, value: int, include: bool) -> Tensor:
    if not include:
        return out
    first = filled((*out.shape[:axis], 1, *out.shape[axis + 1 :]), value, out.dtype)
    return join(first, out, axis=axis)


@public
def cumulative_sum(
    x: Tensor, /, axis: int | None = None, *, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """The sums of the first elements along an axis; ``include_initial`` puts the empty sum, 0, before them.

    >>> import weft
    >>> weft.cumulative_sum(weft.tensor([1, 2, 3]), include_initial=True)
    tensor([0, 1, 3, 6])
    """
    x, index = _scan_input("cumulative_sum", x, axis, dtype)
    return _with_initial(running_sum(x, axis=index, reverse=False), index, 0, include_initial)


@published("(weft.tensor([1, 2, 3])) -> tensor([1, 2, 6])")
def cumulative_prod(
    x: Tensor, /, axis: int | None = None, *, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """The products of the first elements along an axis; ``include_initial`` puts the empty one, 1, first."""
    x, index = _scan_input("cumulative_prod", x, axis, dtype)
    return _with_initial(running_prod(x, axis=index), index, 1, include_initial)


@public
def cumsum(x: Tensor, /, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """The sums of the first elements along an axis; without one, of all elements in a row.

    >>> import weft
    >>> weft.cumsum(weft.tensor([[1, 2], [3, 4]]), 1)
    tensor([[1, 3],
            [3, 7]])
    """
    return cumulative_sum(_in_a_row(x) if axis is None else x, axis, dtype=dtype)


@public
def cumprod(x: Tensor, /, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """The products of the first elements along an axis; without one, of all elements in a row.

    >>> import weft
    >>> weft.cumprod(weft.tensor([[1, 2], [3, 4]]), 1)
    tensor([[ 1,  2],
            [ 3, 12]])
    """
    return cumulative_prod(_in_a_row(x) if axis is None else x, axis, dtype=dtype)


def _in_a_row(x: Tensor) -> Tensor:
    return reshape(x, shape=(size_of(x.shape),)) if x.ndim > 1 else x


# Running extremes


def _place_of_running(x: Array, *, axis: int, largest: bool) -> Array:
    best = (np.maximum if largest else np.minimum).accumulate(x, axis=axis)
    numbers = positions(x.shape[axis], x.ndim - 1 - axis)
    found = np.where((x == best) | (x != x), numbers, 0)
    return np.maximum.accumulate(found, axis=axis).astype(int64)


def _running_type(x: TensorType, *, axis: int, largest: bool) -> TensorType:
    need_real("cummax" if largest else "cummin", x)
    return TensorType(x.shape, int64)


place_of_running: Op = primitive(
    "cummax_index",
    type_rule=_running_type,
    eval=_place_of_running,
    vjp=no_gradient("returns indices"),
    factors=along("axis"),
    samples=lambda: [
        Sample((real_array((3, 5)),), {"axis": 1, "largest": True}),
        Sample((int_array((3, 5)),), {"axis": 0, "largest": False}),
        Sample((np.array([1.0, 3.0, 3.0, 2.0]),), {"axis": 0, "largest": True}),
        Sample((real_array((0, 2)),), {"axis": 0, "largest": True}),
    ],
    total=True,
)


def _running_extreme(op: str, x: Tensor, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    need_real(op, x)
    index = normalize_axis(op, axis, x.ndim)
    where = place_of_running(x, axis=index, largest=largest)
    return take_along_axis(x, where, axis=index), where


@composite(samples=lambda: [Sample((real_array((3, 5)),), {"axis": a}) for a in (0, 1)])
@example("(weft.tensor([1, 3, 2]), 0) -> (tensor([1, 3, 3]), tensor([0, 1, 1]))")
def cummax(x: Tensor, /, axis: int) -> tuple[Tensor, Tensor]:
    """The largest of the first elements along an axis, and where each is (the last, if several are equal)."""
    return _running_extreme("cummax", x, axis, largest=True)


@composite(samples=lambda: [Sample((real_array((3, 5)),), {"axis": a}) for a in (0, 1)])
def cummin(x: Tensor, /, axis: int) -> tuple[Tensor, Tensor]:
    """The smallest of the first elements along an axis, and where each is (the last, if several are equal).

    >>> import weft
    >>> weft.cummin(weft.tensor([2, 3, 1]), 0)
    (tensor([2, 2, 1]), tensor([0, 0, 2]))
    """
    return _running_extreme("cummin", x, axis, largest=False)


# Differences


@composite(
    samples=joined(
        call((3, 5), axis=-1), call((3, 5), axis=0, n=2), call((3, 1), axis=1, n=3), call((3, 2), n=0)
    )
)
@example("(weft.tensor([1, 4, 9, 16])) -> tensor([3, 5, 7])")
def diff(
    x: Tensor, /, n: int = 1, axis: int = -1, *, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbours along an axis, n times over."""
    index = normalize_axis("diff", axis, x.ndim)
    (n,) = as_ints("diff", "n", n)
    if n < 0:
        raise ArgumentError("diff", f"n must not be negative, got {n}")
    if n == 0:
        return reshape(x, shape=x.shape)  # a tensor of its own, without what is put before and after
    parts = [p for p in (prepend, x, append) if p is not None]
    if len(parts) > 1:
        x = join(*same_dtype("diff", *parts), axis=index)
    for _ in range(n):
        size = x.shape[index]
        later = slice_axis(x, index, size_min(1, size), size)
        x = _subtract(later, slice_axis(x, index, 0, positive(size - 1)))
    return x


def _subtract(a: Tensor, b: Tensor) -> Tensor:
    return a - b if kind(a.dtype) != "b" else a != b
