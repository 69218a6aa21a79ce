"""Functions in LLVM's own language, written statement by statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
DOUBLE = ir.DoubleType()
PTR = ir.PointerType()
VOID = ir.VoidType()
NULL = ir.Constant(PTR, None)


def word(number: int) -> ir.Value:
    """A number of 64 bits."""
    return ir.Constant(I64, number)


def half(number: int) -> ir.Value:
    """A number of 32 bits."""
    return ir.Constant(I32, number)


class Unit:
    """A module of LLVM text: functions, and data that does not change."""

    def __init__(self) -> None:
        self.module = ir.Module()
        self._texts: dict[str, ir.Value] = {}
        self.exported: list[str] = []

    def function(self, name: str, result: ir.Type, *parameters: ir.Type, exported: bool = False) -> Code:
        """A function to be written; one that is exported can be called from outside of the library."""
        made = self._function(ir.FunctionType(result, parameters), name if exported else f"weft.{name}")
        made.attributes.add("nounwind")
        if exported:
            self.exported.append(name)
        else:
            made.linkage = "internal"
        return Code(self, made)

    def declared(self, name: str, result: ir.Type, *parameters: ir.Type, more: bool = False) -> ir.Value:
        """A function of the system, or of another module; with ``more`` it takes any number of values."""
        found = self.module.globals.get(name)
        if found is not None:
            return found
        return self._function(ir.FunctionType(result, parameters, var_arg=more), name)

    def _function(self, kind: ir.Type, name: str) -> ir.Value:
        made = ir.Function(self.module, kind, name)
        made.type = PTR  # addresses are of one type, whatever is there
        return made

    def outside(self, name: str) -> ir.Value:
        """The address of data of another module."""
        made = ir.GlobalVariable(self.module, I8, name)
        made.type = PTR
        return made

    def text(self, text: str) -> ir.Value:
        """The address of a text, as C has them."""
        if text not in self._texts:
            data = bytearray(text.encode() + b"\0")
            self._texts[text] = self.constant(ir.Constant(ir.ArrayType(I8, len(data)), data))
        return self._texts[text]

    def constant(self, value: ir.Value) -> ir.Value:
        """The address of data."""
        return self._global(value.type, value, constant=True)

    def variable(self, number: int = 0) -> ir.Value:
        """The address of a number that functions share."""
        return self._global(I64, word(number), constant=False)

    def _global(self, kind: ir.Type, value: ir.Value, *, constant: bool) -> ir.Value:
        made = ir.GlobalVariable(self.module, kind, f"data{len(self.module.globals)}")
        made.linkage, made.initializer, made.global_constant, made.align = "internal", value, constant, 8
        made.type = PTR
        return made

    def rows(self, kinds: Sequence[ir.Type], rows: Sequence[Sequence[ir.Value]]) -> ir.Value:
        """The address of a table; each column is of one kind."""
        row = ir.LiteralStructType(kinds)
        made = [
            ir.Constant(row, [_value(k, x) for k, x in zip(kinds, values, strict=True)]) for values in rows
        ]
        return self.constant(ir.Constant(ir.ArrayType(row, len(made)), made))

    def __str__(self) -> str:
        lines = str(self.module).splitlines()
        return "\n".join([line for line in lines if not line.startswith(("target ", ";"))])


def _value(kind: ir.Type, x: ir.Value) -> ir.Value:
    return ir.Constant(kind, int(x)) if isinstance(x, int) else x


class Code:
    """A function on its way: what is called is written at its end.

    Attributes:
        args: its parameters.
        b: what writes single instructions.
    """

    def __init__(self, unit: Unit, function: ir.Function) -> None:
        self.unit = unit
        self.function = function
        self.args = function.args
        self.b = ir.IRBuilder(function.append_basic_block("entry"))

    # Memory: words are numbered, bytes are counted

    def room(self, words: int) -> ir.Value:
        """The address of words that are there until the function ends."""
        made = self.b.alloca(I64, words)
        made.type = PTR
        return made

    def place(self, base: ir.Value, index: ir.Value | int) -> ir.Value:
        """The address of a word from an address on."""
        at = word(index) if isinstance(index, int) else index
        return self.b.gep(base, [at], source_etype=I64)

    def byte(self, base: ir.Value, offset: ir.Value | int) -> ir.Value:
        """The address so many bytes further."""
        at = word(offset) if isinstance(offset, int) else offset
        return self.b.gep(base, [at], source_etype=I8)

    def word(self, base: ir.Value, index: ir.Value | int) -> ir.Value:
        """A word from an address on, as a number."""
        return self.b.load(self.place(base, index), typ=I64)

    def pointer(self, base: ir.Value, index: ir.Value | int) -> ir.Value:
        """A word from an address on, as an address."""
        return self.b.load(self.place(base, index), typ=PTR)

    def put(self, base: ir.Value, index: ir.Value | int, value: ir.Value) -> None:
        """Store a word."""
        self.b.store(word(value) if isinstance(value, int) else value, self.place(base, index))

    def copy(self, target: ir.Value, source: ir.Value, count: ir.Value) -> None:
        """Copy bytes."""
        self.call("memcpy", PTR, target, source, count)

    # Questions

    def is_null(self, pointer: ir.Value) -> ir.Value:
        """Whether an address is none."""
        return self.b.icmp_unsigned("==", pointer, NULL)

    def compare(self, sign: str, x: ir.Value, y: ir.Value) -> ir.Value:
        """Whether a comparison of numbers holds."""
        y = ir.Constant(x.type, y) if isinstance(y, int) else y
        return self.b.icmp_signed(sign, x, y)

    # The way through

    @contextmanager
    def when(self, condition: ir.Value) -> Iterator[None]:
        """What happens only where a condition holds."""
        with self.b.if_then(condition):
            yield

    @contextmanager
    def unlikely(self, condition: ir.Value) -> Iterator[None]:
        """What happens only where a condition holds that mostly does not."""
        with self.b.if_then(condition, likely=False):
            yield

    @contextmanager
    def each(self, count: ir.Value) -> Iterator[ir.Value]:
        """What happens for each number below a count."""
        b = self.b
        count = word(count) if isinstance(count, int) else count
        before, head = b.block, b.append_basic_block("next")
        body, end = b.append_basic_block("body"), b.append_basic_block("end")
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(word(0), before)
        b.cbranch(b.icmp_signed("<", i, count), body, end)
        b.position_at_end(body)
        yield i
        i.add_incoming(b.add(i, word(1)), b.block)
        b.branch(head)
        b.position_at_end(end)

    def give(self, value: ir.Value = None) -> None:
        """End the function."""
        if value is None:
            self.b.ret_void()
        else:
            self.b.ret(half(value) if isinstance(value, int) else value)

    def call(self, name: str, result: ir.Type, *values: ir.Value, more: Sequence[ir.Value] = ()) -> ir.Value:
        """What a function of the system, or of another module, gives."""
        function = self.unit.declared(name, result, *[v.type for v in values], more=bool(more))
        return self.do(function, *values, *more)

    def do(self, function: ir.Function, *values: ir.Value) -> ir.Value:
        """What a function of this module gives."""
        return self.call_at(function, function.ftype, *values)

    def call_at(self, address: ir.Value, kind: ir.Type, *values: ir.Value) -> ir.Value:
        """What a function gives whose address and type are known."""
        return self.b.call(_Callee(address, kind), list(values))


class _Callee:
    """An address with the type of the function that is there."""

    def __init__(self, address: ir.Value, kind: ir.Type) -> None:
        self.type = address.type
        self.function_type = kind
        self.get_reference = address.get_reference
