"""Elements of an axis at places that need not be whole, or may lie outside; ``xp`` is NumPy or weft."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import weft
from weft import Tensor


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
