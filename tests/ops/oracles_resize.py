"""Oracles of resampling: every output by the weights of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from tests.ops.oracles_pool import ORACLES as POOLS
from tests.ops.plain import each, enter_into

Array = Any
ORACLES: dict[str, Callable[..., Any]] = {}
oracle = enter_into(ORACLES)

# Resampling, each output by its definition


def _hat(d: float) -> float:
    return max(0.0, 1 - abs(d))


def _keys(d: float, a: float) -> float:
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0


def _resize_row(row: Array, count: int, scale: float, mode: str, corners: bool, antialias: bool) -> Array:
    """One axis: the kernel's weights at all elements, the border repeated (or cut off and normalised)."""
    size = len(row)
    out = np.zeros(count)
    for i in range(count):
        if mode.startswith("nearest"):
            at = (i + (0.5 if mode == "nearest-exact" else 0.0)) * scale
            out[i] = row[min(int(at), size - 1)]
            continue
        center = (i * (size - 1) / (count - 1) if count > 1 else 0.0) if corners else (i + 0.5) * scale - 0.5
        if antialias:
            wide = max(scale, 1.0)
            kernel = (lambda d: _keys(d, -0.5)) if mode == "bicubic" else _hat
            weights = np.array([kernel((j - center) / wide) for j in range(size)])
            out[i] = weights @ row / weights.sum()
        elif mode == "bicubic":
            places = range(int(np.floor(center)) - 1, int(np.floor(center)) + 3)
            out[i] = sum(_keys(center - j, -0.75) * row[min(max(j, 0), size - 1)] for j in places)
        else:
            out[i] = np.interp(center, np.arange(size), row)
    return out


@oracle
def interpolate(
    x: Array,
    *,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    recompute_scale_factor: bool = False,
    antialias: bool = False,
) -> Array:
    rank = x.ndim - 2
    factors = None if scale_factor is None else each(scale_factor, rank)
    counts = (
        each(size, rank)
        if factors is None
        else tuple(int(n * f) for n, f in zip(x.shape[2:], factors, strict=True))
    )
    if mode == "area":
        return POOLS[f"adaptive_avg_pool{rank}d"](x, output_size=counts)
    for axis in range(rank):
        n, c = x.shape[axis + 2], counts[axis]
        scale = n / c if factors is None or recompute_scale_factor else 1 / factors[axis]
        x = np.apply_along_axis(_resize_row, axis + 2, x, c, scale, mode, align_corners, antialias)
    return x


@oracle
def pixel_shuffle(x: Array, *, upscale_factor: int) -> Array:
    r = upscale_factor
    *lead, c, h, w = x.shape
    out = np.zeros((*lead, c // r**2, h * r, w * r))
    for k, i, j in product(range(c), range(h), range(w)):
        out[..., k // r**2, i * r + k % r**2 // r, j * r + k % r] = x[..., k, i, j]
    return out


@oracle
def pixel_unshuffle(x: Array, *, downscale_factor: int) -> Array:
    r = downscale_factor
    *lead, c, h, w = x.shape
    out = np.zeros((*lead, c * r**2, h // r, w // r))
    for k, i, j in product(range(c), range(h), range(w)):
        out[..., k * r**2 + i % r * r + j % r, i // r, j // r] = x[..., k, i, j]
    return out


@oracle
def channel_shuffle(x: Array, *, groups: int) -> Array:
    size = x.shape[1] // groups
    return np.stack([x[:, g * size + k] for k in range(size) for g in range(groups)], axis=1)


def _fold_back(c: float, low: float, high: float) -> float:
    while low < high and not low <= c <= high:
        c = 2 * low - c if c < low else 2 * high - c
    return c


def _grid_place(c: float, size: int, padding: str, corners: bool) -> float:
    if padding == "reflection":
        c = _fold_back(c, *((0.0, size - 1.0) if corners else (-0.5, size - 0.5)))
    return c if padding == "zeros" else min(max(c, 0.0), size - 1.0)


@oracle
def grid_sample(
    x: Array,
    grid: Array,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Array:
    """Each place by the weights that the kernel gives to the elements around it."""
    sizes = x.shape[2:]
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for n, *o in np.ndindex(grid.shape[:-1]):
        taps: list[list[tuple[int, float]]] = []
        for c, size in zip(grid[(n, *o)][::-1], sizes, strict=True):
            at = (c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2
            if mode != "bicubic":
                at = _grid_place(at, size, padding_mode, align_corners)
            near = range(int(np.floor(at)) - 1, int(np.floor(at)) + 3)
            kernel = (lambda d: _keys(d, -0.75)) if mode == "bicubic" else _hat
            weights = [(j, float(j == round(at)) if mode == "nearest" else kernel(at - j)) for j in near]
            if mode == "bicubic":
                weights = [(int(_grid_place(j, size, padding_mode, align_corners)), w) for j, w in weights]
            taps.append(weights)
        for combination in product(*taps):
            place = tuple(j for j, _ in combination)
            if all(0 <= j < size for j, size in zip(place, sizes, strict=True)):
                out[(n, slice(None), *o)] += (
                    np.prod([w for _, w in combination]) * x[(n, slice(None), *place)]
                )
    return out


@oracle
def affine_grid(theta: Array, *, size: Sequence[int], align_corners: bool = False) -> Array:
    out = np.zeros((size[0], *size[2:], len(size) - 2))
    for n, *o in np.ndindex(out.shape[:-1]):
        place = []
        for i, count in zip(o, size[2:], strict=True):
            ends = -1 + 2 * i / (count - 1) if count > 1 else 0.0
            place.append(ends if align_corners else (2 * i + 1) / count - 1)
        out[(n, *o)] = theta[n] @ np.array([*place[::-1], 1.0])
    return out
