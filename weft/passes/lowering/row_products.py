"""Products of a matrix with one vector as sums of rows.

Such a product does nothing but read the matrix. As a sum of what is multiplied element by element it goes
into one kernel with all that follows: a bias, an activation, what is added to it. So it is for a matrix whose
rows lie as they are summed; one that lies the other way round is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dtypes import DType, float32, kind
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.affine import matmul_halves
from weft.ops.arithmetic import mul
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.control import scan, while_loop
from weft.ops.reduce import reduce_sum
from weft.ops.select import cast
from weft.ops.view.primitives import broadcast_to, permute, reshape
from weft.passes.base import graph_pass
from weft.passes.dce import dce
from weft.passes.loops import Loop, as_loop, new_value, remade, with_inputs

LEAST = 64  # elements of a row that is worth several threads
_VECTOR = 16  # bytes that a thread reads at a time
_TURNED = (1, 0)
_PRODUCTS = (matmul, matmul_halves)


@graph_pass(once=True)
def row_products(graph: Graph) -> Graph:
    """Write products of a matrix with one row or column as sums; transposed weights of a loop go into it.

    >>> import weft
    >>> from weft.passes.lowering.row_products import row_products
    >>> graph = weft.make_graph(lambda x, w: x @ w.T)(weft.ones(1, 64), weft.ones(96, 64))
    >>> [node.op.name for node in row_products(graph).nodes]
    ['broadcast_to', 'mul', 'sum', 'reshape']
    """
    rules = {op: [_as_sum] for op in _PRODUCTS}
    found = sweep(graph, {**rules, while_loop: [_turned_inside], scan: [_turned_inside]})
    return graph if found is graph else dce(found)


def _as_sum(draft: Draft, node: Node) -> Sequence[Value] | None:
    a, b = node.inputs
    (out,) = node.outputs
    if not _is_row_product(node):
        return None
    turned = draft.producer(b, permute)
    if out.type.shape[0] == 1:
        if turned is None or turned.attrs["axes"] != _TURNED:
            return None
        (matrix,), vector = turned.inputs, a
    elif draft.producer(a, permute) is None:
        matrix, vector = a, b
    else:
        return None
    if vector.type.shape[0] != 1:
        (vector,) = draft.emit(reshape, [vector], shape=(1, matrix.type.shape[1]))
    # Cast when it is read: by itself that would be a kernel.
    (vector,) = draft.emit(broadcast_to, [vector], shape=matrix.type.shape)
    dtype = out.type.dtype
    sides = [_cast(draft, x, max(dtype, float32, key=lambda t: t.itemsize)) for x in (vector, matrix)]
    (total,) = draft.emit(reduce_sum, draft.emit(mul, sides), axes=(1,), keepdims=False)
    return draft.emit(reshape, [_cast(draft, total, dtype)], shape=out.type.shape)


def _is_row_product(node: Node) -> bool:
    """Whether a product has one row or one column, and is large enough for threads that read vectors."""
    (out,) = node.outputs
    if out.type.ndim != 2 or kind(out.type.dtype) != "f":
        return False
    rows, columns = out.type.shape
    side = node.inputs[0].type
    depth = side.shape[1]
    if not all(isinstance(s, int) for s in (rows, columns, depth)) or (rows == 1) == (columns == 1):
        return False
    return depth >= LEAST and depth % (_VECTOR // side.dtype.itemsize) == 0


def _cast(draft: Draft, x: Value, dtype: DType) -> Value:
    return x if x.type.dtype == dtype else draft.emit(cast, [x], dtype=dtype)[0]


def _turned_inside(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A loop that turns the weights itself that it multiplies single rows with: that costs nothing."""
    loop = as_loop(node)
    assert loop is not None
    products = [n for n in loop.body.nodes if n.op in _PRODUCTS]
    wanted = {n.inputs[1] for n in products if n.inputs[0].type.shape[0] == 1}
    turned: dict[int, Node] = {}
    for i, (outside, inside) in enumerate(zip(loop.fixed, loop.same(loop.body), strict=True)):
        made = draft.producer(outside, permute)
        if inside in wanted and made is not None and made.attrs["axes"] == _TURNED:
            turned[i] = made
    if not turned:
        return None
    fixed = [turned[i].inputs[0] if i in turned else v for i, v in enumerate(loop.fixed)]
    parts = {"body": _with_turns(loop, loop.body, turned)}
    if loop.test is not None:
        parts["test"] = _with_turns(loop, loop.test, turned)
    made = remade(loop, node.outputs, fixed=fixed, **parts).node
    return draft.emit(made.op, made.inputs, **made.attrs)


def _with_turns(loop: Loop, region: Graph, turned: dict[int, Node]) -> Graph:
    """A region whose inputs of these numbers, among those that stay the same, it turns itself."""
    same, inputs, nodes = loop.same(region), list(region.inputs), list[Node]()
    for i, made in turned.items():
        given = new_value(made.inputs[0])
        nodes.append(Node(permute, [given], made.attrs, [same[i]], made.location))
        inputs[len(inputs) - len(same) + i] = given
    used = {v for node in region.nodes for v in node.inputs}.union(region.outputs)
    nodes = [node for node in nodes if node.outputs[0] in used]
    return with_inputs(region.replace(inputs=inputs, nodes=[*nodes, *region.nodes]), inputs, region.outputs)
