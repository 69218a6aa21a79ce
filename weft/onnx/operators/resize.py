"""Resize and its older form Upsample: one axis after another, each output a weighted sum of a few elements.

What grows by a whole number needs no gather: the outputs at every element have the same weights. The formulas
of places and weights run on NumPy, where the sizes of an axis are known, and on weft, where one is named:
``xp`` is either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import ceil, floor, prod
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.base.sizes import Size
from weft.onnx.operators.registry import Call, operator
from weft.onnx.operators.run_time import counts


def within(xp: Any, at: Any, size: Any) -> Any:
    """Places moved to the nearest one of an axis."""
    return xp.minimum(xp.maximum(at, 0), size - 1)


def inside(xp: Any, at: Any, size: Any) -> Any:
    """Whether places are on an axis."""
    return (at >= 0) & xp.less_equal(at, size - 1)


def corners(x: Tensor, places: Sequence[Tensor]) -> list[Tensor]:
    """The elements of x (N, C, *S) around places (N, P), which are told for each axis of S, times weights.

    Each result is (N, C, P), for one corner; their sum is the value between elements. Those outside are 0.
    """
    batch, channels, *sizes = x.shape
    rows = x.reshape((batch, channels, prod(sizes)))
    out = []
    for steps in product((0, 1), repeat=len(places)):
        flat: Any = 0
        weight: Any = 1
        for at, size, step in zip(places, sizes, steps, strict=True):
            low = weft.floor(at)
            weight = weight * ((at - low) if step else (1 - (at - low)))
            weight = weft.where(inside(weft, low + step, size), weight, 0.0)
            flat = flat * size + within(weft, low + step, size).astype(weft.int64)
        index = weft.broadcast_to(flat[:, None], (batch, channels, flat.shape[1]))
        out.append(weft.take_along_axis(rows, index, axis=2) * weight[:, None])
    return out


Taps = list[tuple[Any, Any]]  # places and weights, each with one entry for each output


@dataclass(frozen=True, slots=True)
class Axis:
    """How one axis is resized: from a size to a count, by a scale; start and end are those of a crop."""

    size: Any
    count: Any
    scale: Any
    start: float = 0.0
    end: float = 1.0

    @property
    def known(self) -> bool:
        """Whether its sizes are numbers."""
        return not isinstance(self.size, Size) and not isinstance(self.count, Size)

    @property
    def unchanged(self) -> bool:
        """Whether nothing happens along it."""
        whole = (self.start, self.end) == (0.0, 1.0)
        return whole and self.count == self.size and isinstance(self.scale, float | int) and self.scale == 1

    @property
    def times(self) -> int:
        """By which whole number of at least 2 it grows; else 0."""
        whole = isinstance(self.scale, float | int) and float(self.scale).is_integer() and self.scale >= 2
        return int(self.scale) if whole and self.count == self.size * int(self.scale) else 0


# Where outputs lie on the axis of the input


def coordinates(xp: Any, transform: str, axis: Axis) -> Any:
    """The place of each output, in elements of the input."""
    at, last = xp.arange(axis.count, dtype=xp.float64), axis.size - 1
    count = xp.zeros((), dtype=xp.float64) + axis.count  # a number, which a run tells of a named size
    if transform == "align_corners":
        between = (count * 0.0 + axis.size) * axis.scale - 1
        return at * (last / xp.where(between == 0, 1.0, between))  # one output lies at 0 anyway
    if transform == "asymmetric":
        return at / axis.scale
    if transform == "tf_crop_and_resize":
        step = (axis.end - axis.start) * last / xp.where(count == 1, 1.0, count - 1)
        middle = 0.5 * (axis.start + axis.end) * last
        return xp.where(count == 1, middle, at * step + axis.start * last)
    if transform == "tf_half_pixel_for_nn":
        return (at + 0.5) / axis.scale
    if transform == "pytorch_half_pixel":
        return xp.where(count == 1, 0.0, (at + 0.5) / axis.scale - 0.5)
    at = (at + 0.5) / axis.scale - 0.5
    if transform == "half_pixel_symmetric":
        return at + axis.size / 2 * (1 - axis.count / (axis.scale * axis.size))
    return at


def nearest_places(xp: Any, at: Any, mode: str) -> Any:
    """Places rounded to whole ones."""
    if mode == "floor":
        return xp.floor(at)
    if mode == "ceil":
        return xp.ceil(at)
    return xp.floor(at + 0.5) if mode == "round_prefer_ceil" else xp.ceil(at - 0.5)


# Weights of the elements around a place


def _cubic(xp: Any, distance: Any, a: float) -> Any:
    """Keys' cubic convolution kernel (R. Keys, IEEE Trans. ASSP 29, 1981)."""
    d = xp.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return xp.where(d <= 1, near, xp.where(d < 2, far, 0.0))


