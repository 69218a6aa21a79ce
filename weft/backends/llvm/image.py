"""Images in memory: the bytes put at a place, the table of addresses filled in, and let run.

Memory is never writable and executable at the same time. Where the system refuses, or a name from outside is
not there, there is no code, and it is compiled instead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from weft.backends.llvm.code import Code
from weft.base.records import NamedTuple


class Image(NamedTuple):
    """Machine code that can be put anywhere.

    Attributes:
        data: its bytes; code and constants first, then what is written.
        fixed: how many bytes are never written, a multiple of the page.
        exports: from the names of functions to their places.
        imports: from the names of what is outside to the places of their addresses.
        rebased: places that hold a place in the image, where there is to be its address.
    """

    data: bytes
    fixed: int
    exports: dict[str, int]
    imports: dict[str, int]
    rebased: list[int]


def load_image(image: Image, address_of: Callable[[str], int | None]) -> dict[str, Code] | None:
    """The functions of an image by name, in memory as long as one of them is held; None if it cannot be.

    Args:
        image: what to load.
        address_of: tells where something outside is, or None.
    """
    if not _is_whole(image):
        return None
    addresses = {at: address_of(name) for name, at in image.imports.items()}
    if not all(addresses.values()):
        return None
    pages, fetch_anew = _new_pages(len(image.data)), _instruction_cache()
    if pages is None or fetch_anew is None:
        return None
    base = pages.address
    ctypes.memmove(base, image.data, len(image.data))
    for at in image.rebased:
        ctypes.c_int64.from_address(base + at).value += base
    for at, address in addresses.items():
        ctypes.c_uint64.from_address(base + at).value = address or 0
    fetch_anew(base, base + image.fixed)
    if image.fixed and _system().mprotect(base, image.fixed, mmap.PROT_READ | mmap.PROT_EXEC):
        return None
    return {name: Code(name, base + at, pages) for name, at in image.exports.items()}


class _Pages:
    """Memory of the system, given back when nobody holds this object.

    Not so when the interpreter ends: threads of the pool still run then, and what they run must stay.
    """

    __slots__ = ("_unmap", "address", "size")

    def __init__(self, address: int, size: int, unmap: Callable[[int, int], int]) -> None:
        self.address = address
        self.size = size
        self._unmap = unmap

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self._unmap(self.address, self.size)


def _new_pages(size: int) -> _Pages | None:
    """Memory that can be written, which begins with a page; None if there is none."""
    system, rights = _system(), mmap.PROT_READ | mmap.PROT_WRITE
    address = system.mmap(None, max(size, 1), rights, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    failed = address is None or address == ctypes.c_void_p(-1).value
    return None if failed else _Pages(address, max(size, 1), system.munmap)


@lru_cache
def _system() -> Any:
    library = ctypes.CDLL(None)
    number, size, place = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
    library.mmap.argtypes, library.mmap.restype = (place, size, number, number, number, ctypes.c_long), place
    library.munmap.argtypes, library.munmap.restype = (place, size), number
    library.mprotect.argtypes, library.mprotect.restype = (place, size, number), number
    return library


@lru_cache
def _instruction_cache() -> Callable[[int, int], Any] | None:
    """Has processors fetch anew what is between two addresses; None where nobody can do it.

    Those of ARM do not see by themselves that instructions were written.
    """
    if os.uname().machine == "x86_64":
        return lambda begin, end: None
    try:
        clear = ctypes.CDLL("libgcc_s.so.1")["__clear_cache"]
    except (OSError, AttributeError):
        return None
    clear.argtypes, clear.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    return clear


def _is_whole(image: Image) -> bool:
    """Whether all places of an image are in it, and none of those that are written in what is fixed."""
    size = len(image.data)
    written = all(image.fixed <= at <= size - 8 for at in image.imports.values())
    inside = all(0 <= at < size for at in image.exports.values())
    moved = all(0 <= at <= size - 8 for at in image.rebased)
    return written and inside and moved and 0 <= image.fixed <= size and image.fixed % mmap.PAGESIZE == 0


def process_address(name: str) -> int | None:
    """Where a function is that the process has, such as one of the C library.

    >>> from weft.backends.llvm.image import process_address
    >>> process_address("free") is not None, process_address("no_such_function") is None
    (True, True)
    """
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        return None
    return ctypes.cast(function, ctypes.c_void_p).value
