"""The LLVM backend: a graph becomes one native function for this machine's processor.

    graph -> weft.schedule -> program of Loop IR -> LLVM text (emit, main) -> machine code (engine) -> run

``driver`` runs it. ``pool`` has the threads, ``cache`` the object code on disk, ``blas`` the matrix products,
``entry`` the way from Python into machine code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported when something is compiled: what was compiled before runs without
    from weft.backends.llvm.run import Executable
    from weft.ir.graph import Graph

__all__ = ["build", "prepare"]


def build(graph: Graph, **options: Any) -> Executable:
    """A function from the arrays of the inputs of a graph to those of its outputs, then of its updates.

    Args:
        graph: to compile.
        options: ``debug`` to have the code check every index; ``check_nan`` to have it raise an error where a
            result is NaN; ``profile`` to have it take down how long its parts take; ``fast_math`` to have it
            take numbers below the normal ones for zero; ``keep`` to have its object code kept, see
            ``weft.backends.llvm.programs``; ``lowering``: passes to run first, instead of those of
            ``weft.passes.LOWERING``; ``disable``: names of passes, and of choices of the schedule, to leave
            out.

    >>> import numpy as np, weft
    >>> from weft.backends.llvm import build
    >>> run = build(weft.make_graph(lambda x: x * 2.0 + 1.0)(weft.ones(3)))
    >>> run([np.ones(3, np.float32)])
    [array([3., 3., 3.], dtype=float32)]
    """
    from weft.backends.llvm.driver import build_executable

    return build_executable(graph, **options)


def prepare() -> None:
    """Begin with what every graph needs; see ``weft.backends.builder``."""
    from weft.backends.llvm.driver import prepare

    prepare()
