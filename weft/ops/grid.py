"""Sampling of images at given places, as spatial transformers do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from weft.base.dtypes import DType, int64, kind
from weft.base.shapes import Shape, normalize_shape
from weft.base.sizes import Size
from weft.errors import DomainError, DtypeError, ShapeError
from weft.ops.arithmetic import clip_between, fmod
from weft.ops.batching import move_axis
from weft.ops.complex import absolute
from weft.ops.contract import matmul, transpose_last
from weft.ops.index import gather_nd
from weft.ops.op import Array, Sample, Tensor, composite, type_of
from weft.ops.rounding import floor, round
from weft.ops.samples import call, joined, real_array
from weft.ops.select import cast, same_dtype, select
from weft.ops.size import positions, size_value
from weft.ops.view.primitives import reshape
from weft.ops.view.slices import slice_axis

_PADDINGS = ("zeros", "border", "reflection")


# Coordinates


def _limit(size: int, offset: float, dtype: DType) -> Any:
    """``size + offset`` as a number next to coordinates; the size may be named."""
    return size_value(size, dtype) + offset if isinstance(size, Size) else np.asarray(size + offset, dtype)


def _clipped(at: Tensor, size: int) -> Tensor:
    """The nearest places of an axis."""
    return clip_between(at, np.asarray(0, at.dtype), _limit(size, -1, at.dtype))


def _reflected(at: Tensor, size: int, low: float, offset: float) -> Tensor:
    """Coordinates folded back at low and at ``size + offset`` until they lie between them."""
    if not isinstance(size, Size) and size + offset == low:
        return at * 0
    away, span = absolute(at - low), _limit(size, offset - low, at.dtype)
    extra = fmod(away, span)
    turns = floor(away / span)
    odd = fmod(turns, np.asarray(2.0, at.dtype)) == 1
    return select(odd, span - extra, extra) + low


def _inside(at: Tensor, size: int, padding: str, align_corners: bool) -> Tensor:
    """Coordinates moved into the image as the padding says; "zeros" leaves them where they are."""
    if padding == "reflection":
        at = _reflected(at, size, 0.0, -1.0) if align_corners else _reflected(at, size, -0.5, -0.5)
    return at if padding == "zeros" else _clipped(at, size)


def _coordinates(grid: Tensor, sizes: Shape, align_corners: bool) -> list[Tensor]:
    """For each axis of the image the coordinates in elements; the grid lists them from the last axis on."""
    out = []
    for k, size in enumerate(reversed(sizes)):
        at = slice_axis(grid, grid.ndim - 1, k, k + 1)
        at = reshape(at, shape=grid.shape[:-1])
        out.append((at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) * 0.5)
    return out[::-1]


# Picking elements


def _pick(x: Tensor, places: Sequence[Any], sizes: Shape) -> Tensor:
    """The elements of x (N, *S, C) at integral places; zeros where a place is outside."""
    n, rank = x.shape[0], len(sizes)
    kept, safe = None, []
    for at, size in zip(places, sizes, strict=True):
        here = (at >= 0) & (at < _limit(size, 0, at.dtype))
        kept = here if kept is None else kept & here
        safe.append(_clipped(cast(at, dtype=int64), size))
    rows = gather_nd(x, positions(n, rank), *safe)
    assert kept is not None
    return select(reshape(kept, shape=(*kept.shape, 1)), rows, np.zeros((), rows.dtype))


def _weigh(rows: Tensor, weight: Tensor) -> Tensor:
    return rows * reshape(weight, shape=(*weight.shape, 1))


def _linear_sample(x: Tensor, at: list[Any], sizes: Shape) -> Any:
    first = [floor(c) for c in at]
    part = [c - f for c, f in zip(at, first, strict=True)]
    out: Any = None
    for corner in product((0, 1), repeat=len(sizes)):
        weight: Any = 1
        for p, k in zip(part, corner, strict=True):
            weight = (p if k else 1 - p) * weight
        term = _weigh(_pick(x, [f + k for f, k in zip(first, corner, strict=True)], sizes), weight)
        out = term if out is None else out + term
    return out


def _cubic_weights(part: Tensor) -> list[Tensor]:
    """Keys' kernel with a = -0.75 at the four taps around a place, from the part after the second."""
    a = -0.75

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _cubic_sample(x: Tensor, at: list[Any], sizes: Shape, padding: str, align_corners: bool) -> Any:
    first = [floor(c) for c in at]
    weights = [_cubic_weights(c - f) for c, f in zip(at, first, strict=True)]
    out: Any = None
    for taps in product(range(4), repeat=2):
        places = [
            _inside(f + (k - 1), size, padding, align_corners)
            for f, k, size in zip(first, taps, sizes, strict=True)
        ]
        weight = weights[0][taps[0]] * weights[1][taps[1]]
        term = _weigh(_pick(x, places, sizes), weight)
        out = term if out is None else out + term
    return out


