"""Memory that processes share, without a name that could outlive them, and trees of arrays written to it.

Arrays are copied as bytes; the rest of a tree (its containers, numbers, texts) is pickled beside them,
between processes of one program and never to a file.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from contextlib import suppress
from typing import Any

import numpy as np

from weft.errors import ArgumentError

HEADER = 64  # bytes at the start, for notes of who works with the memory
_ALIGNMENT = 64
_PAGE = mmap.PAGESIZE


class SharedMemory:
    """Memory of several processes. It grows when more is written to it, and is gone with its last user."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("weft-data", getattr(os, "MFD_CLOEXEC", 0))
        else:
            with tempfile.TemporaryFile() as file:  # its name is gone already
                self._file = os.dup(file.fileno())
        os.ftruncate(self._file, _PAGE)
        self._map = mmap.mmap(self._file, _PAGE)

    def __getstate__(self) -> Any:
        from multiprocessing.reduction import DupFd

        return DupFd(self._file)  # while a process is started: the file is passed on to it

    def __setstate__(self, file: Any) -> None:
        self._file = file.detach()
        self._map = mmap.mmap(self._file, os.fstat(self._file).st_size)

    def view(self, size: int, *, grow: bool = False) -> mmap.mmap:
        """The memory, of at least so many bytes."""
        if len(self._map) < size:
            length = -(-size // _PAGE) * _PAGE
            if grow and os.fstat(self._file).st_size < length:
                os.ftruncate(self._file, length)
            self._map = mmap.mmap(self._file, length)  # the old one lives as long as arrays in it do
        return self._map

    def close(self) -> None:
        """Give it up; arrays that were read from it without a copy keep it."""
        os.close(self._file)
        with suppress(BufferError):  # raised if there are such arrays
            self._map.close()

    # Trees

    def write(self, tree: Any, *, at: int = HEADER) -> int:
        """Write a tree from a byte on; where it ends."""
        arrays, pickled = flatten(tree)
        places, end = [], at
        for array in arrays:
            start = -(-end // _ALIGNMENT) * _ALIGNMENT
            places.append((start, array.shape, array.dtype))
            end = start + array.nbytes
        table = pickle.dumps((places, pickled), protocol=5)
        memory = self.view(end + 8 + len(table), grow=True)
        for array, (start, shape, dtype) in zip(arrays, places, strict=True):
            if array.nbytes:
                np.ndarray(shape, dtype, memory, start)[...] = array
        memory[end : end + 8] = len(table).to_bytes(8, "little")
        memory[end + 8 : end + 8 + len(table)] = table
        return end

    def read(self, end: int, *, copy: bool = True) -> Any:
        """The tree that ends at a byte, its arrays in memory of their own unless told otherwise."""
        memory = self.view(end + 8)
        length = int.from_bytes(memory[end : end + 8], "little")
        memory = self.view(end + 8 + length)
        places, pickled = pickle.loads(memory[end + 8 : end + 8 + length])  # noqa: S301 - of our own process
        found = [np.ndarray(shape, dtype, memory, start) for start, shape, dtype in places]
        return unflatten([a.copy() for a in found] if copy else found, pickled)


class _Pickler(pickle.Pickler):
    """Pickles a tree without its arrays, which it collects."""

    def __init__(self, file: io.BytesIO, arrays: list[Any]) -> None:
        super().__init__(file, protocol=5)
        self._arrays = arrays

    def persistent_id(self, x: Any) -> Any:
        if isinstance(x, np.memmap) and x.filename is not None and isinstance(x.base, mmap.mmap):
            return ("file", str(x.filename), x.dtype, x.shape, x.offset, x.flags.f_contiguous)
        if isinstance(x, np.ndarray) and not x.dtype.hasobject:
            self._arrays.append(x)
            return ("array", len(self._arrays) - 1)
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: list[Any]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, found: Any) -> Any:
        if found[0] == "array":
            return self._arrays[found[1]]
        _, name, dtype, shape, offset, fortran = found
        order: Any = "F" if fortran and len(shape) > 1 else "C"
        return np.memmap(name, dtype, "r", offset, shape, order)


def flatten(tree: Any) -> tuple[list[Any], bytes]:
    """The arrays of a tree, and the rest of it pickled."""
    arrays: list[Any] = []
    file = io.BytesIO()
    try:
        _Pickler(file, arrays).dump(tree)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        hint = "use functions that can be imported, or processes that are forked (start='fork'), or threads"
        message = f"what goes from one process to another must be picklable, got: {error}"
        raise ArgumentError("prefetch", message, hint=hint) from error
    return arrays, file.getvalue()


def unflatten(arrays: list[Any], pickled: bytes) -> Any:
    """The tree of its arrays and the rest of it."""
    return _Unpickler(io.BytesIO(pickled), arrays).load()
