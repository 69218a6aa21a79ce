"""Control flow in LLVM assembly: loops that count, while, and if.

Locals are values, joined by phi nodes where ways meet, so no stack is used. A loop tests at its end whether
to go on; where it may not run at all, a branch leads around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft.backends.llvm.emit.lanes import assigned
from weft.backends.llvm.emit.types import REGISTER, Value, vector
from weft.backends.llvm.emit.writer import Lines
from weft.base.dtypes import int64
from weft.loop.index import Variable
from weft.loop.ir import If, Local, While

if TYPE_CHECKING:
    from weft.backends.llvm.emit.statements import Statements

Phis = list[tuple[Value, list[Lines]]]  # values, and the places of the lines that will define them


class Flow:
    """Writes control flow around the statements of a function."""

    def __init__(self, code: Statements) -> None:
        self._writer, self._registers, self._scalars = code.writer, code.scalars.registers, code.scalars
        self._indices, self._lanes, self._locals = code.indices, code.lanes, code.locals
        self._block = code.block

    def _held(self, found: Sequence[Local]) -> list[Value]:
        """What locals hold at this place."""
        return [self._locals[local] for local in found]

    # Loops

    def counted(
        self, variable: Variable, start: Value, stop: Value, step: int, body: Callable[[], None],
        carried: Sequence[Local],
    ) -> None:  # fmt: skip
        """A loop that counts, around what ``body`` writes; the locals it sets go from turn to turn."""
        if start.number is not None and stop.number is not None and stop.number - start.number <= step:
            if stop.number > start.number:
                self._indices.variables[variable] = start
                body()
            return
        w = self._writer
        w.room()
        if start.number is not None and stop.number is not None:
            self._turns(variable, start, stop, step, body, carried)
            return
        before, old = w.block, self._held(carried)
        inside, end = w.label("some"), w.label("end")
        w.branch(w.here(f"icmp slt i64 {start.parts[0]}, {stop.parts[0]}"), inside, end)
        with w.scope(is_loop=True, surely=False):
            w.begin(inside)
            w.room()
            self._turns(variable, start, stop, step, body, carried)
            after, new = w.block, self._held(carried)
            w.jump(end)
        w.begin(end)
        for local, x, y in zip(carried, old, new, strict=True):
            self._locals[local] = self._registers.joined(x, before, y, after)

    def _turns(
        self, variable: Variable, start: Value, stop: Value, step: int, body: Callable[[], None],
        carried: Sequence[Local],
    ) -> None:  # fmt: skip
        """The turns of a loop that has at least one."""
        w = self._writer
        before, old = w.block, self._held(carried)
        head, end = w.label("loop"), w.label("end")
        w.jump(head)
        with w.scope(is_loop=True, surely=True):
            w.begin(head)
            phis = self._phis(carried)
            counter, cell = self._cell()
            self._indices.variables[variable] = Value(int64, (counter,), 0, w.depth)
            body()
            following = w.here(f"add nsw i64 {counter}, {step}")
            cell.append(f"  {counter} = phi i64 [ {start.parts[0]}, %{before} ], [ {following}, %{w.block} ]")
            new = self._held(carried)
            self._fill(phis, before, old, w.block, new)
            w.branch(w.here(f"icmp slt i64 {following}, {stop.parts[0]}"), head, end)
        w.begin(end)
        self._locals.update(zip(carried, map(self._registers.moved, new), strict=True))

    def while_(self, s: While) -> None:
        """A loop that tests at its beginning whether to go on."""
        w = self._writer
        head, inside, end = w.label("while"), w.label("do"), w.label("end")
        carried = assigned(s.test, s.body)
        w.room()
        before, old = w.block, self._held(carried)
        w.jump(head)
        with w.scope(is_loop=True, surely=True):
            w.begin(head)
            phis = self._phis(carried)
            self._block(s.test)
            condition = self._indices.value(s.condition).parts[0]
            final = self._held(carried)
            w.room()
            w.branch(condition, inside, end)
            with w.scope(is_loop=True, surely=False):
                w.begin(inside)
                self._block(s.body)
                self._fill(phis, before, old, w.block, self._held(carried))
                w.jump(head)
        w.begin(end)
        self._locals.update(zip(carried, map(self._registers.moved, final), strict=True))

    # Values where ways meet

    def _cell(self) -> tuple[str, Lines]:
        """A name, and the place where the line that defines it will go."""
        cell: Lines = []
        self._writer.lines.append(cell)
        return self._writer.fresh("p"), cell

    def _phis(self, carried: Sequence[Local]) -> Phis:
        """Make locals stand for phi nodes, which are filled in later."""
        out = []
        for local in carried:
            old = self._locals[local]
            cells = [self._cell() for _ in old.parts]
            value = Value(old.dtype, tuple([name for name, _ in cells]), old.lanes, self._writer.depth)
            self._locals[local] = value
            out.append((value, [cell for _, cell in cells]))
        return out

    def _fill(
        self,
        phis: Phis,
        before: str,
        old: list[Value],
        after: str,
        new: list[Value],
    ) -> None:
        for (phi, cells), x, y in zip(phis, old, new, strict=True):
            type_ = vector(phi.lanes, REGISTER[phi.dtype])
            for name, cell, a, b in zip(phi.parts, cells, x.parts, y.parts, strict=True):
                cell.append(f"  {name} = phi {type_} [ {a}, %{before} ], [ {b}, %{after} ]")

    # Branches

    def if_(self, s: If) -> None:
        """A branch; or both blocks, where lanes part."""
        condition = self._indices.value(s.condition)
        if condition.lanes:
            self._masked(s, condition)
            return
        w = self._writer
        then, otherwise, end = w.label("then"), w.label("else"), w.label("end")
        changed, before = assigned(s.then, s.otherwise), dict(self._locals)
        w.room()
        w.branch(condition.parts[0], then, otherwise)
        ends = []
        for label, block in ((then, s.then), (otherwise, s.otherwise)):
            self._locals.update(before)
            with w.scope(is_loop=False, surely=False):
                w.begin(label)
                self._block(block)
                ends.append((w.block, self._held(changed)))
                w.jump(end)
        w.begin(end)
        (first, xs), (second, ys) = ends
        for local, x, y in zip(changed, xs, ys, strict=True):
            self._locals[local] = self._registers.joined(x, first, y, second)

    def _masked(self, s: If, condition: Value) -> None:
        """Both blocks, each in the lanes where it is meant."""
        outer = self._lanes.mask
        for block, active in ((s.then, condition), (s.otherwise, self._scalars.not_(condition))):
            self._lanes.mask = active if outer is None else self._scalars.and_(outer, active)
            self._block(block)
        self._lanes.mask = outer
