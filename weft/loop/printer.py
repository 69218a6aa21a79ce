"""How statements of Loop IR are written, with the names that objects have; see ``weft.loop.text``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.base.dtypes import DTYPES, DType, short_name
from weft.base.sizes import Size
from weft.ir.literals import format_array
from weft.loop import ir
from weft.loop.index import Extent, Index, Variable
from weft.loop.ir import Block, Buffer, Function, Local, Place, Statement, Value

SHORT: dict[DType, str] = {dtype: short_name(dtype) for dtype in DTYPES}
_UNSAID = ("global", "private")  # spaces that their place tells: parameters, and scratch


class Printer:
    """One printing, with the names that objects have."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.first_lines: dict[Statement, str] = {}
        self.names: dict[ir.Named, str] = {}  # of buffers, locals, variables and values
        self.used: set[str] = set()
        self.values = 0

    # Names

    def name(self, x: Buffer | Local | Variable) -> str:
        """The name of an object; a number follows it where another one has it already."""
        found = self.names.get(x)
        if found is None:
            wanted = x.name or "v"
            found, count = wanted, 1
            while found in self.used:
                count += 1
                found = f"{wanted}_{count}"
            self.used.add(found)
            self.names[x] = found
        return found

    def buffer(self, b: Buffer) -> str:
        """A buffer."""
        return self.name(b)

    def local(self, x: Local) -> str:
        """A local."""
        return self.name(x)

    def new_local(self, x: Local) -> str:
        """A local where it is declared."""
        return self.name(x)

    def new_variable(self, v: Variable) -> str:
        """A variable where it begins."""
        return self.name(v)

    def variable(self, v: Variable) -> str:
        """A term of an index: a variable of a loop, or the value that it stands for."""
        return self.name(v) if v.value is None else self.value(v.value)

    def size(self, size: Extent) -> str:
        """A number of elements."""
        return str(size)

    def size_name(self, name: str) -> str:
        """The name of a size."""
        return name

    # Operands

    def value(self, x: Value) -> str:
        """An operand."""
        found = self.names.get(x)
        if found is not None:
            return found
        if type(x) is Index:
            return self.index(x)
        return self.const(x) if type(x) is ir.Const else self.unknown(x)

    def unknown(self, x: object) -> str:
        """What is no operand or statement here; what is wrong is printed too."""
        return "%?"

    def const(self, x: ir.Const) -> str:
        """A number."""
        return format_array(np.asarray(x.value, x.dtype))

    def term(self, v: Variable, stride: Extent) -> str:
        """A variable times its stride."""
        if type(stride) is int:
            return self.variable(v) if stride == 1 else f"{stride}*{self.variable(v)}"
        return f"({self.size(stride)})*{self.variable(v)}"

    def index(self, index: Index) -> str:
        """A sum of terms."""
        if type(index) is not Index:
            return self.unknown(index)
        parts = [self.term(v, s) for v, s in index.terms.items()]
        if not parts or isinstance(index.offset, Size) or index.offset != 0:
            parts.append(self.size(index.offset))
        return " + ".join(parts)

    def listed(self, values: Iterable[Value]) -> str:
        """Operands, with commas."""
        return ", ".join([self.value(x) for x in values])

    def place(self, place: Place) -> str:
        """Where in a buffer an array begins."""
        buffer, index = place
        at = self.index(index)
        if at == "0":
            return self.buffer(buffer)
        return f"{self.buffer(buffer)}+({at})" if " " in at else f"{self.buffer(buffer)}+{at}"

    def places(self, places: Iterable[Place]) -> str:
        """Where arrays begin, with commas."""
        return ", ".join([self.place(p) for p in places])

    def element(self, buffer: Buffer, index: Index) -> str:
        """An element of a buffer."""
        return f"{self.buffer(buffer)}[{self.index(index)}]"

    def masked(self, mask: Value | None) -> str:
        """The condition of a load or store."""
        return "" if mask is None else f" if {self.value(mask)}"

    # Structure

    def function(self, function: Function) -> None:
        """A whole function."""
        sizes = ", ".join([self.size_name(n) for n in function.sizes])
        buffers = ", ".join([self.parameter(b, b in function.written) for b in function.buffers])
        self.lines.append(f"{self.title(function)}({buffers}{'; ' * bool(sizes)}{sizes}) {{")
        self.lines += [f"  scratch {self.parameter(b, False)}" for b in function.scratch]
        for read, written in function.reuses:
            pair = (self.name(function.buffers[i]) for i in (read, written))
            self.lines.append("  {} may be {}".format(*pair))
        self.block(function.body, "  ")
        self.lines.append("}")

    def title(self, function: Function) -> str:
        """How the text of a function begins."""
        return f"function {function.name}"

    def space(self, b: Buffer) -> str:
        """The space of a buffer, where it is not the usual one."""
        return "" if b.space in _UNSAID else f"{b.space} "

    def parameter(self, b: Buffer, written: bool) -> str:
        """A parameter with its type."""
        return f"{'written ' * written}{self.space(b)}{self.name(b)}: {SHORT[b.dtype]}[{self.size(b.size)}]"

    def block(self, block: Block, indent: str) -> None:
        """Statements, each on its lines."""
        lines = self.lines
        for s in block.statements:
            write = _LINES.get(type(s))
            at = len(lines)
            if write is not None:
                lines.append(indent + write(self, s))
            elif type(s) in _NESTED:
                _NESTED[type(s)](self, s, indent)
            else:
                lines.append(indent + self.unknown(s))
            self.first_lines[s] = lines[at].strip()

    def computed(self, s: ir.Computed, code: str) -> str:
        """A statement that gives a value."""
        self.names[s] = name = f"%{self.values}"
        self.values += 1
        return f"{name}: {SHORT[s.dtype]} = {code}"

    # Statements of one line

    def _scalar(self, s: ir.Scalar) -> str:
        return self.computed(s, f"{s.instruction}({self.listed(s.args)})")

    def _load(self, s: ir.Load) -> str:
        return self.computed(s, f"load {self.element(s.buffer, s.index)}{self.masked(s.mask)}")

    def _get(self, s: ir.Get) -> str:
        return self.computed(s, f"get {self.local(s.local)}")

    def _measure(self, s: ir.Measure) -> str:
        return self.computed(s, f"measure {self.size(s.size)}")

    def _declare(self, s: ir.Declare) -> str:
        value = self.value(s.value)
        return f"local {self.new_local(s.local)}: {SHORT[s.local.dtype]} = {value}"

    def _set(self, s: ir.Set) -> str:
        return f"set {self.local(s.local)} = {self.value(s.value)}"

    def _accumulate(self, s: ir.Accumulate) -> str:
        name = self.local(s.local)
        return f"accumulate {name} = {s.instruction}({name}, {self.value(s.value)})"

    def _store(self, s: ir.Store) -> str:
        return f"store {self.element(s.buffer, s.index)} = {self.value(s.value)}{self.masked(s.mask)}"

    def _copy(self, s: ir.Copy) -> str:
        target = self.element(s.target, s.target_index)
        return f"copy {target} = {self.element(s.source, s.source_index)} for {self.index(s.count)}"

    def _barrier(self, s: ir.Barrier) -> str:
        return "barrier"

    def _fail(self, s: ir.Fail) -> str:
        values = f" with {self.listed(s.values)}" if s.values else ""
        return f"fail {s.number} if {self.value(s.condition)}{values}"

    def _leave(self, s: ir.Leave) -> str:
        return "leave"

    def _launch(self, s: ir.Launch) -> str:
        cost = f" cost {s.cost!r}" if s.cost else ""
        return f"launch {self.launched(s.function)}({self.places(s.buffers)}){cost}"

    def launched(self, function: Function) -> str:
        """A function that is launched."""
        return function.name

    def _host(self, s: ir.Host) -> str:
        sizes = f" sizes {self.listed(s.sizes)}" if s.sizes else ""
        return f"host {s.number}({self.places(s.inputs)}) -> ({self.places(s.outputs)}){sizes}"

    def _allocate(self, s: ir.Allocate) -> str:
        return f"allocate {self.element(s.buffer, s.count)}"

    def _free(self, s: ir.Free) -> str:
        return f"free {self.buffer(s.buffer)}"

    def _bind(self, s: ir.Bind) -> str:
        return f"bind {self.size_name(s.name)} = {self.value(s.value)}"

    # Statements with blocks

    def _loop(self, s: ir.Loop, indent: str) -> None:
        kind = "" if s.kind == "serial" else f"{s.kind} "
        kind = f"{s.kind}({s.lanes}) " if s.lanes else kind
        self.lines.append(f"{indent}for {kind}{self.loop_variable(s)} in {self.bounds(s)} {{")
        self.block(s.body, indent + "  ")
        self.lines.append(indent + "}")

    def loop_variable(self, s: ir.Loop) -> str:
        """The variable of a loop where it begins."""
        return self.new_variable(s.variable)

    def bounds(self, s: ir.Loop) -> str:
        """From where to where a loop runs."""
        return f"{self.index(s.start)}..{self.index(s.stop)}"

    def _if(self, s: ir.If, indent: str) -> None:
        self.lines.append(f"{indent}if {self.value(s.condition)} {{")
        self.block(s.then, indent + "  ")
        if s.otherwise.statements:
            self.lines.append(indent + "} else {")
            self.block(s.otherwise, indent + "  ")
        self.lines.append(indent + "}")

    def _while(self, s: ir.While, indent: str) -> None:
        self.lines.append(indent + "while {")
        self.block(s.test, indent + "  ")
        self.lines.append(f"{indent}  test {self.value(s.condition)}")
        self.lines.append(indent + "} do {")
        self.block(s.body, indent + "  ")
        self.lines.append(indent + "}")

    def _matmul(self, s: ir.Matmul, indent: str) -> None:
        a, b = (self.element(*x) + ".T" * t for x, t in zip((s.a, s.b), s.transposed, strict=True))
        sign = "+=" if s.add else "="
        sizes = f"m={self.index(s.m)}, n={self.index(s.n)}, k={self.index(s.k)}, rows=({self.listed(s.rows)})"
        line = f"{indent}matmul {self.element(*s.c)} {sign} {a} @ {b}, {sizes}"
        if s.epilogue is None:
            self.lines.append(line)
            return
        variables = f"{self.new_variable(s.epilogue.row)}, {self.new_variable(s.epilogue.column)}"
        self.lines.append(f"{line} epilogue {self.new_local(s.epilogue.element)} at {variables} {{")
        self.block(s.epilogue.body, indent + "  ")
        self.lines.append(indent + "}")

    def _wave(self, s: ir.Wave, indent: str) -> None:
        self.lines.append(indent + "wave {")
        self.lines += [f"{indent}  {self._launch(launch)}" for launch in s.launches]
        self.lines.append(indent + "}")


# Each class of statements has the method of its name.
_NESTED: dict[type, Callable[[Printer, Any, str], None]] = {
    kind: getattr(Printer, f"_{kind.__name__.lower()}")
    for kind in (ir.Loop, ir.If, ir.While, ir.Wave, ir.Matmul)
}
_LINES: dict[type, Callable[[Printer, Any], str]] = {
    kind: getattr(Printer, f"_{kind.__name__.lower()}") for kind in ir.STATEMENTS if kind not in _NESTED
}
