"""Calls of libraries from generated code: copies of memory, and matrix products by BLAS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.backends.llvm.emit.indices import ONE
from weft.backends.llvm.emit.types import PARTS, REGISTER, Value, constant
from weft.base.dtypes import DType, complex64, complex128, float32, float64, int64
from weft.errors import DtypeError
from weft.loop.index import Index
from weft.loop.ir import Buffer, Copy, Matmul

if TYPE_CHECKING:
    from weft.backends.llvm.emit.statements import Statements

_GEMM: dict[DType, str] = {float32: "sgemm", float64: "dgemm", complex64: "cgemm", complex128: "zgemm"}
_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112  # the numbers of the C interface of BLAS


class LibraryCalls:
    """Writes copies and matrix products."""

    def __init__(self, code: Statements) -> None:
        self._writer, self._scalars = code.writer, code.scalars
        self._indices, self._places = code.indices, code.places

    def copy(self, s: Copy) -> None:
        """By the system's own copy of memory."""
        count = self._indices.index_value(s.count)
        for buffer, index in ((s.target, s.target_index), (s.source, s.source_index)):
            count = self._checked(buffer, index, count)
        target = self._places.address(s.target, s.target_index)
        source = self._places.address(s.source, s.source_index)
        size = self._indices.product(count, constant(s.target.dtype.itemsize, int64))
        self._writer.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        places = f"ptr {target.parts[0]}, ptr {source.parts[0]}"
        self._writer.line(f"call void @llvm.memcpy.p0.p0.i64({places}, i64 {size.parts[0]}, i1 false)")

    def _checked(self, buffer: Buffer, index: Index, count: Value) -> Value:
        """A number of elements from an index on; in code with checks 0, if the buffer does not hold them."""
        if not self._places.debug:
            return count
        e, first = self._scalars, self._indices.index_value(index)
        last = e.add(first, count)
        wrong = e.and_(self._places.lies_outside(buffer, first, last), e.lt(0, count))
        self._places.fail_outside(wrong, buffer, e.sub(last, 1))
        return e.select(wrong, 0, count)

    def matmul(self, s: Matmul) -> None:
        """By BLAS."""
        dtype = s.c[0].dtype
        if dtype not in _GEMM:
            message = f"a matrix product by BLAS must be of floats of 4 or 8 bytes, got {dtype.name}"
            raise DtypeError("matmul", message)
        m, n, k = (self._indices.index_value(x) for x in (s.m, s.n, s.k))
        if self._places.debug:
            m = self._checked_matrices(s, m, n, k)
        shapes = ((k, m) if s.transposed[0] else (m, k), (n, k) if s.transposed[1] else (k, n), (m, n))
        distances = [self._distance(rows, shape[1]) for rows, shape in zip(s.rows, shapes, strict=True)]
        matrices = [f"ptr {self._places.address(*place).parts[0]}" for place in (s.a, s.b, s.c)]
        ways = [f"i32 {_TRANSPOSED if t else _AS_IT_IS}" for t in s.transposed]
        sizes = [self._int(x) for x in (m, n, k)]
        one, zero = self._factor(1, dtype), self._factor(int(s.add), dtype)
        (a, b, c), (a_rows, b_rows, c_rows) = matrices, distances
        args = [f"i32 {_ROW_MAJOR}", *ways, *sizes, one, a, a_rows, b, b_rows, zero, c, c_rows]
        name = f"@scipy_cblas_{_GEMM[dtype]}"
        self._writer.declare(f"void {name}({', '.join([arg.split()[0] for arg in args])})")
        self._writer.line(f"call void {name}({', '.join(args)})")

    def _checked_matrices(self, s: Matmul, m: Value, n: Value, k: Value) -> Value:
        """The number of rows of a product; in code with checks 0, if a matrix does not fit its buffer."""
        shapes = ((k, m) if s.transposed[0] else (m, k), (n, k) if s.transposed[1] else (k, n), (m, n))
        e = self._scalars
        empty = e.eq(e.mul(e.mul(m, n), k), 0)
        for (buffer, index), rows, (height, width) in zip((s.a, s.b, s.c), s.rows, shapes, strict=True):
            count = e.add(e.mul(e.sub(height, 1), self._indices.index_value(rows)), width)
            kept = self._checked(buffer, index, e.select(empty, 0, count))
            m = e.select(e.and_(e.not_(empty), e.eq(kept, 0)), 0, m)
        return m

    def _distance(self, rows: Index, width: Value) -> str:
        """The distance between rows; BLAS wants at least a row's length, also where there is one only."""
        return self._int(self._scalars.max(self._scalars.max(self._indices.index_value(rows), width), ONE))

    def _int(self, x: Value) -> str:
        if x.number is not None:
            return f"i32 {x.number}"
        return f"i32 {self._writer.pure(f'trunc i64 {x.parts[0]} to i32', x.scope)}"

    def _factor(self, number: int, dtype: DType) -> str:
        """A factor as an argument: complex ones are passed by address."""
        value = constant(number, dtype)
        type_ = REGISTER[dtype]
        if dtype not in PARTS:
            return f"{type_} {value.parts[0]}"
        at = self._writer.slot(f"[2 x {type_}]")
        for i, part in enumerate(value.parts):
            place = self._writer.here(f"getelementptr {type_}, ptr {at}, i64 {i}")
            self._writer.line(f"store {type_} {part}, ptr {place}")
        return f"ptr {at}"
