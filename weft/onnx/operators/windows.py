"""Windows of convolutions and pools: what attributes such as ``kernel_shape`` and ``auto_pad`` say.

Sizes of the input may be named; so may then be what "SAME" pads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import weft
from weft import Tensor
from weft.base.size_bounds import size_max
from weft.base.sizes import Size
from weft.onnx.operators.registry import Call

Ints = tuple[int, ...]
Sides = tuple[tuple[Any, Any], ...]  # for each axis how much before and after it


@dataclass(frozen=True, slots=True)
class Windows:
    """One entry for each axis that windows slide along."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Sides

    @property
    def reach(self) -> Ints:
        """How many elements a window spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def even(self) -> Ints | None:
        """The padding, if it is known and the same on both sides of every axis."""
        if any(isinstance(p, Size) for pair in self.pads for p in pair):
            return None
        return tuple(lo for lo, _ in self.pads) if all(lo == hi for lo, hi in self.pads) else None

    def along(self, axis: int) -> Windows:
        """The windows along one axis alone."""
        fields = (self.kernel, self.strides, self.dilations)
        kernel, strides, dilations = ((field[axis],) for field in fields)
        return Windows(kernel, strides, dilations, (self.pads[axis],))


def read_windows(call: Call, x: Tensor, kernel: Ints | None = None) -> Windows:
    """What the attributes of a call say of windows over the last axes of x (N, C, *S)."""
    kernel = tuple(call.attribute("kernel_shape", kernel))
    strides, dilations = read_steps(call, len(kernel))
    windows = Windows(kernel, strides, dilations, read_pads(call, len(kernel)))
    mode = call.attribute("auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return windows
    axes = zip(x.shape[2:], strides, windows.reach, strict=True)
    return Windows(kernel, strides, dilations, tuple([halves(_missing(*axis), mode) for axis in axes]))


def _missing(size: Any, stride: int, reach: int) -> Any:
    """How much must be added so that one window starts at every stride-th element."""
    if reach == 1:
        return 0
    total = ((size + stride - 1) // stride - 1) * stride + reach - size
    if reach >= stride:
        return total  # never negative, which a named size may not be able to tell
    return size_max(total, 0)


def read_steps(call: Call, rank: int) -> tuple[Ints, Ints]:
    """The strides and dilations of a call."""
    ones = (1,) * rank
    return tuple(call.attribute("strides", ones)), tuple(call.attribute("dilations", ones))


def read_pads(call: Call, rank: int) -> Sides:
    """The attribute ``pads`` as pairs; zeros where there is none, or ``auto_pad`` is "VALID"."""
    zeros = (0,) * 2 * rank
    pads = zeros if call.attribute("auto_pad", "NOTSET") == "VALID" else call.attribute("pads", zeros)
    return tuple(zip(pads[:rank], pads[rank:], strict=True))


def halves(total: Any, mode: str) -> tuple[Any, Any]:
    """What to pad on both sides; an odd one is at the end for "SAME_UPPER"."""
    half = total // 2
    return (half, total - half) if mode == "SAME_UPPER" else (total - half, half)


def pad_axes(x: Tensor, sides: Sides, value: Any = 0) -> Any:
    """x with more elements on both sides of its last axes; fewer where a number is negative."""
    first = x.ndim - len(sides)
    for axis, (lo, hi) in enumerate(sides, first):
        if isinstance(lo, Size) or isinstance(hi, Size):
            parts = [_filling(x, axis, lo, value), x, _filling(x, axis, hi, value)]
            x = weft.concat([part for part in parts if part is not None], axis=axis)
    known = [(0, 0) if isinstance(lo, Size) or isinstance(hi, Size) else (lo, hi) for lo, hi in sides]
    if any(lo < 0 or hi < 0 for lo, hi in known):
        cut = [
            slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi) in zip(x.shape[first:], known, strict=True)
        ]
        x = x[(..., *cut)]
    more = [(max(lo, 0), max(hi, 0)) for lo, hi in known]
    if not any(lo or hi for lo, hi in more):
        return x
    return weft.pad(x, ((0, 0),) * first + tuple(more), value=value)


def _filling(x: Tensor, axis: int, count: Any, value: Any) -> Tensor | None:
    if not isinstance(count, Size) and count == 0:
        return None
    return weft.full((*x.shape[:axis], count, *x.shape[axis + 1 :]), value, dtype=x.dtype)


def within(xp: Any, at: Any, size: Any) -> Any:
    """Places moved to the nearest one of an axis; ``xp`` is NumPy or weft."""
    return xp.minimum(xp.maximum(at, 0), size - 1)


def inside(xp: Any, at: Any, size: Any) -> Any:
    """Whether places are on an axis; ``xp`` is NumPy or weft."""
    return (at >= 0) & xp.less_equal(at, size - 1)


def of_rank(call: Call, functions: tuple[Any, ...], rank: int) -> Any:
    """The function for a number of sizes, of those for one, two and three."""
    if not 1 <= rank <= len(functions):
        raise call.error(
            f"the input must have 1 to {len(functions)} sizes after batch and channels, got {rank}"
        )
    return functions[rank - 1]
