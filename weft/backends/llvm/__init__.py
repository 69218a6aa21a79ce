"""The LLVM backend: a graph becomes one native function for this machine's processor.

    graph -> weft.schedule -> program of Loop IR -> LLVM text (emit, main) -> machine code (engine) -> run

``driver`` runs it. ``pool`` has the threads, ``cache`` the object code on disk, ``blas`` the matrix products,
``entry`` the way from Python into machine code. Nobody outside imports from here: ``BACKEND`` is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.backends.backend import Array, Backend, Option, placement
from weft.backends.llvm.buffer_pool import pooled_array

if TYPE_CHECKING:  # imported when something is compiled: what was compiled before runs without
    from weft.backends.backend import Executable
    from weft.backends.capabilities import Tuner, Watcher
    from weft.backends.library import Exporter
    from weft.backends.llvm.programs import Programs
    from weft.base.dtypes import DType
    from weft.ir.graph import Graph

__all__ = ["BACKEND", "build"]


class Llvm(Backend):
    """Compiles graphs by LLVM; what takes long to import is imported when it is needed."""

    name = "llvm"
    options = frozenset({"debug", "check_nan", "profile", "fast_math", "keep", "lowering", "disable"})
    needs = ("llvmlite", "scipy_openblas32")
    runs_eager = True
    _watcher: Watcher | None = None

    def build(self, graph: Graph, **options: Any) -> Executable:
        """A function from the arrays of the inputs of a graph to those of its outputs, then of its updates.

        Args:
            graph: to compile.
            options: ``debug`` to have the code check every index; ``check_nan`` to have it raise an error
                where a result is NaN; ``profile`` to have it take down how long its parts take; ``fast_math``
                to have it take numbers below the normal ones for zero; ``keep`` to have its object code kept,
                see ``weft.backends.llvm.programs``; ``lowering``: passes to run first, instead of those of
                ``weft.passes.LOWERING``; ``disable``: names of passes, and of choices of the schedule, to
                leave out.

        >>> import numpy as np, weft
        >>> from weft.backends.llvm import build
        >>> run = build(weft.make_graph(lambda x: x * 2.0 + 1.0)(weft.ones(3)))
        >>> run([np.ones(3, np.float32)])
        [array([3., 3., 3.], dtype=float32)]
        """
        if placement.make is not None:
            return placement.make(graph, options, partial(self._build_here, graph, **options))
        return self._build_here(graph, **options)

    def _build_here(self, graph: Graph, **options: Any) -> Executable:
        from weft.backends.llvm.driver import build_executable

        if self._watcher is None:
            return build_executable(graph, **options)
        return self._watcher.build(graph, partial(build_executable, graph, **options))

    def prepare(self) -> None:
        """Begin with what every graph needs, in a thread of its own."""
        from weft.backends.llvm.driver import prepare

        prepare()

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """Memory of arrays that are gone, where there is some."""
        return pooled_array(shape, dtype)

    @property
    def programs(self) -> Programs:
        """The programs on disk."""
        from weft.backends.llvm.programs import Programs

        return Programs()

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Tell of each build and each call; gives what ends that."""
        from weft.backends.llvm.watching import watch_calls

        unwatch, self._watcher = watch_calls(watcher), watcher

        def end() -> None:
            unwatch()
            self._watcher = None

        return end

    def exporter(self, cpu: str, *, fast_math: bool = False, check_nan: Option = False) -> Exporter:
        """What makes libraries for C programs, for a processor."""
        from weft.backends.llvm.export.exporter import NativeExporter

        return NativeExporter(cpu, fast_math=fast_math, check_nan=check_nan)

    def tuner(self) -> Tuner:
        """What measures which choices pay on this processor."""
        from weft.backends.llvm.tuner import ProcessorTuner

        return ProcessorTuner()


BACKEND = Llvm()
build = BACKEND.build
