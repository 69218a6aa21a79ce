"""Lowerings: ops that are more than a rule for one element, as kernels of their own.

A lowering is a function ``lower(writer, node, inputs, outputs)``: it opens kernels on the arrays of the
node's inputs and outputs and writes loops. Inputs may have any strides; outputs are dense. An op with neither
a point rule nor a lowering is run by Python, through its reference kernel; ``HOST`` lists those for which
that is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module

from weft.ir.graph import Node
from weft.schedule.arrays import Array
from weft.schedule.writer import Writer

Lowering = Callable[[Writer, Node, Sequence[Array], Sequence[Array]], None]

LOWERINGS: dict[str, Lowering] = {}
_MODULES: tuple[str, ...] = (
    "weft.schedule.cpu.reductions",
    "weft.schedule.cpu.matmul.lowering",
    "weft.schedule.cpu.attention.forward",
    "weft.schedule.cpu.attention.backward",
    "weft.schedule.cpu.convolution.lowering",
    "weft.schedule.pointwise.windows",
    "weft.schedule.cpu.sorting",
    "weft.schedule.cpu.scans",
    "weft.schedule.cpu.scattering",
    "weft.schedule.pointwise.random",
    "weft.schedule.cpu.triangular",
)

HOST = frozenset(
    {"cholesky", "cofactors", "det", "eig", "eigh", "eigvals", "eigvalsh", "fft", "ifft", "inv", "irfft",
     "matrix_exp", "pinv", "print", "qr", "rfft", "slogdet", "solve", "svd", "svdvals"}
)  # fmt: skip


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Enter the lowering of ops."""

    def enter(lowering: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name] = lowering
        return lowering

    return enter


def lowering_of(node: Node) -> Lowering | None:
    """The lowering of a node's op, or None."""
    load_lowerings()
    return LOWERINGS.get(node.op.name)


@cache
def load_lowerings() -> None:
    """Import all lowerings; they import this module."""
    for module in _MODULES:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
