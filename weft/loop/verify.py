"""Whether functions and programs of Loop IR are well formed; the error names the statement.

A barrier that some threads of a block reach and others do not stops a GPU for good, so what decides whether
it is reached must be the same for all of them. That is shown here, from the statements alone; whether two
threads meet at one element without a barrier between them, the interpreter finds out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from weft.base.sizes import size_names
from weft.errors import GraphError
from weft.loop import ir
from weft.loop.check import MAIN_ONLY, Checker, exceeds, is_parallel
from weft.loop.index import Index, Variable
from weft.loop.ir import Block, Buffer, Function, Local, Program, Statement, Value
from weft.loop.walk import blocks_of, launched_functions, own_accesses, statements


def check_threads(checker: Checker) -> None:
    """Raise the error of the first problem with threads, barriers and shared memory of a function.

    >>> from weft.loop.builder import Builder
    >>> from weft.loop.verify import verify_function
    >>> b = Builder()
    >>> b.barrier()
    >>> verify_function(b.function("f", written=[]))
    Traceback (most recent call last):
    weft.errors.GraphError: verify: f: `barrier`: a barrier must stand in a threads loop
    ...
    """
    body = checker.function.body
    last = body.statements[-1] if body.statements else None
    if isinstance(last, ir.Loop) and is_parallel(last):
        _check_scratch(checker)
        body = Block([*body.statements[:-1], *_block_of_grid(checker, last)])
    for s in statements(body):
        checker.statement = s
        checker.require(not _is_threads(s), "a threads loop must be the last statement of a parallel loop")
        checker.require(not isinstance(s, ir.Barrier), "a barrier must stand in a threads loop")
        for buffer in (a.buffer for a in own_accesses(s)):
            outside = buffer.space != "shared"
            checker.require(outside, f"shared memory must be used in a threads loop alone, got {buffer.name}")


def _block_of_grid(checker: Checker, grid: ir.Loop) -> list[Statement]:
    """What a block does before its threads begin, or all of it; its threads are checked."""
    *before, last = grid.body.statements or [ir.Leave()]
    if not _is_threads(last):
        return grid.body.statements
    checker.prologue(Block(before))
    checker.statement = last
    stop = last.stop.offset
    fixed = last.start.is_fixed and last.stop.is_fixed and last.start.offset == 0
    told = f"threads must be numbered from 0 to a fixed number above it, got {last.start}..{last.stop}"
    checker.require(fixed and isinstance(stop, int) and stop > 0, told)
    _Uniformity(checker, last).run()
    return before


def _check_scratch(checker: Checker) -> None:
    for b in checker.function.scratch:
        own = b.space in ("private", "shared")
        checker.require(own, f"scratch of a kernel must be private or shared, got {b.space} {b!r}")


def _is_threads(s: Statement) -> TypeGuard[ir.Loop]:
    return isinstance(s, ir.Loop) and s.kind == "threads"


class _Uniformity:
    """One look at a threads loop: what differs from thread to thread, and what that must not decide.

    Attributes:
        differing: scalars, locals and variables that may differ; it only grows, until nothing is found.
    """

    def __init__(self, checker: Checker, threads: ir.Loop) -> None:
        self.checker = checker
        self.body = threads.body
        self.differing: set[Value | Local | Variable] = {threads.variable}

    def run(self) -> None:
        """Find what differs, then check what stands where it does."""
        size = 0
        while len(self.differing) > size:  # a loop may carry what differs back to its beginning
            size = len(self.differing)
            self.block(self.body, apart=False)
        self.check(self.body, apart=False)

    def differs(self, x: Value | None) -> bool:
        """Whether an operand may differ."""
        if isinstance(x, Index):
            return any(v in self.differing or self.differs(v.value) for v in x.terms)
        return x in self.differing

    def block(self, block: Block, apart: bool) -> None:
        """Find what differs in a block; ``apart`` where not all threads come to it, or not equally often."""
        for s in block.statements:
            if isinstance(s, ir.Scalar | ir.Load | ir.Get):
                if self._computes(s):
                    self.differing.add(s)
            elif isinstance(s, ir.Declare | ir.Set | ir.Accumulate):
                if apart or self.differs(s.value):
                    self.differing.add(s.local)
            elif isinstance(s, ir.Loop) and self.parts(s):
                self.differing.add(s.variable)
            for inner in blocks_of(s):
                self.block(inner, apart or self.parts(s))

    def _computes(self, s: ir.Scalar | ir.Load | ir.Get) -> bool:
        """Whether a statement computes what differs; what is private may hold anything."""
        if isinstance(s, ir.Scalar):
            return any(map(self.differs, s.args))
        if isinstance(s, ir.Get):
            return s.local in self.differing
        return s.buffer.space == "private" or self.differs(s.index) or self.differs(s.mask)

    def parts(self, s: Statement) -> bool:
        """Whether threads part ways at a statement: what decides about its blocks differs."""
        if isinstance(s, ir.If | ir.While):
            return self.differs(s.condition)
        return isinstance(s, ir.Loop) and (self.differs(s.start) or self.differs(s.stop))

    def check(self, block: Block, apart: bool) -> None:
        """Raise the error of the first statement that stands where it must not."""
        for s in block.statements:
            self.checker.statement = s
            reached = not (apart and isinstance(s, ir.Barrier))
            self.checker.require(reached, "a barrier must be reached by all threads of a block or by none")
            self.checker.require(not _is_threads(s), "a threads loop must not stand in another one")
            library = isinstance(s, ir.Matmul)
            self.checker.require(not library, "a call of a library must not stand in a threads loop")
            for inner in blocks_of(s):
                self.check(inner, apart or self.parts(s))


def verify_function(function: Function) -> Function:
    """Raise a GraphError if a function is not well formed; gives the function back.

    >>> from weft.base.dtypes import float32
    >>> from weft.loop.ir import Block, Buffer, Const, Function, Index, Store
    >>> from weft.loop.verify import verify_function
    >>> y = Buffer("y", float32, 8)
    >>> store = Store(y, Index.of(0), Const(1.0, float32))
    >>> verify_function(Function("f", (y,), (), Block([store]), frozenset({y}))).name
    'f'
    >>> verify_function(Function("f", (y,), (), Block([store])))
    Traceback (most recent call last):
    weft.errors.GraphError: verify: f: `store y[0] = f32(1.0)`: a buffer must be in written, got y
    ...
    """
    _check(Checker(function))
    return function


def verify_program(program: Program) -> Program:
    """Raise a GraphError if a program, or a function that it launches, is not well formed; gives it back.

    >>> from weft.loop.ir import Block, Function, Program
    >>> from weft.loop.verify import verify_program
    >>> verify_program(Program(Function("main", (), (), Block()), 1, 0, (), {}, 0, (), (), ()))
    Traceback (most recent call last):
    weft.errors.GraphError: verify: main: buffers must be 1 inputs, 0 outputs and 0 constants, got 0
    ...
    """
    for message in _program_problems(program):
        raise GraphError("verify", f"{program.main.name}: {message}")
    failures = len(program.failures)
    memory = (*program.arena, *program.heap)
    _check(Checker(program.main, memory=memory, program=program, failures=failures))
    for function in launched_functions(program.main.body):
        checker = Checker(function, failures=failures)
        _check(checker)
        checker.refuse(function.body, MAIN_ONLY, "must stand in the main function, got it in a launched one")
    return program


def _check(checker: Checker) -> None:
    checker.run()
    check_threads(checker)


def _program_problems(program: Program) -> Iterator[str]:
    main, constants = program.main, len(program.constants)
    if len(main.buffers) != program.inputs + program.outputs + constants:
        told = f"{program.inputs} inputs, {program.outputs} outputs and {constants} constants"
        yield f"buffers must be {told}, got {len(main.buffers)}"
        return
    if main.body.statements and is_parallel(main.body.statements[-1]):
        yield "a parallel loop must be in a launched function, got it in the main one"
    for buffer, array in zip(main.buffers[len(main.buffers) - constants :], program.constants, strict=True):
        if array.dtype != buffer.dtype or array.size != buffer.size:
            yield f"a constant must be as its buffer {buffer!r}, got {array.dtype.name}[{array.size}]"
    yield from _arena_problems(program)
    outputs = main.buffers[program.inputs : program.inputs + program.outputs]
    for source, target in program.donated:
        if not (source < program.inputs and target < program.outputs):
            yield f"donated must be pairs of an input and an output, got {(source, target)}"
        elif not _same_type(main.buffers[source], outputs[target]):
            pair = f"{main.buffers[source]!r} and {outputs[target]!r}"
            yield f"a donated input must be as its output, got {pair}"


def _same_type(a: Buffer, b: Buffer) -> bool:
    return a.dtype == b.dtype and a.size == b.size


def _arena_problems(program: Program) -> Iterator[str]:
    told = {s.name for s in statements(program.main.body) if isinstance(s, ir.Bind)}
    given = {*program.main.sizes} - told
    for buffer, at in program.arena.items():
        if buffer in program.heap or buffer in program.main.buffers:
            yield f"a buffer must be in one place, got {buffer!r} in the arena and elsewhere"
        missing = size_names((buffer.size, at)) - given
        if missing:
            yield f"sizes in the arena must be given to the program, got {sorted(missing)[0]} in {buffer!r}"
        if isinstance(at, int) and (at < 0 or at % buffer.dtype.itemsize):
            yield f"a buffer must be aligned in the arena, got {buffer!r} at {at}"
        if exceeds(at, buffer.size, program.arena_size, buffer.dtype.itemsize):
            yield f"a buffer must be inside the arena, got {buffer!r} at {at} of {program.arena_size}"
    missing = size_names((program.arena_size,)) - {*program.main.sizes}
    if missing:
        yield f"sizes in the arena must be given to the program, got {sorted(missing)[0]}"
