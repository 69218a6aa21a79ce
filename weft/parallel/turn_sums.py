"""Sums over ranks that are read transposed: the products that are summed are transposed instead."""

from __future__ import annotations

from weft.ir.graph import Graph, Node, Value
from weft.ops.collective import all_reduce
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.view.primitives import permute
from weft.passes.base import graph_pass


@graph_pass(once=True)
def turn_sums(graph: Graph) -> Graph:
    """Write a sum of ``a @ b`` that is only read transposed as one of ``bᵀ @ aᵀ``.

    So what comes of it lies in memory as what reads it does: a gradient as its weights and the state of an
    optimizer. A sum over ranks is by elements, so its bits stay as they are.

    >>> import weft
    >>> from weft import parallel as par
    >>> text = '''
    ... graph f(%x: f32[3,4], %g: f32[4,2]) {
    ...   %0: f32[3,2] = matmul(%x, %g)
    ...   %1: f32[3,2] = all_reduce(%0, axis="data", mesh="data=2")
    ...   %2: f32[2,3] = permute(%1, axes=(1, 0))
    ...   return %2
    ... }'''
    >>> [node.op.name for node in par.turn_sums(weft.parse_graph(text)).nodes]
    ['permute', 'permute', 'matmul', 'all_reduce']
    """
    users: dict[Value, list[Node | None]] = {v: [None] for v in graph.results}
    made: dict[Value, Node] = {}
    for node in graph.nodes:
        made.update(dict.fromkeys(node.outputs, node))
        for v in node.inputs:
            users.setdefault(v, []).append(node)
    turns = {node: turn for node in graph.nodes if (turn := _turn_of(node, made, users)) is not None}
    gone = {*turns.values(), *[made[node.inputs[0]] for node in turns]}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node in turns:
            nodes += _turned(made[node.inputs[0]], node, turns[node], made)
        elif node not in gone:
            nodes.append(node)
    return graph.replace(nodes=nodes) if turns else graph


def _turn_of(node: Node, made: dict[Value, Node], users: dict[Value, list[Node | None]]) -> Node | None:
    """The node that alone reads a sum of a product, if it transposes it."""
    if node.op is not all_reduce:
        return None
    (x,), (out,) = node.inputs, node.outputs
    product, readers = made.get(x), users.get(out, [])
    if product is None or product.op is not matmul or len(users[x]) != 1 or len(readers) != 1:
        return None
    (turn,) = readers
    return turn if turn is not None and _transposes(turn) else None


def _transposes(node: Node) -> bool:
    return (
        node.op is permute
        and node.inputs[0].type.ndim >= 2
        and node.attrs["axes"] == _swapped(node.inputs[0])
    )


def _turned(product: Node, total: Node, turn: Node, made: dict[Value, Node]) -> list[Node]:
    """The nodes of the transposed product, and of its sum."""
    nodes: list[Node] = []
    sides: list[Value] = []
    for side in reversed(product.inputs):
        maker = made.get(side)
        if maker is not None and _transposes(maker):
            sides.append(maker.inputs[0])
            continue
        axes = _swapped(side)
        out = Value(permute.type_rule(side.type, axes=axes))
        nodes.append(Node(permute, [side], {"axes": axes}, [out], product.location))
        sides.append(out)
    of = Value(turn.outputs[0].type)
    nodes.append(Node(matmul, sides, product.attrs, [of], product.location))
    return [*nodes, Node(all_reduce, [of], total.attrs, turn.outputs, total.location)]


def _swapped(x: Value) -> tuple[int, ...]:
    rank = x.type.ndim
    return (*range(rank - 2), rank - 1, rank - 2)
