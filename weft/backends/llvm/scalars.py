"""The scalar instructions (``weft.ops.scalar``) on LLVM values: arithmetic, comparison, bits and choice.

Every instruction is defined for all operands: nothing here is undefined behaviour, so code may be hoisted.
Conversions are in ``casts``, complex arithmetic in ``complexes``, functions in ``weft.loop.math.functions``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.backends.llvm.scale import has_scale, scaled
from weft.backends.llvm.target import Target
from weft.backends.llvm.types import HALVES, REGISTER, Value, constant, intrinsic_suffix, splat, vector
from weft.backends.llvm.writer import Writer
from weft.base.dtypes import DType, bool_, float32, kind
from weft.loop.math.functions import EXPANSIONS

_FLOAT = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract"}  # may be fused
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and_": "and", "or_": "or", "xor": "xor"}
_BOOL = {
    "add": "or",
    "mul": "and",
    "min": "and",
    "max": "or",
    "sub": "xor",
    "and_": "and",
    "or_": "or",
    "xor": "xor",
}
_COMPARE = {"eq": ("oeq", "eq", "eq"), "lt": ("olt", "slt", "ult"), "le": ("ole", "sle", "ule")}
_INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "trunc": "trunc", "round": "rint"}


class Registers:
    """Writes instructions on registers: what all kinds of scalar code have in common."""

    def __init__(self, writer: Writer, target: Target) -> None:
        self.writer = writer
        self.target = target
        self.is_arm = target.triple.startswith(("aarch64", "arm64"))
        self.has_half = self.is_arm or target.vector_bytes >= 32  # conversion of float16 by an instruction
        self.falling: set[str] = set()  # registers that hold no positive number

    def dtype(self, x: Value) -> DType:
        """The dtype of a value."""
        return x.dtype

    def constant(self, value: Any, dtype: DType) -> Value:
        """A number."""
        return constant(value, dtype)

    def wide(self, x: Value, lanes: int) -> tuple[str, ...]:
        """The parts of a value in so many lanes."""
        if x.lanes == lanes:
            return x.parts
        scalar = REGISTER[x.dtype]
        if x.number is not None:
            return tuple([splat(part, scalar) for part in x.parts])
        return tuple([self.spread(part, scalar, lanes, x.scope) for part in x.parts])

    def spread(self, part: str, scalar: str, lanes: int, scope: int) -> str:
        """A register in all lanes."""
        type_ = vector(lanes, scalar)
        one = self.writer.pure(f"insertelement {type_} poison, {scalar} {part}, i64 0", scope, cheap=True)
        mask = f"<{lanes} x i32> zeroinitializer"
        text = f"shufflevector {type_} {one}, {type_} poison, {mask}"
        return self.writer.pure(text, scope, cheap=True)

    def in_lanes(self, x: Value, lanes: int) -> Value:
        """A value in so many lanes."""
        if x.lanes == lanes:
            return x
        return Value(x.dtype, self.wide(x, lanes), lanes, x.scope, None, x.rounded)

    def alike(self, *operands: Any) -> tuple[Value, ...]:
        """Operands of one instruction; a number among them is a constant of the others' dtype."""
        if all(isinstance(x, Value) for x in operands):
            return operands
        dtype = next(x.dtype for x in operands if isinstance(x, Value))
        return tuple([x if isinstance(x, Value) else constant(x, dtype) for x in operands])

    def instruction(self, head: str, dtype: DType, *operands: Value) -> Value:
        """An instruction on the first parts of operands of one type, spelled ``head type a, b, ...``."""
        lanes = max([x.lanes for x in operands])
        scope = max([x.scope for x in operands])
        parts = ", ".join([self.wide(x, lanes)[0] for x in operands])
        text = f"{head} {vector(lanes, REGISTER[operands[0].dtype])} {parts}"
        return Value(dtype, (self.writer.pure(text, scope),), lanes, self.writer.home(scope))

    def convert(self, opcode: str, x: Value, dtype: DType, to: str | None = None) -> Value:
        """A conversion instruction on the first part."""
        source, target = vector(x.lanes, REGISTER[x.dtype]), vector(x.lanes, to or REGISTER[dtype])
        text = f"{opcode} {source} {x.parts[0]} to {target}"
        return Value(dtype, (self.writer.pure(text, x.scope),), x.lanes, self.writer.home(x.scope))

    def intrinsic(self, name: str, dtype: DType, *operands: Value, flag: str = "") -> Value:
        """A call of an intrinsic whose operands have one type; a flag is a last operand of type i1."""
        lanes = max([x.lanes for x in operands])
        scope = max([x.scope for x in operands])
        scalar = REGISTER[operands[0].dtype]
        type_ = vector(lanes, scalar)
        full = f"@llvm.{name}.{intrinsic_suffix(lanes, scalar)}"
        types = ", ".join([type_] * len(operands)) + (", i1" if flag else "")
        self.writer.declare(f"{type_} {full}({types})")
        args = ", ".join([f"{type_} {self.wide(x, lanes)[0]}" for x in operands]) + (
            f", i1 {flag}" if flag else ""
        )
        text = f"call {type_} {full}({args})"
        return Value(dtype, (self.writer.pure(text, scope),), lanes, self.writer.home(scope))

    def choose(self, condition: Value, x: Value, y: Value, part: int = 0) -> str:
        """One part of x or y, by a condition."""
        lanes = max(condition.lanes, x.lanes, y.lanes)
        scope = max(condition.scope, x.scope, y.scope)
        type_ = vector(lanes, REGISTER[x.dtype])
        test = f"{vector(condition.lanes, 'i1')} {condition.parts[0]}"
        a, b = self.wide(x, lanes)[part], self.wide(y, lanes)[part]
        return self.writer.pure(f"select {test}, {type_} {a}, {type_} {b}", scope)


