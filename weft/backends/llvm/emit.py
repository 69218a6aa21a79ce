"""Kernels in LLVM assembly: functions whose parallel loop threads run parts of."""

from __future__ import annotations

from weft.backends.llvm.alias import function_aliases, unwritten
from weft.backends.llvm.calls import Calls
from weft.backends.llvm.lanes import assigned
from weft.backends.llvm.target import Target
from weft.backends.llvm.types import Value
from weft.backends.llvm.writer import Writer, module_text
from weft.base.dtypes import int64
from weft.loop.ir import Function, Loop


class Kernel(Calls):
    """Writes a kernel: its parameters, then its statements, the last of which may be a parallel loop."""

    def _loop(self, s: Loop) -> None:
        if s.kind != "parallel":
            super()._loop(s)
            return
        first = self.value(s.start)
        begin, end = (self.sum(first, Value(int64, (name,), 0, 0)) for name in ("%begin", "%end"))
        self.counted(s.variable, begin, end, 1, lambda: self.block(s.body), assigned(s.body))


def emit_kernel(function: Function, symbol: str, target: Target, *, debug: bool = False) -> str:
    """A kernel as LLVM assembly: a module with its definition and the declarations it needs.

    >>> import numpy as np
    >>> from weft.backends.llvm.emit import emit_kernel
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
    writer = Writer()
    kernel = Kernel(writer, target, debug=debug)
    _parameters(kernel, function)
    kernel.block(function.body)
    writer.line("ret void")
    head = f"define void @{symbol}(ptr noalias readonly %args, i64 %begin, i64 %end)"
    return module_text(head, writer, len(kernel.aliases), target)


def _parameters(kernel: Kernel, function: Function) -> None:
    """Read the context, the buffers and the sizes from the array of arguments."""
    kernel.writer.line("%context = load ptr, ptr %args, !invariant.load !{}")
    kernel.aliases = function_aliases(function)
    kernel.constants = unwritten(function)
    for i, buffer in enumerate(function.buffers):
        kernel.pointers[buffer] = Value(int64, (_word(kernel.writer, i + 1, "ptr"),), 0, 0)
        kernel.numbers[buffer] = i
    for i, buffer in enumerate(function.scratch):
        slot = kernel.writer.slot(f"[{buffer.size} x {kernel.element(buffer.dtype)}]", align=64)
        kernel.pointers[buffer] = Value(int64, (slot,), 0, 0)
        kernel.numbers[buffer] = len(function.buffers) + i
    for i, name in enumerate(function.sizes, 1 + len(function.buffers)):
        kernel.sizes[name] = Value(int64, (_word(kernel.writer, i, "i64"),), 0, 0)


def _word(writer: Writer, number: int, type_: str) -> str:
    at = writer.here(f"getelementptr i64, ptr %args, i64 {number}")
    return writer.here(f"load {type_}, ptr {at}, !invariant.load !{{}}")
