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

    def _name(self, x: Buffer | Local | Variable) -> str:
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

    def _buffer(self, b: Buffer) -> str:
        return self._name(b)

    def _local(self, x: Local) -> str:
        return self._name(x)

    def _new_local(self, x: Local) -> str:
        return self._name(x)

    def _new_variable(self, v: Variable) -> str:
        return self._name(v)

    def _variable(self, v: Variable) -> str:
        """A term of an index: a variable of a loop, or the value that it stands for."""
        return self._name(v) if v.value is None else self._value(v.value)

    def _size(self, size: Extent) -> str:
        return str(size)

    def _size_name(self, name: str) -> str:
        return name

    # Operands

    def _value(self, x: Value) -> str:
        found = self.names.get(x)
        if found is not None:
            return found
        if type(x) is Index:
            return self._index(x)
        return self._const(x) if type(x) is ir.Const else self._unknown(x)

    def _unknown(self, x: object) -> str:
        """What is no operand or statement here; what is wrong is printed too."""
        return "%?"

    def _const(self, x: ir.Const) -> str:
        return format_array(np.asarray(x.value, x.dtype))

    def _term(self, v: Variable, stride: Extent) -> str:
        """A variable times its stride."""
        if type(stride) is int:
            return self._variable(v) if stride == 1 else f"{stride}*{self._variable(v)}"
        return f"({self._size(stride)})*{self._variable(v)}"

    def _index(self, index: Index) -> str:
        if type(index) is not Index:
            return self._unknown(index)
        parts = [self._term(v, s) for v, s in index.terms.items()]
        if not parts or isinstance(index.offset, Size) or index.offset != 0:
            parts.append(self._size(index.offset))
        return " + ".join(parts)

    def _listed(self, values: Iterable[Value]) -> str:
        return ", ".join([self._value(x) for x in values])

    def _place(self, place: Place) -> str:
        """Where in a buffer an array begins."""
        buffer, index = place
        at = self._index(index)
        if at == "0":
            return self._buffer(buffer)
        return f"{self._buffer(buffer)}+({at})" if " " in at else f"{self._buffer(buffer)}+{at}"

    def _places(self, places: Iterable[Place]) -> str:
        """Where arrays begin, with commas."""
        return ", ".join([self._place(p) for p in places])

    def _element(self, buffer: Buffer, index: Index) -> str:
        return f"{self._buffer(buffer)}[{self._index(index)}]"

    def _masked(self, mask: Value | None) -> str:
        return "" if mask is None else f" if {self._value(mask)}"

    # Structure

    def function(self, function: Function) -> None:
        """A whole function."""
        sizes = ", ".join([self._size_name(n) for n in function.sizes])
        buffers = ", ".join([self._parameter(b, b in function.written) for b in function.buffers])
        self.lines.append(f"{self._title(function)}({buffers}{'; ' * bool(sizes)}{sizes}) {{")
        self.lines += [f"  scratch {self._parameter(b, False)}" for b in function.scratch]
        for read, written in function.reuses:
            pair = (self._name(function.buffers[i]) for i in (read, written))
            self.lines.append("  {} may be {}".format(*pair))
        self._block(function.body, "  ")
        self.lines.append("}")

    def _title(self, function: Function) -> str:
        return f"function {function.name}"

    def _space(self, b: Buffer) -> str:
        """The space of a buffer, where it is not the usual one."""
        return "" if b.space in _UNSAID else f"{b.space} "

    def _parameter(self, b: Buffer, written: bool) -> str:
        what = f"{'written ' * written}{self._space(b)}{self._name(b)}"
        return f"{what}: {SHORT[b.dtype]}[{self._size(b.size)}]"

    def _block(self, block: Block, indent: str) -> None:
        lines = self.lines
        for s in block.statements:
            write = _LINES.get(type(s))
            at = len(lines)
            if write is not None:
                lines.append(indent + write(self, s))
            elif type(s) in _NESTED:
                _NESTED[type(s)](self, s, indent)
            else:
                lines.append(indent + self._unknown(s))
            self.first_lines[s] = lines[at].strip()

    def _computed(self, s: ir.Computed, code: str) -> str:
        """A statement that gives a value."""
        self.names[s] = name = f"%{self.values}"
        self.values += 1
        return f"{name}: {SHORT[s.dtype]} = {code}"

    # Statements of one line

    def _scalar(self, s: ir.Scalar) -> str:
        return self._computed(s, f"{s.instruction}({self._listed(s.args)})")

    def _load(self, s: ir.Load) -> str:
        return self._computed(s, f"load {self._element(s.buffer, s.index)}{self._masked(s.mask)}")

    def _get(self, s: ir.Get) -> str:
        return self._computed(s, f"get {self._local(s.local)}")

    def _measure(self, s: ir.Measure) -> str:
        return self._computed(s, f"measure {self._size(s.size)}")

    def _declare(self, s: ir.Declare) -> str:
        value = self._value(s.value)
        return f"local {self._new_local(s.local)}: {SHORT[s.local.dtype]} = {value}"

    def _set(self, s: ir.Set) -> str:
        return f"set {self._local(s.local)} = {self._value(s.value)}"

    def _accumulate(self, s: ir.Accumulate) -> str:
        name = self._local(s.local)
        return f"accumulate {name} = {s.instruction}({name}, {self._value(s.value)})"

    def _store(self, s: ir.Store) -> str:
        return f"store {self._element(s.buffer, s.index)} = {self._value(s.value)}{self._masked(s.mask)}"

    def _copy(self, s: ir.Copy) -> str:
        target = self._element(s.target, s.target_index)
        return f"copy {target} = {self._element(s.source, s.source_index)} for {self._index(s.count)}"

    def _barrier(self, s: ir.Barrier) -> str:
        return "barrier"

    def _fail(self, s: ir.Fail) -> str:
        values = f" with {self._listed(s.values)}" if s.values else ""
        return f"fail {s.number} if {self._value(s.condition)}{values}"

    def _leave(self, s: ir.Leave) -> str:
        return "leave" if s.loop is None else f"leave loop {s.loop}"

    def _launch(self, s: ir.Launch) -> str:
        numbers = ", ".join([f"{self._size_name(name)}={number}" for name, number in s.numbers])
        tail = f" with {numbers}" if numbers else ""
        tail += f" cost {s.cost!r}" if s.cost else ""
        return f"launch {self._launched(s.function)}({self._places(s.buffers)}){tail}"

    def _launched(self, function: Function) -> str:
        return function.name

    def _host(self, s: ir.Host) -> str:
        sizes = f" sizes {self._listed(s.sizes)}" if s.sizes else ""
        apart = f" strides {' '.join(f'({self._listed(x)})' for x in s.strides)}" if s.strides else ""
        return f"host {s.number}({self._places(s.inputs)}) -> ({self._places(s.outputs)}){sizes}{apart}"

    def _allocate(self, s: ir.Allocate) -> str:
        return f"allocate {self._element(s.buffer, s.count)}"

    def _free(self, s: ir.Free) -> str:
        return f"free {self._buffer(s.buffer)}"

    def _bind(self, s: ir.Bind) -> str:
        return f"bind {self._size_name(s.name)} = {self._value(s.value)}"

    # Statements with blocks

    def _loop(self, s: ir.Loop, indent: str) -> None:
        kind = "" if s.kind == "serial" else f"{s.kind} "
        kind = f"{s.kind}({s.lanes}) " if s.lanes else kind
        self.lines.append(f"{indent}for {kind}{self._loop_variable(s)} in {self._bounds(s)} {{")
        self._block(s.body, indent + "  ")
        self.lines.append(indent + "}")

    def _loop_variable(self, s: ir.Loop) -> str:
        """The variable of a loop where it begins."""
        return self._new_variable(s.variable)

    def _bounds(self, s: ir.Loop) -> str:
        return f"{self._index(s.start)}..{self._index(s.stop)}"

    def _if(self, s: ir.If, indent: str) -> None:
        self.lines.append(f"{indent}if {self._value(s.condition)} {{")
        self._block(s.then, indent + "  ")
        if s.otherwise.statements:
            self.lines.append(indent + "} else {")
            self._block(s.otherwise, indent + "  ")
        self.lines.append(indent + "}")

    def _while(self, s: ir.While, indent: str) -> None:
        self.lines.append(indent + "while {")
        self._block(s.test, indent + "  ")
        self.lines.append(f"{indent}  test {self._value(s.condition)}")
        self.lines.append(indent + "} do {")
        self._block(s.body, indent + "  ")
        self.lines.append(indent + "}")

    def _matmul(self, s: ir.Matmul, indent: str) -> None:
        a, b = (self._element(*x) + ".T" * t for x, t in zip((s.a, s.b), s.transposed, strict=True))
        sign = "+=" if s.add else "="
        m, n, k = (self._index(x) for x in (s.m, s.n, s.k))
        sizes = f"m={m}, n={n}, k={k}, rows=({self._listed(s.rows)})"
        if s.batch is not None:
            sizes += f", batch={self._index(s.batch)}, strides=({self._listed(s.strides)})"
        bias = "" if s.bias is None else f" + {self._element(*s.bias)}"
        line = f"{indent}matmul {self._element(*s.c)} {sign} {a} @ {b}{bias}, {sizes}"
        if s.epilogue is None:
            self.lines.append(line)
            return
        variables = f"{self._new_variable(s.epilogue.row)}, {self._new_variable(s.epilogue.column)}"
        self.lines.append(f"{line} epilogue {self._new_local(s.epilogue.element)} at {variables} {{")
        self._block(s.epilogue.body, indent + "  ")
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
