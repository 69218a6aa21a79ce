"""The scalar code of the main function as kernels: on a GPU the host sees none of the numbers.

What the main function computes itself, between the launches and copies, becomes a kernel of one thread for
each stretch of it, a loop or a branch without launches as a whole. A number that another stretch needs, or a
local, is an element in memory. Variables of loops that the host runs are named sizes. What is left are
launches, copies and calls, loops and branches around them, and loads of what the host must know: conditions,
and numbers in indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.base.dtypes import int64
from weft.base.records import field_names, replace
from weft.base.sizes import named_size
from weft.loop import ir
from weft.loop.index import Index, Variable
from weft.loop.ir import Block, Buffer, Function, Launch, Local, Loop, Statement
from weft.loop.walk import blocks_of, own_accesses, statements
from weft.schedule.bodies import names_in_block
from weft.schedule.writer import Writer

_STEPS = (
    ir.Launch, ir.Wave, ir.Copy, ir.Host, ir.Allocate, ir.Free, ir.Bind, ir.Leave, ir.Matmul,
)  # fmt: skip
_COMPUTED = (ir.Scalar, ir.Load, ir.Get, ir.Measure)
_MOVED = (ir.Scalar, ir.Load, ir.Get, ir.Store, ir.Declare, ir.Set)  # that may come before launches
_HOST = frozenset({"add", "sub", "mul", "div", "rem", "min", "max"})  # that the host may do with indices


def outline(writer: Writer) -> None:
    """Make kernels of the scalar code of a writer's main function."""
    _Outline(writer).run()


