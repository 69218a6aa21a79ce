"""Products of one vector with a matrix that no cache holds, as sums of what is multiplied element by element.

Such a product takes as long as the matrix takes to be read. A sum reads it in the order in which it lies,
along its rows or down its columns, on all threads, and takes in what comes before it (``alpha * a @ x``) and
after. Smaller matrices are left to the tiles of a product.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dtypes import float32, float64
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.arithmetic import mul
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.reduce import reduce_sum
from weft.ops.view.primitives import broadcast_to, permute, reshape
from weft.passes.base import graph_pass
from weft.passes.dce import dce

LEAST = 1 << 21  # bytes of a matrix: it fills the cache of a core
_TURNED = (1, 0)


@graph_pass(once=True)
def stream_products(graph: Graph) -> Graph:
    """Write products of a large matrix with one vector as sums along its rows or columns.

    >>> import weft
    >>> from weft.passes.lowering.stream_products import stream_products
    >>> graph = weft.make_graph(lambda a, x: a @ x)(weft.ones(1024, 1024), weft.ones(1024)).optimize()
    >>> [node.op.name for node in stream_products(graph).nodes]
    ['reshape', 'reshape', 'broadcast_to', 'mul', 'sum', 'reshape', 'reshape']
    """
    found = sweep(graph, {matmul: [_as_sum]})
    return graph if found is graph else dce(found)


def _as_sum(draft: Draft, node: Node) -> Sequence[Value] | None:
    (out,) = node.outputs
    if not _is_streamed(node):
        return None
    row = out.type.shape[0] == 1
    vector, matrix = node.inputs if row else node.inputs[::-1]
    along = 0 if row else 1  # the axis of the matrix that is summed
    turned = draft.producer(matrix, permute)
    if turned is not None and turned.attrs["axes"] == _TURNED:  # as it lies
        (matrix,), along = turned.inputs, 1 - along
    depth = matrix.type.shape[along]
    (vector,) = draft.emit(reshape, [vector], shape=(depth, 1) if along == 0 else (1, depth))
    (spread,) = draft.emit(broadcast_to, [vector], shape=matrix.type.shape)
    (total,) = draft.emit(reduce_sum, draft.emit(mul, [matrix, spread]), axes=(along,), keepdims=False)
    return draft.emit(reshape, [total], shape=out.type.shape)


def _is_streamed(node: Node) -> bool:
    """Whether a product has one row or one column, and a matrix on the other side that is too large."""
    (out,) = node.outputs
    if out.type.ndim != 2 or out.type.dtype not in (float32, float64):
        return False
    rows, columns = out.type.shape
    depth = node.inputs[0].type.shape[1]
    if not all(isinstance(s, int) for s in (rows, columns, depth)) or (rows == 1) == (columns == 1):
        return False
    return rows * columns * depth * out.type.dtype.itemsize >= LEAST
