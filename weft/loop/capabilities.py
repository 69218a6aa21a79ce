"""What of Loop IR a backend has: the rest is refused by name, not compiled into something else."""

from __future__ import annotations

from weft.errors import GraphError
from weft.loop import ir
from weft.loop.ir import Function, Statement
from weft.loop.text import statement_lines
from weft.loop.walk import statements


def check_supported(
    function: Function, backend: str, *, threads: bool = False, epilogues: bool = False
) -> None:
    """Raise a GraphError if a function has something that a backend does not have.

    Args:
        function: to look through.
        backend: its name, for the error.
        threads: whether it runs threads of a block, with barriers and shared memory.
        epilogues: whether its library computes epilogues.

    >>> from weft.loop.builder import Builder
    >>> from weft.loop.capabilities import check_supported
    >>> b = Builder()
    >>> with b.parallel(4), b.threads(32):
    ...     b.barrier()
    >>> check_supported(b.function("f", written=[]), "llvm")
    Traceback (most recent call last):
    weft.errors.GraphError: llvm: f: `for threads i2 in 0..32 {`: the backend has no threads of a block
    ...
    """
    for s in statements(function.body):
        missing = _missing(s, threads, epilogues)
        if missing is not None:
            line = statement_lines(function)[s]
            raise GraphError(backend, f"{function.name}: `{line}`: the backend has no {missing}")
    for b in (*function.buffers, *function.scratch):
        if b.space == "shared" and not threads:
            raise GraphError(backend, f"{function.name}: the backend has no shared memory, got {b!r}")


def _missing(s: Statement, threads: bool, epilogues: bool) -> str | None:
    if isinstance(s, ir.Loop) and s.kind == "threads" and not threads:
        return "threads of a block"
    if isinstance(s, ir.Barrier) and not threads:
        return "barriers"
    if isinstance(s, ir.Matmul) and s.epilogue is not None and not epilogues:
        return "epilogues of library calls"
    if isinstance(s, ir.Matmul) and s.batch is not None and not threads:
        return "batches of library calls"
    if isinstance(s, ir.Matmul) and s.bias is not None and not threads:
        return "biases of library calls"
    if isinstance(s, ir.Host) and s.strides and not threads:
        return "calls that take arrays as they lie"
    return None
