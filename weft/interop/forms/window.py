"""Windows that slide over the last axes of a tensor, and the borders that make room for them.

Sizes of the input may be named; so may then be what is padded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import weft
from weft.base.sizes import Size, is_known
from weft.interop.forms.reduce import reduced
from weft.ops.windows import window_sum, windows
from weft.tensor.tensor import Tensor

Ints = tuple[int, ...]
Sides = tuple[tuple[Any, Any], ...]  # for each axis how much before and after it


class Windows(NamedTuple):
    """The attributes of weft's ops on windows, one entry for each axis that these slide along."""

    kernel: Ints
    stride: Ints
    padding: Sides
    dilation: Ints

    @property
    def reach(self) -> Ints:
        """How many elements a window spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def even(self) -> Ints | None:
        """The padding, if it is known and the same on both sides of every axis."""
        if not all(is_known(pair) for pair in self.padding):
            return None
        return tuple(lo for lo, _ in self.padding) if all(lo == hi for lo, hi in self.padding) else None

    @property
    def inside(self) -> Windows:
        """The windows of a tensor that has been padded."""
        return self._replace(padding=((0, 0),) * len(self.kernel))

    def along(self, axis: int) -> Windows:
        """The windows along one axis alone."""
        kernel, stride, dilation = ((field[axis],) for field in (self.kernel, self.stride, self.dilation))
        return Windows(kernel, stride, (self.padding[axis],), dilation)


def of_rank(name: str, rank: int) -> Callable[..., Any]:
    """The function of weft for a number of axes: ``conv2d`` of "conv"."""
    function: Callable[..., Any] = getattr(weft, f"{name}{rank}d")
    return function


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, windows: Windows, groups: int) -> Any:
    """A convolution; a border that is uneven, or of a named size, is made before it."""
    padding = windows.even
    if padding is None:
        x, padding = padded(x, windows.padding), (0,) * len(windows.kernel)
    function = of_rank("conv", len(windows.kernel))
    return function(x, weight, bias, windows.stride, padding, windows.dilation, groups)


def taps(x: Tensor, given: Windows) -> Any:
    """All windows of x, which has been padded, with their elements along last axes."""
    return windows(x, **given.inside._asdict())


def pooled(how: str, x: Tensor, given: Windows) -> Any:
    """The windows of x, which has been padded, each combined to one element: see ``reduced``."""
    if how == "sum":
        return window_sum(x, **given.inside._asdict())
    return reduced(how, taps(x, given), tuple(range(-len(given.kernel), 0)))


# Borders


def padded(x: Tensor, sides: Sequence[tuple[Any, Any]], mode: str = "constant", value: Any = 0) -> Any:
    """x with more elements on both sides of its last axes; fewer where a number is negative."""
    first = x.ndim - len(sides)
    named = [not is_known(pair) for pair in sides]
    for axis, (lo, hi) in enumerate(sides, first):
        if named[axis - first]:
            parts = [_filling(x, axis, lo, value), x, _filling(x, axis, hi, value)]
            x = weft.concat([part for part in parts if part is not None], axis=axis)
    known = [(0, 0) if is_named else pair for is_named, pair in zip(named, sides, strict=True)]
    if any(lo < 0 or hi < 0 for lo, hi in known):
        sizes = zip(x.shape[first:], known, strict=True)
        x = x[(..., *[slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi) in sizes])]
    more = [(max(lo, 0), max(hi, 0)) for lo, hi in known]
    if not any(lo or hi for lo, hi in more):
        return x
    return weft.pad(x, ((0, 0),) * first + tuple(more), mode, value)


def _filling(x: Tensor, axis: int, count: Any, value: Any) -> Tensor | None:
    if not isinstance(count, Size) and count == 0:
        return None
    return weft.full((*x.shape[:axis], count, *x.shape[axis + 1 :]), value, dtype=x.dtype)
