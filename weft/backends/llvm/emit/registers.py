"""Values in registers, whatever they mean: instructions on them, lanes, and where ways of control meet."""

from __future__ import annotations

from weft.backends.llvm.emit.types import REGISTER, Operand, Value, constant, intrinsic_suffix, splat, vector
from weft.backends.llvm.emit.writer import Writer
from weft.base.dtypes import DType


class Registers:
    """Writes instructions on registers: what all kinds of code have in common."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    # Lanes

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

    def lane(self, x: Value, number: str) -> Value:
        """A value in one lane."""
        if not x.lanes:
            return x
        type_ = vector(x.lanes, REGISTER[x.dtype])
        parts = tuple([self.writer.here(f"extractelement {type_} {part}, i64 {number}") for part in x.parts])
        return Value(x.dtype, parts, 0, self.writer.depth)

    def half(self, x: Value, first: int) -> Value:
        """Half of the lanes, from one on."""
        count = x.lanes // 2
        type_ = vector(x.lanes, REGISTER[x.dtype])
        order = ", ".join([f"i32 {first + i}" for i in range(count)])
        head, tail = f"shufflevector {type_} ", f", {type_} poison, <{count} x i32> <{order}>"
        parts = tuple([self.writer.here(head + part + tail) for part in x.parts])
        return Value(x.dtype, parts, count, self.writer.depth)

    def padded(self, x: Value, lanes: int, fill: Value) -> Value:
        """A value in more lanes, the additional ones of which hold another."""
        if x.lanes == lanes:
            return x
        type_ = vector(x.lanes, REGISTER[x.dtype])
        order = ", ".join([f"i32 {min(i, x.lanes)}" for i in range(lanes)])
        parts = [
            self.writer.here(f"shufflevector {type_} {part}, {type_} {f}, <{lanes} x i32> <{order}>")
            for part, f in zip(x.parts, self.wide(fill, x.lanes), strict=True)
        ]
        return Value(x.dtype, tuple(parts), lanes, self.writer.depth)

    def any_lane(self, condition: Value) -> str:
        """Whether a condition holds in some lane."""
        if not condition.lanes:
            return condition.parts[0]
        type_, name = vector(condition.lanes, "i1"), f"@llvm.vector.reduce.or.v{condition.lanes}i1"
        self.writer.declare(f"i1 {name}({type_})")
        return self.writer.here(f"call i1 {name}({type_} {condition.parts[0]})")

    def first_lane(self, condition: Value) -> str:
        """The number of the first lane where a condition holds."""
        if not condition.lanes:
            return "0"
        bits = f"i{condition.lanes}"
        mask = self.writer.here(f"bitcast <{condition.lanes} x i1> {condition.parts[0]} to {bits}")
        name = f"@llvm.cttz.{intrinsic_suffix(0, bits)}"
        self.writer.declare(f"{bits} {name}({bits}, i1)")
        count = self.writer.here(f"call {bits} {name}({bits} {mask}, i1 true)")
        if condition.lanes == 64:
            return count
        return self.writer.here(f"{'zext' if condition.lanes < 64 else 'trunc'} {bits} {count} to i64")

    # Instructions

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

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """x where the condition holds, else y."""
        lanes = max(condition.lanes, x.lanes, y.lanes)
        scope = max(condition.scope, x.scope, y.scope)
        type_ = vector(lanes, REGISTER[x.dtype])
        test = f"{vector(condition.lanes, 'i1')} {condition.parts[0]}"
        parts = []
        for part in range(len(x.parts)):
            a, b = self.wide(x, lanes)[part], self.wide(y, lanes)[part]
            parts.append(self.writer.pure(f"select {test}, {type_} {a}, {type_} {b}", scope))
        home = self.writer.home(scope)
        return Value(x.dtype, tuple(parts), lanes, home, None, x.rounded and y.rounded)

    # Where ways meet

    def moved(self, x: Value) -> Value:
        """A value of a scope inside that was left, whose last block leads here only."""
        return Value(x.dtype, x.parts, x.lanes, min(x.scope, self.writer.depth), x.number, x.rounded)

    def joined(self, x: Value, before: str, y: Value, after: str) -> Value:
        """x, or y, by the block that control comes from."""
        if x.parts == y.parts:
            return self.moved(x)
        type_ = vector(x.lanes, REGISTER[x.dtype])
        parts = [
            self.writer.here(f"phi {type_} [ {a}, %{before} ], [ {b}, %{after} ]")
            for a, b in zip(x.parts, y.parts, strict=True)
        ]
        return Value(x.dtype, tuple(parts), x.lanes, self.writer.depth, None, x.rounded and y.rounded)


def pair(x: Operand, y: Operand) -> tuple[Value, Value]:
    """Two operands of one instruction; a number is a constant of the other's dtype."""
    if isinstance(x, Value):
        return x, y if isinstance(y, Value) else constant(y, x.dtype)
    assert isinstance(y, Value), "an instruction on numbers alone has no dtype"
    return constant(x, y.dtype), y
