"""A model as objects for a linker: its program, the threads that run it, and the functions that C calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import llvmlite.binding as llvm

from weft.backends.backend import Array, Option
from weft.backends.library import Exported, Model, Storage
from weft.backends.llvm.blas import blas_file
from weft.backends.llvm.code import MAIN
from weft.backends.llvm.compiler import Compiler, Source, declared_names
from weft.backends.llvm.driver import Kernels
from weft.backends.llvm.emit.main import emit_main
from weft.backends.llvm.engine import default_engine
from weft.backends.llvm.export.access import write_access
from weft.backends.llvm.export.layout import layout_of
from weft.backends.llvm.export.messages import failure_messages
from weft.backends.llvm.export.processor import is_arm, is_here, plain_machine, target_named
from weft.backends.llvm.export.running import write_run
from weft.backends.llvm.export.runtime import Parts, Runtime
from weft.backends.llvm.export.sizes import allowed_sizes
from weft.backends.llvm.pool import pool_text
from weft.backends.llvm.target import Target
from weft.backends.llvm.tuned import machine_like
from weft.base.records import NamedTuple
from weft.errors import ArgumentError, DeviceError, DomainError
from weft.ir.graph import Graph
from weft.loop.ir import Program
from weft.loop.walk import launched_functions
from weft.passes.inline import inline
from weft.passes.pipeline import lower
from weft.schedule.cpu.target import Cpu
from weft.schedule.cpu.units import idle_passes
from weft.schedule.program import lower_graph


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
    machine = machine_like(target)
    with engine.lock, engine.compilation() as compilation:
        kernels = Kernels(engine, compilation, debug=False, alone=True)
        program = lower_graph(
            lower(graph, [inline] if check_nan else None, disable=idle_passes(machine.units)),
            check_nan=check_nan,
            fast_math=fast_math,
            target=Cpu(machine),
            written=kernels.add,
            stops=False,
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


def _check(program: Program) -> None:
    """Raise if the size of a result is known only when a run has ended."""
    results = program.main.buffers[program.inputs : program.inputs + program.outputs]
    for number, buffer in enumerate(results):
        if buffer in program.heap:
            message = (
                f"the sizes of results must follow from those of inputs, got {buffer.size} of result {number}"
            )
            raise ArgumentError("export_library", message, hint="leave out results that a loop makes longer")


class NativeExporter:
    """Makes machine code of models, see ``weft.backends.library.Exporter``."""

    def __init__(self, cpu: str, *, fast_math: bool, check_nan: Option) -> None:
        self._target = target_named(cpu)
        if fast_math and not is_here(self._target):
            message = f"fast_math must be off for another kind of processor, got it on for {cpu}"
            raise DomainError("export_library", message)
        self._fast_math = fast_math
        self._check_nan = check_nan
        self.cpu = f"{cpu} ({self._target.cpu})" if cpu in ("host", "generic") else cpu
        self.is_arm = is_arm(self._target)

    def export(self, model: Model, place: Callable[[Sequence[Array]], Storage]) -> Exported:
        """The code of a model; ``place`` puts its weights, and the constants it is told of, somewhere."""
        target = self._target
        compiled = compile_graph(model.graph, target, fast_math=self._fast_math, check_nan=self._check_nan)
        messages = failure_messages(compiled.program)
        allowed = allowed_sizes(model.graph, model.sizes)
        uses_blas = any("cblas" in name for name in compiled.calls)
        storage = place(compiled.program.constants)
        layout = layout_of(model, compiled.program, storage.offsets)
        runtime = Runtime(
            Parts(model, compiled.program, layout, storage, allowed, messages, uses_blas, target)
        )
        write_run(runtime)
        write_access(runtime)
        around = compile_text(str(runtime.unit), plain_machine(target))
        libraries = [self._blas()] if uses_blas else []
        texts = [str(a) for a in allowed]
        return Exported([*compiled.objects, around], runtime.unit.exported, libraries, texts)

    def _blas(self) -> Path:
        if not is_here(self._target):
            message = (
                "matrix products of this graph need BLAS for another kind of processor, which is not here"
            )
            raise DeviceError("export_library", message, hint="export it on a machine of that kind")
        return blas_file()
