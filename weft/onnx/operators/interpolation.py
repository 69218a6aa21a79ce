"""Elements at places that need not be whole: where outputs of a resized axis lie, and what they are made of.

The same formulas run on NumPy, where the sizes of an axis are known, and on weft, where one is named:
``xp`` is either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Any

import weft
from weft import Tensor
from weft.base.sizes import Size
from weft.onnx.operators.registry import Call


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
    single = not isinstance(axis.count, Size) and axis.count == 1
    if transform == "align_corners":
        return at * 0.0 if single else at * (last / (axis.size * axis.scale - 1))
    if transform == "asymmetric":
        return at / axis.scale
    if transform == "tf_crop_and_resize":
        if single:
            return at * 0.0 + 0.5 * (axis.start + axis.end) * last
        return at * ((axis.end - axis.start) * last / (axis.count - 1)) + axis.start * last
    if transform == "tf_half_pixel_for_nn":
        return (at + 0.5) / axis.scale
    if transform == "pytorch_half_pixel" and single:
        return at * 0.0 - 0.5
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
