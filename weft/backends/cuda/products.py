"""Products of matrices by cuBLASLt.

The library thinks in columns: what is row by row to us is the transposed matrix to it. So ``c = a @ b`` is
asked for as ``c.T = b.T @ a.T``, without moving an element.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from ctypes import byref, c_float, c_size_t, c_void_p
from math import gcd

from weft.backends.cuda.card import Card
from weft.backends.cuda.choosing import choose
from weft.backends.cuda.cublaslt import Heuristic, Library, library_of
from weft.backends.cuda.program import ALIGNMENT, MatrixProduct, evaluate
from weft.backends.cuda.streams import Stream
from weft.base.dtypes import DType, bfloat16, float16, float32, float64
from weft.base.records import NamedTuple
from weft.config import settings
from weft.errors import DeviceError

# of cudaDataType and cublasComputeType: elements, what is summed in, what factors are given in
_KINDS: dict[DType, tuple[int, int, int]] = {
    float32: (0, 68, 0),
    float64: (1, 70, 1),
    float16: (2, 68, 0),
    bfloat16: (14, 68, 0),
}
_TF32 = 77  # of cublasComputeType: float32 factors with mantissas of ten bits


class Shape(NamedTuple):
    """A product whose sizes are known; see ``MatrixProduct``.

    Attributes:
        alignments: what the addresses of a, b and c are surely multiples of, in bytes.
        tf32: whether factors may lose bits.
        bias: whether a row is added to each one of the product.
        result: dtype of c, and of that row, if it is another one.
    """

    dtype: DType
    m: int
    n: int
    k: int
    rows: tuple[int, ...]
    transposed: tuple[bool, bool]
    add: bool
    batch: int
    strides: tuple[int, ...]
    alignments: tuple[int, ...]
    tf32: bool
    bias: bool = False
    result: DType | None = None

    @classmethod
    def of(cls, step: MatrixProduct, sizes: Mapping[str, int]) -> Shape:
        """The product of a step."""
        if step.dtype not in _KINDS:
            raise DeviceError("matmul", f"dtype must be floating, got {step.dtype.name}")
        m, n, k, batch = (evaluate(x, sizes) for x in (step.m, step.n, step.k, step.batch))
        rows, strides = (tuple([evaluate(x, sizes) for x in group]) for group in (step.rows, step.strides))
        offsets = [evaluate(place.offset, sizes) for place in (step.a, step.b, step.c)]
        alignments = tuple([gcd(ALIGNMENT, offset) for offset in offsets])
        tf32 = step.dtype == float32 and settings.matmul_precision == "tf32"
        return cls(
            step.dtype, m, n, k, rows, step.transposed, step.add, batch, strides if batch != 1 else (0, 0, 0),
            alignments, tf32, step.bias is not None, step.result,
        )  # fmt: skip

    def flops(self) -> int:
        """Operations on numbers that it takes."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def result_dtype(self) -> DType:
        """Of c."""
        return self.result or self.dtype

    @property
    def rounds_once(self) -> bool:
        """Whether parts of sums must not be stored in the dtype of c: halves with a bias."""
        return self.bias and self.result_dtype.itemsize == 2

    def extents(self) -> tuple[int, int, int]:
        """Bytes from the first to the last element of a, b and c."""
        a = (self.k, self.m) if self.transposed[0] else (self.m, self.k)
        b = (self.n, self.k) if self.transposed[1] else (self.k, self.n)
        sizes = []
        dtypes = (self.dtype, self.dtype, self.result_dtype)
        sides = zip((a, b, (self.m, self.n)), self.rows, self.strides, dtypes, strict=True)
        for (high, wide), row, stride, dtype in sides:
            last = (self.batch - 1) * stride + (high - 1) * max(row, wide) + wide
            sizes.append(last * dtype.itemsize)
        return sizes[0], sizes[1], sizes[2]


class Product:
    """A product of matrices whose sizes are known, with the algorithm for it.

    Attributes:
        library: that multiplies.
        shape: of what.
        workspace: bytes that it works in; whoever calls gives them.
    """

    def __init__(self, library: Library, shape: Shape) -> None:
        self.library, self.shape = library, shape
        element, compute, scale = _KINDS[shape.dtype]
        elements = (element, element, _KINDS[shape.result_dtype][0])
        compute = _TF32 if shape.tf32 else compute
        number = c_float if scale == 0 else ctypes.c_double
        self._one, self._before = number(1.0), number(1.0 if shape.add else 0.0)
        turned = shape.transposed
        self.description = library.description(compute, scale, (turned[1], turned[0]), bias=shape.bias)
        self._lock = threading.Lock()
        # in columns: b.T is n x k, a.T is k x m, c.T is n x m
        m, n, k = shape.m, shape.n, shape.k
        sides = ((m, k) if turned[0] else (k, m)), ((k, n) if turned[1] else (n, k)), (n, m)
        a, b, c = (
            library.layout(kind, *side, row, shape.batch, stride)
            for kind, side, row, stride in zip(elements, sides, shape.rows, shape.strides, strict=True)
        )
        self.layouts = (b, a, c, c)
        self._chosen = choose(self)
        self.workspace = int(self._chosen.workspace)

    @classmethod
    def of(cls, card: Card, step: MatrixProduct, sizes: Mapping[str, int]) -> Product:
        """The product of a step, of which no size is 0; equal ones are one."""
        library, shape = library_of(card), Shape.of(step, sizes)
        key = (id(library), shape)
        with _lock:  # what is timed by two threads at once is timed wrongly
            known = _known.get(key)
            if known is None or known.library is not library:
                if len(_known) >= _MOST:
                    _known.clear()
                known = _known[key] = cls(library, shape)
        return known

    def run(self, c: int, a: int, b: int, workspace: int, stream: Stream, bias: int = 0) -> None:
        """Multiply on a stream."""
        if code := self.trial(self._chosen, c, a, b, workspace, stream, bias):
            raise DeviceError("matmul", f"cublasLtMatmul must succeed, got error {code}")

    def trial(
        self, by: Heuristic, c: int, a: int, b: int, workspace: int, stream: Stream, bias: int = 0
    ) -> int:
        """Multiply by an algorithm; gives the library's return code."""
        if not self.shape.bias:
            return self._multiply(by, c, a, b, workspace, stream)
        with self._lock:  # where the row is stands in the description, which threads share
            self.library.set_bias(self.description, bias)
            return self._multiply(by, c, a, b, workspace, stream)

    def _multiply(self, by: Heuristic, c: int, a: int, b: int, workspace: int, stream: Stream) -> int:
        one, before = byref(self._one), byref(self._before)
        left, right, out, _ = self.layouts
        return self.library.code(
            "cublasLtMatmul", self.library.handle, self.description, one, c_void_p(b), left, c_void_p(a),
            right, before, c_void_p(c), out, c_void_p(c), out, byref(by.algorithm), c_void_p(workspace),
            c_size_t(by.workspace), c_void_p(stream.handle),
        )  # fmt: skip


_MOST = 4096
_known: dict[tuple[int, Shape], Product] = {}
_lock = threading.Lock()
