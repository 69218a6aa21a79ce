"""Sums of arrays along axes, added in blocks where NumPy would add one number after the other.

NumPy adds in pairs along the axis that lies innermost in memory. Along another one each sum goes from the
first number to the last, and a million float32 are then right to four digits only, their variance to none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.base.dtypes import DType
from weft.ops.op import Array

_BLOCK = 64  # numbers that are added one after the other: a million are a tree of 4 levels
_LONG = 128
_ADD: Callable[..., Array] = np.add.reduce


def add_up(x: Array, axes: tuple[int, ...], dtype: DType, keepdims: bool = False) -> Array:
    """The sum over axes in a dtype, by a tree of blocks along axes where NumPy adds in no pairs."""
    if x.size > _LONG and dtype.kind in "fc":
        while (axis := _one_by_one(x, axes)) is not None:
            x = _in_blocks(x, axis, dtype)
    return _ADD(x, axis=axes, keepdims=keepdims, dtype=dtype)


def _one_by_one(x: Array, axes: tuple[int, ...]) -> int | None:
    """The longest axis that NumPy would go along number by number, if it is long.

    It takes the axes from the innermost on, and those that lie like one as one; it adds in pairs where they
    begin with axes that are summed.
    """
    shape = x.shape
    for axis in axes:
        if shape[axis] > _LONG:
            break
    else:
        return None
    if axes[0] == x.ndim - len(axes) and x.flags.c_contiguous:
        return None
    found, longest = None, _LONG
    reach = None  # where the axis begins that would lie like one with those before it, while all are summed
    paired = True
    for stride, size, axis in sorted((abs(x.strides[i]), n, i) for i, n in enumerate(shape) if n > 1):
        paired = paired and axis in axes and reach in (None, stride)
        if paired:
            reach = stride * size
        elif axis in axes and size > longest:
            found, longest = axis, size
    return found


def _in_blocks(x: Array, axis: int, dtype: DType) -> Array:
    """Sums of blocks along an axis, the last of which may be shorter."""
    blocks, rest = divmod(x.shape[axis], _BLOCK)
    before = (slice(None),) * axis
    whole = x[(*before, slice(0, blocks * _BLOCK))]
    shape = (*x.shape[:axis], blocks, _BLOCK, *x.shape[axis + 1 :])
    sums: Array = _ADD(whole.reshape(shape), axis=axis + 1, dtype=dtype)
    if not rest:
        return sums
    last = _ADD(x[(*before, slice(-rest, None))], axis=axis, keepdims=True, dtype=dtype)
    return np.concatenate([sums, last], axis=axis)
