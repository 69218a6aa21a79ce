"""Elementwise ops and reductions of transposed matrices, done on the matrices as they lie.

A kernel that reads the transpose of a large matrix row by row touches a line of memory for each element.
Where all that becomes of the transpose is reduced, multiplied or turned back, the same is done on the matrix
itself, and only results are turned: ``sum(xᵀ, rows)`` is ``sum(x, columns)``, ``xᵀ - mᵀ`` is ``(x - m)ᵀ``.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, Rule, sweep
from weft.ops.affine import matmul_halves
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.view.primitives import permute, reshape
from weft.passes.base import graph_pass, is_elementwise

LEAST = 1 << 20  # bytes of a matrix: smaller ones are in a cache however they are read
_TURNED = (1, 0)


@graph_pass(regions=True, once=True)
def straighten(graph: Graph) -> Graph:
    """Reduce and change large matrices as they lie, though the program does so with their transposes.

    >>> import weft
    >>> from weft.passes.lowering.straighten import straighten
    >>> graph = weft.make_graph(lambda x: (x.T * 2.0).sum(axis=1))(weft.ones(1024, 512))
    >>> print(straighten(graph).to_text(locations=False), end="")
    graph <lambda>(%x: f32[1024,512]) {
      %0: f32[1024,512] = mul(%x, f32(2.0))
      %1: f32[512] = sum(%0, axes=(0,))
      return %1
    }
    """
    turned = _turned(graph) if any(map(_is_turn, graph.nodes)) else set()
    if not turned or not any(_is_changed(node, turned) for node in graph.nodes):
        return graph
    rules: dict[None, list[Rule]] = {None: [lambda draft, node: _straight(draft, node, turned)]}
    return sweep(graph, rules, again=False)


def _turned(graph: Graph) -> set[Value]:
    """Transposes, and what is made of them element by element, that nobody needs in their own order."""
    makers: dict[Value, Node] = {}
    for node in graph.nodes:
        if _is_turn(node) or _fits(node, makers):
            makers[node.outputs[0]] = node
    users: dict[Value, list[Node]] = {value: [] for value in makers}
    for node in graph.nodes if makers else ():
        for value in node.inputs:
            if value in users:
                users[value].append(node)
    found = makers.keys() - set(graph.results)
    while True:
        left = {
            value
            for value in found
            if (_is_turn(makers[value]) or _fits(makers[value], found))
            and all(_takes(node, found) for node in users[value])
        }
        if len(left) == len(found):
            return left
        found = left


def _is_turn(node: Node) -> bool:
    """Whether a node is the transpose of a large matrix."""
    if node.op is not permute or node.attrs["axes"] != _TURNED:
        return False
    (x,) = node.inputs
    rows, columns = x.type.shape
    return (
        isinstance(rows, int) and isinstance(columns, int) and rows * columns * x.type.dtype.itemsize >= LEAST
    )


def _is_fold(node: Node) -> bool:
    return bool(node.op.fold_over == "axes")


def _fits(node: Node, turned: Container[Value]) -> bool:
    """Whether a node works element by element on transposes, and on what is broadcast beside them."""
    if not is_elementwise(node) or len(node.outputs) != 1:
        return False
    shape = node.outputs[0].type.shape
    whole = [value for value in node.inputs if value.type.shape == shape]
    return len(shape) == 2 and bool(whole) and all(value in turned for value in whole)


def _takes(node: Node, turned: Container[Value]) -> bool:
    """Whether a node is as well off with a matrix in the other order."""
    if is_elementwise(node):
        return node.outputs[0] in turned
    return node.op in (matmul, matmul_halves, permute) or _is_fold(node)


def _is_changed(node: Node, turned: Container[Value]) -> bool:
    if _is_fold(node):
        return node.inputs[0] in turned
    return is_elementwise(node) and node.outputs[0] in turned


def _straight(draft: Draft, node: Node, turned: Container[Value]) -> Sequence[Value] | None:
    """A node on matrices as they lie; its result is turned."""
    if _is_fold(node):
        (x,) = node.inputs
        inner = draft.producer(x, permute) if x in turned or x in draft.fresh else None
        if inner is None:
            return None
        axes = tuple(sorted(1 - axis for axis in node.attrs["axes"]))
        found = draft.emit(node.op, inner.inputs, **{**node.attrs, "axes": axes})
        return draft.emit(permute, found, axes=_TURNED) if node.attrs["keepdims"] else found
    if not is_elementwise(node) or node.outputs[0] not in turned:
        return None
    shape = node.outputs[0].type.shape
    inputs = [_lying(draft, value, value.type.shape == shape) for value in node.inputs]
    return draft.emit(permute, draft.emit(node.op, inputs, **node.attrs), axes=_TURNED)


def _lying(draft: Draft, value: Value, whole: bool) -> Value:
    """A value as it goes with matrices that are not turned."""
    if whole:
        return draft.made[value].inputs[0]
    rows, columns = (*(1,) * (2 - value.type.ndim), *value.type.shape)
    turned = (columns, rows) if value.type.ndim else ()
    return draft.emit(reshape, [value], shape=turned)[0] if turned != value.type.shape else value
