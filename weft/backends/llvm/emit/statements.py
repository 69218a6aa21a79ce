"""Statements of the Loop IR as LLVM assembly: what each becomes, and the objects that write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.backends.llvm.emit.fusing import fusable
from weft.backends.llvm.emit.halving import halved
from weft.backends.llvm.emit.indices import Indices
from weft.backends.llvm.emit.instructions import InstructionSet
from weft.backends.llvm.emit.lanes import Lanes
from weft.backends.llvm.emit.library_calls import LibraryCalls
from weft.backends.llvm.emit.loops import Flow, Loops, prefetches
from weft.backends.llvm.emit.memory import Memory
from weft.backends.llvm.emit.places import Failures, Places
from weft.backends.llvm.emit.scalars import Scalars
from weft.backends.llvm.emit.types import Value, identity
from weft.backends.llvm.emit.writer import Writer
from weft.base.dtypes import int32, uint32
from weft.loop import ir
from weft.loop.dots import DOTS
from weft.loop.index import Index
from weft.loop.ir import Block, Buffer, Local, Scalar
from weft.loop.known import sign_of
from weft.loop.walk import statements

_NARROWED = frozenset({"lt", "le", "eq", "div", "rem", "cast"})  # gain where indices take 32 bits
Way = Callable[[Any], None]  # of one class of statements


class Statements:
    """Writes the statements of a function.

    Args:
        writer: of its lines.
        machine: that it is for.
        base: gives where a buffer begins.
        named_size: gives the value of a named size.
        loops: how loops run.
        debug: whether every index is checked.

    Attributes:
        lanes: the vector loop that is being written.
        locals: what each local holds at this place.
        ways: how statements of each class are written.
    """

    def __init__(
        self, writer: Writer, machine: InstructionSet, base: Callable[[Buffer], Value],
        named_size: Callable[[str], Value], loops: type[Loops] = Loops, *, debug: bool = False,
    ) -> None:  # fmt: skip
        self.writer = writer
        self.machine = machine
        self.lanes = Lanes()
        self.locals: dict[Local, Value] = {}
        self._fusable: set[Scalar] = set()
        self._quick: set[Scalar] = set()
        self.scalars = Scalars(writer, machine)
        self.failures = Failures(self.scalars.registers)
        self.indices = Indices(self.scalars, self.lanes, named_size)
        self.places = Places(self.indices, self.scalars, self.failures, base, debug=debug)
        self.memory = Memory(self.places, self.scalars)
        self.flow = Flow(self)
        self.loops = loops(self)
        library = LibraryCalls(self)
        self.ways: dict[type, Way] = {
            ir.If: self.flow.if_,
            ir.While: self.flow.while_,
            ir.Loop: self.loops.loop,
            ir.Fail: self._fail,
            Scalar: self._scalar,
            ir.Load: self._load,
            ir.Store: self.memory.store,
            ir.Get: self._get,
            ir.Measure: self._measure,
            ir.Declare: self._declare,
            ir.Set: self._set,
            ir.Accumulate: self._accumulate,
            ir.Copy: library.copy,
            ir.Matmul: library.matmul,
        }

    def body(self, block: Block) -> None:
        """Write all statements of a function."""
        self._fusable = fusable(block)
        self._quick = halved(block, self.machine.quick) if self.machine.quick else set()
        self._picked = picked_words(block) if self.machine.picks_words else set()
        self.block(block)

    def block(self, block: Block) -> None:
        """Write all statements of a block."""
        self.loops.ahead.update(prefetches(block))
        ways = self.ways
        for s in block.statements:
            ways[type(s)](s)

    def _scalar(self, s: Scalar) -> None:
        if s.instruction in _NARROWED and self.lanes.count and isinstance(s.args[0], Index):
            found = self._narrowed(s)
            if found is not None:
                self.indices.values[s] = found
                return
        args = [self.indices.value(a) for a in s.args]
        if s.instruction == "exp" and sign_of(s.args[0]) < 0:
            self.scalars.falling.update(args[0].parts)
        if s.instruction in ("cast", "bitcast"):
            convert = self.scalars.cast if s.instruction == "cast" else self.scalars.bitcast
            self.indices.values[s] = convert(args[0], s.dtype)
        elif s in self._quick:
            self.indices.values[s] = self.machine.quickly(self.scalars, s.instruction, args[0])
        else:
            self.indices.values[s] = self.scalars.apply(s.instruction, *args)
            if s.instruction == "mul" and s not in self._fusable:
                self.scalars.keep_rounded(self.indices.values[s])

    def _narrowed(self, s: Scalar) -> Value | None:
        """An instruction on indices that vary, computed in 32 bits, if that surely gives the same."""
        if self.lanes.varying is None or s.args[0] not in self.lanes.varying:
            return None
        args = [x for a in s.args if (x := self.indices.narrow(a)) is not None]
        if len(args) < len(s.args):
            return None
        common = uint32 if all(x.dtype == uint32 for x in args) else int32  # all are below 2**31
        if s.instruction == "cast":
            return self.scalars.cast(args[0], s.dtype)
        out = self.scalars.apply(s.instruction, *[self.scalars.cast(x, common) for x in args])
        return out if out.dtype == s.dtype else self.scalars.cast(out, s.dtype)

    def _load(self, s: ir.Load) -> None:
        found = self.memory.load_picked(s) if s in self._picked else None
        self.indices.values[s] = self.memory.load(s) if found is None else found

    def _get(self, s: ir.Get) -> None:
        self.indices.values[s] = self.locals[s.local]

    def _measure(self, s: ir.Measure) -> None:
        self.indices.values[s] = self.indices.number(s.size)

    # Locals

    def _in_lanes_of(self, local: Local, value: Value) -> Value:
        """A value as a local holds it: in lanes, if it may vary."""
        varies = self.lanes.count and self.lanes.varying is not None and local in self.lanes.varying
        return self.scalars.registers.in_lanes(value, self.lanes.count) if varies else value

    def _declare(self, s: ir.Declare) -> None:
        self.locals[s.local] = self._in_lanes_of(s.local, self.indices.value(s.value))

    def _set(self, s: ir.Set) -> None:
        self._assign(s.local, self._in_lanes_of(s.local, self.indices.value(s.value)))

    def _assign(self, local: Local, value: Value) -> None:
        if self.lanes.mask is not None:
            value = self.scalars.select(self.lanes.mask, value, self.locals[local])
        self.locals[local] = value

    def _accumulate(self, s: ir.Accumulate) -> None:
        value, registers = self.indices.value(s.value), self.scalars.registers
        held = self.locals[s.local]
        if not self.lanes.count or s.local not in self.lanes.reductions:
            total = self.scalars.apply(s.instruction, held, value)
            self._assign(s.local, self._in_lanes_of(s.local, total))
            return
        neutral = identity(s.instruction, s.local.dtype)
        if self.lanes.mask is not None:
            value = self.scalars.select(self.lanes.mask, value, neutral)
        value = registers.padded(registers.in_lanes(value, self.lanes.count), held.lanes, neutral)
        self.locals[s.local] = self.scalars.apply(s.instruction, held, value)

    def _fail(self, s: ir.Fail) -> None:
        condition = self.indices.value(s.condition)
        if self.lanes.mask is not None:
            condition = self.scalars.and_(self.lanes.mask, condition)
        self.failures.fail(condition, s.number, tuple([self.indices.value(v) for v in s.values]))


def picked_words(block: Block) -> set[ir.Load]:
    """The loads of words that instructions of ``weft.loop.dots`` multiply in all lanes."""
    dots = [s for s in statements(block) if isinstance(s, Scalar) and s.instruction in DOTS]
    return {x for s in dots for x in s.args[1:] if isinstance(x, ir.Load)}
