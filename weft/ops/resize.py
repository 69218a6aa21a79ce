"""Resampling of images and other grids: interpolation to a new size, and sampling at given places.

Interpolation works one axis after another: each output is a weighted sum of a few taps of the input, whose
places and weights ``weft.ops.taps`` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.shapes import PerAxis, Shape, as_ints
from weft.base.size_bounds import same_size
from weft.base.sizes import is_known
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError
from weft.ops.batching import move_axis
from weft.ops.conv.kernel import Ints
from weft.ops.conv.layers import per_axis
from weft.ops.index import gather_nd
from weft.ops.op import Sample, Tensor, composite, type_of
from weft.ops.pool.adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from weft.ops.public import example
from weft.ops.samples import call, joined, real_array
from weft.ops.taps import Scale, Tap, axis_taps, nearest_places, ratio, scaled, weights_of
from weft.ops.view.primitives import broadcast_to, permute, reshape

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
_MODES = ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area")


def _weighted_sum(x: Tensor, axis: int, taps: Sequence[Tap]) -> Tensor:
    """The sum of elements at places along an axis, each times a weight."""
    front = move_axis(x, axis, 0)
    out: Any = None
    for places, weights in taps:
        part = gather_nd(front, places) * weights_of(weights, x.dtype, x.ndim - 1)
        out = part if out is None else out + part
    return move_axis(out, 0, axis)


def _repeated(x: Tensor, axis: int, times: int) -> Tensor:
    """Each element so many times, one after the other."""
    shape = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
    wide = broadcast_to(reshape(x, shape=shape), shape=(*shape[: axis + 1], times, *shape[axis + 2 :]))
    return reshape(wide, shape=(*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))


def _nearest_axis(x: Tensor, axis: int, count: int, scale: Scale, *, exact: bool) -> Tensor:
    size = x.shape[axis]
    if same_size(count, 2 * size):
        return _repeated(x, axis, 2)
    places = nearest_places(size, count, scale, exact=exact)
    times = count // size if isinstance(places, np.ndarray) else 0
    if times and count == size * times and (places == np.arange(count) // times).all():
        return _repeated(x, axis, times)
    return move_axis(gather_nd(move_axis(x, axis, 0), places), 0, axis)


def _counts(op: str, size: PerAxis, rank: int) -> Ints:
    """A size for each axis; those that are named may turn out to be 0, and give nothing then."""
    items = tuple(size) if isinstance(size, tuple | list) else (size,)
    if is_known(items):
        return per_axis(op, "size", size, rank, 1)
    if len(items) not in (1, rank):
        raise ArgumentError(op, f"size must be an int or {rank} of them, got {size!r}")
    return as_ints(op, "size", items * rank if len(items) == 1 else items)


def _target(
    op: str, x: Tensor, size: PerAxis | None, scale_factor: Any, recompute: bool
) -> tuple[Ints, list[Scale]]:
    """The output's size, and for each axis how far input elements are apart, counted in outputs."""
    sizes: Shape = x.shape[2:]
    rank = len(sizes)
    if (size is None) == (scale_factor is None):
        raise ArgumentError(op, f"one of size and scale_factor must be given, got {size} and {scale_factor}")
    if size is not None:
        counts = _counts(op, size, rank)
        return counts, [ratio(n, c) for n, c in zip(sizes, counts, strict=True)]
    factors = scale_factor if isinstance(scale_factor, tuple | list) else (scale_factor,) * rank
    if len(factors) != rank or any(not f > 0 for f in factors):
        raise DomainError(op, f"scale_factor must be {rank} positive numbers or one, got {scale_factor!r}")
    counts = tuple(scaled(op, n, f) for n, f in zip(sizes, factors, strict=True))
    if 0 in counts:
        raise ShapeError(op, f"the output must not be empty, got {counts} from {type_of(x)}")
    if recompute:
        return counts, [ratio(n, c) for n, c in zip(sizes, counts, strict=True)]
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
        if same_size(n, m) and (mode != "bicubic" or (isinstance(scale, float | int) and scale == 1)):
            continue
        if mode.startswith("nearest"):
            x = _nearest_axis(x, axis, n, scale, exact=mode == "nearest-exact")
        else:
            x = _weighted_sum(x, axis, axis_taps(mode, m, n, scale, bool(align_corners), antialias))
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
