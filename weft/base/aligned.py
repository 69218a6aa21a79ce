"""Memory for arrays that begins where a line of the cache does, as vectors are read fastest from there."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from weft.base.dtypes import DType

Array = np.ndarray[Any, Any]

ALIGNMENT = 64  # bytes
_BYTE = np.dtype(np.uint8)


def empty_aligned(shape: Sequence[int], dtype: DType) -> Array:
    """An array in which anything may be, a view of memory of its own.

    >>> import numpy as np
    >>> from weft.base.aligned import empty_aligned
    >>> empty_aligned((3, 5), np.dtype("f4")).ctypes.data % 64
    0
    """
    size = prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, _BYTE)
    begin = -memory.ctypes.data % ALIGNMENT
    found: Array = memory[begin : begin + size].view(dtype).reshape(shape)
    return found


def aligned(array: Array) -> Array:
    """A copy of an array in such memory."""
    found = empty_aligned(array.shape, array.dtype)
    found[...] = array
    return found
