"""Arithmetic, comparison and bits of bools, integers and real floating numbers on LLVM values.

Every instruction is defined for all operands: nothing here is undefined behaviour, so code may be hoisted.

A product and the sum that it goes into are rounded once, by a fused instruction, where the machine has one.
That is decided here, by one rule: left to LLVM, it would depend on how often a loop turns, and so would bits.
"""

from __future__ import annotations

import numpy as np

from weft.backends.llvm.emit.instructions import InstructionSet
from weft.backends.llvm.emit.registers import Registers
from weft.backends.llvm.emit.types import Value, constant
from weft.base.dtypes import bool_, kind

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and_": "and", "or_": "or", "xor": "xor"}
_BOOL = {**_INTEGER, "add": "or", "mul": "and", "min": "and", "max": "or", "sub": "xor"}
_COMPARE = {"eq": ("oeq", "eq", "eq"), "lt": ("olt", "slt", "ult"), "le": ("ole", "sle", "ule")}
_INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "trunc": "trunc", "round": "rint"}


class Reals:
    """The instructions on bools, integers and real floating numbers."""

    def __init__(self, registers: Registers, machine: InstructionSet) -> None:
        self.registers, self.machine = registers, machine
        self.instruction, self.intrinsic = registers.instruction, registers.intrinsic
        self._products: dict[str, tuple[Value, Value]] = {}  # by register, the factors

    def arithmetic(self, name: str, x: Value, y: Value) -> Value:
        """Add, sub, mul, and the bit operations."""
        k = kind(x.dtype)
        if k == "f":
            return self._of_floats(name, x, y)
        return self.instruction((_BOOL if k == "b" else _INTEGER)[name], x.dtype, x, y)

    def _of_floats(self, name: str, x: Value, y: Value) -> Value:
        """Add, sub and mul; a sum of which an operand is a product is one with it, rather the second."""
        if not self.machine.fuses:
            return self.instruction(_FLOAT[name] + self.machine.may_fuse, x.dtype, x, y)
        if name == "mul":
            out = self.instruction("fmul", x.dtype, x, y)
            self._products[out.parts[0]] = x, y
            return out
        first, second = (self._products.get(v.parts[0]) for v in (x, y))
        if first is not None and second is not None and _registers(first) == _registers(second):
            first = second = None  # a b - b a is zero
        if second is not None:
            a, b = map(self.registers.moved, second)
            return self.intrinsic("fma", x.dtype, a if name == "add" else self.negative(a), b, x)
        if first is not None:
            a, b = map(self.registers.moved, first)
            return self.intrinsic("fma", x.dtype, a, b, y if name == "add" else self.negative(y))
        return self.instruction(_FLOAT[name], x.dtype, x, y)

    def keep_rounded(self, product: Value) -> None:
        """Let a product be one that no sum is fused with, since others see it."""
        self._products.pop(product.parts[0], None)

    def compare(self, name: str, x: Value, y: Value) -> Value:
        """A comparison of reals."""
        k = kind(x.dtype)
        code = _COMPARE[name][0 if k == "f" else 1 if k == "i" else 2]
        return self.instruction(f"{'fcmp' if k == 'f' else 'icmp'} {code}", bool_, x, y)

    def quotient(self, x: Value, y: Value) -> Value:
        """x / y of reals."""
        if kind(x.dtype) == "f":
            return self.instruction("fdiv", x.dtype, x, y)
        safe, zero = self._divisor(x, y)
        out = self.instruction("sdiv" if kind(x.dtype) == "i" else "udiv", x.dtype, x, safe)
        return out if zero is None else self.registers.select(zero, constant(0, x.dtype), out)

    def remainder(self, x: Value, y: Value) -> Value:
        """What is left of x / y of reals."""
        if kind(x.dtype) == "f":
            return self.machine.remainder(self.registers, x, y)
        safe, _ = self._divisor(x, y)
        return self.instruction("srem" if kind(x.dtype) == "i" else "urem", x.dtype, x, safe)

    def _divisor(self, x: Value, y: Value) -> tuple[Value, Value | None]:
        """A divisor that does no harm: 1 for 0, and for -1 below the smallest number; and where it is 0."""
        if y.number is not None and y.number not in (0, -1):
            return y, None
        zero = self.compare("eq", y, constant(0, y.dtype))
        bad = zero
        if kind(x.dtype) == "i":
            smallest = self.compare("eq", x, constant(np.iinfo(x.dtype).min, x.dtype))
            wraps = self.arithmetic("and_", smallest, self.compare("eq", y, constant(-1, y.dtype)))
            bad = self.arithmetic("or_", zero, wraps)
        return self.registers.select(bad, constant(1, y.dtype), y), zero

    def extreme(self, name: str, x: Value, y: Value) -> Value:
        """The smaller or larger one of reals, NaN if either is."""
        k = kind(x.dtype)
        if k == "b":
            return self.arithmetic(name, x, y)
        if k != "f":
            return self.intrinsic(("s" if k == "i" else "u") + name, x.dtype, x, y)
        if self.machine.has_minimum:
            return self.intrinsic("minimum" if name == "min" else "maximum", x.dtype, x, y)
        if x.number is not None:
            x, y = y, x
        code = "fcmp olt" if name == "min" else "fcmp ogt"
        out = self.registers.select(self.instruction(code, bool_, y, x), y, x)  # x, where either is NaN
        if y.number is not None and y.number == y.number:
            return out
        return self.registers.select(self.instruction("fcmp uno", bool_, y, y), y, out)

    def shift(self, opcode: str, x: Value, y: Value) -> Value:
        """A shift; only the bits of the distance that matter count."""
        bits = x.dtype.itemsize * 8
        if y.number is None or not 0 <= y.number < bits:
            y = self.arithmetic("and_", y, constant(bits - 1, y.dtype))
        return self.instruction(opcode, x.dtype, x, y)

    def not_(self, x: Value) -> Value:
        """Each bit flipped."""
        return self.instruction("xor", x.dtype, x, constant(True if x.dtype == bool_ else ~0, x.dtype))

    def negative(self, x: Value) -> Value:
        """-x of a real."""
        if kind(x.dtype) == "f":
            return self.instruction("fneg", x.dtype, x)
        return self.instruction("sub", x.dtype, constant(0, x.dtype), x)

    def size(self, x: Value) -> Value:
        """|x| of a real."""
        k = kind(x.dtype)
        if k == "f":
            return self.intrinsic("fabs", x.dtype, x)
        return self.intrinsic("abs", x.dtype, x, flag="false") if k == "i" else x

    def rounding(self, name: str, x: Value) -> Value:
        """The instruction sqrt, floor, trunc or round of a real; integers are whole already."""
        return self.intrinsic(_INTRINSICS[name], x.dtype, x) if kind(x.dtype) == "f" else x


def _registers(factors: tuple[Value, Value]) -> set[str]:
    return {x.parts[0] for x in factors}
