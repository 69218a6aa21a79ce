"""Control flow: if, while, and loops, one iteration after the other, or several at a time in lanes.

Locals are values, joined by phi nodes where ways meet, so no stack is used. A loop tests at its end whether
to go on; where it may not run at all, a branch leads around it.

A vector loop runs whole vectors first, then what is left over. What it accumulates is kept in lanes, and
combined at the end in a fixed tree.

Before a line of memory is written, the processor must have it. A row kernel such as that of softmax computes
for long without memory, and then waits for the lines of its results; so a vector loop asks meanwhile for what
a later one will write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from weft.backends.llvm.emit.indices import ZERO
from weft.backends.llvm.emit.lanes import Varying, assigned, lane_count
from weft.backends.llvm.emit.types import REGISTER, Value, constant, identity, vector
from weft.backends.llvm.emit.writer import Lines
from weft.base.dtypes import int64
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.loop.index import Extent, Index, Variable
from weft.loop.ir import Block, Buffer, If, Load, Local, Loop, Scalar, Store, While
from weft.ops.cost import is_function

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

    def _fill(self, phis: Phis, before: str, old: list[Value], after: str, new: list[Value]) -> None:
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


LINE = 64  # bytes
_LEAST = 1024  # bytes of a row, for what is shorter overlaps anyway
Place = tuple[Buffer, Index]


def prefetches(block: Block) -> dict[Loop, list[Place]]:
    """For loops of a block, the places that the lanes which are computed will be written to.

    >>> import numpy as np
    >>> from weft.backends.llvm.emit.loops import prefetches
    >>> from weft.loop.builder import Builder
    >>> b = Builder()
    >>> x, y = b.buffer("x", np.dtype("f4"), 4096), b.buffer("y", np.dtype("f4"), 9999)
    >>> with b.vector(4096) as i:
    ...     b.store(x, i, b.exp(b.load(x, i)))
    >>> with b.vector(4096) as j:
    ...     b.store(y, j + 7, b.neg(b.load(x, j)))
    >>> [buffer for places in prefetches(b.block).values() for buffer, index in places]
    [y: float32[9999]]
    """
    runs = [run for s in block.statements if type(s) is Loop and (run := _run_of(s)) is not None]
    found: dict[Loop, list[Place]] = {}
    if len(runs) < 2:
        return found
    touched: set[Buffer] = set()
    busy: _Run | None = None
    for run in runs:
        if busy is not None and (busy.start, busy.stop) == (run.start, run.stop):
            places = [(b, i - run.at + busy.at) for b, i in _rows(run, touched)]
            found[busy.loop] = found.get(busy.loop, []) + places
        touched |= {s.buffer for s in run.loop.body.statements if isinstance(s, Load | Store)}
        busy = run if _has_functions(run.loop) else busy
    return found


class _Run(NamedTuple):
    """A vector loop between fixed numbers, by itself or in equal parts that a loop around it goes along.

    Attributes:
        start, stop: of all of it.
        at: the place that it is at.
    """

    loop: Loop
    start: Extent
    stop: Extent
    at: Index


def _run_of(loop: Loop) -> _Run | None:
    if not (loop.start.is_fixed and loop.stop.is_fixed):
        return None
    if loop.kind == "vector":
        return _Run(loop, loop.start.offset, loop.stop.offset, Index.of(loop.variable))
    inner = [s for s in loop.body.statements if type(s) is Loop]
    run = _run_of(inner[0]) if loop.kind == "serial" and len(inner) == 1 else None
    if run is None or run.loop is not inner[0] or (loop.start.offset, run.start) != (0, 0):
        return None
    return _Run(run.loop, 0, loop.stop.offset * run.stop, Index.of(loop.variable) * run.stop + run.at)


def _has_functions(loop: Loop) -> bool:
    return any(isinstance(s, Scalar) and is_function(s.instruction) for s in loop.body.statements)


def _goes_along(index: Index, place: Index) -> bool:
    """Whether an index moves as the place of a loop does."""
    return all(index.stride(v) == place.stride(v) for v in place.terms)


def _rows(run: _Run, touched: set[Buffer]) -> Iterator[Place]:
    """The rows of memory that a loop writes, and that no loop before has touched."""
    extent = run.stop - run.start
    for s in run.loop.body.statements:
        if not isinstance(s, Store) or s.buffer in touched or not _goes_along(s.index, run.at):
            continue
        long = not isinstance(extent, Size) and extent * s.buffer.dtype.itemsize >= _LEAST
        if long and s.buffer.size != extent and all(v.value is None for v in s.index.terms):
            yield s.buffer, s.index


class Loops:
    """Writes loops. A function, or a target, whose loops run in another way has a subclass.

    Attributes:
        ahead: what vector loops ask for, because later ones write it.
    """

    def __init__(self, code: Statements) -> None:
        self.machine, self.target = code.machine, code.machine.target
        self.scalars, self.registers = code.scalars, code.scalars.registers
        self.indices, self.lanes, self.locals = code.indices, code.lanes, code.locals
        self.memory, self.counted, self.block = code.memory, code.flow.counted, code.block
        self.value = code.indices.value
        self.ahead: dict[Loop, list[Place]] = {}

    def loop(self, s: Loop) -> None:
        """Write a loop in the way of its kind."""
        if s.kind == "vector" and not self.lanes.count:
            varying = Varying(s)
            if varying.possible:
                self.vector(s, varying)
                return
        if s.kind == "parallel":
            self.parallel(s)
        else:
            self.serial(s, self.value(s.start), self.value(s.stop))

    def serial(self, s: Loop, start: Value, stop: Value) -> None:
        """One iteration after the other."""
        self.counted(s.variable, start, stop, 1, lambda: self.block(s.body), assigned(s.body))

    def parallel(self, s: Loop) -> None:
        """Iterations that threads may share; here one after the other."""
        self.serial(s, self.value(s.start), self.value(s.stop))

    def vector(self, s: Loop, varying: Varying) -> None:
        """Several iterations at a time, in the lanes of vectors."""
        start, stop = self.value(s.start), self.value(s.stop)
        extent = None if start.number is None or stop.number is None else stop.number - start.number
        if extent is not None and extent <= 0:
            return
        lanes = lane_count(s, varying, self.target, extent)
        lanes = lanes if extent is None else self.machine.possible_lanes(min(lanes, extent))
        if lanes == 1:
            self.serial(s, start, stop)
            return
        whole = self._whole(start, stop, extent, lanes)
        begun = self.open_lanes(s, varying, lanes)
        self.counted(s.variable, start, whole, lanes, lambda: self._turn(s), list(varying.reductions))
        rest = None if extent is None else extent % lanes
        if rest is not None and rest > 1:
            self.lanes.count, self.indices.variables[s.variable] = self.machine.possible_lanes(rest), whole
            self.block(s.body)
            whole = constant(whole.number + self.lanes.count, int64)
            rest -= self.lanes.count
        self.close_lanes(varying, begun)
        if rest is None or rest == 1:
            self.serial(s, whole, stop)

    def _turn(self, s: Loop) -> None:
        """The body of a vector loop, and what it asks for ahead of a later one."""
        for buffer, index in self.ahead.get(s, ()):
            self.memory.prefetch(buffer, index)
        self.block(s.body)

    def _whole(self, start: Value, stop: Value, extent: int | None, lanes: int) -> Value:
        """Where the part of a loop ends that whole vectors cover."""
        if extent is not None:
            return constant(start.number + extent // lanes * lanes, int64)
        count = self.scalars.max(self.scalars.sub(stop, start), ZERO)
        rest = self.scalars.rem(count, constant(lanes, int64))
        return self.indices.sum(start, self.scalars.sub(count, rest))

    def open_lanes(self, s: Loop, varying: Varying, lanes: int) -> list[Value]:
        """Begin to write lanes; gives what the locals held that the loop accumulates into."""
        self.lanes.open(s, varying, lanes)
        begun = [self.locals[local] for local in varying.reductions]
        for local, instruction in varying.reductions.items():
            self.locals[local] = self.registers.in_lanes(identity(instruction, local.dtype), lanes)
        return begun

    def close_lanes(self, varying: Varying, begun: list[Value]) -> None:
        """Write single elements again, and combine what is in lanes with what the locals held."""
        self.lanes.close()
        for (local, instruction), old in zip(varying.reductions.items(), begun, strict=True):
            total = self.reduced(instruction, self.locals[local])
            self.locals[local] = self.scalars.apply(instruction, old, total)

    def reduced(self, instruction: str, x: Value) -> Value:
        """All lanes combined: the halves, then the halves of that, and so on."""
        registers, apply = self.registers, self.scalars.apply
        x = registers.padded(x, 1 << (x.lanes - 1).bit_length(), identity(instruction, x.dtype))
        while x.lanes > 2:
            x = apply(instruction, registers.half(x, 0), registers.half(x, x.lanes // 2))
        return apply(instruction, registers.lane(x, "0"), registers.lane(x, "1"))
