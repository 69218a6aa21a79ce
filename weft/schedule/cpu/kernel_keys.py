"""When the kernels of two groups are the same code.

The layers of a network have groups that differ in nothing but the arrays they work on. All that the code of a
group depends on is its key, so that the kernel is written once and launched for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.ir.graph import Node, Value
from weft.ir.literals import format_literal
from weft.loop.ir import Const
from weft.schedule.arrays import Array, Progression

if TYPE_CHECKING:
    from weft.schedule.cpu.row_kernel import RowKernel


def row_kernel_key(row_kernel: RowKernel, reads: Mapping[Value, Array], writes: Mapping[Value, Array]) -> Any:
    """What the code of a group depends on; None where that cannot be told.

    Args:
        row_kernel: the group.
        reads, writes: the arrays of its values that are in memory; the kernel is launched on them.
    """
    values = [*row_kernel.external, *row_kernel.inlined]
    numbers = {v: i for i, v in enumerate(values)}
    if row_kernel.anchor is not None:
        numbers[row_kernel.anchor] = -1
    if any(node.regions for node in row_kernel.inlined.values()):
        return None
    sources = [
        array_key(reads[v]) if v in reads else _number_key(row_kernel.scope.place(v))
        for v in row_kernel.external
    ]
    if None in sources:
        return None
    nodes = [_node_key(node, numbers) for node in row_kernel.inlined.values()]
    targets = [(numbers[v], array_key(array)) for v, array in writes.items()]
    frame = (
        row_kernel.frame.shape,
        row_kernel.frame.split,
        row_kernel.flat,
        tuple(row_kernel.breaks),
        row_kernel.scope.writer.depth > 0,
    )
    order = tuple(numbers[v] for v in (*row_kernel.made, *reads))
    return ("row_kernel", frame, tuple(sources), tuple(nodes), tuple(targets), order)


def array_key(array: Array) -> Any:
    """What code that uses an array depends on."""
    return array.dtype, array.shape, array.strides


def _number_key(place: Any) -> Any:
    """What code depends on that has a number, or numbers, in it; None for what it would have to be given."""
    if isinstance(place, Const):
        return place.dtype, np.asarray(place.value, place.dtype).tobytes()
    if isinstance(place, Progression):
        return place.dtype, place.start, place.step, place.shape
    return None


def _node_key(node: Node, numbers: Mapping[Value, int]) -> Any:
    attrs = tuple([(name, format_literal(value)) for name, value in node.attrs.items()])
    types = tuple([(v.type.dtype, v.type.shape) for v in node.outputs])
    return node.op, attrs, tuple([numbers[v] for v in node.inputs]), types
