"""cuBLASLt by its C functions, with a handle of weft's own for each device."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from functools import cache
from importlib.util import find_spec
from typing import Any

from weft.backends.cuda.card import Card, PerCard
from weft.backends.cuda.driver import INSTALL
from weft.errors import DeviceError

WORKSPACE = 64 << 20  # bytes, at most
# of cublasLtMatmulDescAttributes
TRANSPOSE_A, TRANSPOSE_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_ADD_BIAS = 4  # of cublasLtEpilogue
_SOMEWHERE = 4096  # an address that is aligned, to ask for algorithms with
# of cublasLtMatrixLayoutAttribute
_BATCHES, _BATCH_STRIDE = 5, 6
# of cublasLtMatmulPreferenceAttributes: bytes of workspace, how parts of a sum are added, what addresses of
# a, b, c, d are multiples of
_LIMIT, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)
_IN_SINGLE = 2  # of cublasLtReductionScheme: parts are kept in what is summed in, not in the result's dtype


class Heuristic(ctypes.Structure):
    """An algorithm that the library offers: 64 bytes that only it understands, and the memory it works in."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@cache
def find_library(name: str, versions: tuple[int, ...] = (13, 12)) -> str | None:
    """The path of a library of CUDA: one that a package has, or that the system finds; None if none is."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib(name).abs_path
        return None if found is None else str(found)
    except Exception:  # whatever keeps it from being found, the system may know better
        for path in _candidates(name, versions):
            try:
                ctypes.CDLL(path)
                return path
            except OSError:
                continue
    return None


def _candidates(name: str, versions: tuple[int, ...]) -> Iterator[str]:
    """Where a library may be: in a package of NVIDIA's, or where the system looks."""
    files = [f"lib{name}.so.{version}" for version in versions]
    with suppress(ImportError, ValueError):  # no package of NVIDIA's at all
        found = find_spec(f"nvidia.{name}")
        places = [] if found is None else list(found.submodule_search_locations or ())
        yield from [f"{place}/lib/{file}" for place in places for file in files]
    yield from files


def load_functions() -> Any:
    """The functions of the library; an error that says what helps where there is none."""
    path = find_library("cublasLt")
    if path is None:
        raise DeviceError("matmul", "the library cublasLt must be there, got none", hint=INSTALL)
    return ctypes.CDLL(path)


class Library:
    """cuBLASLt on one device. Threads and streams may use it at once: it holds nothing of a call.

    Attributes:
        card: the device.
        handle: of the library.
        version: of the library.
    """

    def __init__(self, card: Card) -> None:
        self._functions = load_functions()
        card.enter()
        self.card = card
        self.handle = c_void_p()
        self.call("cublasLtCreate", byref(self.handle))
        self._functions.cublasLtGetVersion.restype = c_size_t
        self.version = int(self._functions.cublasLtGetVersion())

    def call(self, name: str, *args: Any) -> None:
        """Call a function of the library; its return code is looked at."""
        if code := self.code(name, *args):
            raise DeviceError("matmul", f"{name} must succeed, got error {code}")

    def code(self, name: str, *args: Any) -> int:
        """The return code of a function that may fail for reasons that the caller knows what to do with."""
        return int(getattr(self._functions, name)(*args))

    def description(
        self, compute: int, scale: int, transposed: tuple[bool, bool], *, bias: bool = False
    ) -> c_void_p:
        """What is computed: in which precision, which sides are transposed, and whether a bias is added."""
        made = c_void_p()
        self.call("cublasLtMatmulDescCreate", byref(made), compute, scale)
        for attribute, turned in zip((TRANSPOSE_A, TRANSPOSE_B), transposed, strict=True):
            value = c_int(int(turned))
            size = c_size_t(sizeof(value))
            self.call("cublasLtMatmulDescSetAttribute", made, attribute, byref(value), size)
        if bias:
            what = c_int(_ADD_BIAS)
            size = c_size_t(sizeof(what))
            self.call("cublasLtMatmulDescSetAttribute", made, _EPILOGUE, byref(what), size)
            self.set_bias(made, _SOMEWHERE)
        return made

    def set_bias(self, description: c_void_p, pointer: int) -> None:
        """Say where the row is that is added."""
        place = c_void_p(pointer)
        size = c_size_t(sizeof(place))
        self.call("cublasLtMatmulDescSetAttribute", description, _BIAS_POINTER, byref(place), size)

    def layout(self, element: int, high: int, wide: int, column: int, batch: int, stride: int) -> c_void_p:
        """A matrix of columns that are ``column`` elements apart, or a batch of them."""
        made, apart = c_void_p(), c_int64(max(column, high))
        create = "cublasLtMatrixLayoutCreate"
        self.call(create, byref(made), element, c_uint64(high), c_uint64(wide), apart)
        if batch != 1:
            set_attribute = "cublasLtMatrixLayoutSetAttribute"
            count, distance = c_int(batch), c_int64(stride)
            self.call(set_attribute, made, _BATCHES, byref(count), c_size_t(4))
            self.call(set_attribute, made, _BATCH_STRIDE, byref(distance), c_size_t(8))
        return made

    def heuristics(
        self,
        description: c_void_p,
        layouts: tuple[c_void_p, ...],
        alignments: tuple[int, ...],
        most: int,
        *,
        once: bool = False,
    ) -> list[Heuristic]:
        """What the library thinks is best for a product, the best first; ``once`` if it must round once."""
        preference, found, count = c_void_p(), (Heuristic * most)(), c_int()
        self.call("cublasLtMatmulPreferenceCreate", byref(preference))
        set_attribute, limit = "cublasLtMatmulPreferenceSetAttribute", c_size_t(WORKSPACE)
        self.call(set_attribute, preference, _LIMIT, byref(limit), c_size_t(8))
        if once:
            schemes = c_uint32(_IN_SINGLE)
            self.call(set_attribute, preference, _REDUCTIONS, byref(schemes), c_size_t(4))
        for attribute, alignment in zip(_ALIGNMENTS, alignments, strict=True):
            value = c_uint32(alignment)
            self.call(set_attribute, preference, attribute, byref(value), c_size_t(4))
        ask = "cublasLtMatmulAlgoGetHeuristic"
        code = self.code(
            ask, self.handle, description, *layouts, preference, most, byref(found), byref(count)
        )
        self.call("cublasLtMatmulPreferenceDestroy", preference)
        if code or not count.value:
            raise DeviceError("matmul", f"cublasLt must have an algorithm for the matrices, got error {code}")
        return [found[i] for i in range(count.value) if not found[i].state]

    def accepted(
        self, description: c_void_p, layouts: tuple[c_void_p, ...], algorithm: bytes
    ) -> Heuristic | None:
        """An algorithm that was kept, if the library takes it for such a product."""
        found = Heuristic()
        given = (c_uint64 * 8).from_buffer_copy(algorithm)
        check = "cublasLtMatmulAlgoCheck"
        if self.code(check, self.handle, description, *layouts, byref(given), byref(found)):
            return None
        if found.state or found.workspace > WORKSPACE:
            return None
        found.algorithm = given
        return found


_libraries = PerCard(Library)


def library_of(card: Card) -> Library:
    """The library on a device."""
    return _libraries.of(card)


def forget_libraries() -> None:
    """Drop all handles, for tests that put another driver in place."""
    _libraries.forget()
