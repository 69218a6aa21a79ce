"""Resampling of images and other grids: interpolation to a new size, and sampling at given places.

Interpolation works one axis after another: each output is a weighted sum of a few taps of the input, whose
places and weights are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, prod
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.shapes import PerAxis, Shape
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError
from weft.ops.batching import move_axis
from weft.ops.conv.kernel import Ints
from weft.ops.conv.layers import per_axis
from weft.ops.index import gather_nd
from weft.ops.op import Array, Sample, Tensor, composite, type_of
from weft.ops.pool.adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from weft.ops.public import example
from weft.ops.samples import call, joined, real_array
from weft.ops.view.primitives import broadcast_to, permute, reshape

Taps = tuple[Array, Array]  # places (outputs, taps) and weights of the same shape

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
_MODES = ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area")

# Places and weights along one axis


def _centers(size: int, count: int, scale: float, align_corners: bool) -> Array:
    """Where the outputs lie on the input's axis, whose elements are at 0, 1, 2, ..."""
    if align_corners:
        return np.arange(count) * ((size - 1) / (count - 1) if count > 1 else 0.0)
    return (np.arange(count) + 0.5) * scale - 0.5


def _linear_taps(size: int, count: int, scale: float, align_corners: bool) -> Taps:
    at = np.maximum(_centers(size, count, scale, align_corners), 0.0)
    first = np.minimum(np.floor(at).astype(np.int64), size - 1)
    part = np.minimum(at - first, 1.0)
    places = np.stack([first, np.minimum(first + 1, size - 1)], axis=1)
    return places, np.stack([1 - part, part], axis=1)


def _cubic(distance: Array, a: float) -> Array:
    """Keys' cubic convolution kernel (R. Keys, IEEE Trans. ASSP 29, 1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _cubic_taps(size: int, count: int, scale: float, align_corners: bool) -> Taps:
    at = _centers(size, count, scale, align_corners)
    places = np.floor(at).astype(np.int64)[:, None] + np.arange(-1, 3)
    return np.clip(places, 0, size - 1), _cubic(at[:, None] - places, -0.75)


def _smoothed_taps(
    size: int, count: int, scale: float, reach: float, kernel: Callable[[Array], Array]
) -> Taps:
    """Taps of a kernel that is widened by the scale, so that nothing is skipped when an image shrinks."""
    stretch = max(scale, 1.0)
    centers = (np.arange(count) + 0.5) * scale
    first = np.maximum((centers - reach * stretch + 0.5).astype(np.int64), 0)
    last = np.minimum((centers + reach * stretch + 0.5).astype(np.int64), size)
    places = first[:, None] + np.arange(int((last - first).max(initial=1)))
    weights = kernel((places - centers[:, None] + 0.5) / stretch) * (places < last[:, None])
    return np.minimum(places, size - 1), weights / weights.sum(axis=1, keepdims=True)


def _triangle(distance: Array) -> Any:
    return np.maximum(1 - np.abs(distance), 0.0)


def _nearest_places(size: int, count: int, scale: float, exact: bool) -> Any:
    if count == 2 * size:
        return np.arange(count) // 2
    # in float32, so that a scale such as 1 / 3 rounds to the same places everywhere
    at = (np.arange(count, dtype=np.float32) + np.float32(0.5 if exact else 0.0)) * np.float32(scale)
    return np.minimum(np.floor(at).astype(np.int64), size - 1)


# Applying them


def _weighted_sum(x: Tensor, axis: int, taps: Taps) -> Tensor:
    places, weights = taps
    front = move_axis(x, axis, 0)
    out: Any = None
    for k in range(places.shape[1]):
        factor = weights[:, k].astype(x.dtype).reshape(-1, *(1,) * (x.ndim - 1))
        part = gather_nd(front, places[:, k]) * factor
        out = part if out is None else out + part
    return move_axis(out, 0, axis)


def _nearest_axis(x: Tensor, axis: int, places: Array) -> Tensor:
    size, count = x.shape[axis], len(places)
    times = count // size
    if count == size * times and (places == np.arange(count) // times).all():
        shape = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
        wide = broadcast_to(reshape(x, shape=shape), shape=(*shape[: axis + 1], times, *shape[axis + 2 :]))
        return reshape(wide, shape=(*x.shape[:axis], count, *x.shape[axis + 1 :]))
    return move_axis(gather_nd(move_axis(x, axis, 0), places), 0, axis)


def _taps(mode: str, size: int, count: int, scale: float, align_corners: bool, antialias: bool) -> Taps:
    if antialias:
        if mode == "bicubic":
            return _smoothed_taps(size, count, scale, 2.0, lambda d: _cubic(d, -0.5))
        return _smoothed_taps(size, count, scale, 1.0, _triangle)
    taps = _cubic_taps if mode == "bicubic" else _linear_taps
    return taps(size, count, scale, align_corners)


def _target(
    op: str, x: Tensor, size: PerAxis | None, scale_factor: Any, recompute: bool
) -> tuple[Ints, list[float]]:
    """The output's size, and for each axis how far input elements are apart, counted in outputs."""
    sizes: Shape = x.shape[2:]
    rank = len(sizes)
    if (size is None) == (scale_factor is None):
        raise ArgumentError(op, f"one of size and scale_factor must be given, got {size} and {scale_factor}")
    if size is not None:
        counts = per_axis(op, "size", size, rank, 1)
        return counts, [n / c for n, c in zip(sizes, counts, strict=True)]
    factors = scale_factor if isinstance(scale_factor, tuple | list) else (scale_factor,) * rank
    if len(factors) != rank or any(not f > 0 for f in factors):
        raise DomainError(op, f"scale_factor must be {rank} positive numbers or one, got {scale_factor!r}")
    counts = tuple(floor(n * f) for n, f in zip(sizes, factors, strict=True))
    if 0 in counts:
        raise ShapeError(op, f"the output must not be empty, got {counts} from {type_of(x)}")
    if recompute:
        return counts, [n / c for n, c in zip(sizes, counts, strict=True)]
    return counts, [1 / f for f in factors]