def taps_of(xp: Any, call: Call, at: Any, axis: Axis) -> Taps:
    """Places (they may lie outside) and weights of the elements that each output is made of."""
    cubic = call.attribute("mode", "nearest") == "cubic"
    shrink = 1.0
    if call.attribute("antialias", 0):
        if not isinstance(axis.scale, float | int):
            raise call.error(f"scales must be known for antialias=1, got sizes {axis.count} of {axis.size}")
        shrink = min(axis.scale, 1.0)
    reach = ceil((2 if cubic else 1) / shrink)
    first = xp.floor(at)
    taps = []
    for k in range(1 - reach, reach + 1):
        distance = (first + k - at) * shrink
        if cubic:
            weight = _cubic(xp, distance, call.attribute("cubic_coeff_a", -0.75))
        else:
            weight = xp.clip(1 - xp.abs(distance), 0.0, 1.0)
        taps.append((first + k, weight))
    if call.attribute("exclude_outside", 0):
        taps = [(p, xp.where(inside(xp, p, axis.size), w, 0.0)) for p, w in taps]
    elif shrink == 1.0:
        return taps
    total = sum([w for _, w in taps[1:]], taps[0][1])
    return [(p, w / total) for p, w in taps]


# Resizing

_ALIGNED = ("align_corners", "tf_crop_and_resize")  # where outputs lie depends on the size


@operator("Upsample")
def upsample(call: Call, x: Tensor, scales: Tensor | None = None) -> Any:
    """x made larger by scales, from the corner on."""
    factors = call.attribute("scales") if scales is None else call.values(scales, "scales").tolist()
    axes = [_scaled(n, f) for n, f in zip(x.shape, factors, strict=True)]
    return _resize(call, x, list(enumerate(axes)), "asymmetric", "floor")


operator("Resize", until=10)(upsample)