class _Outline:
    """What is known of the main function while it is taken apart.

    Attributes:
        slots: where numbers and locals are in memory.
        turns: by variable of a loop of the host, the name of the size that it is.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.slots: dict[Any, Buffer] = {}
        self.turns: dict[Variable, str] = {}
        self._home: dict[Any, int] = {}  # by number or local, the stretch that it belongs to; 0: the host's
        self._stretch: dict[Statement, int] = {}  # by statement of a block of the host
        self._count = 0
        self._away: set[Any] = set()  # those that are needed elsewhere

    def run(self) -> None:
        """All of the main function."""
        main = self.writer.main.block
        self._move_tests(main)
        self._gather(main)
        self._find_homes(main)
        self._find_uses(main)
        self._rewrite(main)

    # Fewer stretches

    def _gather(self, block: Block) -> None:
        """Put scalar code to that before launches which it has nothing to do with.

        What is written to results stays: those may be states, which a run that fails must not change.
        """
        out: list[Statement] = []
        own = set(self.writer.temporaries)
        for s in block.statements:
            for inner in blocks_of(s):
                self._gather(inner)
            place = len(out)
            moves = isinstance(s, _MOVED) and all(a.buffer in own for a in own_accesses(s) if a.written)
            while moves and place and _are_apart(out[place - 1], s):
                place -= 1
            joins = place and not self._is_step(out[place - 1])
            out.insert(place if joins else len(out), s)
        block.statements[:] = out

    # Tests of loops

    def _move_tests(self, block: Block) -> None:
        """Compute what a loop tests at the end of a turn, with the numbers that it carries: in one kernel."""
        out: list[Statement] = []
        for s in block.statements:
            for inner in blocks_of(s):
                self._move_tests(inner)
            out += self._moved(s) if isinstance(s, ir.While) and self._is_movable(s) else [s]
        block.statements[:] = out

    def _is_movable(self, s: ir.While) -> bool:
        inside = list(statements(s.test))
        if not self._is_step(s) or any(isinstance(x, _STEPS) for x in inside):
            return False  # a loop without launches is a kernel as it is
        if not isinstance(s.condition, _COMPUTED):
            return False
        made = {x for inner in inside for x in _made(inner)}
        used = {x for inner in statements(s.body) for x in _operands(inner)}
        return s.condition in made and made.isdisjoint(used)

    def _moved(self, s: ir.While) -> list[Statement]:
        flag = Local(s.condition.dtype, "test")
        before, after = (_Copy({}, {}) for _ in range(2))
        first = [made for x in s.test.statements for made in before.statements(x)]
        again = [made for x in s.test.statements for made in after.statements(x)]
        body = s.body.statements
        end = len(body)
        while end and isinstance(body[end - 1], ir.Leave):
            end -= 1
        body[end:end] = [*again, ir.Set(flag, after.value(s.condition))]
        told = ir.Get(flag, flag.dtype)
        s.test.statements[:] = []
        made = replace(s, condition=told)
        node = self.writer.loops.pop(s, None)
        if node is not None:
            self.writer.loops[made] = node
        self._away.add(flag)
        return [*first, ir.Declare(flag, before.value(s.condition)), made]

    # Who needs what

    def stretches(self, block: Block) -> list[tuple[bool, list[Statement]]]:
        """Statements in order, those that are steps one by one, the others in stretches."""
        out: list[tuple[bool, list[Statement]]] = []
        for s in block.statements:
            step = self._is_step(s)
            if not step and out and not out[-1][0]:
                out[-1][1].append(s)
            else:
                out.append((step, [s]))
        return out

    def _is_step(self, s: Statement) -> bool:
        return any(isinstance(x, _STEPS) for x in statements(Block([s]))) or self._is_for_host(s)

    def _is_for_host(self, s: Statement) -> bool:
        """Whether the host can compute a number: of sizes, and of the variables of its loops."""
        if isinstance(s, ir.Measure):
            return True
        if not isinstance(s, ir.Scalar) or s.dtype != int64 or s.instruction not in _HOST:
            return False
        return all(self._host_knows(x) for x in s.args)

    def _host_knows(self, x: Any) -> bool:
        if isinstance(x, Index):
            return all(v.value is None or self._host_knows(v.value) for v in x.terms)
        if isinstance(x, ir.Const):
            return True
        return isinstance(x, ir.Measure | ir.Scalar) and self._is_for_host(x)

    def _find_homes(self, block: Block) -> None:
        """Number the stretches, and note which one each number and each local belongs to."""
        for step, found in self.stretches(block):
            self._count += 1
            for s in found:
                self._stretch[s] = 0 if step else self._count
                for inner in [s] if step else statements(Block([s])):
                    for made in _made(inner):
                        self._home[made] = self._stretch[s]
                for nested in blocks_of(s) if step else ():
                    self._find_homes(nested)

    def _find_uses(self, block: Block) -> None:
        """Note the numbers and locals that are needed outside of their stretch."""
        for s in block.statements:
            home = self._stretch[s]
            for inner in statements(Block([s])) if home else [s]:
                self._away.update(x for x in _operands(inner) if self._home.get(x, home) not in (0, home))
            for nested in () if home else blocks_of(s):
                self._find_uses(nested)

    # Rewriting

    def _rewrite(self, block: Block) -> None:
        out: list[Statement] = []
        for step, found in self.stretches(block):
            if not step:
                out += self._kernel(found)
                continue
            (s,) = found
            out += self._step(s)
        block.statements[:] = out

    def _step(self, s: Any) -> list[Statement]:
        """A step, with loads of what the host must know before it."""
        loads: list[Statement] = []
        if isinstance(s, ir.Measure | ir.Scalar):
            return [s]
        if isinstance(s, Loop):
            self._rewrite_loop(s)
        elif isinstance(s, ir.If):
            self._rewrite(s.then)
            self._rewrite(s.otherwise)
        if isinstance(s, ir.While):
            return [self._while(s)]
        known = {x: self._loaded(x, loads) for x in dict.fromkeys(_operands(s)) if x in self._away}
        made = _Copy(known, {}).statement(s) if known else s
        return [*loads, made]

    def _loaded(self, x: Any, loads: list[Statement]) -> ir.Load:
        found = ir.Load(self._slot(x), Index.of(0), x.dtype)
        loads.append(found)
        return found

    def _rewrite_loop(self, s: Loop) -> None:
        name = f"{s.variable.name}_turn"
        self.turns[s.variable] = name
        self._rewrite(s.body)
        uses = any(name in f.sizes for f in _functions(s.body))
        if uses:
            s.body.statements.insert(0, ir.Bind(name, Index.of(s.variable)))

    def _while(self, s: ir.While) -> ir.While:
        self._rewrite(s.test)
        self._rewrite(s.body)
        condition: Any = s.condition
        if isinstance(condition, ir.Get) and condition.local in self._away:
            condition = self._loaded(condition.local, s.test.statements)
        elif condition in self._away:
            condition = self._loaded(condition, s.test.statements)
        made = replace(s, condition=condition)
        node = self.writer.loops.pop(s, None)
        if node is not None:
            self.writer.loops[made] = node
        return made

    def _slot(self, x: Any) -> Buffer:
        if x not in self.slots:
            self.slots[x] = self.writer.temporary((1,), x.dtype, "n").buffer
        return self.slots[x]

    # Kernels of one thread

    def _kernel(self, found: Sequence[Statement]) -> list[Statement]:
        if not any(self._matters(s) for s in found):
            return []
        buffers: dict[Buffer, Buffer] = {}
        written: set[Buffer] = set()

        def parameter(old: Buffer) -> Buffer:
            if old not in buffers:
                buffers[old] = Buffer(f"b{len(buffers)}", old.dtype, old.size)
            return buffers[old]

        body: list[Statement] = []
        known: dict[Any, Any] = {}
        copier = _Copy(known, {}, parameter, self._local_place, self._is_away, self._named)
        own = {x for s in found for x in _made(s)}
        needed = dict.fromkeys(x for s in found for inner in statements(Block([s])) for x in _operands(inner))
        for x in needed:
            if x in self._away and x not in own and not isinstance(x, Local):
                load = ir.Load(parameter(self._slot(x)), Index.of(0), x.dtype)
                known[x] = load
                body.append(load)
        for s in [*self._of_host(needed), *found]:
            body += copier.statements(s)
            for x in _made(s):
                if x in self._away and not isinstance(x, Local):
                    body.append(ir.Store(parameter(self._slot(x)), Index.of(0), copier.value(x)))
        inner = Block(body)
        for s in statements(inner):
            written |= {a.buffer for a in own_accesses(s) if a.written}
        return [self._launch(inner, buffers, written)]

    def _of_host(self, needed: Iterable[Any]) -> list[Statement]:
        """The numbers among those needed that the host computes, each after its own operands.

        A kernel computes them again, from sizes and turns of loops.
        """
        out: dict[Any, None] = {}
        for x in needed:
            if isinstance(x, ir.Scalar | ir.Measure) and self._home.get(x) == 0:
                out |= dict.fromkeys(self._of_host(_operands(x)))
                out[x] = None
        return list(out)

    def _matters(self, s: Statement) -> bool:
        """Whether a statement does something, or gives what is needed elsewhere."""
        if isinstance(s, _COMPUTED):
            return s in self._away
        if isinstance(s, ir.Declare | ir.Set | ir.Accumulate):
            return s.local in self._away
        return True

    def _is_away(self, local: Local) -> bool:
        return local in self._away

    def _local_place(self, local: Local) -> Buffer:
        return self._slot(local)

    def _named(self, variable: Variable) -> Index | None:
        name = self.turns.get(variable)
        return None if name is None else Index.of(named_size(name))

    def _launch(self, body: Block, buffers: dict[Buffer, Buffer], written: set[Buffer]) -> Launch:
        one, only = Variable("i", 1), Variable("t", 1)
        threads = Loop(only, Index.of(0), Index.of(1), body, "threads")
        grid = Loop(one, Index.of(0), Index.of(1), Block([threads]), "parallel")
        sizes = tuple(sorted(names_in_block(body, buffers.values())))
        function = Function(
            "scalars", tuple(buffers.values()), sizes, Block([grid]), frozenset(written), (), ()
        )
        self.writer.origins.kernels[function] = ()
        if self.writer.written is not None:
            self.writer.written(function)
        return Launch(function, tuple((old, Index.of(0)) for old in buffers))


def _are_apart(launch: Statement, s: Statement) -> bool:
    """Whether a statement can as well come before a launch: neither writes what the other one touches."""
    if not isinstance(launch, Launch):
        return False
    theirs = {a.buffer: a.written for a in own_accesses(launch)}
    theirs |= {a.buffer: True for a in own_accesses(launch) if a.written}
    return not any(a.buffer in theirs and (a.written or theirs[a.buffer]) for a in own_accesses(s))


def _functions(block: Block) -> Iterable[Function]:
    for s in statements(block):
        if isinstance(s, Launch):
            yield s.function


def _made(s: Statement) -> list[Any]:
    """The numbers and locals that a statement of a stretch gives to those after it."""
    if isinstance(s, _COMPUTED):
        return [s]
    return [s.local] if isinstance(s, ir.Declare) else []


def _operands(s: Statement) -> list[Any]:
    """The numbers and locals that a statement itself names, those in indices included."""
    found: list[Any] = []

    def visit(x: Any) -> None:
        if isinstance(x, Index):
            for v in x.terms:
                if v.value is not None:
                    visit(v.value)
        elif isinstance(x, Block | Function | Buffer):
            return
        elif isinstance(x, tuple):
            for item in x:
                visit(item)
        elif isinstance(x, (*_COMPUTED, Local)):
            found.append(x)
        elif isinstance(x, Launch):
            visit(x.buffers)

    for name in field_names(s):
        visit(getattr(s, name))
    return found


class _Copy:
    """Copies statements, with other buffers, numbers, locals and variables in them.

    Attributes:
        known: by number, what stands for it in the copy.
        terms: by term of an index, what stands for it.
    """

    def __init__(
        self,
        known: dict[Any, Any],
        terms: dict[Variable, Variable],
        buffer: Callable[[Buffer], Buffer] = lambda b: b,
        place: Callable[[Local], Buffer] | None = None,
        in_memory: Callable[[Local], bool] = lambda local: False,
        named: Callable[[Variable], Index | None] = lambda v: None,
    ) -> None:
        self.known = known
        self.terms = terms
        self._buffer = buffer
        self._place = place
        self._in_memory = in_memory
        self._named = named

    def statements(self, s: Statement) -> list[Statement]:
        """A statement, or what stands for it where it is about a local in memory."""
        local = getattr(s, "local", None)
        if local is not None and self._in_memory(local):
            return self._with_local(s, local)
        made = self.statement(s)
        if isinstance(s, _COMPUTED):
            self.known[s] = made
        return [made]

    def _with_local(self, s: Any, local: Local) -> list[Statement]:
        assert self._place is not None
        buffer, zero = self._buffer(self._place(local)), Index.of(0)
        if isinstance(s, ir.Get):
            self.known[s] = load = ir.Load(buffer, zero, s.dtype)
            return [load]
        value = self.value(s.value)
        if not isinstance(s, ir.Accumulate):
            return [ir.Store(buffer, zero, value)]
        old = ir.Load(buffer, zero, local.dtype)
        total = ir.Scalar(s.instruction, (old, value), local.dtype)
        return [old, total, ir.Store(buffer, zero, total)]

    def statement(self, s: Any) -> Any:
        """A statement with what stands for its operands; blocks in it are copied, too."""
        changes = {name: self._field(getattr(s, name)) for name in field_names(s)}
        return replace(s, **changes)

    def _field(self, x: Any) -> Any:
        if isinstance(x, Buffer):
            return self._buffer(x)
        if isinstance(x, Block):
            return Block([made for s in x.statements for made in self.statements(s)])
        if isinstance(x, tuple):
            return tuple(self._field(item) for item in x)
        if isinstance(x, Launch):
            return self.statement(x)
        return self.value(x)

    def value(self, x: Any) -> Any:
        """What stands for an operand."""
        if isinstance(x, Index):
            return self._index(x)
        return self.known.get(x, x) if isinstance(x, _COMPUTED) else x

    def _index(self, x: Index) -> Index:
        out = Index.of(x.offset)
        for v, stride in x.terms.items():
            out = out + self._term(v) * stride
        return out

    def _term(self, v: Variable) -> Index:
        if v.value is None:
            return self._named(v) or Index.of(v)
        if v not in self.terms:
            self.terms[v] = Variable(v.name, v.stop, self.value(v.value))
        return Index.of(self.terms[v])
