"""Products of half precision with a bias as single nodes that a library of a device computes."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.affine import HALVES, library_matmul_add, matmul_add
from weft.passes.base import graph_pass

WORTH = 1 << 17  # multiplications; of fewer, kernels are as fast
ALIGNED = 8  # elements: of rows that do not begin at a multiple, a library rounds before it adds (on an H200)


@graph_pass(once=True)
def biases_by_library(graph: Graph, *, worth: int = WORTH) -> Graph:
    """Leave products with one matrix and a row that is added to a library: it adds before it rounds.

    Otherwise the sums are stored in float32, twice the bytes, and the kernel that adds the row reads them.

    >>> import weft
    >>> from weft.passes.lowering.biases_by_library import biases_by_library
    >>> x, b = weft.ones((64, 64), dtype=weft.bfloat16), weft.ones(64, dtype=weft.bfloat16)
    >>> graph = weft.make_graph(weft.linear)(x, x, b)
    >>> [node.op.name for node in graph.optimize(passes=["inline", biases_by_library]).nodes]
    ['permute', 'library_matmul_add']
    """

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        return draft.emit(library_matmul_add, node.inputs) if _is_for_library(node, worth) else None

    return sweep(graph, {matmul_add: [rule]})


def _is_for_library(node: Node, worth: int) -> bool:
    (x, y, z), (out,) = node.inputs, node.outputs
    shape, rows, columns = out.type.shape, out.type.shape[-2], out.type.shape[-1]
    if x.type.dtype not in HALVES or y.type.ndim != 2 or any(isinstance(s, Size) for s in y.type.shape):
        return False
    if z.type.shape[-1:] != (columns,) or any(s != 1 for s in z.type.shape[:-1]):
        return False
    if len(shape) != x.type.ndim or 0 in (*shape, *y.type.shape):
        return False
    if len(shape) == 2 and 1 in (rows, columns):  # ``row_products`` has a kernel for it with all that follows
        return False
    sizes = [*shape, y.type.shape[0]]
    if any(s % ALIGNED for s in y.type.shape):
        return False
    return (inf if any(isinstance(s, Size) for s in sizes) else prod(sizes)) >= worth
