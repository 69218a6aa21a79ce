"""Calls of libraries from generated code: copies of memory, and matrix products by BLAS."""

from __future__ import annotations

from weft.backends.llvm.body import Body
from weft.backends.llvm.indices import ONE
from weft.backends.llvm.target import Target
from weft.backends.llvm.types import PARTS, REGISTER, Value, constant
from weft.backends.llvm.writer import Writer
from weft.base.dtypes import DType, complex64, complex128, float32, float64, int64
from weft.errors import DtypeError
from weft.loop.index import Index
from weft.loop.ir import Buffer, Copy, Matmul

_GEMM: dict[DType, str] = {float32: "sgemm", float64: "dgemm", complex64: "cgemm", complex128: "zgemm"}
_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112  # the numbers of the C interface of BLAS


class Calls(Body):
    """Writes copies and matrix products, too."""

    def __init__(self, writer: Writer, target: Target, *, debug: bool) -> None:
        super().__init__(writer, target, debug=debug)
        self.ways |= {Copy: self._copy, Matmul: self._matmul}

    def _copy(self, s: Copy) -> None:
        count = self.index_value(s.count)
        for buffer, index in ((s.target, s.target_index), (s.source, s.source_index)):
            count = self._checked(buffer, index, count)
        target, source = self.address(s.target, s.target_index), self.address(s.source, s.source_index)
        size = self.product(count, constant(s.target.dtype.itemsize, int64))
        self.writer.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        places = f"ptr {target.parts[0]}, ptr {source.parts[0]}"
        self.writer.line(f"call void @llvm.memcpy.p0.p0.i64({places}, i64 {size.parts[0]}, i1 false)")

    def _checked(self, buffer: Buffer, index: Index, count: Value) -> Value:
        """A number of elements from an index on; in code with checks 0, if the buffer does not hold them."""
        if not self.debug:
            return count
        first = self.index_value(index)
        last = self.add(first, count)
        outside = self.or_(self.lt(first, 0), self.lt(self.number(buffer.size), last))
        wrong = self.and_(outside, self.lt(0, count))
        self.fail_outside(wrong, buffer, self.sub(last, 1))
        return self.select(wrong, 0, count)

    def _matmul(self, s: Matmul) -> None:
        dtype = s.c[0].dtype
        if dtype not in _GEMM:
            raise DtypeError(
                "matmul", f"a matrix product by BLAS must be of floats of 4 or 8 bytes, got {dtype.name}"
            )
        m, n, k = (self.index_value(x) for x in (s.m, s.n, s.k))
        if self.debug:
            m = self._checked_matrices(s, m, n, k)
        shapes = ((k, m) if s.transposed[0] else (m, k), (n, k) if s.transposed[1] else (k, n), (m, n))
        distances = [self._distance(rows, shape[1]) for rows, shape in zip(s.rows, shapes, strict=True)]
        matrices = [f"ptr {self.address(*place).parts[0]}" for place in (s.a, s.b, s.c)]
        ways = [f"i32 {_TRANSPOSED if t else _AS_IT_IS}" for t in s.transposed]
        sizes = [self._int(x) for x in (m, n, k)]
        one, zero = self._factor(1, dtype), self._factor(int(s.add), dtype)
        a, b, c = matrices
        args = [
            f"i32 {_ROW_MAJOR}",
            *ways,
            *sizes,
            one,
            a,
            distances[0],
            b,
            distances[1],
            zero,
            c,
            distances[2],
        ]
        name = f"@scipy_cblas_{_GEMM[dtype]}"
        self.writer.declare(f"void {name}({', '.join([arg.split()[0] for arg in args])})")
        self.writer.line(f"call void {name}({', '.join(args)})")

    def _checked_matrices(self, s: Matmul, m: Value, n: Value, k: Value) -> Value:
        """The number of rows of a product; in code with checks 0, if a matrix does not fit its buffer."""
        shapes = ((k, m) if s.transposed[0] else (m, k), (n, k) if s.transposed[1] else (k, n), (m, n))
        empty = self.eq(self.mul(self.mul(m, n), k), 0)
        for (buffer, index), rows, (height, width) in zip((s.a, s.b, s.c), s.rows, shapes, strict=True):
            count = self.add(self.mul(self.sub(height, 1), self.index_value(rows)), width)
            kept = self._checked(buffer, index, self.select(empty, 0, count))
            m = self.select(self.and_(self.not_(empty), self.eq(kept, 0)), 0, m)
        return m

    def _distance(self, rows: Index, width: Value) -> str:
        """The distance between rows; BLAS wants at least a row's length, also where there is one only."""
        return self._int(self.max(self.max(self.index_value(rows), width), ONE))

    def _int(self, x: Value) -> str:
        if x.number is not None:
            return f"i32 {x.number}"
        return f"i32 {self.writer.pure(f'trunc i64 {x.parts[0]} to i32', x.scope)}"

    def _factor(self, number: int, dtype: DType) -> str:
        """A factor as an argument: complex ones are passed by address."""
        value = constant(number, dtype)
        type_ = REGISTER[dtype]
        if dtype not in PARTS:
            return f"{type_} {value.parts[0]}"
        at = self.writer.slot(f"[2 x {type_}]")
        for i, part in enumerate(value.parts):
            place = self.writer.here(f"getelementptr {type_}, ptr {at}, i64 {i}")
            self.writer.line(f"store {type_} {part}, ptr {place}")
        return f"ptr {at}"
