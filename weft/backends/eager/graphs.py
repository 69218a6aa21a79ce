"""From a function of tensors to kernels for arrays: traced, differentiated, optimised, compiled.

What calls these kernels outside of graphs is in ``calls`` and ``rules``. A first axis may have a
name instead of a size, so that one kernel serves batches of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import weft.passes.pipeline  # noqa: F401 - how graphs are optimised
from weft.backends.backend import Run
from weft.backends.eager.layouts import Order, build_in_order
from weft.base.dtypes import kind
from weft.base.sizes import named_size
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.op import NoGradient, Op
from weft.tensor.mode import enable_grad, observing
from weft.transform.aot import Recorder
from weft.transform.building import not_capturing
from weft.transform.joint import differentiate, optimized, telling_sizes
from weft.transform.tracing import trace_graph

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
