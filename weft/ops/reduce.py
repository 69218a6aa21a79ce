"""Reductions over axes: sum, prod, max, min, any, all, argmax, argmin. Averages are in ``statistics``.

Primitives have attributes ``axes`` (sorted) and ``keepdims``. Half precision is summed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import (
    DEFAULT_INT,
    DType,
    DTypeLike,
    as_dtype,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int64,
    kind,
    uint64,
)
from weft.base.public import public
from weft.base.shapes import Axes, normalize_axes, normalize_axis, reduce_shape, size_of
from weft.base.sizes import Size
from weft.errors import ArgumentError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.adding import add_up
from weft.ops.compare import equal, not_equal
from weft.ops.factors import of_place
from weft.ops.families import linear, primitive
from weft.ops.op import Array, Op, Sample, Tensor, TensorLike, no_gradient, type_of
from weft.ops.public import published
from weft.ops.samples import complex_array, int_array, real_array
from weft.ops.select import cast, in_dtype, select
from weft.ops.size import filled
from weft.ops.view.primitives import broadcast_to, permute, reshape
from weft.ops.view.slices import Ints, flip_axes, pad_axes, slice_axis

# What reductions share


def reduction_type(name: str, fold: str) -> Callable[..., TensorType]:
    """The type rule of a reduction by a fold: truth gives bools, extremes need elements with an order."""

    def type_rule(x: TensorType, *, axes: Ints, keepdims: bool) -> TensorType:
        if fold in ("max", "min"):
            if kind(x.dtype) == "c":
                raise DtypeError(name, f"dtype must be real, got {x.dtype.name}")
            need_elements(name, x, axes)
        dtype = bool_ if fold in ("and_", "or_") else x.dtype
        return TensorType(reduce_shape(x.shape, axes, keepdims), dtype)

    return type_rule


def _reduce_samples() -> list[Sample]:
    return [
        Sample((real_array((3, 4)),), {"axes": (1,), "keepdims": False}),
        Sample((real_array((2, 3, 4)),), {"axes": (0, 2), "keepdims": True}),
        Sample((real_array(()),), {"axes": (), "keepdims": False}),
        Sample((real_array((2, 2)),), {"axes": (), "keepdims": False}),
        Sample((real_array((3, 0)),), {"axes": (0,), "keepdims": False}),
        Sample((real_array((4, 3)).T,), {"axes": (0,), "keepdims": False}),
        Sample((real_array((7,)).astype(np.float16),), {"axes": (0,), "keepdims": True}, smooth=False),
        Sample((int_array((2, 3)),), {"axes": (0, 1), "keepdims": False}),
    ]


def _arithmetic_samples() -> list[Sample]:
    return [
        *_reduce_samples(),
        Sample((real_array((0, 3)),), {"axes": (0,), "keepdims": False}),
        Sample((complex_array((3, 2)),), {"axes": (0,), "keepdims": False}),
    ]


def restore(g: Tensor, x_type: TensorType, axes: Ints) -> Tensor:
    """A reduced result with the axes that were reduced, of size 1."""
    return reshape(g, shape=reduce_shape(x_type.shape, axes, keepdims=True))


def spread(g: Tensor, x_type: TensorType, axes: Ints, keepdims: bool) -> Tensor:
    """Repeat a reduced gradient over the axes that were reduced."""
    g = g if keepdims else restore(g, x_type, axes)
    return broadcast_to(g, shape=x_type.shape)


def widened(x: Tensor) -> Tensor:
    """Integers and booleans as the integers that sums and products of them have."""
    letter = kind(x.dtype)
    wide = uint64 if letter == "u" else DEFAULT_INT
    return cast(x, dtype=wide) if letter in "biu" and x.dtype != wide else x


# Sums and products


def _sum(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """The kernel of sums, half precision in float32."""
    dtype = x.dtype
    if dtype is float16 or dtype is bfloat16:
        return add_up(x, axes, float32, keepdims).astype(dtype)
    return add_up(x, axes, dtype, keepdims)


reduce_sum: Op = linear(
    "sum",
    type_rule=reduction_type("sum", "add"),
    eval=_sum,
    transpose=(spread,),
    samples=_arithmetic_samples,
    defaults={"keepdims": False},
    precision="high",
    fold="add",
    large_eval=True,  # not its vjp, which is a view
)


@published("(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0) -> tensor([4., 6.])")
def sum(x: Tensor, /, axis: Axes = None, *, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """The sum over axes; small integers are summed in int64 or uint64."""
    x = widened(x) if dtype is None else cast(x, dtype=as_dtype(dtype))
    return reduce_sum(x, axes=normalize_axes("sum", axis, x.ndim), keepdims=bool(keepdims))


def _prod_vjp(g: Tensor, x: Tensor, axes: Ints, keepdims: bool) -> Tensor:
    g = g if keepdims else restore(g, type_of(x), axes)
    others = _products_of_others(x, axes)
    return g * (others.conj() if kind(x.dtype) == "c" else others)


def _products_of_others(x: Tensor, axes: Ints) -> Tensor:
    """For each element the product of all others along axes.

    By multiplications alone, so that it holds where elements are 0, and so do its derivatives.
    """
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    order = (*rest, *axes)
    moved = permute(x, axes=order)
    lead, last = tuple(x.shape[i] for i in rest), tuple(x.shape[i] for i in axes)
    others = _others_in_row(reshape(moved, shape=(*lead, size_of(last))))
    back = tuple(int(i) for i in np.argsort(order))
    return permute(reshape(others, shape=(*lead, *last)), axes=back)


def _others_in_row(x: Tensor) -> Any:
    """Products of all others along the last axis: up a tree of pairs, then down again."""
    size = x.shape[-1]
    if isinstance(size, Size):
        return _others_in_long_row(x)
    if size <= 1:
        return filled(x.shape, 1, x.dtype)
    zeros = (0,) * (x.ndim - 1)
    even = pad_axes(x, low=(*zeros, 0), high=(*zeros, 1), interior=(*zeros, 0), value=1) if size % 2 else x
    pairs = reshape(even, shape=(*x.shape[:-1], (size + 1) // 2, 2))
    above = _others_in_row(_halves(pairs, 0) * _halves(pairs, 1))
    partners = flip_axes(pairs, [x.ndim])
    out = reshape(reshape(above, shape=(*above.shape, 1)) * partners, shape=even.shape)
    return slice_axis(out, x.ndim - 1, 0, size) if size % 2 else out


def _others_in_long_row(x: Tensor) -> Tensor:
    """The same where the length is not known: what comes before times what comes after."""
    from weft.ops.scan import running_prod, shift  # which builds on this module

    axis = x.ndim - 1
    before = shift(running_prod(x, axis=axis), axis, 1, 1)
    after = flip_axes(shift(running_prod(flip_axes(x, [axis]), axis=axis), axis, 1, 1), [axis])
    return before * after


def _halves(pairs: Tensor, k: int) -> Tensor:
    return reshape(slice_axis(pairs, pairs.ndim - 1, k, k + 1), shape=pairs.shape[:-1])


def _prod_samples() -> list[Sample]:
    zeros = real_array((3, 5))
    zeros[0, 1] = zeros[1, 2] = zeros[1, 4] = 0
    return [
        *_arithmetic_samples(),
        Sample((zeros,), {"axes": (1,), "keepdims": False}),
        Sample((zeros,), {"axes": (0, 1), "keepdims": False}),
    ]


_MULTIPLY: Callable[..., Array] = np.multiply.reduce


def _prod(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Products of float32 in float64, of half precision in float32: NumPy multiplies one after the other."""
    dtype = x.dtype
    if dtype == float32:
        x = x.astype(float64)
    wide = float32 if dtype is float16 or dtype is bfloat16 else x.dtype
    out = _MULTIPLY(x, axis=axes, keepdims=keepdims, dtype=wide)
    return out.astype(dtype, copy=False)


