"""Arrays whose axes lie in memory in another order than they are counted in: kernels take and give them so.

Heads of attention, for one, are cut out of rows and turned. A kernel that sees memory in its own order needs
no copies of them, and gives gradients in that order too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.backends import DEFAULT_BACKEND, backend_named
from weft.backends.backend import Array, Arrays, Run
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.view.primitives import permute
from weft.transform.tracing import replay, trace_graph

Order = tuple[int, ...] | None  # axes as they lie in memory; None for the usual order


def order_of(array: Array) -> Order:
    """The order of an array's axes in memory; the first axis stays first.

    >>> import numpy as np
    >>> from weft.backends.eager.layouts import order_of
    >>> order_of(np.zeros((2, 3, 4)).transpose(0, 2, 1)), order_of(np.zeros((2, 3)))
    ((0, 2, 1), None)
    """
    strides = array.strides
    order = sorted(range(array.ndim), key=lambda i: -abs(strides[i]))
    return tuple(order) if order and order[0] == 0 and order != sorted(order) else None


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes another."""
    return tuple([order.index(i) for i in range(len(order))])


def without_gaps(array: Array, order: Order) -> Array:
    """The array if it has no gaps in memory, or a copy of it, in the same order."""
    seen = array if order is None else array.transpose(order)
    if seen.flags.c_contiguous:
        return array
    copy = empty(seen.shape, seen.dtype)
    copy[...] = seen
    return copy if order is None else copy.transpose(inverse(order))


def build_in_order(graph: Graph, inputs: Sequence[Order], outputs: Sequence[Order]) -> Run:
    """What runs a graph on arrays that lie in memory in orders, and gives results in orders."""
    if not any(inputs) and not any(outputs):
        return build(graph)
    run = build(_turned(graph, inputs, outputs).optimize())
    back = [None if order is None else inverse(order) for order in outputs]

    def in_order(arrays: Arrays) -> Arrays:
        given = [a if o is None else a.transpose(o) for a, o in zip(arrays, inputs, strict=True)]
        return [a if o is None else a.transpose(o) for a, o in zip(run(given), back, strict=True)]

    return in_order


def _turned(graph: Graph, inputs: Sequence[Order], outputs: Sequence[Order]) -> Graph:
    """The graph of the same function of arrays in the order of memory."""

    def function(*tensors: Any) -> list[Any]:
        usual = [
            t if o is None else permute(t, axes=inverse(o)) for t, o in zip(tensors, inputs, strict=True)
        ]
        outs = replay(graph, usual)
        return [t if o is None else permute(t, axes=o) for t, o in zip(outs, outputs, strict=True)]

    types = [_turned_type(v.type, order) for v, order in zip(graph.inputs, inputs, strict=True)]
    return trace_graph(function, types, graph.name, closed=True)[0]


def _turned_type(kind: TensorType, order: Order) -> TensorType:
    return kind if order is None else TensorType(tuple([kind.shape[i] for i in order]), kind.dtype)


_backend = backend_named(DEFAULT_BACKEND)
build = _backend.build
empty = _backend.empty
