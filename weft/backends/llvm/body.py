"""Statements of the Loop IR as LLVM assembly: scalars, locals, and loops.

A vector loop runs several lanes at a time: whole vectors first, then what is left over. What it accumulates
is kept in lanes, and combined at the end in a fixed tree.
"""

from __future__ import annotations

import numpy as np

from weft.backends.llvm.control import Control
from weft.backends.llvm.indices import ZERO
from weft.backends.llvm.lanes import Varying, assigned, lane_count
from weft.backends.llvm.prefetch import Place, prefetches
from weft.backends.llvm.target import Target
from weft.backends.llvm.types import REGISTER, Value, constant, vector
from weft.backends.llvm.writer import Writer
from weft.base.dtypes import DType, bool_, int32, int64, kind, uint32
from weft.loop.index import Index
from weft.loop.ir import Accumulate, Block, Declare, Get, Load, Local, Loop, Measure, Scalar, Set, Store
from weft.loop.signs import sign_of

_NARROWED = frozenset({"lt", "le", "eq", "div", "rem", "cast"})  # gain where indices take 32 bits


class Body(Control):
    """Writes the statements of a function.

    Attributes:
        accumulating: the locals that are held in lanes by the vector loop around, with the instruction.
        ahead: what vector loops ask for, because later ones write it.
    """

    def __init__(self, writer: Writer, target: Target, *, debug: bool) -> None:
        super().__init__(writer, target, debug=debug)
        self.accumulating: dict[Local, str] = {}
        self.ahead: dict[Loop, list[Place]] = {}
        self.ways |= {
            Scalar: self._scalar,
            Load: self._load,
            Get: self._get,
            Measure: self._measure,
            Declare: self._declare,
            Set: self._set,
            Accumulate: self._accumulate,
            Store: self.store,
            Loop: self._loop,
        }

    def _scalar(self, s: Scalar) -> None:
        if s.instruction in _NARROWED and self.lanes and isinstance(s.args[0], Index):
            found = self._narrowed(s)
            if found is not None:
                self.values[s] = found
                return
        args = [self.value(a) for a in s.args]
        if s.instruction == "exp" and sign_of(s.args[0]) < 0:
            self.falling.update(args[0].parts)
        if s.instruction in ("cast", "bitcast"):
            self.values[s] = getattr(self, s.instruction)(args[0], s.dtype)
        else:
            self.values[s] = getattr(self, s.instruction)(*args)

    def _narrowed(self, s: Scalar) -> Value | None:
        """An instruction on indices that vary, computed in 32 bits, if that surely gives the same."""
        if self.varying is None or s.args[0] not in self.varying:
            return None
        args = [x for a in s.args if (x := self.narrow(a)) is not None]
        if len(args) < len(s.args):
            return None
        common = uint32 if all(x.dtype == uint32 for x in args) else int32  # all are below 2**31
        if s.instruction == "cast":
            return self.cast(args[0], s.dtype)
        out = getattr(self, s.instruction)(*[self.cast(x, common) for x in args])
        return out if out.dtype == s.dtype else self.cast(out, s.dtype)

    def _load(self, s: Load) -> None:
        self.values[s] = self.load(s)

    def _get(self, s: Get) -> None:
        self.values[s] = self.locals[s.local]

    def _measure(self, s: Measure) -> None:
        self.values[s] = self.number(s.size)

    # Locals

    def _in_lanes_of(self, local: Local, value: Value) -> Value:
        """A value as a local holds it: in lanes, if it may vary."""
        varies = self.lanes and self.varying is not None and local in self.varying
        return self.in_lanes(value, self.lanes) if varies else value

    def _declare(self, s: Declare) -> None:
        self.locals[s.local] = self._in_lanes_of(s.local, self.value(s.value))

    def _set(self, s: Set) -> None:
        self._assign(s.local, self._in_lanes_of(s.local, self.value(s.value)))

    def _assign(self, local: Local, value: Value) -> None:
        if self.mask is not None:
            value = self.select(self.mask, value, self.locals[local])
        self.locals[local] = value

    def _accumulate(self, s: Accumulate) -> None:
        value, combine = self.value(s.value), getattr(self, s.instruction)
        if not self.lanes or s.local not in self.accumulating:
            self._assign(s.local, self._in_lanes_of(s.local, combine(self.locals[s.local], value)))
            return
        neutral = identity(s.instruction, s.local.dtype)
        if self.mask is not None:
            value = self.select(self.mask, value, neutral)
        held = self.locals[s.local]
        value = self._padded(self.in_lanes(value, self.lanes), held.lanes, neutral)
        self.locals[s.local] = combine(held, value)

    def _padded(self, x: Value, lanes: int, neutral: Value) -> Value:
        """A value in more lanes, where the additional ones have no effect."""
        if x.lanes == lanes:
            return x
        scalar = REGISTER[x.dtype]
        type_ = vector(x.lanes, scalar)
        order = ", ".join([f"i32 {min(i, x.lanes)}" for i in range(lanes)])
        fill = self.wide(neutral, x.lanes)
        parts = [
            self.writer.here(f"shufflevector {type_} {part}, {type_} {f}, <{lanes} x i32> <{order}>")
            for part, f in zip(x.parts, fill, strict=True)
        ]
        return Value(x.dtype, tuple(parts), lanes, self.writer.depth)

    # Loops

    def block(self, block: Block) -> None:
        """Write all statements of a block."""
        self.ahead.update(prefetches(block))
        super().block(block)

    def _loop(self, s: Loop) -> None:
        if s.kind == "vector" and not self.lanes:
            varying = Varying(s)
            if varying.possible:
                self._vector_loop(s, varying)
                return
        start, stop = self.value(s.start), self.value(s.stop)
        self.counted(s.variable, start, stop, 1, lambda: self.block(s.body), assigned(s.body))

    def _vector_loop(self, s: Loop, varying: Varying) -> None:
        start, stop = self.value(s.start), self.value(s.stop)
        extent = None if start.number is None or stop.number is None else stop.number - start.number
        if extent is not None and extent <= 0:
            return
        lanes = lane_count(s, varying, self.target, extent)
        lanes = lanes if extent is None else self._possible(min(lanes, extent))
        if lanes == 1:
            self.counted(s.variable, start, stop, 1, lambda: self.block(s.body), assigned(s.body))
            return
        whole = self._whole(start, stop, extent, lanes)
        begun = self._open_lanes(s, varying, lanes)
        self.counted(s.variable, start, whole, lanes, lambda: self._turn(s), list(varying.reductions))
        rest = None if extent is None else extent % lanes
        if rest is not None and rest > 1:
            self.lanes, self.variables[s.variable] = self._possible(rest), whole
            self.block(s.body)
            whole = constant(whole.number + self.lanes, int64)
            rest -= self.lanes
        self._close_lanes(varying, begun)
        if rest is None or rest == 1:
            self.counted(s.variable, whole, stop, 1, lambda: self.block(s.body), assigned(s.body))

    def _possible(self, lanes: int) -> int:
        """As many lanes, or fewer: LLVM for ARM aborts where three are cut from i64 to i8 and stored."""
        return 2 if lanes == 3 and self.is_arm else lanes

    def _turn(self, s: Loop) -> None:
        """The body of a vector loop, and what it asks for ahead of a later one."""
        for buffer, index in self.ahead.get(s, ()):
            self.prefetch(buffer, index)
        self.block(s.body)

    def _whole(self, start: Value, stop: Value, extent: int | None, lanes: int) -> Value:
        """Where the part of a loop ends that whole vectors cover."""
        if extent is not None:
            return constant(start.number + extent // lanes * lanes, int64)
        count = self.max(self.sub(stop, start), ZERO)
        return self.sum(start, self.sub(count, self.rem(count, constant(lanes, int64))))

    def _open_lanes(self, s: Loop, varying: Varying, lanes: int) -> list[Value]:
        """Begin to write lanes; gives what the locals held that the loop accumulates into."""
        self.lanes, self.varying, self.walking = lanes, varying, s.variable
        self.accumulating = varying.reductions
        begun = [self.locals[local] for local in varying.reductions]
        for local, instruction in varying.reductions.items():
            self.locals[local] = self.in_lanes(identity(instruction, local.dtype), lanes)
        return begun

    def _close_lanes(self, varying: Varying, begun: list[Value]) -> None:
        """Write single elements again, and combine what is in lanes with what the locals held."""
        self.lanes, self.varying, self.walking = 0, None, None
        self.accumulating = {}
        for (local, instruction), old in zip(varying.reductions.items(), begun, strict=True):
            total = self._reduced(instruction, self.locals[local])
            self.locals[local] = getattr(self, instruction)(old, total)

    def _reduced(self, instruction: str, x: Value) -> Value:
        """All lanes combined: the halves, then the halves of that, and so on."""
        x = self._padded(x, 1 << (x.lanes - 1).bit_length(), identity(instruction, x.dtype))
        while x.lanes > 2:
            x = getattr(self, instruction)(self._half(x, 0), self._half(x, x.lanes // 2))
        return getattr(self, instruction)(self.lane(x, "0"), self.lane(x, "1"))  # type: ignore[no-any-return]

    def _half(self, x: Value, first: int) -> Value:
        count = x.lanes // 2
        type_ = vector(x.lanes, REGISTER[x.dtype])
        order = ", ".join([f"i32 {first + i}" for i in range(count)])
        head, tail = f"shufflevector {type_} ", f", {type_} poison, <{count} x i32> <{order}>"
        parts = tuple([self.writer.here(head + part + tail) for part in x.parts])
        return Value(x.dtype, parts, count, self.writer.depth)


def identity(instruction: str, dtype: DType) -> Value:
    """What an instruction that accumulates leaves as it is.

    >>> import weft
    >>> from weft.backends.llvm.body import identity
    >>> identity("min", weft.float32).number, identity("max", weft.int8).number
    (inf, -128)
    """
    if instruction in ("add", "or_"):
        return constant(-0.0 if kind(dtype) in "fc" else 0, dtype)
    if instruction == "mul":
        return constant(1, dtype)
    if instruction == "and_":
        return constant(True if dtype == bool_ else ~0, dtype)
    least = instruction == "max"
    if dtype == bool_:
        return constant(not least, dtype)
    if kind(dtype) == "f":
        return constant(-np.inf if least else np.inf, dtype)
    limits = np.iinfo(dtype)
    return constant(limits.min if least else limits.max, dtype)
