"""The transpose of broadcasting, which the derivative of every broadcasting op needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import bfloat16, float16, float32
from weft.base.shapes import Shape, broadcast_axes
from weft.ops.adding import add_up
from weft.ops.op import Tensor


def unbroadcast(g: Tensor, shape: Shape) -> Tensor:
    """Sum a gradient over the axes along which its input was broadcast."""
    if g.shape == shape:
        return g
    axes = broadcast_axes(shape, g.shape)
    return _summed(g, axes).reshape(shape) if axes else g.reshape(shape)


def _summed(g: Any, axes: tuple[int, ...]) -> Any:
    """The sum of an array or tensor; NumPy would sum halves in halves, where 256 ones are as many as more."""
    if type(g) is not np.ndarray:
        return g.sum(axis=axes)
    if g.dtype in (float16, bfloat16):
        return add_up(g, axes, np.dtype(float32)).astype(g.dtype)
    return add_up(g, axes, g.dtype)
