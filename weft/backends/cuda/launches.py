"""Launches of kernels: a record that is filled in once, of which a call changes what it must.

All parameters of weft's kernels take eight bytes or less, so the record has a word for each. The driver reads
them before a launch returns; so one record serves call after call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from weft.backends.cuda import native
from weft.backends.cuda.modules import Function
from weft.backends.cuda.native import BLOCK, COUNT, FUNCTION, GRID, HEADER, KERNEL, SHARED, STREAM
from weft.backends.cuda.streams import Stream
from weft.errors import WeftError

Three = tuple[int, int, int]
_ALL = 0xFFFFFFFFFFFFFFFF


class Launch:
    """A kernel with the record of its launches.

    Attributes:
        function: the kernel.
        record: all that a launch needs, a word each; see ``weft.backends.cuda.native``.
        address: of the record.
        words: the arguments in it.
        params: the address of pointers to them, for who takes these.
        call: ``(address, *words) -> code``: launches with these for the first arguments; None without.
    """

    __slots__ = ("_pointers", "address", "call", "function", "params", "record", "words")

    def __init__(self, function: Function, count: int) -> None:
        self.function = function
        self.record = (ctypes.c_uint64 * (HEADER + max(count, 1)))()
        self.address = ctypes.addressof(self.record)
        self.words = (ctypes.c_uint64 * max(count, 1)).from_buffer(self.record, 8 * HEADER)
        start = self.address + 8 * HEADER
        self._pointers = (ctypes.c_uint64 * max(count, 1))(*[start + 8 * i for i in range(count)])
        self.params = ctypes.addressof(self._pointers)
        self.record[KERNEL], self.record[COUNT] = function.handle, count
        self.record[FUNCTION] = function.card.launch_address
        fits = self.record[FUNCTION] and count <= native.MOST
        self.call = native.native_launch() if fits else None

    def set(self, *values: int) -> None:
        """Fill in all arguments; negative ones as two's complement."""
        for i, value in enumerate(values):
            self.words[i] = value & _ALL

    def shape(self, grid: Sequence[int], block: Sequence[int], shared: int) -> None:
        """Say how many blocks of how many threads there are, and what memory they share."""
        self.record[GRID : GRID + 3] = list(grid)
        self.record[BLOCK : BLOCK + 3] = list(block)
        self.record[SHARED] = shared
        if shared > self.function.dynamic_shared:
            self.function.allow_shared(shared)

    def start(self, stream: Stream, *words: int) -> None:
        """Launch on a stream, with these for the first arguments."""
        self.record[STREAM] = stream.handle
        if self.call is None:
            for i, word in enumerate(words):
                self.words[i] = word
            grid, block = self.record[GRID : GRID + 3], self.record[BLOCK : BLOCK + 3]
            shared, driver = self.record[SHARED], self.function.card.driver
            driver.cuLaunchKernel(self.function.handle, *grid, *block, shared, stream.handle, self.params, 0)
        elif code := self.call(self.address, *words):
            raise self.failure(code)

    def failure(self, code: int) -> WeftError:
        """The error of a launch that failed."""
        return self.function.card.driver.failure("cuLaunchKernel", code)

    def run(self, grid: Sequence[int], block: Sequence[int], shared: int, stream: Stream) -> None:
        """Launch with the arguments as they are."""
        self.shape(grid, block, shared)
        self.start(stream)
