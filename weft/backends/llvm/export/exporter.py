"""A model as objects for a linker: its program, the threads that run it, and the functions that C calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from weft.backends.backend import Array, Option
from weft.backends.library import Exported, Model, Storage
from weft.backends.llvm.blas import blas_file
from weft.backends.llvm.export.access import write_access
from weft.backends.llvm.export.layout import layout_of
from weft.backends.llvm.export.messages import failure_messages
from weft.backends.llvm.export.processor import plain_machine
from weft.backends.llvm.export.program import compile_graph, compile_text
from weft.backends.llvm.export.running import write_run
from weft.backends.llvm.export.runtime import Parts, Runtime
from weft.backends.llvm.export.sizes import allowed_sizes
from weft.backends.llvm.export.target import is_arm, is_here, target_named
from weft.errors import DeviceError, DomainError


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
