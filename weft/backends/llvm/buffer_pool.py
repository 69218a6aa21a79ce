"""Memory for large results: given out again when nobody holds the arrays that were in it.

A fresh large array costs a page fault for every 4 KB that is written, about as much as computing it. So
blocks come back when the last array in them is gone, and a bounded amount of them is kept.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import DType

LARGE = 256 * 1024  # bytes; below it, NumPy's own memory is as good
_HUGE = 1 << 22  # from here on, large pages pay
_MOST_BYTES = 1 << 29

# Blocks by their size. An array may go, and its block come back, at any place in any thread, so there can be
# no lock; each step is one operation of the interpreter instead.
_free: dict[int, deque[mmap.mmap]] = {}
_returned: dict[int, int] = {}  # by size, when a block came back last
_tick = count().__next__


class _Count:
    """How many bytes are free, or nearly: two threads that change it at once may lose a change."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


_pooled = _Count()


class _Lease(np.ndarray[Any, Any]):
    """The base of an array that was given out: when it goes, its block comes back."""

    __slots__ = ()

    is_lease = True  # an array on it is alone in its memory, see weft.capture.call.running

    def __del__(self) -> None:
        block: Any = self.base
        if block is not None:
            size = len(block)
            blocks = _free.get(size)
            if blocks is None:
                blocks = _free.setdefault(size, deque())
            blocks.append(block)
            _returned[size] = _tick()
            _pooled.bytes += size
            if _pooled.bytes > _MOST_BYTES:
                _shrink()


def pooled_array(shape: Sequence[int], dtype: DType) -> np.ndarray[Any, Any]:
    """A new array with any content, aligned to 64 bytes.

    >>> import numpy as np
    >>> from weft.backends.llvm.buffer_pool import pooled_array
    >>> x = pooled_array((1024, 1024), np.dtype("f4"))
    >>> place = x.ctypes.data
    >>> del x
    >>> pooled_array((1024, 1024), np.dtype("f4")).ctypes.data == place
    True
    """
    size = _rounded(prod(shape) * dtype.itemsize)
    block = _take(size)
    if block is None:
        block = _new_block(size)
    lease = np.ndarray.__new__(_Lease, (size,), np.uint8, block)
    return np.ndarray(shape, dtype, lease)


def pooled_bytes() -> int:
    """How much memory the pool holds for later arrays."""
    return sum([size * len(blocks) for size, blocks in [*_free.items()]])


def drop_pooled() -> None:
    """Give the memory of the pool back to the system."""
    for blocks in [*_free.values()]:
        blocks.clear()
    _pooled.bytes = pooled_bytes()


def _shrink() -> None:
    """Drop blocks until the pool is small enough: first of the size that none came back of for longest."""
    excess = pooled_bytes() - _MOST_BYTES
    for size in sorted([*_returned], key=lambda size: _returned[size]):
        while excess > 0 and _pop(size) is not None:
            excess -= size
    _pooled.bytes = pooled_bytes()


def _pop(size: int) -> mmap.mmap | None:
    """A free block of a size, taken from those that are free; None if there is none."""
    try:
        return _free[size].pop()
    except (IndexError, KeyError):
        return None


@lru_cache(1024)
def _rounded(size: int) -> int:
    """A size, to the next of eight steps between powers of two: sizes that vary a little share blocks."""
    step = max(1 << max(size.bit_length() - 4, 0), mmap.PAGESIZE)
    return -(-max(size, 1) // step) * step


def _take(size: int) -> mmap.mmap | None:
    """A free block of a size, if there is one."""
    block = _pop(size)
    if block is not None:
        _pooled.bytes -= size
    return block


def _new_block(size: int) -> mmap.mmap:
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        block = mmap.mmap(-1, size, **private)
    except (OSError, OverflowError):
        raise MemoryError(f"{size} bytes for an array") from None
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block
