"""Borders around the last axes, as modules: constant, mirrored, of the edge's value, or from the other end.

Widths are given as in ``(left, right, top, bottom, front, back)``: the last axis comes first.
"""

from __future__ import annotations

import weft
from weft import Tensor
from weft.base.shapes import PerAxis
from weft.errors import ShapeError
from weft.nn.variant import Variant


class _Pad(Variant):
    mode = "constant"
    value: float = 0.0
    _shown: tuple[str, ...] = ("padding",)

    def __init__(self, padding: PerAxis) -> None:
        super().__init__()
        sides = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)
        if len(sides) != 2 * self.rank:
            raise ShapeError(
                type(self).__name__, f"padding must be a number or {2 * self.rank} numbers, got {padding!r}"
            )
        self.padding = sides
        self._widths = tuple((sides[i], sides[i + 1]) for i in range(2 * self.rank - 2, -1, -2))

    def forward(self, x: Tensor) -> Tensor:
        """x with a border; negative widths cut."""
        if x.ndim < self.rank:
            raise ShapeError(type(self).__name__, f"x must have at least {self.rank} axes, got {x.ndim}")
        return _padded(x, ((0, 0),) * (x.ndim - self.rank) + self._widths, self.mode, self.value)


def _padded(x: Tensor, widths: tuple[tuple[int, int], ...], mode: str, value: float) -> Tensor:
    if any(a < 0 or b < 0 for a, b in widths):
        sides = zip(x.shape, widths, strict=True)
        x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in sides)]
    return weft.pad(x, [(max(a, 0), max(b, 0)) for a, b in widths], mode, value)


class _ConstantPad(_Pad):
    _shown = ("padding", "value")

    def __init__(self, padding: PerAxis, value: float) -> None:
        super().__init__(padding)
        self.value = value


class ConstantPad1d(
    _ConstantPad, rank=1, example="((1, 2), 9.0)(weft.tensor([[1.0, 2.0]])) -> tensor([[9., 1., 2., 9., 9.]])"
):
    """A border of one value around the last axis."""


class ConstantPad2d(
    _ConstantPad, rank=2, example="((1, 1, 0, 2), 0.5)(weft.ones((1, 2, 3))).shape -> (1, 4, 5)"
):
    """A border of one value around the last two axes."""


class ConstantPad3d(_ConstantPad, rank=3, example="(1, 0.5)(weft.ones((1, 2, 3, 4))).shape -> (1, 4, 5, 6)"):
    """A border of one value around the last three axes."""


class ZeroPad1d(_Pad, rank=1, example="(1)(weft.tensor([[1.0, 2.0]])) -> tensor([[0., 1., 2., 0.]])"):
    """A border of zeros around the last axis."""


class ZeroPad2d(_Pad, rank=2, example="(1)(weft.ones((1, 2, 3))).shape -> (1, 4, 5)"):
    """A border of zeros around the last two axes."""


class ZeroPad3d(_Pad, rank=3, example="(1)(weft.ones((1, 2, 3, 4))).shape -> (1, 4, 5, 6)"):
    """A border of zeros around the last three axes."""


class ReflectionPad1d(
    _Pad,
    rank=1,
    mode="reflect",
    example="(2)(weft.tensor([[1.0, 2.0, 3.0]])) -> tensor([[3., 2., 1., 2., 3., 2., 1.]])",
):
    """A border around the last axis that mirrors it, without the edge."""


class ReflectionPad2d(_Pad, rank=2, mode="reflect", example="(1)(weft.ones((1, 2, 3))).shape -> (1, 4, 5)"):
    """A border around the last two axes that mirrors them, without the edges."""


class ReflectionPad3d(
    _Pad, rank=3, mode="reflect", example="(1)(weft.ones((1, 2, 3, 4))).shape -> (1, 4, 5, 6)"
):
    """A border around the last three axes that mirrors them, without the edges."""


class ReplicationPad1d(
    _Pad,
    rank=1,
    mode="replicate",
    example="(1)(weft.tensor([[1.0, 2.0, 3.0]])) -> tensor([[1., 1., 2., 3., 3.]])",
):
    """A border around the last axis that repeats the edge."""


class ReplicationPad2d(
    _Pad, rank=2, mode="replicate", example="(1)(weft.ones((1, 2, 3))).shape -> (1, 4, 5)"
):
    """A border around the last two axes that repeats the edges."""


class ReplicationPad3d(
    _Pad, rank=3, mode="replicate", example="(1)(weft.ones((1, 2, 3, 4))).shape -> (1, 4, 5, 6)"
):
    """A border around the last three axes that repeats the edges."""


class CircularPad1d(
    _Pad,
    rank=1,
    mode="circular",
    example="(1)(weft.tensor([[1.0, 2.0, 3.0]])) -> tensor([[3., 1., 2., 3., 1.]])",
):
    """A border around the last axis that comes from its other end."""


class CircularPad2d(_Pad, rank=2, mode="circular", example="(1)(weft.ones((1, 2, 3))).shape -> (1, 4, 5)"):
    """A border around the last two axes that comes from their other ends."""


class CircularPad3d(
    _Pad, rank=3, mode="circular", example="(1)(weft.ones((1, 2, 3, 4))).shape -> (1, 4, 5, 6)"
):
    """A border around the last three axes that comes from their other ends."""
