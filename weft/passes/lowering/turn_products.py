"""Transposed products as products of transposed sides, which are read in any order."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.view.primitives import permute
from weft.passes.base import graph_pass


@graph_pass(once=True)
def turn_products(graph: Graph) -> Graph:
    """Write ``(a @ b)ᵀ`` as ``bᵀ @ aᵀ``: sides are read in any order, results are best written in theirs.

    >>> import weft
    >>> graph = weft.make_graph(lambda a, b: (a @ b).T)(weft.ones(2, 3), weft.ones(3, 4))
    >>> [node.op.name for node in weft.passes.turn_products(graph).nodes]
    ['permute', 'permute', 'matmul']
    """
    return sweep(graph, {permute: [_turn]})


def _turn(draft: Draft, node: Node) -> Sequence[Value] | None:
    (x,) = node.inputs
    product = draft.producer(x, matmul)
    swapped = x.type.ndim >= 2 and node.attrs["axes"] == _swap_last(x)
    if product is None or not swapped or draft.uses.get(x, 0) != 1:
        return None
    a, b = (draft.emit(permute, [v], axes=_swap_last(v))[0] for v in product.inputs)
    return draft.emit(matmul, [b, a])


def _swap_last(x: Value) -> tuple[int, ...]:
    rank = x.type.ndim
    return (*range(rank - 2), rank - 1, rank - 2)