@operator("Resize", since=11)
def resize(call: Call, x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """x resized by scales, or to sizes."""
    chosen = [a % x.ndim for a in call.attribute("axes", range(x.ndim))]
    transform = call.attribute("coordinate_transformation_mode", "half_pixel")
    lengths = [x.shape[a] for a in chosen]
    crops = [(0.0, 1.0)] * len(chosen)
    if transform == "tf_crop_and_resize" and roi is not None:
        box = call.values(roi, "roi").tolist()
        crops = list(zip(box[: len(chosen)], box[len(chosen) :], strict=True))
    if sizes is not None and sizes.shape != (0,):
        by_scale = transform in ("half_pixel", "asymmetric")  # others ask whether a size is 1
        stretched = call.attribute("keep_aspect_ratio_policy", "stretch") == "stretch"
        wanted = counts(call, sizes, "sizes") if by_scale and stretched else call.ints(sizes, "sizes")
        axes = _to_sizes(call, lengths, wanted)
    else:
        factors = call.values(scales, "scales").tolist()
        axes = [_scaled(n, f, end - low) for n, f, (low, end) in zip(lengths, factors, crops, strict=True)]
    axes = [replace(axis, start=s, end=e) for axis, (s, e) in zip(axes, crops, strict=True)]
    nearest = call.attribute("nearest_mode", "round_prefer_floor")
    return _resize(call, x, list(zip(chosen, axes, strict=True)), transform, nearest)


def _scaled(size: Any, factor: float, part: float = 1.0) -> Axis:
    """An axis resized by a factor."""
    if not isinstance(size, Size):
        return Axis(size, floor(size * part * factor), factor)
    ratio = Fraction(part * factor).limit_denominator(1024)
    return Axis(size, size * ratio.numerator // ratio.denominator, factor)


def _to_sizes(call: Call, lengths: Sequence[Any], sizes: Sequence[Any]) -> list[Axis]:
    """Axes resized to sizes, or as near to them as one scale for all comes."""
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [Axis(n, m, _ratio(m, n)) for n, m in zip(lengths, sizes, strict=True)]
    choose = min if policy == "not_larger" else max
    scale = choose(m / n for n, m in zip(lengths, sizes, strict=True))
    counts = [floor(scale * n + 0.5) for n in lengths]
    return [Axis(n, m, m / n) for n, m in zip(lengths, counts, strict=True)]


def _ratio(count: Any, size: Any) -> Any:
    """count / size as a number where it is one for every value of the names."""
    if isinstance(count, Size) or isinstance(size, Size):
        whole = count // size if isinstance(count, Size) else 0
        return float(whole) if isinstance(whole, int) and whole * size == count else count / size
    return count / size


# Applying them


def _resize(call: Call, x: Tensor, axes: list[tuple[int, Axis]], transform: str, rounding: str) -> Any:
    changed = [(number, axis) for number, axis in axes if not axis.unchanged]
    if call.attribute("mode", "nearest") == "nearest":
        return _nearest(call, x, changed, transform, rounding)
    out = x if weft.isdtype(x.dtype, "real floating") else x.astype(weft.float32)
    for number, axis in changed:
        out = _interpolated(call, out, number, axis, transform)
    return out.astype(x.dtype)


def _nearest(call: Call, x: Tensor, axes: list[tuple[int, Axis]], transform: str, rounding: str) -> Any:
    repeated = {number: axis.times for number, axis in axes if _repeats(axis, transform, rounding)}
    x = _repeat(x, repeated) if repeated else x
    for number, axis in axes:
        if number not in repeated:
            xp = np if axis.known else weft
            places = within(xp, nearest_places(xp, coordinates(xp, transform, axis), rounding), axis.size)
            x = weft.take(x, _constant(places, weft.int64), axis=number)
            x = _extrapolated(call, x, number, axis, transform)
    return x


def _repeats(axis: Axis, transform: str, rounding: str) -> bool:
    """Whether all that happens is that each element is repeated; what holds for one size does for all."""
    if not axis.times or transform in _ALIGNED:
        return False
    example = Axis(7, 7 * axis.times, axis.scale)
    places = within(np, nearest_places(np, coordinates(np, transform, example), rounding), 7)
    return bool((places == np.arange(7 * axis.times) // axis.times).all())


def _repeat(x: Tensor, times: dict[int, int]) -> Any:
    """Elements repeated along several axes, in one go."""
    shape, wide = [], []
    for number, size in enumerate(x.shape):
        shape += [size, 1] if number in times else [size]
        wide += [size, times[number]] if number in times else [size]
    whole = [size * times.get(number, 1) for number, size in enumerate(x.shape)]
    return weft.broadcast_to(x.reshape(tuple(shape)), tuple(wide)).reshape(tuple(whole))


def _constant(x: Any, dtype: Any) -> Any:
    """Numbers in a dtype: cast now if they are known."""
    return weft.asarray(x.astype(dtype)) if isinstance(x, np.ndarray) else x.astype(dtype)


def _interpolated(call: Call, x: Tensor, number: int, axis: Axis, transform: str) -> Any:
    if axis.times and transform not in _ALIGNED and not call.attribute("exclude_outside", 0):
        return _between(call, x, number, axis, transform)
    xp = np if axis.known else weft
    taps = taps_of(xp, call, coordinates(xp, transform, axis), axis)
    many = axis.known and len(taps) > 4
    out = _multiply(x, number, axis, taps) if many else _gather(xp, x, number, axis, taps)
    return _extrapolated(call, out, number, axis, transform)


def _between(call: Call, x: Tensor, number: int, axis: Axis, transform: str) -> Any:
    """An axis that grows by a whole number: each of the outputs at an element is a sum of shifted inputs."""
    first = Axis(1, axis.times, axis.scale)  # the outputs at the first element
    taps = taps_of(np, call, coordinates(np, transform, first), first)
    reach = int(max(abs(place).max() for place, _ in taps))
    sides = [(0, 0)] * x.ndim
    sides[number] = reach, reach
    padded, size = weft.pad(x, tuple(sides), mode="edge"), x.shape[number]
    parts = []
    for k in range(axis.times):
        terms = [(int(place[k]) + reach, float(weight[k])) for place, weight in taps if weight[k]]
        shifted = [padded[(slice(None),) * number + (slice(s, s + size),)] * w for s, w in terms]
        parts.append(sum(shifted[1:], shifted[0]))
    shape = (*x.shape[:number], size * axis.times, *x.shape[number + 1 :])
    return weft.stack(parts, axis=number + 1).reshape(shape)


def _gather(xp: Any, x: Tensor, number: int, axis: Axis, taps: Taps) -> Any:
    out: Any = None
    for place, weight in taps:
        index = _constant(within(xp, place, axis.size), weft.int64)
        factor = _constant(weight, x.dtype).reshape((-1, *(1,) * (x.ndim - number - 1)))
        term = weft.take(x, index, axis=number) * factor
        out = term if out is None else out + term
    return out


def _multiply(x: Tensor, number: int, axis: Axis, taps: Taps) -> Any:
    """Many taps, as one product with a matrix."""
    matrix = np.zeros((axis.count, axis.size))
    for place, weight in taps:
        np.add.at(matrix, (np.arange(axis.count), within(np, place, axis.size).astype(int)), weight)
    product = weft.moveaxis(x, number, -1) @ weft.asarray(matrix.T.astype(x.dtype))
    return weft.moveaxis(product, -1, number)


def _extrapolated(call: Call, x: Tensor, number: int, axis: Axis, transform: str) -> Any:
    """Outputs of a crop that lie outside of the input have a value of their own."""
    if transform != "tf_crop_and_resize":
        return x
    xp = np if axis.known else weft
    outside = _constant(~inside(xp, coordinates(xp, transform, axis), axis.size), weft.bool)
    outside = outside.reshape((-1, *(1,) * (x.ndim - number - 1)))
    return weft.where(outside, call.attribute("extrapolation_value", 0.0), x)