def _check_mode(op: str, x: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    rank = x.ndim - 2
    if rank not in (1, 2, 3) or 0 in x.shape[2:]:
        raise ShapeError(
            op, f"the input must be (N, C, *S) with 1 to 3 sizes that are not 0, got {type_of(x)}"
        )
    if mode not in _MODES:
        raise DomainError(op, f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
    if (mode in _LINEAR.values() and mode != _LINEAR[rank]) or (mode == "bicubic" and rank != 2):
        raise ShapeError(op, f"mode {mode!r} does not fit {rank} sizes, got {type_of(x)}")
    smooth = mode in _LINEAR.values() or mode == "bicubic"
    if align_corners is not None and not smooth:
        raise ArgumentError(op, f"align_corners must be None for mode {mode!r}, got {align_corners}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(op, f"antialias is for modes bilinear and bicubic, got {mode!r}")
    if kind(x.dtype) not in "fc" and (smooth or mode == "area"):
        raise DtypeError(op, f"dtype must be floating for mode {mode!r}, got {x.dtype.name}")


def _interpolate_samples() -> list[Sample]:
    corners = {"align_corners": True}
    cases: list[tuple[int, dict[str, Any]]] = [
        (1, {"size": 7}),
        (2, {"scale_factor": 2}),
        (3, {"size": (3, 2, 5), "mode": "nearest-exact"}),
        (1, {"size": 9, "mode": "linear"}),
        (1, {"size": 3, "mode": "linear", **corners}),
        (1, {"size": 1, "mode": "linear", **corners}),
        (2, {"scale_factor": (1.6, 0.7), "mode": "bilinear"}),
        (2, {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}),
        (2, {"size": (7, 3), "mode": "bilinear", **corners}),
        (3, {"size": (3, 6, 4), "mode": "trilinear"}),
        (2, {"size": (7, 3), "mode": "bicubic"}),
        (2, {"size": (7, 3), "mode": "bicubic", **corners}),
        (2, {"size": (2, 8), "mode": "bilinear", "antialias": True}),
        (2, {"size": (2, 2), "mode": "bicubic", "antialias": True}),
        (2, {"size": (3, 3), "mode": "area"}),
    ]
    return [Sample((real_array((2, 2, *(4, 5, 3)[:rank])),), settings) for rank, settings in cases]


@composite(samples=_interpolate_samples, single=True)
def interpolate(
    x: Tensor,
    size: PerAxis | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = False,
    antialias: bool = False,
) -> Tensor:
    """x (N, C, *S) resampled to a new size.

    Args:
        x: images or other grids with one to three sizes.
        size: of the output, one int or one for each axis.
        scale_factor: instead of size, a number or one for each axis.
        mode: "nearest", "nearest-exact", "linear" (3 axes), "bilinear" (4), "trilinear" (5), "bicubic" (4) or
            "area", the average of what each output covers.
        align_corners: whether the centres of the corner elements coincide, rather than the corners.
        recompute_scale_factor: whether the sizes rather than scale_factor tell where the outputs lie.
        antialias: whether to widen the kernel of "bilinear" and "bicubic" when the image shrinks.

    >>> import weft
    >>> weft.interpolate(weft.tensor([[[0.0, 1.0]]]), size=4, mode="linear")
    tensor([[[0.0000, 0.2500, 0.7500, 1.0000]]])
    """
    _check_mode("interpolate", x, mode, align_corners, antialias)
    counts, scales = _target("interpolate", x, size, scale_factor, bool(recompute_scale_factor))
    if mode == "area":
        pools = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
        return pools[x.ndim - 2](x, counts)
    for axis, (n, scale) in enumerate(zip(counts, scales, strict=True), 2):
        m = x.shape[axis]
        if n == m and (scale == 1 or mode != "bicubic"):
            continue
        if mode.startswith("nearest"):
            x = _nearest_axis(x, axis, _nearest_places(m, n, scale, exact=mode == "nearest-exact"))
        else:
            x = _weighted_sum(x, axis, _taps(mode, m, n, scale, bool(align_corners), antialias))
    return x


# Channels to pixels and back


@composite(samples=joined(call((2, 8, 2, 3), upscale_factor=2), call((9, 2, 2), upscale_factor=3)))
@example("(weft.ones((1, 12, 4, 5)), 2).shape -> (1, 3, 8, 10)")
def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Channels (..., C * r * r, H, W) laid out as pixels (..., C, H * r, W * r)."""
    (r,) = per_axis("pixel_shuffle", "upscale_factor", upscale_factor, 1, 1)
    if x.ndim < 3 or x.shape[-3] % (r * r) != 0:
        raise ShapeError("pixel_shuffle", f"channels must be a multiple of {r * r}, got {type_of(x)}")
    *lead, channels, height, width = x.shape
    n = len(lead)
    x = reshape(x, shape=(*lead, channels // (r * r), r, r, height, width))
    x = permute(x, axes=(*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    return reshape(x, shape=(*lead, channels // (r * r), height * r, width * r))


@composite(samples=joined(call((2, 2, 4, 6), downscale_factor=2), call((1, 3, 6), downscale_factor=3)))
@example("(weft.ones((1, 3, 8, 10)), 2).shape -> (1, 12, 4, 5)")
def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of ``pixel_shuffle``: pixels (..., C, H * r, W * r) as channels (..., C * r * r, H, W)."""
    (r,) = per_axis("pixel_unshuffle", "downscale_factor", downscale_factor, 1, 1)
    if x.ndim < 3 or x.shape[-2] % r or x.shape[-1] % r:
        raise ShapeError("pixel_unshuffle", f"height and width must be multiples of {r}, got {type_of(x)}")
    *lead, channels, height, width = x.shape
    n = len(lead)
    x = reshape(x, shape=(*lead, channels, height // r, r, width // r, r))
    x = permute(x, axes=(*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return reshape(x, shape=(*lead, channels * r * r, height // r, width // r))


@composite(samples=call((2, 6, 3), groups=3))
@example("(weft.tensor([[[1.0], [2.0], [3.0], [4.0]]]), 2).flatten() -> tensor([1., 3., 2., 4.])")
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The channels of x (N, C, *S) dealt out anew, so that each group gets some of every old one."""
    (g,) = per_axis("channel_shuffle", "groups", groups, 1, 1)
    if x.ndim < 3 or x.shape[1] % g:
        raise ShapeError("channel_shuffle", f"channels must be a multiple of {g} groups, got {type_of(x)}")
    n, channels, *sizes = x.shape
    dealt = reshape(x, shape=(n, g, channels // g, prod(sizes)))
    return reshape(permute(dealt, axes=(0, 2, 1, 3)), shape=x.shape)
