"""The primitives of max pooling: the largest element of each window, and where it is."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import DType, int64, kind
from weft.base.shapes import Shape
from weft.errors import DtypeError
from weft.ir.types import TensorType
from weft.ops.conv.kernel import Ints, Padding, pad_array
from weft.ops.factors import of_pool
from weft.ops.families import primitive
from weft.ops.index import gather_nd, scatter_add_nd
from weft.ops.op import Array, Sample, Tensor, no_gradient
from weft.ops.samples import int_array, rng
from weft.ops.size import filled, positions
from weft.ops.view.primitives import reshape
from weft.ops.windows import pooled_type, reduce_windows, tap_key, window_attrs, window_positions

# The largest element of each window, and where it is


def _lowest(dtype: DType) -> float:
    return np.iinfo(dtype).min if kind(dtype) in "iu" else -np.inf


def _max_type(x: TensorType, **attrs: Any) -> TensorType:
    if kind(x.dtype) not in "iuf":
        raise DtypeError("max_pool", f"dtype must be integer or floating, got {x.dtype.name}")
    return pooled_type(x, **attrs)


def _max_pool(x: Array, *, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> Any:
    return reduce_windows(np.maximum, x, kernel, stride, padding, dilation, _lowest(x.dtype))


def _max_indices(x: Array, *, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> Array:
    """The place of the first largest element, counted over the flattened last axes of x.

    The taps that win are found one axis after another, from the last, so that of equal elements the first
    in the order of memory wins. Taps are chosen by arithmetic on bits, which does not branch.
    """
    rank, sizes = len(kernel), x.shape[x.ndim - len(kernel) :]
    counts = window_positions(sizes, kernel, stride, padding, dilation)
    if 0 in counts or x.size == 0:
        return np.zeros((*x.shape[: x.ndim - rank], *counts), np.int64)
    largest = x.max()
    has_nan = bool(largest != largest)
    values = pad_array(x, padding, _lowest(x.dtype))
    taps: list[Array] = []
    narrow = np.min_scalar_type(max(kernel))
    for axis in reversed(range(rank)):
        keys = [
            tap_key(axis, rank, tap * dilation[axis], counts[axis], stride[axis])
            for tap in range(kernel[axis])
        ]
        best = values[keys[0]].copy()
        won = np.empty(best.shape, narrow)
        won[...] = _first_inside(
            counts[axis], kernel[axis], stride[axis], padding[axis][0], dilation[axis], rank - 1 - axis
        )
        inner = [t[keys[0]].copy() for t in taps]
        for tap, key in enumerate(keys[1:], 1):
            better = values[key] > best
            if has_nan:  # a NaN beats all, and is not beaten
                better |= (values[key] != values[key]) & (best == best)
            np.maximum(best, values[key], out=best)
            bits = -better.astype(narrow)
            np.maximum(won, bits & narrow.type(tap), out=won)
            for old, new in zip(inner, taps, strict=True):
                old ^= (old ^ new[key]) & bits
        values, taps = best, [won, *inner]
    return _flat_places(taps, sizes, stride, padding, dilation)


def _first_inside(count: int, kernel: int, stride: int, low: int, dilation: int, after: int) -> Any:
    """For each window the first tap that is not in the padding, or the last one if all are."""
    missing = np.maximum(low - np.arange(count) * stride, 0)
    return np.minimum(-(-missing // dilation), kernel - 1).reshape(count, *(1,) * after)


def _flat_places(taps: list[Array], sizes: Shape, stride: Ints, padding: Padding, dilation: Ints) -> Array:
    place = np.zeros((1,) * len(sizes), np.int64)
    for axis, (tap, size, s, (lo, _)) in enumerate(zip(taps, sizes, stride, padding, strict=True)):
        after = len(sizes) - 1 - axis
        count = tap.shape[tap.ndim - 1 - after]
        place = place * size + (np.arange(count) * s - lo).reshape(count, *(1,) * after)
    for axis, (tap, d) in enumerate(zip(taps, dilation, strict=True)):
        place = place + np.multiply(tap, d * prod(sizes[axis + 1 :]), dtype=np.int64)
    if any(lo or hi for lo, hi in padding):  # a window may have no element at all
        np.clip(place, 0, prod(sizes) - 1, out=place)
    return place


def _at_places(x: Tensor, places: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """x and places with all axes before the windowed ones made one, and the windowed ones made one."""
    rows = prod(places.shape[: places.ndim - rank])
    flat = reshape(places, shape=(rows, prod(places.shape[places.ndim - rank :])))
    return reshape(x, shape=(rows, prod(x.shape[x.ndim - rank :]))), positions(rows, 1), flat


def _max_vjp(g: Tensor, x: Tensor, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> Tensor:
    rank = len(kernel)
    places = max_indices(x, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    g, rows, flat = _at_places(g, places, rank)
    zeros = filled((flat.shape[0], prod(x.shape[x.ndim - rank :])), 0, g.dtype)
    return reshape(scatter_add_nd(zeros, g, rows, flat), shape=x.shape)


def _max_jvp(primals: Sequence[Tensor], tangents: Sequence[Tensor], out: Tensor, **attrs: Any) -> Tensor:
    tangent, rows, flat = _at_places(tangents[0], max_indices(primals[0], **attrs), len(attrs["kernel"]))
    return reshape(gather_nd(tangent, rows, flat), shape=out.shape)


def separated(shape: Shape) -> Array:
    """A float64 array whose values are 0.05 apart, so that small steps do not change which one is largest."""
    out: Array = rng().permutation(prod(shape)).reshape(shape) * 0.05
    return out


def _max_samples() -> list[Sample]:
    ties, infinite = np.array([[1.0, 1.0, 0.0, 0.0, 0.0]]), np.full((1, 4), -np.inf)
    return [
        Sample((separated((2, 6)),), window_attrs((3,), (1,), ((0, 0),), (1,))),
        Sample((separated((2, 5, 6)),), window_attrs((2, 3), (2, 1), ((1, 0), (1, 1)), (1, 2))),
        Sample((separated((2, 4, 3, 4)),), window_attrs((2, 2, 2), (2, 1, 2), ((0, 0),) * 3, (1, 1, 1))),
        Sample((separated((0, 4)),), window_attrs((2,), (2,), ((0, 0),), (1,))),
        Sample((separated((2, 1)),), window_attrs((2,), (2,), ((0, 0),), (1,))),
        Sample((separated((6, 4)).T,), window_attrs((3,), (3,), ((0, 0),), (1,))),
        Sample((ties,), window_attrs((2,), (1,), ((0, 0),), (1,)), smooth=False),
        Sample((infinite,), window_attrs((2,), (1,), ((1, 1),), (1,)), smooth=False),
        Sample((int_array((2, 6)),), window_attrs((2,), (2,), ((1, 1),), (1,))),
        Sample(
            (separated((2, 6)).astype(np.float32),), window_attrs((2,), (2,), ((0, 0),), (1,)), smooth=False
        ),
    ]


max_indices = primitive(
    "max_pool_indices",
    type_rule=lambda x, **attrs: TensorType(_max_type(x, **attrs).shape, int64),
    eval=_max_indices,
    vjp=no_gradient("returns indices"),
    samples=_max_samples,
    factors=of_pool,
)

max_values = primitive(
    "max_pool",
    type_rule=_max_type,
    eval=_max_pool,
    vjp=(_max_vjp,),
    jvp=_max_jvp,
    samples=_max_samples,
    total=True,
    fold="max",
    fold_over="windows",
    factors=of_pool,
)
