"""Control flow in LLVM assembly: loops that count, while, if, and failures.

Locals are values, joined by phi nodes where ways meet, so no stack is used. A loop tests at its end whether
to go on; where it may not run at all, a branch leads around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.backends.llvm.lanes import assigned
from weft.backends.llvm.memory import Memory
from weft.backends.llvm.target import Target
from weft.backends.llvm.types import REGISTER, Value, intrinsic_suffix, vector
from weft.backends.llvm.writer import Lines, Writer
from weft.base.dtypes import int64
from weft.loop.index import Variable
from weft.loop.ir import Block, Fail, If, Local, While


class Control(Memory):
    """Writes control flow.

    Attributes:
        ways: how statements of each class are written.
        locals: what each local holds at this place.
    """

    def __init__(self, writer: Writer, target: Target, *, debug: bool) -> None:
        super().__init__(writer, target, debug=debug)
        self.locals: dict[Local, Value] = {}
        self.ways: dict[type, Callable[[Any], None]] = {If: self._if, While: self._while, Fail: self._fail}

    def block(self, block: Block) -> None:
        """Write all statements of a block."""
        ways = self.ways
        for s in block.statements:
            ways[type(s)](s)

    # Loops

    def counted(
        self, variable: Variable, start: Value, stop: Value, step: int, body: Callable[[], None],
        carried: Sequence[Local],
    ) -> None:  # fmt: skip
        """A loop that counts, around what ``body`` writes; the locals it sets go from turn to turn."""
        if start.number is not None and stop.number is not None and stop.number - start.number <= step:
            if stop.number > start.number:
                self.variables[variable] = start
                body()
            return
        w = self.writer
        w.room()
        if start.number is not None and stop.number is not None:
            self._turns(variable, start, stop, step, body, carried)
            return
        before, old = w.block, [self.locals[local] for local in carried]
        inside, end = w.label("some"), w.label("end")
        w.branch(w.here(f"icmp slt i64 {start.parts[0]}, {stop.parts[0]}"), inside, end)
        with w.scope(is_loop=True, surely=False):
            w.begin(inside)
            w.room()
            self._turns(variable, start, stop, step, body, carried)
            after, new = w.block, [self.locals[local] for local in carried]
            w.jump(end)
        w.begin(end)
        for local, x, y in zip(carried, old, new, strict=True):
            self.locals[local] = self._joined(x, before, y, after)

    def _turns(
        self, variable: Variable, start: Value, stop: Value, step: int, body: Callable[[], None],
        carried: Sequence[Local],
    ) -> None:  # fmt: skip
        """The turns of a loop that has at least one."""
        w = self.writer
        before, old = w.block, [self.locals[local] for local in carried]
        head, end = w.label("loop"), w.label("end")
        w.jump(head)
        with w.scope(is_loop=True, surely=True):
            w.begin(head)
            phis = self._phis(carried)
            counter, cell = self._cell()
            self.variables[variable] = Value(int64, (counter,), 0, w.depth)
            body()
            following = w.here(f"add nsw i64 {counter}, {step}")
            cell.append(f"  {counter} = phi i64 [ {start.parts[0]}, %{before} ], [ {following}, %{w.block} ]")
            new = [self.locals[local] for local in carried]
            self._fill(phis, before, old, w.block, new)
            w.branch(w.here(f"icmp slt i64 {following}, {stop.parts[0]}"), head, end)
        w.begin(end)
        self.locals.update(zip(carried, map(self._moved, new), strict=True))

    def _while(self, s: While) -> None:
        w = self.writer
        head, inside, end = w.label("while"), w.label("do"), w.label("end")
        carried = assigned(s.test, s.body)
        w.room()
        before, old = w.block, [self.locals[local] for local in carried]
        w.jump(head)
        with w.scope(is_loop=True, surely=True):
            w.begin(head)
            phis = self._phis(carried)
            self.block(s.test)
            condition = self.value(s.condition).parts[0]
            final = [self.locals[local] for local in carried]
            w.room()
            w.branch(condition, inside, end)
            with w.scope(is_loop=True, surely=False):
                w.begin(inside)
                self.block(s.body)
                self._fill(phis, before, old, w.block, [self.locals[local] for local in carried])
                w.jump(head)
        w.begin(end)
        self.locals.update(zip(carried, map(self._moved, final), strict=True))

    # Values where ways meet

    def _cell(self) -> tuple[str, Lines]:
        """A name, and the place where the line that defines it will go."""
        cell: Lines = []
        self.writer.lines.append(cell)
        return self.writer.fresh("p"), cell

    def _phis(self, carried: Sequence[Local]) -> list[tuple[Value, list[Lines]]]:
        """Make locals stand for phi nodes, which are filled in later."""
        out = []
        for local in carried:
            old = self.locals[local]
            cells = [self._cell() for _ in old.parts]
            value = Value(old.dtype, tuple([name for name, _ in cells]), old.lanes, self.writer.depth)
            self.locals[local] = value
            out.append((value, [cell for _, cell in cells]))
        return out

    def _fill(
        self,
        phis: list[tuple[Value, list[Lines]]],
        before: str,
        old: list[Value],
        after: str,
        new: list[Value],
    ) -> None:
        for (phi, cells), x, y in zip(phis, old, new, strict=True):
            type_ = vector(phi.lanes, REGISTER[phi.dtype])
            for name, cell, a, b in zip(phi.parts, cells, x.parts, y.parts, strict=True):
                cell.append(f"  {name} = phi {type_} [ {a}, %{before} ], [ {b}, %{after} ]")

    def _moved(self, x: Value) -> Value:
        """A value of a scope inside that was left, whose last block leads here only."""
        return Value(x.dtype, x.parts, x.lanes, min(x.scope, self.writer.depth), x.number, x.rounded)

    def _joined(self, x: Value, before: str, y: Value, after: str) -> Value:
        """x, or y, by the block that control comes from."""
        if x.parts == y.parts:
            return self._moved(x)
        type_ = vector(x.lanes, REGISTER[x.dtype])
        parts = [
            self.writer.here(f"phi {type_} [ {a}, %{before} ], [ {b}, %{after} ]")
            for a, b in zip(x.parts, y.parts, strict=True)
        ]
        return Value(x.dtype, tuple(parts), x.lanes, self.writer.depth, None, x.rounded and y.rounded)

    # Branches

    def _if(self, s: If) -> None:
        condition = self.value(s.condition)
        if condition.lanes:
            self._masked(s, condition)
            return
        w = self.writer
        then, otherwise, end = w.label("then"), w.label("else"), w.label("end")
        changed, before = assigned(s.then, s.otherwise), dict(self.locals)
        w.room()
        w.branch(condition.parts[0], then, otherwise)
        ends = []
        for label, block in ((then, s.then), (otherwise, s.otherwise)):
            self.locals.update(before)
            with w.scope(is_loop=False, surely=False):
                w.begin(label)
                self.block(block)
                ends.append((w.block, [self.locals[local] for local in changed]))
                w.jump(end)
        w.begin(end)
        (first, xs), (second, ys) = ends
        for local, x, y in zip(changed, xs, ys, strict=True):
            self.locals[local] = self._joined(x, first, y, second)

    def _masked(self, s: If, condition: Value) -> None:
        """Both blocks, each in the lanes where it is meant."""
        outer = self.mask
        for block, active in ((s.then, condition), (s.otherwise, self.not_(condition))):
            self.mask = active if outer is None else self.and_(outer, active)
            self.block(block)
        self.mask = outer

    def rarely(self, condition: Value, code: Callable[[Any, Value], Value], x: Value, usual: Value) -> Value:
        """See ``weft.ops.elementary.rarely``: code that a branch leads around, unless some lane needs it."""
        w = self.writer
        usual = self.in_lanes(usual, max(condition.lanes, x.lanes, usual.lanes))
        before, inside, end = w.block, w.label("rare"), w.label("end")
        w.room()
        w.branch(self._any(condition), inside, end, unlikely=True)
        with w.scope(is_loop=False, surely=False):
            w.begin(inside)
            rare = self.select(condition, code(self, x), usual)
            after = w.block
            w.jump(end)
        w.begin(end)
        return self._joined(usual, before, rare, after)

    # Failures

    def _fail(self, s: Fail) -> None:
        condition = self.value(s.condition)
        if self.mask is not None:
            condition = self.and_(self.mask, condition)
        self.fail(condition, s.number, tuple([self.value(v) for v in s.values]))

    def fail(self, condition: Value, number: int, values: tuple[Value, ...]) -> None:
        """Note a failure where a condition holds, unless there was one; of several lanes, the first's."""
        if condition.number is False:
            return
        w = self.writer
        note, keep, end = w.label("fail"), w.label("keep"), w.label("end")
        w.room()
        w.branch(self._any(condition), note, end, unlikely=True)
        with w.scope(is_loop=False, surely=False):
            w.begin(note)
            lane = self._first(condition)
            pair = w.here(f"cmpxchg ptr %context, i64 0, i64 {number + 1} monotonic monotonic")
            w.branch(w.here(f"extractvalue {{ i64, i1 }} {pair}, 1"), keep, end)
            w.begin(keep)
            for i, value in enumerate(values):
                at = w.here(f"getelementptr i64, ptr %context, i64 {i + 1}")
                w.line(f"store i64 {self.lane(value, lane).parts[0]}, ptr {at}")
            w.jump(end)
        w.begin(end)

    def _any(self, condition: Value) -> str:
        """Whether a condition holds in some lane."""
        if not condition.lanes:
            return condition.parts[0]
        type_, name = vector(condition.lanes, "i1"), f"@llvm.vector.reduce.or.v{condition.lanes}i1"
        self.writer.declare(f"i1 {name}({type_})")
        return self.writer.here(f"call i1 {name}({type_} {condition.parts[0]})")

    def _first(self, condition: Value) -> str:
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

    def lane(self, x: Value, number: str) -> Value:
        """A value in one lane."""
        if not x.lanes:
            return x
        type_ = vector(x.lanes, REGISTER[x.dtype])
        parts = tuple([self.writer.here(f"extractelement {type_} {part}, i64 {number}") for part in x.parts])
        return Value(x.dtype, parts, 0, self.writer.depth)
