"""From a function of tensors to kernels for arrays: traced, differentiated, optimised, compiled.

What calls these kernels outside of graphs is in ``calls`` and ``rules``. A first axis may have a
name instead of a size, so that one kernel serves batches of any size. Arrays whose axes lie in memory in
another order than they are counted in, as heads of attention do, are taken and given so: a kernel that sees
memory in its own order needs no copies of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import weft.passes.pipeline  # noqa: F401 - how graphs are optimised
from weft.backends import DEFAULT_BACKEND, backend_named
from weft.backends.backend import Array, Arrays, Run, placed_by
from weft.base.dtypes import kind
from weft.base.sizes import named_size
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.op import NoGradient, Op
from weft.ops.view.primitives import permute
from weft.tensor.mode import enable_grad, observing
from weft.transform.aot import Recorder
from weft.transform.captured import not_capturing
from weft.transform.joint import differentiate, optimized, telling_sizes
from weft.transform.tracing import replay, trace_graph

Order = tuple[int, ...] | None  # axes as they lie in memory; None for the usual order


def order_of(array: Array) -> Order:
    """The order of an array's axes in memory; the first axis stays first.

    >>> import numpy as np
    >>> from weft.backends.eager.graphs import order_of
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
empty = _backend.empty


def build(graph: Graph) -> Run:
    """What runs a graph on arrays of the host, wherever this thread builds for."""
    with placed_by(None):
        return _backend.build(graph)


ANY: Any = named_size("n")
MISSING: Any = object()  # stands for what is not in a table yet
MOST_KERNELS = 256  # for one function: where sizes vary without end, its ops run one by one
EXACT_KERNELS = 8  # of a product: for so many sizes of its first axis there are kernels of their own

Function = Callable[..., Any]


@contextmanager
def _aside() -> Iterator[None]:
    """Whatever this thread does now, let it trace as if it began."""
    with not_capturing(), enable_grad(), observing(lambda node: None, alone=True):
        yield


def trace(function: Function, types: Sequence[TensorType], name: str) -> Graph | None:
    """The graph of a function of tensors alone; None if it is no such function."""
    with _aside():
        graph, others = trace_graph(function, types, name, closed=True)
    return None if others else graph


def recorder(graph: Graph, wrt: Sequence[int], orders: Sequence[Order], results: Sequence[Order]) -> Recorder:
    """What runs a graph as one node of the tape; all of its inputs live on with the node.

    Args:
        graph: of a function.
        wrt: positions of the inputs whose gradients are wanted.
        orders: in which inputs lie in memory.
        results: in which outputs are to lie in memory.
    """
    with _aside():
        derivative = telling_sizes(optimized(differentiate(graph, wrt, free=range(len(graph.inputs)))))
        inside: list[Order] = [None] * derivative.saved
        seeds = [o for o, v in zip(results, graph.outputs, strict=True) if kind(v.type.dtype) in "fc"]
        kept = [orders[i] for i in derivative.kept]

        def built(part: Graph) -> Run:
            if part is derivative.forward:
                return build_in_order(part, orders, [*results, *inside])
            return build_in_order(part, [*inside, *kept, *seeds], [orders[i] for i in wrt])

        return Recorder(derivative, wrt, built, pointwise=_is_pointwise(graph))


def open_first(type: TensorType, size: int) -> TensorType:
    """The type with a name for the size of its first axis, if that is ``size``."""
    if not type.shape or type.shape[0] != size:
        return type
    return TensorType((ANY, *type.shape[1:]), type.dtype)


def only_moves(graph: Graph) -> bool:
    """Whether nothing is computed: then results are views where ops run one by one."""
    return all(node.op.moves for node in graph.nodes)


def _is_pointwise(graph: Graph) -> bool:
    """Whether each element of the only result depends on one of the only input alone."""
    values = [*graph.inputs, *[v for node in graph.nodes for v in node.outputs]]
    same = all(v.type.shape in ((), graph.inputs[0].type.shape) for v in values)
    return len(graph.inputs) == len(graph.outputs) == 1 and same and all(n.op.accepts for n in graph.nodes)


def _is_product(op: Op) -> bool:
    several = len(op.inputs) == 2 and not op.accepts and isinstance(op.vjp, tuple)
    return op.linear == "each" and several and not any(isinstance(rule, NoGradient) for rule in op.vjp)


def has_product(graph: Graph) -> bool:
    """Whether matrices are multiplied, or something like it: then kernels are faster if sizes are known."""
    for node in graph.nodes:
        if _is_product(node.op):
            return True
        if any(has_product(body) for body in node.attrs.values() if isinstance(body, Graph)):
            return True
    return False
