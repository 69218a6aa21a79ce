"""Kernels in LLVM assembly: functions whose parallel loop threads run parts of.

What memory accesses cannot overlap is metadata for LLVM: each buffer is a scope. The scopes are the same in
all texts, by number, so that texts can be merged into one module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.backends.llvm.emit.instructions import InstructionSet, instruction_set
from weft.backends.llvm.emit.lanes import statements
from weft.backends.llvm.emit.loops import Loops
from weft.backends.llvm.emit.places import element_type
from weft.backends.llvm.emit.statements import Statements
from weft.backends.llvm.emit.types import Value
from weft.backends.llvm.emit.writer import Writer, module_text
from weft.backends.llvm.target import Target
from weft.base.dtypes import int64
from weft.loop.index import Extent
from weft.loop.ir import Buffer, Function, Load, Loop, Program, Store

_NEAR = 64  # buffers, in the order of their first use


class ThreadLoops(Loops):
    """Loops of a kernel: a thread runs the part of the parallel one from ``%begin`` to ``%end``."""

    def parallel(self, s: Loop) -> None:
        """The part of this thread."""
        first = self.value(s.start)
        begin, end = (self.indices.sum(first, Value(int64, (name,), 0, 0)) for name in ("%begin", "%end"))
        self.serial(s, begin, end)


class Kernel:
    """Writes a kernel: its parameters, then its statements, the last of which may be a parallel loop.

    Attributes:
        function: the kernel.
        pointers: where each buffer begins.
        sizes: the values of named sizes.
        code: what writes its statements.
    """

    loops: type[Loops] = ThreadLoops

    def __init__(self, function: Function, machine: InstructionSet, *, debug: bool) -> None:
        self.writer = Writer()
        self.function = function
        self.pointers: dict[Buffer, Value] = {}
        self.sizes: dict[str, Value] = {}
        base, named_size = self.pointers.__getitem__, self.sizes.__getitem__
        self.code = Statements(self.writer, machine, base, named_size, self.loops, debug=debug)

    def text(self, symbol: str) -> str:
        """The module."""
        places = self.code.places
        self.parameters()
        places.aliases = function_aliases(self.function)
        places.constants = unwritten(self.function)
        buffers = (*self.function.buffers, *self.function.scratch)
        places.numbers = {buffer: i for i, buffer in enumerate(buffers)}
        self.code.body(self.function.body)
        self.writer.line("ret void")
        head = f"{self.head(symbol)} {self.code.machine.attributes}"
        return module_text(head, self.writer, len(places.aliases))

    def head(self, symbol: str) -> str:
        """The definition, up to its parameters."""
        return f"define void @{symbol}(ptr noalias readonly %args, i64 %begin, i64 %end)"

    def parameters(self) -> None:
        """Read the context, the buffers and the sizes from the array of arguments; have scratch memory."""
        function = self.function
        self.writer.line("%context = load ptr, ptr %args, !invariant.load !{}")
        for i, buffer in enumerate(function.buffers, 1):
            self.pointers[buffer] = Value(int64, (self._word(i, "ptr"),), 0, 0)
        for buffer in function.scratch:
            slot = self.writer.slot(f"[{buffer.size} x {element_type(buffer.dtype)}]", align=64)
            self.pointers[buffer] = Value(int64, (slot,), 0, 0)
            if self.code.places.debug:
                self._spoil(slot, buffer)
        for i, name in enumerate(function.sizes, 1 + len(function.buffers)):
            self.sizes[name] = Value(int64, (self._word(i, "i64"),), 0, 0)

    def _spoil(self, slot: str, buffer: Buffer) -> None:
        """Let memory of code that is checked begin as NaN, or as -1."""
        self.writer.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        size = buffer.size * buffer.dtype.itemsize
        self.writer.line(f"call void @llvm.memset.p0.i64(ptr {slot}, i8 -1, i64 {size}, i1 false)")

    def _word(self, number: int, type_: str) -> str:
        at = self.writer.here(f"getelementptr i64, ptr %args, i64 {number}")
        return self.writer.here(f"load {type_}, ptr {at}, !invariant.load !{{}}")


def emit_kernel(function: Function, symbol: str, target: Target, *, debug: bool = False) -> str:
    """A kernel as LLVM assembly: a module with its definition and the declarations it needs.

    >>> import numpy as np
    >>> from weft.backends.llvm.emit.kernel import emit_kernel
    >>> from weft.backends.llvm.target import host_target
    >>> from weft.loop.builder import Builder
    >>> b = Builder()
    >>> x = b.buffer("x", np.dtype("f4"), 4)
    >>> with b.vector(4) as i:
    ...     b.store(x, i, b.mul(b.load(x, i), 2.0))
    >>> text = emit_kernel(b.function("double", written=[x]), "double", host_target())
    >>> "load <4 x float>" in text
    True
    """
    return Kernel(function, instruction_set(target), debug=debug).text(symbol)


def function_aliases(function: Function) -> dict[Buffer, str]:
    """For each buffer of a kernel the metadata of accesses to it."""
    buffers = (*function.buffers, *function.scratch)
    reused = {frozenset((buffers[i], buffers[j])) for i, j in function.reuses}
    return _metadata(buffers, lambda x, y: frozenset((x, y)) in reused)


def unwritten(function: Function) -> frozenset[Buffer]:
    """The parameters of a kernel that nobody writes while it runs."""
    reused = {function.buffers[i] for pair in function.reuses for i in pair}
    return frozenset(function.buffers) - function.written - reused


def program_aliases(program: Program) -> dict[Buffer, str]:
    """For each buffer that the main function itself reads or writes the metadata of accesses to it."""
    accessed = {s.buffer: None for s in statements(program.main.body) if isinstance(s, Load | Store)}
    first = program.inputs
    buffers = program.main.buffers
    donated = {frozenset((buffers[i], buffers[first + o])) for i, o in program.donated}

    def meet(x: Buffer, y: Buffer) -> bool:
        if x in program.arena and y in program.arena:
            return _overlap(*_extent(program, x), *_extent(program, y))
        return frozenset((x, y)) in donated

    return _metadata(list(accessed), meet)


def _extent(program: Program, buffer: Buffer) -> tuple[Extent, Extent]:
    begin = program.arena[buffer]
    return begin, begin + buffer.size * buffer.dtype.itemsize


def _overlap(begin: Extent, end: Extent, other: Extent, other_end: Extent) -> bool:
    """Whether two pieces of the arena may overlap; where named sizes decide, they may."""
    if not all(isinstance(x, int) for x in (begin, end, other, other_end)):
        return True
    return bool(begin < other_end and other < end)


def _metadata(buffers: Sequence[Buffer], meet: Callable[[Buffer, Buffer], bool]) -> dict[Buffer, str]:
    out = {}
    # Of many buffers each is told apart from those used next to it: code that could be moved is near.
    reach = len(buffers) if len(buffers) <= 2 * _NEAR else _NEAR
    for i, x in enumerate(buffers):
        near = range(max(0, i - reach), min(len(buffers), i + reach + 1))
        apart = [f"!{j + 1}" for j in near if j != i and not meet(x, buffers[j])]
        noalias = f", !noalias !{{{', '.join(apart)}}}" if apart else ""
        out[x] = f", !alias.scope !{{!{i + 1}}}{noalias}"
    return out
