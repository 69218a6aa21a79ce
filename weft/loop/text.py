"""Loop IR as text: for people to read, and in a canonical form that is equal for equal code.

    function f(x: f32[8], written y: f32[8]) {
      for vector i1 in 0..8 {
        %0: f32 = load x[i1]
        %1: f32 = mul(%0, f32(2.0))
        store y[i1] = %1
      }
    }

The canonical form numbers buffers, locals, variables, values and sizes as they come, and leaves nothing out
that code depends on: kernels that it shows to be equal are compiled once, and it keys caches of machine code.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir.literals import format_literal
from weft.loop.canonical import CanonicalPrinter, code_key_of, key_of
from weft.loop.ir import Buffer, Function, Program, Statement
from weft.loop.printer import SHORT, Printer
from weft.loop.walk import launched_functions


def format_function(function: Function, *, canonical: bool = False) -> str:
    """A function as text.

    Args:
        function: to print.
        canonical: whether to number all names, so that equal text means equal code.

    >>> import weft, numpy as np
    >>> from weft.loop.builder import Builder
    >>> from weft.loop.text import format_function
    >>> b = Builder()
    >>> x, y = b.buffer("x", np.dtype("f4"), 8), b.buffer("y", np.dtype("f4"), 8)
    >>> with b.vector(8) as i:
    ...     b.store(y, i, b.mul(b.load(x, i), 2.0))
    >>> print(format_function(b.function("f", written=[y])))
    function f(x: f32[8], written y: f32[8]) {
      for vector i1 in 0..8 {
        %0: f32 = load x[i1]
        %1: f32 = mul(%0, f32(2.0))
        store y[i1] = %1
      }
    }
    """
    printer = CanonicalPrinter({}) if canonical else Printer()
    printer.function(function)
    return "\n".join(printer.lines)


def function_key(function: Function) -> str:
    """A digest of the canonical text of a function: equal for equal code, whatever its names.

    >>> from weft.loop.ir import Block, Function
    >>> from weft.loop.text import function_key
    >>> function_key(Function("f", (), (), Block())) == function_key(Function("g", (), (), Block()))
    True
    """
    return key_of(function, {})


def code_key(function: Function) -> str:
    """A digest of what the code of a kernel depends on, without how often its launches run its parallel loop.

    >>> import numpy as np
    >>> from weft.loop.builder import Builder
    >>> from weft.loop.text import code_key
    >>> def kernel(blocks):
    ...     b = Builder()
    ...     x = b.buffer("x", np.dtype("f4"), 32 * blocks)
    ...     with b.parallel(blocks) as k, b.vector(32) as i:
    ...         b.store(x, 32 * k + i, 1.0)
    ...     return b.function("f", written=[x])
    >>> code_key(kernel(2)) == code_key(kernel(3))
    True
    """
    return code_key_of(function)


def format_program(program: Program, *, canonical: bool = False) -> str:
    """A program as text: its memory, the main function, then each function that it launches.

    Args:
        program: to print.
        canonical: whether to number all names; launched functions then stand there by their keys.

    >>> import weft
    >>> from weft.loop.ir import Block, Function, Program
    >>> from weft.loop.text import format_program
    >>> print(format_program(Program(Function("main", (), (), Block()), 0, 0, (), {}, 64, (), (), ())))
    program of 0 inputs, 0 outputs, 0 constants {
      arena of 64 bytes
    }
    <BLANKLINE>
    function main() {
    }
    """
    if canonical:
        return "\n".join(CanonicalPrinter({}, program).program(program))
    texts = ["\n".join(_program_head(program))]
    texts += [format_function(f) for f in (program.main, *launched_functions(program.main.body))]
    return "\n\n".join(texts)


def statement_lines(function: Function) -> dict[Statement, str]:
    """The first line of the text of each statement."""
    printer = Printer()
    printer.function(function)
    return printer.first_lines


def _program_head(program: Program) -> Iterable[str]:
    constants = len(program.constants)
    yield f"program of {program.inputs} inputs, {program.outputs} outputs, {constants} constants {{"
    yield f"  arena of {program.arena_size} bytes"
    for buffer, at in program.arena.items():
        yield f"  at {at}: {_typed(buffer)}"
    for buffer in program.heap:
        yield f"  heap: {_typed(buffer)}"
    for source, target in program.donated:
        yield f"  input {source} may be output {target}"
    for number, entry in enumerate(program.hosts):
        operands = [*map(str, entry.inputs), *[f"{k}={format_literal(v)}" for k, v in entry.attrs.items()]]
        results = ", ".join(map(str, entry.outputs))
        yield f"  host {number}: {entry.op.name}({', '.join(operands)}) -> {results}"
    yield "}"


def _typed(buffer: Buffer) -> str:
    return f"{buffer.name}: {SHORT[buffer.dtype]}[{buffer.size}]"
