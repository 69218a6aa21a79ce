"""Unrolling: a loop that goes round a known number of times becomes its body, so often."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.order import with_own_sizes
from weft.ir.rewrite import Draft, sweep
from weft.ir.types import TensorType
from weft.ops.control import scan
from weft.ops.view.primitives import broadcast_to, join, reshape
from weft.ops.view.slices import slice_axes
from weft.passes.base import graph_pass
from weft.passes.loops import Loop, as_loop


@graph_pass
def unroll(graph: Graph, limit: int = 16) -> Graph:
    """Replace each ``scan`` that goes round at most ``limit`` times by its body, so often, in regions too.

    Every node gets an identity of its own and keeps the line it came from. A ``for`` over a range is a scan.

    >>> import weft
    >>> def power(x):
    ...     return weft.fori_loop(0, 3, lambda i, y: y * x, x)
    >>> graph = weft.make_graph(power)(weft.ones(2))
    >>> [node.op.name for node in weft.passes.unroll(graph, limit=3).optimize().nodes]
    ['mul', 'mul', 'mul']
    """
    return sweep(graph, {scan: [partial(unrolled, limit=limit)]})


def unrolled(draft: Draft, node: Node, limit: int) -> Sequence[Value] | None:
    """What stands for the outputs of a ``scan`` of at most so many turns; None for another one."""
    loop = as_loop(node)
    assert loop is not None
    steps, length = _steps(draft, loop), node.attrs["length"]
    if steps is None or not isinstance(length, int) or steps > limit:
        return None
    state: list[Value] = list(loop.inits)
    columns: list[list[Value]] = [[] for _ in loop.stacks]
    for i in range(steps - 1, -1, -1) if node.attrs["reverse"] else range(steps):
        rows = [take_row(draft, x, i) for x in loop.rows]
        outs = draft.expand(with_own_sizes(loop.body, f"_{i}"), [*state, *rows, *loop.fixed])
        state = outs[: len(state)]
        for column, value in zip(columns, outs[len(state) :], strict=True):
            column.append(value)
    if node.attrs["reverse"]:
        columns = [column[::-1] for column in columns]
    return [*state, *[_stack(draft, c, out, length) for c, out in zip(columns, loop.stacks, strict=True)]]


def _steps(draft: Draft, loop: Loop) -> int | None:
    """How often a scan goes round, if that is known."""
    length = loop.node.attrs["length"]
    if not loop.steps:
        return length if isinstance(length, int) else None
    array = draft.array(loop.steps[0])
    return None if array is None else int(array)


def take_row(draft: Draft, x: Value, i: int) -> Value:
    """Row i of a value."""
    shape = x.type.shape
    starts, stops = (i, *[0] * (len(shape) - 1)), (i + 1, *shape[1:])
    (part,) = draft.emit(slice_axes, [x], starts=starts, stops=stops, steps=(1,) * len(shape))
    return draft.emit(reshape, [part], shape=shape[1:])[0]


def _stack(draft: Draft, column: Sequence[Value], out: Value, length: int) -> Value:
    """Rows along a new first axis, with zeros for those that a counted scan did not reach."""
    shape = out.type.shape[1:]
    rows = [draft.emit(reshape, [v], shape=(1, *shape))[0] for v in column]
    if len(rows) < length or not rows:
        rows.append(_zeros(draft, TensorType((length - len(rows), *shape), out.type.dtype)))
    return rows[0] if len(rows) == 1 else draft.emit(join, rows, axis=0)[0]


def _zeros(draft: Draft, type: TensorType) -> Value:
    """An array of zeros; where a size has a name, one that is broadcast."""
    if not any(isinstance(size, Size) for size in type.shape):
        return draft.constant(np.zeros(type.shape, type.dtype))
    zero = draft.constant(np.zeros((1,) * type.ndim, type.dtype))
    return draft.emit(broadcast_to, [zero], shape=type.shape)[0]
