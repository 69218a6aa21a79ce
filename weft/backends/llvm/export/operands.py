"""Numbers in memory as what ``printf`` takes."""

from __future__ import annotations

from llvmlite import ir

from weft.backends.llvm.export.code import DOUBLE, I64, Code
from weft.base.dtypes import DType, float32, kind


def write_operand(c: Code, address: ir.Value, dtype: DType) -> ir.Value:
    """The number at an address: 64 bits of an int, a double, or the name of a bool."""
    letter = kind(dtype)
    if letter == "f":
        found = c.b.load(address, typ=ir.FloatType() if dtype == float32 else DOUBLE)
        return c.b.fpext(found, DOUBLE) if dtype == float32 else found
    found = c.b.load(address, typ=ir.IntType(8 * dtype.itemsize))
    if letter == "b":
        return c.b.select(c.compare("!=", found, 0), c.unit.text("True"), c.unit.text("False"))
    return c.b.sext(found, I64) if letter == "i" else c.b.zext(found, I64)
