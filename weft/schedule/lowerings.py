"""Lowerings: ops that are more than a rule for one element, as kernels of their own, by op and target.

A lowering is a function ``lower(writer, node, inputs, outputs)``: it opens kernels on the arrays of the
node's inputs and outputs and writes loops. Inputs may have any strides; outputs are dense, unless it takes
any layout. Ops with a fold share a lowering. An op with neither a pointwise rule nor a lowering is run by
Python, through its reference kernel; ``Op.host`` says where that is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

from weft.ir.graph import Node
from weft.ops.op import Op
from weft.schedule.arrays import Array
from weft.schedule.writer import Writer

Lower = Callable[[Writer, Node, Sequence[Array], Sequence[Array]], None]
ANY_TARGET = ""


class Lowering(NamedTuple):
    """How an op is written for a target.

    Attributes:
        lower: writes its kernels.
        any_layout: whether its outputs may have any strides; else they are dense.
    """

    lower: Lower
    any_layout: bool = False


_BY_NAME: dict[tuple[str, str], Lowering] = {}
_BY_FOLD: dict[tuple[str, str], Lowering] = {}
_loaded: set[str] = set()


def lowers(
    *names: str, target: str = ANY_TARGET, fold_over: str = "", any_layout: bool = False
) -> Callable[[Lower], Lower]:
    """Enter the lowering of ops, or of all ops with a fold, for a target.

    One for ``ANY_TARGET`` serves those that have none of their own.
    """

    def enter(lower: Lower) -> Lower:
        for name in names:
            _BY_NAME[name, target] = Lowering(lower, any_layout)
        if fold_over:
            _BY_FOLD[fold_over, target] = Lowering(lower, any_layout)
        return lower

    return enter


def find_lowering(op: Op, target: str) -> Lowering | None:
    """The lowering of an op for a target whose modules are loaded, or None."""
    return (
        _BY_NAME.get((op.name, target))
        or _BY_NAME.get((op.name, ANY_TARGET))
        or _BY_FOLD.get((op.fold_over, target))
    )


def load_lowerings(target: str, modules: Sequence[str]) -> None:
    """Import the modules of a target once; they enter their lowerings here."""
    if target not in _loaded:
        for module in modules:
            import_module(module)
        _loaded.add(target)