reduce_prod: Op = primitive(
    "prod",
    type_rule=reduction_type("prod", "mul"),
    eval=_prod,
    vjp=(_prod_vjp,),
    samples=_prod_samples,
    total=True,
    defaults={"keepdims": False},
    precision="high",
    fold="mul",
)


@published("(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0) -> tensor([3., 8.])")
def prod(
    x: Tensor, /, axis: Axes = None, *, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """The product over axes; small integers are multiplied in int64 or uint64."""
    x = widened(x) if dtype is None else cast(x, dtype=as_dtype(dtype))
    return reduce_prod(x, axes=normalize_axes("prod", axis, x.ndim), keepdims=bool(keepdims))


# Extremes


def _extreme(name: str, ufunc: np.ufunc) -> Op:
    def reduce(x: Array, *, axes: Ints, keepdims: bool) -> Any:
        if x.size == 0:  # NumPy finds no identity even where there is nothing to give
            need_elements(name, type_of(x), axes)
            return np.zeros(reduce_shape(x.shape, axes, keepdims), x.dtype)
        return ufunc.reduce(x, axis=axes, keepdims=keepdims)

    return primitive(
        name,
        type_rule=reduction_type(name, name),
        eval=reduce,
        vjp=(_extreme_vjp,),
        samples=_reduce_samples,
        total=True,
        defaults={"keepdims": False},
        fold=name,
        large_eval=True,
        large_vjp=True,
    )


def need_elements(name: str, x: TensorType, axes: Ints) -> None:
    """Raise if there is nothing to choose from along axes."""
    reduced = [s for i, s in enumerate(x.shape) if i in axes]
    kept = [s for i, s in enumerate(x.shape) if i not in axes]
    if 0 in reduced and 0 not in kept:
        raise ShapeError(name, f"there must be elements along the reduced axes, got {x}")


def _extreme_vjp(g: Tensor, x: Tensor, out: Tensor, axes: Ints, keepdims: bool) -> Tensor:
    """Elements that are equal to the extreme share its gradient; of a NaN none is, and all get NaN."""
    if not keepdims:
        g, out = (restore(t, type_of(x), axes) for t in (g, out))
    hit = equal(x, out)
    count = in_dtype(reduce_sum(cast(hit, dtype=_counting(g)), axes=axes, keepdims=True), g.dtype)
    return select(hit, g / count, (count - count) / count)  # not g * 0, which is NaN for an infinite g


def _counting(g: Tensor) -> DType:
    """The dtype that ties are counted in: half precision has no number for many of them."""
    return float32 if g.dtype in (float16, bfloat16) else g.dtype


reduce_max = _extreme("max", np.maximum)
reduce_min = _extreme("min", np.minimum)


def _checked_extreme(op: Op, x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    if isinstance(axis, TensorLike) and axis.ndim:
        hint = f"of two tensors use weft.{op.name}imum(x, y)"
        raise ArgumentError(op.name, f"axis must be an int, got {type_of(axis)}", hint=hint)
    axes = normalize_axes(op.name, axis, x.ndim)
    if kind(x.dtype) == "c" or 0 in x.shape:
        op.type_rule(type_of(x), axes=axes, keepdims=keepdims)
    return op(x, axes=axes, keepdims=bool(keepdims))


@published("(weft.tensor([[1.0, 2.0], [3.0, 0.0]]), axis=1) -> tensor([2., 3.])")
def max(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The largest element over axes; the gradient is shared by equal ones."""
    return _checked_extreme(reduce_max, x, axis, keepdims)


@published("(weft.tensor([[1.0, 2.0], [3.0, 0.0]]), axis=1) -> tensor([1., 0.])")
def min(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The smallest element over axes; the gradient is shared by equal ones."""
    return _checked_extreme(reduce_min, x, axis, keepdims)


@published("(weft.tensor([[1.0, 2.0], [3.0, 0.0]]), axis=1) -> tensor([2., 3.])")
def amax(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The largest element over axes, in every dialect; the gradient is shared by equal ones."""
    return _checked_extreme(reduce_max, x, axis, keepdims)


@published("(weft.tensor([[1.0, 2.0], [3.0, 0.0]]), axis=1) -> tensor([1., 0.])")
def amin(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The smallest element over axes, in every dialect; the gradient is shared by equal ones."""
    return _checked_extreme(reduce_min, x, axis, keepdims)


# Truth


def _truth(name: str, ufunc: np.ufunc, fold: str) -> Op:
    return primitive(
        name,
        type_rule=reduction_type(name, fold),
        eval=lambda x, *, axes, keepdims: ufunc.reduce(x, axis=axes, keepdims=keepdims, dtype=bool_),
        vjp=no_gradient("returns a truth value"),
        samples=lambda: [
            Sample((np.array([[True, False], [True, True]]),), {"axes": (1,), "keepdims": False}),
            Sample((np.zeros((0, 2), bool),), {"axes": (0,), "keepdims": True}),
            Sample((int_array((2, 3), 0, 2),), {"axes": (0, 1), "keepdims": False}),
            Sample((complex_array((2, 3)) * [0, 1, 1],), {"axes": (0,), "keepdims": False}),
            Sample((np.array([np.nan, 0.0]),), {"axes": (), "keepdims": False}),
        ],
        total=True,
        defaults={"keepdims": False},
        fold=fold,
    )


reduce_any = _truth("any", np.logical_or, "or_")
reduce_all = _truth("all", np.logical_and, "and_")


@published("(weft.tensor([[0, 1], [0, 0]]), axis=1) -> tensor([ True, False])")
def any(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Whether some element over axes is true, that is not zero."""
    return reduce_any(x, axes=normalize_axes("any", axis, x.ndim), keepdims=bool(keepdims))


@published("(weft.tensor([[1, 1], [0, 1]]), axis=1) -> tensor([ True, False])")
def all(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Whether all elements over axes are true, that is not zero."""
    return reduce_all(x, axes=normalize_axes("all", axis, x.ndim), keepdims=bool(keepdims))


@published("(weft.tensor([[0, 1], [2, 3]]), axis=1) -> tensor([1, 2])")
def count_nonzero(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The number of elements over axes that are not zero."""
    hit = cast(not_equal(x, np.zeros((), x.dtype)), dtype=int64)
    return reduce_sum(hit, axes=normalize_axes("count_nonzero", axis, x.ndim), keepdims=bool(keepdims))


# Places


def _place(name: str, function: Callable[..., Any], fold: str) -> Op:
    def type_rule(x: TensorType, *, axis: int, keepdims: bool) -> TensorType:
        if kind(x.dtype) == "c":
            raise DtypeError(name, f"dtype must be real, got {x.dtype.name}")
        if x.shape[axis] == 0:
            raise ShapeError(name, f"there must be elements along axis {axis}, got {x}")
        return TensorType(reduce_shape(x.shape, (axis,), keepdims), int64)

    return primitive(
        name,
        type_rule=type_rule,
        eval=lambda x, *, axis, keepdims: np.asarray(function(x, axis=axis, keepdims=keepdims), int64),
        vjp=no_gradient("returns indices"),
        factors=of_place,
        samples=lambda: [
            Sample((real_array((3, 4)),), {"axis": 1, "keepdims": False}),
            Sample((int_array((3, 4)),), {"axis": 0, "keepdims": True}),
            Sample((np.array([1.0, np.nan, 3.0]),), {"axis": 0, "keepdims": False}),
            Sample((real_array((0, 2)),), {"axis": 1, "keepdims": False}),
        ],
        total=True,
        defaults={"keepdims": False},
        fold=fold,
        fold_over="place",
    )


place_of_max = _place("argmax", np.argmax, "max")
place_of_min = _place("argmin", np.argmin, "min")


def _checked_place(op: Op, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    if axis is None:
        flat = _checked_place(op, reshape(x, shape=(size_of(x.shape),)), 0, False)
        return reshape(flat, shape=(1,) * x.ndim) if keepdims else flat
    index = normalize_axis(op.name, axis, x.ndim)
    if kind(x.dtype) == "c":
        op.type_rule(type_of(x), axis=index, keepdims=keepdims)
    return op(x, axis=index, keepdims=bool(keepdims))


@public
def argmax(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Where the largest element is along an axis, the first if several; without ``axis`` in the flattened x.

    >>> import weft
    >>> weft.argmax(weft.tensor([[1.0, 2.0], [3.0, 0.0]]), axis=1)
    tensor([1, 0])
    """
    return _checked_place(place_of_max, x, axis, keepdims)


@public
def argmin(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Where the smallest element is along an axis, the first if several; without ``axis`` in the flattened x.

    >>> import weft
    >>> weft.argmin(weft.tensor([[1.0, 2.0], [3.0, 0.0]]), axis=1)
    tensor([0, 1])
    """
    return _checked_place(place_of_min, x, axis, keepdims)
