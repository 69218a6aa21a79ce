"""Products of matrices by cuBLASLt, called by its C functions with a handle and a workspace of weft's own.

The library thinks in columns: what is row by row to us is the transposed matrix to it. So ``c = a @ b`` is
asked for as ``c.T = b.T @ a.T``, without moving an element.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p, sizeof
from functools import cache
from typing import Any

from weft.backends.cuda.card import Card
from weft.backends.cuda.driver import INSTALL
from weft.backends.cuda.memory import Block
from weft.backends.cuda.program import MatrixProduct, evaluate
from weft.backends.cuda.streams import Stream
from weft.base.dtypes import DType, bfloat16, float16, float32, float64
from weft.errors import DeviceError

_WORKSPACE = 64 << 20  # bytes
# of cudaDataType and cublasComputeType: elements, what is summed in, what factors are given in
_KINDS: dict[DType, tuple[int, int, int]] = {
    float32: (0, 68, 0),
    float64: (1, 70, 1),
    float16: (2, 68, 0),
    bfloat16: (14, 68, 0),
}
_TRANSPOSE_A, _TRANSPOSE_B = 3, 4  # of cublasLtMatmulDescAttributes
_BATCHES, _BATCH_STRIDE = 5, 6  # of cublasLtMatrixLayoutAttribute
_LIMIT = 1  # of cublasLtMatmulPreferenceAttributes: bytes of workspace


class _Heuristic(ctypes.Structure):
    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@cache
def find_library(name: str) -> str | None:
    """The path of a library of CUDA: one that a package has, or that the system finds; None if none is."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib(name).abs_path
        return None if found is None else str(found)
    except Exception:  # whatever keeps it from being found, the system may know better
        for version in (13, 12):
            try:
                ctypes.CDLL(f"lib{name}.so.{version}")
                return f"lib{name}.so.{version}"
            except OSError:
                continue
    return None


class _Library:
    """cuBLASLt on one device: its handle, and memory that products of one stream after another work in."""

    def __init__(self, card: Card) -> None:
        path = find_library("cublasLt")
        if path is None:
            raise DeviceError("matmul", "the library cublasLt must be there, got none", hint=INSTALL)
        card.enter()
        self.card = card
        self.functions: Any = ctypes.CDLL(path)
        self.handle = c_void_p()
        self.call("cublasLtCreate", byref(self.handle))
        self.workspaces: dict[Stream, Block] = {}

    def call(self, name: str, *args: Any) -> None:
        """Call a function of the library; its return code is looked at."""
        code = getattr(self.functions, name)(*args)
        if code:
            raise DeviceError("matmul", f"{name} must succeed, got error {code}")

    def workspace(self, stream: Stream) -> int:
        """Memory for the products of a stream, which are done one after another."""
        block = self.workspaces.get(stream)
        if block is None:
            block = self.workspaces[stream] = self.card.pool.take(_WORKSPACE, stream)
        return block.pointer


_libraries: dict[int, _Library] = {}
_lock = threading.Lock()


def _library(card: Card) -> _Library:
    with _lock:
        found = _libraries.get(id(card))
        if found is None:
            found = _libraries[id(card)] = _Library(card)
    return found


class Product:
    """A product of matrices whose sizes are known, with the algorithm for it."""

    def __init__(self, library: _Library, step: MatrixProduct, sizes: Mapping[str, int]) -> None:
        self.library = library
        self._element, compute, scale = _KINDS[step.dtype]
        number = c_float if scale == 0 else ctypes.c_double
        self._one, self._before = number(1.0), number(1.0 if step.add else 0.0)
        m, n, k, batch = (evaluate(x, sizes) for x in (step.m, step.n, step.k, step.batch))
        rows = [evaluate(x, sizes) for x in step.rows]
        strides = [evaluate(x, sizes) for x in step.strides]
        self._description = c_void_p()
        library.call("cublasLtMatmulDescCreate", byref(self._description), compute, scale)
        for attribute, transposed in ((_TRANSPOSE_A, step.transposed[1]), (_TRANSPOSE_B, step.transposed[0])):
            self._describe(attribute, c_int(int(transposed)))
        # in columns: b.T is n x k, a.T is k x m, c.T is n x m
        b = (k, n) if step.transposed[1] else (n, k)
        a = (m, k) if step.transposed[0] else (k, m)
        self._b = self._layout(*b, rows[1], batch, strides[1])
        self._a = self._layout(*a, rows[0], batch, strides[0])
        self._c = self._layout(n, m, rows[2], batch, strides[2])
        self._chosen = self._choose()

    @classmethod
    def of(cls, card: Card, step: MatrixProduct, sizes: Mapping[str, int]) -> Product:
        """The product of a step, of which no size is 0."""
        if step.dtype not in _KINDS:
            raise DeviceError("matmul", f"dtype must be floating, got {step.dtype.name}")
        return cls(_library(card), step, sizes)

    def run(self, c: int, a: int, b: int, stream: Stream) -> None:
        """Multiply on a stream."""
        one, before = byref(self._one), byref(self._before)
        self.library.call(
            "cublasLtMatmul", self.library.handle, self._description, one, c_void_p(b), self._b, c_void_p(a),
            self._a, before, c_void_p(c), self._c, c_void_p(c), self._c, byref(self._chosen.algorithm),
            c_void_p(self.library.workspace(stream)), c_size_t(_WORKSPACE), c_void_p(stream.handle),
        )  # fmt: skip

    def _describe(self, attribute: int, value: Any) -> None:
        set_attribute = "cublasLtMatmulDescSetAttribute"
        self.library.call(set_attribute, self._description, attribute, byref(value), c_size_t(sizeof(value)))

    def _layout(self, high: int, wide: int, column: int, batch: int, stride: int) -> c_void_p:
        """A matrix of columns that are ``column`` elements apart."""
        layout = c_void_p()
        self.library.call(
            "cublasLtMatrixLayoutCreate", byref(layout), self._element, c_uint64(high), c_uint64(wide),
            c_int64(max(column, high)),
        )  # fmt: skip
        if batch != 1:
            set_attribute = "cublasLtMatrixLayoutSetAttribute"
            count, distance = c_int(batch), c_int64(stride)
            self.library.call(set_attribute, layout, _BATCHES, byref(count), c_size_t(4))
            self.library.call(set_attribute, layout, _BATCH_STRIDE, byref(distance), c_size_t(8))
        return layout

    def _choose(self) -> _Heuristic:
        """The algorithm that the library thinks is best."""
        library, limit = self.library, c_size_t(_WORKSPACE)
        preference, found, count = c_void_p(), _Heuristic(), c_int()
        library.call("cublasLtMatmulPreferenceCreate", byref(preference))
        set_attribute = "cublasLtMatmulPreferenceSetAttribute"
        library.call(set_attribute, preference, _LIMIT, byref(limit), c_size_t(8))
        library.call(
            "cublasLtMatmulAlgoGetHeuristic", library.handle, self._description, self._b, self._a, self._c,
            self._c, preference, 1, byref(found), byref(count),
        )  # fmt: skip
        library.call("cublasLtMatmulPreferenceDestroy", preference)
        if not count.value:
            raise DeviceError("matmul", "cublasLt must have an algorithm for these matrices, got none")
        return found
