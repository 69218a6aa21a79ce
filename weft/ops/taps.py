"""Where the outputs of an interpolation lie along one axis: places of the input, and their weights.

Where the sizes are numbers, these are constants, computed by NumPy; where one is named, values of the graph
that are computed alike, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from types import SimpleNamespace
from typing import Any

import numpy as np

from weft.base.dtypes import DType, float32, float64, int64
from weft.base.size_bounds import same_size
from weft.base.sizes import Size, is_known
from weft.errors import DomainError, ShapeError
from weft.ops.arithmetic import maximum, minimum
from weft.ops.complex import absolute
from weft.ops.rounding import floor as floor_op
from weft.ops.rounding import trunc
from weft.ops.select import where
from weft.ops.size import count_to, size_value
from weft.ops.view.primitives import reshape

Row = Any  # numbers, one for each output: an array, or a tensor where a size is named
Tap = tuple[Row, Row]  # places of the input and their weights
Scale = Any  # a float, or a tensor of rank 0
Namespace = Any  # NumPy, or the ops of its names
_LARGEST = 1024  # denominator of a scale that sizes may be multiplied with exactly


# Sizes and scales


def scaled(op: str, size: int, factor: float) -> int:
    """``floor(size * factor)``."""
    if not isinstance(size, Size):
        return floor(size * factor)
    exact = Fraction(factor)
    if exact.denominator > _LARGEST:
        message = f"scale_factor must be a fraction of whole numbers to scale size {size}, got {factor}"
        raise DomainError(op, message, hint="give the size of the output, or the tensor a fixed size")
    return size * exact.numerator // exact.denominator


def ratio(size: int, count: int) -> Scale:
    """``size / count``: a number where that is the same for all values of the names, else a tensor."""
    if is_known((size, count)):
        return size / count
    for factor in (size // count, -(-count // size)):
        if not isinstance(factor, Size) and factor and same_size(size, count * factor):
            return float(factor)
    times = count // size
    if not isinstance(times, Size) and times and same_size(count, size * times):
        return 1 / times
    return size_value(size, float64) / size_value(count, float64)


def _namespace(*sizes: int) -> Namespace:
    """What computes places: NumPy where sizes are known, else ops on tensors."""
    return np if is_known(sizes) else _OPEN


# Places and weights


def _row(xp: Namespace, count: int, dtype: DType = float64) -> Row:
    return np.arange(count).astype(dtype) if xp is np else count_to(count, dtype)


def _centers(xp: Namespace, size: int, count: int, scale: Scale, align_corners: bool) -> Row:
    """Where the outputs lie on the input's axis, whose elements are at 0, 1, 2, ..."""
    row = _row(xp, count)
    if not align_corners:
        return (row + 0.5) * scale - 0.5
    if xp is np:
        return row * ((size - 1) / (count - 1) if count > 1 else 0.0)
    return row * (size_value(size - 1, float64) / xp.maximum(size_value(count - 1, float64), 1.0))


def _linear_taps(xp: Namespace, size: int, count: int, scale: Scale, align_corners: bool) -> list[Tap]:
    at = xp.maximum(_centers(xp, size, count, scale, align_corners), 0.0)
    first = xp.minimum(xp.floor(at).astype(int64), size - 1)
    part = xp.minimum(at - first, 1.0)
    return [(first, 1 - part), (xp.minimum(first + 1, size - 1), part)]


def _cubic(xp: Namespace, distance: Row, a: float) -> Row:
    """Keys' cubic convolution kernel (R. Keys, IEEE Trans. ASSP 29, 1981)."""
    d = xp.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return xp.where(d <= 1, near, xp.where(d < 2, far, 0.0))


def _cubic_taps(xp: Namespace, size: int, count: int, scale: Scale, align_corners: bool) -> list[Tap]:
    at = _centers(xp, size, count, scale, align_corners)
    before = xp.floor(at).astype(int64)
    taps = []
    for step in range(-1, 3):
        places = before + step
        inside = xp.maximum(xp.minimum(places, size - 1), 0)
        taps.append((inside, _cubic(xp, at - places, -0.75)))
    return taps


def _smoothed_taps(
    xp: Namespace, size: int, count: int, scale: Scale, reach: float, kernel: Callable[[Namespace, Row], Row]
) -> list[Tap]:
    """Taps of a kernel that is widened by the scale, so that nothing is skipped when an image shrinks."""
    if not isinstance(scale, float | int):
        raise ShapeError(
            "interpolate",
            f"antialias must know by how much an axis shrinks, got {size} to {count}",
            hint="give scale_factor, or the tensor a fixed size",
        )
    stretch = max(scale, 1.0)
    centers = (_row(xp, count) + 0.5) * scale
    first = xp.maximum(xp.trunc(centers - reach * stretch + 0.5).astype(int64), 0)
    last = xp.minimum(xp.trunc(centers + reach * stretch + 0.5).astype(int64), size)
    most = ceil(2 * reach * stretch) + 1
    if xp is np:
        most = int((last - first).max(initial=1))
    places = [first + step for step in range(most)]
    weights = [kernel(xp, (p - centers + 0.5) / stretch) * (p < last) for p in places]
    total = sum(weights[1:], weights[0])
    return [(xp.minimum(p, size - 1), w / total) for p, w in zip(places, weights, strict=True)]


def _triangle(xp: Namespace, distance: Row) -> Row:
    return xp.maximum(1 - xp.abs(distance), 0.0)


def axis_taps(
    mode: str, size: int, count: int, scale: Scale, align_corners: bool, antialias: bool
) -> list[Tap]:
    """The taps of all outputs along an axis that goes from a size to a count, one tap of each at a time."""
    xp = _namespace(size, count)
    if antialias:
        if mode == "bicubic":
            return _smoothed_taps(xp, size, count, scale, 2.0, lambda xp, d: _cubic(xp, d, -0.5))
        return _smoothed_taps(xp, size, count, scale, 1.0, _triangle)
    taps = _cubic_taps if mode == "bicubic" else _linear_taps
    return taps(xp, size, count, scale, align_corners)


def nearest_places(size: int, count: int, scale: Scale, *, exact: bool) -> Row:
    """The nearest element of the input for each output."""
    xp = _namespace(size, count)
    # in float32, so that a scale such as 1 / 3 rounds to the same places everywhere
    step = np.float32(scale) if isinstance(scale, float | int) else scale.astype(float32)
    at = (_row(xp, count, float32) + np.float32(0.5 if exact else 0.0)) * step
    return xp.minimum(xp.floor(at).astype(int64), size - 1)


def weights_of(weights: Row, dtype: DType, after: int) -> Row:
    """Weights of outputs along an axis with so many axes after it."""
    cast = weights.astype(dtype)
    shape = (weights.shape[0], *(1,) * after)
    return cast.reshape(shape) if isinstance(cast, np.ndarray) else reshape(cast, shape=shape)


_OPEN = SimpleNamespace(
    maximum=maximum, minimum=minimum, abs=absolute, floor=floor_op, trunc=trunc, where=where
)