class Reals(Registers):
    """The instructions on bools, integers and real floating numbers."""

    def arithmetic(self, name: str, x: Value, y: Value) -> Value:
        """Add, sub, mul, and the bit operations."""
        k = kind(x.dtype)
        table = _FLOAT if k == "f" else _BOOL if k == "b" else _INTEGER
        return self.instruction(table[name], x.dtype, x, y)

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
        return out if zero is None else self.select(zero, constant(0, x.dtype), out)

    def remainder(self, x: Value, y: Value) -> Value:
        """What is left of x / y of reals."""
        if kind(x.dtype) == "f":
            return self.instruction("frem", x.dtype, x, y)
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
        return self.select(bad, constant(1, y.dtype), y), zero

    def extreme(self, name: str, x: Value, y: Value) -> Value:
        """The smaller or larger one of reals, NaN if either is."""
        k = kind(x.dtype)
        if k == "b":
            return self.arithmetic(name, x, y)
        if k != "f":
            return self.intrinsic(("s" if k == "i" else "u") + name, x.dtype, x, y)
        if self.is_arm:
            return self.intrinsic("minimum" if name == "min" else "maximum", x.dtype, x, y)
        if x.number is not None:
            x, y = y, x
        code = "fcmp olt" if name == "min" else "fcmp ogt"
        out = self.select(self.instruction(code, bool_, y, x), y, x)  # x, where either is NaN
        if y.number is not None and y.number == y.number:
            return out
        return self.select(self.instruction("fcmp uno", bool_, y, y), y, out)

    def shift(self, opcode: str, x: Value, y: Value) -> Value:
        """A shift; only the bits of the distance that matter count."""
        bits = x.dtype.itemsize * 8
        if y.number is None or not 0 <= y.number < bits:
            y = self.arithmetic("and_", y, constant(bits - 1, y.dtype))
        return self.instruction(opcode, x.dtype, x, y)

    def select(self, condition: Value, x: Any, y: Any) -> Value:
        """x where the condition holds, else y."""
        x, y = self.alike(x, y)
        parts = tuple([self.choose(condition, x, y, part) for part in range(len(x.parts))])
        lanes = max(condition.lanes, x.lanes, y.lanes)
        scope = self.writer.home(max(condition.scope, x.scope, y.scope))
        return Value(x.dtype, parts, lanes, scope, None, x.rounded and y.rounded)

    def not_(self, x: Value) -> Value:
        """Each bit flipped."""
        return self.instruction("xor", x.dtype, x, constant(True if x.dtype == bool_ else ~0, x.dtype))

    def shl(self, x: Any, y: Any) -> Value:
        """x shifted left."""
        return self.shift("shl", *self.alike(x, y))

    def shr(self, x: Any, y: Any) -> Value:
        """x shifted right, keeping the sign."""
        x, y = self.alike(x, y)
        return self.shift("ashr" if kind(x.dtype) == "i" else "lshr", x, y)

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

    def sign(self, x: Value) -> int:
        """See ``weft.ops.elementary.known_sign``."""
        return -1 if x.parts[0] in self.falling else 0

    def scale(self, x: Value, n: Value, lowest: int) -> Value | None:
        """See ``weft.ops.exponent.scaled``: x 2**n, if there is an instruction for it."""
        if x.lanes != n.lanes or not has_scale(self.target, x):
            return None
        keep = self.instruction("fcmp uge", bool_, n, constant(lowest, n.dtype))
        return scaled(self.writer, x, n, keep)

    def function(self, name: str, *operands: Value) -> Value:
        """A function that is expanded into basic instructions; half precision is computed in float."""
        dtype = operands[0].dtype
        code: Callable[..., Value] = EXPANSIONS[name]
        if dtype not in HALVES:
            return code(self, *operands)
        out = code(self, *[Value(float32, x.parts, x.lanes, x.scope, x.number) for x in operands])
        return Value(dtype, out.parts, out.lanes, out.scope)
