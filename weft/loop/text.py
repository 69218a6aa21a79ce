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

import numpy as np

from weft.base.digest import digest
from weft.base.sizes import Size, named_size
from weft.errors import GraphError
from weft.ir.literals import format_literal
from weft.loop import ir
from weft.loop.index import Extent, Index, Variable
from weft.loop.ir import Buffer, Function, Local, Program, Statement, Value
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
    return _key_of(function, {})


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
    printer = CodePrinter(function)
    printer.function(function)
    lines = [*printer.lines, *(printer.told if printer.computes else ())]
    return digest("\n".join(lines).encode()).hex()


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


def _key_of(function: Function, keys: dict[Function, str]) -> str:
    """The digest of the canonical text of a function, kept in ``keys``."""
    found = keys.get(function)
    if found is None:
        printer = CanonicalPrinter(keys)
        printer.function(function)
        found = keys[function] = digest("\n".join(printer.lines).encode()).hex()
    return found


class CanonicalPrinter(Printer):
    """One printing with numbers for names, and with all that code depends on.

    A buffer that is no parameter shows its type, and in a program its place, where it is first named.
    """

    def __init__(self, keys: dict[Function, str], program: Program | None = None) -> None:
        super().__init__()
        self.keys = keys  # of functions that are launched
        self.memory: dict[Buffer, str] = {}
        self.counts = {"b": 0, "v": 0, "i": 0}
        self.sizes: dict[str, Size] = {}
        self.size_texts: dict[Size, str] = {}
        if program is not None:
            for name in program.main.sizes:
                self._size_name(name)
            self.memory |= {b: f"at {self._size(at)}" for b, at in program.arena.items()}
            self.memory |= dict.fromkeys(program.heap, "heap")

    def program(self, program: Program) -> list[str]:
        """The lines of a program."""
        self.function(program.main)
        counts = f"{program.inputs} {program.outputs} {len(program.constants)}"
        return [f"{counts} {self._size(program.arena_size)} {program.donated}", *self.lines]

    def _name(self, x: ir.Named) -> str:
        """The number of something that was named before."""
        return self.names.get(x) or self._unknown(x)

    def _numbered(self, x: ir.Named, letter: str) -> str:
        """The name of an object: a letter and a number."""
        found = self.names.get(x)
        if found is None:
            found = self.names[x] = f"{letter}{self.counts[letter]}"
            self.counts[letter] += 1
        return found

    def _buffer(self, b: Buffer) -> str:
        """A buffer, with its type where it is first named."""
        if b in self.names:
            return self.names[b]
        name = f"{self._space(b)}{self._numbered(b, 'b')}"
        return f"{name}:{SHORT[b.dtype]}[{self._size(b.size)}]{self.memory.get(b, '')}"

    def _parameter(self, b: Buffer, written: bool) -> str:
        return f"{'written ' * written}{self._buffer(b)}"

    def _new_local(self, x: Local) -> str:
        return self._numbered(x, "v")

    def _variable(self, v: Variable) -> str:
        """A variable, or a value with the bound that it stays below."""
        if v.value is None:
            return self._name(v)
        text = self._value(v.value)  # the bound is code too: it lets a backend use narrower indices
        return text if v.stop is None else f"({text}<{self._size(v.stop)})"

    def _new_variable(self, v: Variable) -> str:
        """A variable where it begins, with its bound."""
        name = self._numbered(v, "i")
        return name if v.stop is None else f"{name}<{self._size(v.stop)}"

    def _size_name(self, name: str) -> str:
        """The name of a size: its number."""
        return str(self.sizes.setdefault(name, named_size(f"n{len(self.sizes)}")))

    def _size(self, size: Extent) -> str:
        if not isinstance(size, Size):
            return str(size)
        found = self.size_texts.get(size)
        if found is None:
            for name in sorted(size.names()):  # a set has no order, and numbers must not depend on it
                self._size_name(name)
            found = self.size_texts[size] = str(size.substitute(self.sizes))
        return found

    def _const(self, x: ir.Const) -> str:
        """A number, bit by bit."""
        return f"{SHORT[x.dtype]}:{np.asarray(x.value, x.dtype).tobytes().hex()}"

    def _index(self, index: Index) -> str:
        """A sum of terms, in one order."""
        if not index.terms:
            return self._size(index.offset)
        parts = [self._term(v, s) for v, s in index.terms.items()]
        if len(parts) > 1:  # two ways to write one sum must not be two kernels
            parts.sort()
        parts.append(self._size(index.offset))
        return " + ".join(parts)

    def _unknown(self, x: object) -> str:
        """What is no operand here is an error."""
        what = x.name if isinstance(x, Variable | Local) else type(x).__name__
        raise GraphError("text", f"a value must be computed before it is used, got {what}")

    def _title(self, function: Function) -> str:
        return "function "

    def _launched(self, function: Function) -> str:
        return _key_of(function, self.keys)


class CodePrinter(CanonicalPrinter):
    """A printing without what launches tell: how often a parallel loop runs, and how long parameters are.

    Attributes:
        told: what was left out.
        computes: whether the code computes with indices; how it does depends on how large they may become.
    """

    def __init__(self, function: Function) -> None:
        super().__init__({})
        self.told: list[str] = []
        self.computes = False
        self._given = frozenset(b for b in function.buffers if isinstance(b.size, int) and b.size > 0)

    def _buffer(self, b: Buffer) -> str:
        """A buffer; the size of a parameter is left out."""
        if b in self.names or b not in self._given:
            return super()._buffer(b)
        self.told.append(str(b.size))
        return f"{self._space(b)}{self._numbered(b, 'b')}:{SHORT[b.dtype]}"

    def _loop_variable(self, s: ir.Loop) -> str:
        """The variable of a loop; with its bound, unless that is left out."""
        return self._numbered(s.variable, "i") if _is_dealt_out(s) else super()._loop_variable(s)

    def _bounds(self, s: ir.Loop) -> str:
        """From where to where a loop runs, unless that is left out."""
        bounds = super()._bounds(s)
        if not _is_dealt_out(s):
            return bounds
        self.told.append(bounds)
        return "all"

    def _value(self, x: Value) -> str:
        found = self.names.get(x)
        if found is not None:
            return found
        self.computes |= type(x) is Index
        return super()._value(x)


def _is_dealt_out(s: ir.Loop) -> bool:
    """Whether the iterations of a loop are shared out, a number of them that is known."""
    whole = not s.start.terms and not s.stop.terms and s.start.offset == 0
    return s.kind == "parallel" and whole and type(s.stop.offset) is int and s.variable.stop == s.stop.offset
