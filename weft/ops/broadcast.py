"""The transpose of broadcasting, which the derivative of every broadcasting op needs."""

from __future__ import annotations

from weft.base.shapes import Shape, broadcast_axes
from weft.ops.op import Tensor


def unbroadcast(g: Tensor, shape: Shape) -> Tensor:
    """Sum a gradient over the axes along which its input was broadcast."""
    if g.shape == shape:
        return g
    axes = broadcast_axes(shape, g.shape)
    return g.sum(axis=axes).reshape(shape) if axes else g.reshape(shape)
