"""Launches of kernels: an argument block that is filled once, and filled in for each call.

All parameters of weft's kernels take eight bytes or less, so the block is one word for each. The driver reads
it before a launch returns; so one block serves call after call, of one thread at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from threading import Lock

from weft.backends.cuda.modules import Function
from weft.backends.cuda.streams import Stream

Three = tuple[int, int, int]


class Launch:
    """A kernel with its argument block.

    Attributes:
        function: the kernel.
        words: its arguments, a word each.
        lock: held by the thread that fills the block and launches.
    """

    __slots__ = ("_pointers", "address", "function", "lock", "words")

    def __init__(self, function: Function, count: int) -> None:
        self.function = function
        self.words = (ctypes.c_uint64 * max(count, 1))()
        start = ctypes.addressof(self.words)
        self._pointers = (ctypes.c_uint64 * max(count, 1))(*[start + 8 * i for i in range(count)])
        self.address = ctypes.addressof(self._pointers)
        self.lock = Lock()

    def set(self, *values: int) -> None:
        """Fill in all arguments; negative ones as two's complement."""
        for i, value in enumerate(values):
            self.words[i] = value & 0xFFFFFFFFFFFFFFFF

    def run(self, grid: Sequence[int], block: Sequence[int], shared: int, stream: Stream) -> None:
        """Launch with the arguments as they are."""
        if shared > self.function.dynamic_shared:
            self.function.allow_shared(shared)
        self.function.card.driver.cuLaunchKernel(
            self.function.handle, *grid, *block, shared, stream.handle, self.address, 0
        )
