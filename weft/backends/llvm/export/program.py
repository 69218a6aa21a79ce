"""The machine code of a graph and of the threads that run it, as objects for a linker."""

from __future__ import annotations

from typing import NamedTuple

import llvmlite.binding as llvm

from weft.backends.llvm.compilation import Compilation, declared_names
from weft.backends.llvm.compiler import Compiler, Source
from weft.backends.llvm.driver import kernel_symbol
from weft.backends.llvm.emit.kernel import emit_kernel
from weft.backends.llvm.emit.main import emit_main
from weft.backends.llvm.engine import Engine, default_engine
from weft.backends.llvm.export.target import is_arm
from weft.backends.llvm.pool import pool_text
from weft.backends.llvm.target import Target
from weft.errors import ArgumentError
from weft.ir.graph import Graph
from weft.loop.ir import Block, Function, Program
from weft.loop.walk import launched_functions
from weft.passes.inline import inline
from weft.passes.pipeline import lower
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.target import Cpu
from weft.schedule.program import lower_graph

MAIN = "weft_main"


class Compiled(NamedTuple):
    """A program with its machine code.

    Attributes:
        program: that it was made of.
        objects: what a linker takes.
        calls: the functions from outside that it calls.
    """

    program: Program
    objects: list[bytes]
    calls: frozenset[str]


def compile_graph(graph: Graph, target: Target, *, fast_math: bool, check_nan: bool | str) -> Compiled:
    """Compile a graph for a machine; nothing is loaded."""
    engine = default_engine(target)
    machine = Machine(target.vector_bytes, target.registers)
    with engine.lock, engine.compilation() as compilation:
        kernels = _Kernels(engine, compilation)
        program = lower_graph(
            lower(graph, [inline] if check_nan else None),
            check_nan=check_nan,
            fast_math=fast_math,
            target=Cpu(machine),
            written=kernels.add,
        )
        _check(program)
        for function in launched_functions(program.main.body):
            kernels.add(function)
        main = emit_main(program, MAIN, kernels.add, target)
        compilation.add(Source(main, optimise=True))
        compilation.add(Source(pool_text(arm=is_arm(target), mac=False), quick=True))
        objects = compilation.finish()
    calls = {name for source in compilation.sources for name in declared_names(source.text)}
    return Compiled(program, objects, frozenset(calls))


def compile_text(text: str, target: Target) -> bytes:
    """The object code of other text."""
    llvm.initialize_native_asmparser()
    return Compiler(target).compile(Source(text), verify=True)


class _Kernels:
    """The kernels of a program; each is compiled from when it is written."""

    def __init__(self, engine: Engine, compilation: Compilation) -> None:
        self._target = engine.target
        self._compilation = compilation
        self._symbols: dict[Block, str] = {}
        self._known: set[str] = set()

    def add(self, function: Function) -> str:
        """The symbol of a kernel, which is compiled if it is new."""
        symbol = self._symbols.get(function.body)  # several functions may be copies of one
        if symbol is None:
            symbol = self._symbols[function.body] = kernel_symbol(function)
        if symbol not in self._known:
            self._known.add(symbol)
            self._compilation.add(Source(emit_kernel(function, symbol, self._target)))
        return symbol


def _check(program: Program) -> None:
    """Raise if the size of a result is known only when a run has ended."""
    results = program.main.buffers[program.inputs : program.inputs + program.outputs]
    for number, buffer in enumerate(results):
        if buffer in program.heap:
            message = (
                f"the sizes of results must follow from those of inputs, got {buffer.size} of result {number}"
            )
            raise ArgumentError("export_library", message, hint="leave out results that a loop makes longer")