def _check(x: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    both, rank = f"{type_of(x)} and {type_of(grid)}", x.ndim - 2
    if rank not in (2, 3) or grid.ndim != x.ndim or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise ShapeError("grid_sample", f"needs (N, C, *S) and (N, *O, {rank}) with 2 or 3 sizes, got {both}")
    if 0 in x.shape[2:]:
        raise ShapeError("grid_sample", f"the image must not be empty, got {type_of(x)}")
    if kind(x.dtype) != "f":
        raise DtypeError("grid_sample", f"dtype must be floating, got {x.dtype.name}")
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and rank != 2):
        raise DomainError("grid_sample", f"mode must be bilinear, nearest or (in 2-d) bicubic, got {mode!r}")
    if padding_mode not in _PADDINGS:
        raise DomainError(
            "grid_sample", f"padding_mode must be one of {', '.join(_PADDINGS)}, got {padding_mode!r}"
        )


def _grid_samples() -> list[Sample]:
    image, grid = real_array((2, 2, 3, 4)), real_array((2, 2, 3, 2), -1.3, 1.3, seed=3)
    cases: list[dict[str, Any]] = [
        {},
        {"padding_mode": "border", "align_corners": True},
        {"padding_mode": "reflection"},
        {"mode": "bicubic"},
        {"mode": "nearest"},
    ]
    return [
        *(Sample((image, grid), case, smooth=case.get("mode") != "nearest") for case in cases),
        Sample((real_array((1, 2, 3, 2, 4)), real_array((1, 2, 1, 2, 3), -1.3, 1.3, seed=5))),
    ]


@composite(samples=_grid_samples, single=True)
def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """The values of images x (N, C, *S) at places (N, *O, d): (N, C, *O).

    A place has one coordinate for each size, from the last axis to the first, and runs from -1 to 1 over the
    image: between the centres of its border elements if ``align_corners``, else between its edges. Outside,
    ``padding_mode`` gives "zeros", the nearest "border" element, or a "reflection".

    >>> import weft
    >>> image = weft.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> weft.grid_sample(image, weft.tensor([[[[0.0, 0.0], [1.0, -1.0]]]]), align_corners=True)
    tensor([[[[2.5000, 2.0000]]]])
    """
    x, grid = same_dtype("grid_sample", x, grid)
    _check(x, grid, mode, padding_mode)
    sizes = x.shape[2:]
    at = _coordinates(grid, sizes, align_corners)
    x = move_axis(x, 1, x.ndim - 1)
    if mode == "bicubic":
        out = _cubic_sample(x, at, sizes, padding_mode, align_corners)
    else:
        at = [_inside(c, n, padding_mode, align_corners) for c, n in zip(at, sizes, strict=True)]
        out = _linear_sample(x, at, sizes) if mode == "bilinear" else _pick(x, [round(c) for c in at], sizes)
    return move_axis(out, out.ndim - 1, 1)


@composite(
    samples=joined(
        call((2, 2, 3), size=(2, 1, 3, 4)), call((1, 3, 4), size=(1, 2, 2, 3, 1), align_corners=True)
    ),
    single=True,
)
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """Places for ``grid_sample`` that transform images of a size (N, C, *S) by matrices theta (N, d, d + 1).

    >>> import weft
    >>> identity = weft.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> weft.affine_grid(identity, (1, 1, 1, 2), align_corners=True)
    tensor([[[[-1.,  0.],
              [ 1.,  0.]]]])
    """
    shape = normalize_shape("affine_grid", size)
    rank = len(shape) - 2
    if rank not in (2, 3) or theta.shape != (shape[0], rank, rank + 1):
        expected = f"(N, {rank}, {rank + 1}) for a size {shape}"
        raise ShapeError("affine_grid", f"theta must be {expected}, got {type_of(theta)}")
    lines = [_line(n, align_corners) for n in shape[2:]]
    mesh = np.meshgrid(*lines, indexing="ij")[::-1]
    base = np.stack([*mesh, np.ones(shape[2:])], axis=-1).reshape(-1, rank + 1).astype(theta.dtype)
    return reshape(matmul(base, transpose_last(theta)), shape=(shape[0], *shape[2:], rank))  # type: ignore[arg-type]


def _line(count: int, align_corners: bool) -> Array:
    if align_corners:
        return np.linspace(-1.0, 1.0, count) if count > 1 else np.zeros(1)
    return (np.arange(count) * 2 + 1) / max(count, 1) - 1
