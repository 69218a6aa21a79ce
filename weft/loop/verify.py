"""Whether functions and programs of Loop IR are well formed; the error names the statement."""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.sizes import size_names
from weft.errors import GraphError
from weft.loop.check import MAIN_ONLY, Checker, exceeds, is_parallel
from weft.loop.ir import Buffer, Function, Program
from weft.loop.threads import check_threads
from weft.loop.walk import launched_functions


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
    for buffer, at in program.arena.items():
        if buffer in program.heap or buffer in program.main.buffers:
            yield f"a buffer must be in one place, got {buffer!r} in the arena and elsewhere"
        missing = size_names((buffer.size, at)) - {*program.main.sizes}
        if missing:
            yield f"sizes in the arena must be given to the program, got {sorted(missing)[0]} in {buffer!r}"
        if isinstance(at, int) and (at < 0 or at % buffer.dtype.itemsize):
            yield f"a buffer must be aligned in the arena, got {buffer!r} at {at}"
        if exceeds(at, buffer.size, program.arena_size, buffer.dtype.itemsize):
            yield f"a buffer must be inside the arena, got {buffer!r} at {at} of {program.arena_size}"
    missing = size_names((program.arena_size,)) - {*program.main.sizes}
    if missing:
        yield f"sizes in the arena must be given to the program, got {sorted(missing)[0]}"
