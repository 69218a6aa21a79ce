"""Products of each iteration of a loop, taken at once for all of them.

A network over time multiplies a few rows by the same weights in every step, ``x[t] @ w``, and its gradient
adds up ``x[t].T @ g[t]``: many small products, and large sums read and written in each step. Where ``x`` is
what the loop goes along, ``x @ w`` is one product before it; where the loop keeps each ``g[t]``, the sum is
one product after it (see ``product_sums``). Only the order of additions is another one.
"""

from __future__ import annotations

from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import giving, reading
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.view.primitives import permute, reshape
from weft.passes.base import graph_pass
from weft.passes.dce import dce
from weft.passes.loops import Loop, remade, with_inputs
from weft.passes.lowering.along import Around, Stacks, as_scan, follow_rows, has_room, share_stacks
from weft.passes.lowering.product_sums import take_sums
from weft.transform.partition import bytes_of

FEW = 64  # rows of a product that by itself does not keep the machine busy
SMALL = 4096  # bytes of a product that is not worth it
STEPS = 4  # iterations from which on it pays


@graph_pass(regions=True, once=True)
def take_products(graph: Graph) -> Graph:
    """Take products of loops at once, before or after the loop, where that saves work.

    >>> import weft
    >>> def f(x, y):
    ...     return weft.scan(lambda s, row: (s + row[0].T @ row[1], None), weft.zeros(64, 64), (x, y))[0]
    >>> graph = weft.make_graph(f)(weft.ones(10, 2, 64), weft.ones(10, 2, 64)).optimize()
    >>> [node.op.name for node in weft.passes.take_products(graph).nodes]
    ['reshape', 'permute', 'reshape', 'matmul']
    """
    if all(as_scan(node) is None for node in graph.nodes):
        return graph
    around, same = Around(graph), True
    for node in graph.nodes:
        node = reading(node, around.now)
        loop = as_scan(node)
        if loop is None or _is_short(loop):
            around.add(node)
            continue
        loop = share_stacks(around, _take_before(around, follow_rows(around, loop)))
        taken = take_sums(around, loop)
        same = same and not taken and loop.node is node
    return graph if same else dce(giving(graph, around.now, nodes=around.nodes))


def _is_short(loop: Loop) -> bool:
    length = loop.node.attrs["length"]
    return isinstance(length, int) and length < STEPS


def _take_before(around: Around, loop: Loop) -> Loop:
    """The loop with products of rows and what stays the same as rows."""
    body, stacks = loop.body, Stacks(around, loop)
    outside = dict(zip(loop.same(body), loop.fixed, strict=True))
    found: list[Node] = []
    rows: list[Value] = []
    for node in body.nodes:
        turned = _is_turned(node, outside, stacks)
        if turned is None or not _saves(loop, node, turned):
            continue
        row, weights = node.inputs[::-1] if turned else node.inputs
        rows.append(_product_of_rows(around, node, stacks.of(row), outside[weights], turned))
        found.append(node)
    if not found:
        return loop
    n = len(loop.inits) + len(loop.rows)
    inputs = [*body.inputs[:n], *[v for node in found for v in node.outputs], *body.inputs[n:]]
    nodes = [node for node in body.nodes if node not in found]
    new = with_inputs(body.replace(nodes=nodes), inputs, body.outputs)
    return remade(loop, loop.node.outputs, rows=[*loop.rows, *rows], body=new)


def _is_turned(node: Node, outside: dict[Value, Value], stacks: Stacks) -> bool | None:
    """Whether what stays the same is the left side of a product with rows; None if it is no such product."""
    if node.op is not matmul or any(v.type.ndim != 2 for v in node.inputs):
        return None
    left, right = node.inputs
    if right in outside and stacks.has(left):
        return False
    return True if left in outside and stacks.has(right) else None


def _saves(loop: Loop, node: Node, turned: bool) -> bool:
    """Whether to read the weights in each iteration costs more than to keep the products."""
    row, weights = node.inputs[::-1] if turned else node.inputs
    (out,) = node.outputs
    size = row.type.shape[1 if turned else 0]
    few = isinstance(size, int) and size < FEW
    return few and SMALL <= 2 * bytes_of(out) <= bytes_of(weights) and has_room(loop, [out])


def _product_of_rows(around: Around, node: Node, rows: Value, weights: Value, turned: bool) -> Value:
    """The products of all rows, along a first axis."""
    if turned:
        rows, weights = _swapped(around, node, rows), _swapped(around, node, weights)
    length, m, k = rows.type.shape
    flat = around.emit(node, reshape, rows, shape=(length * m, k))
    product = around.emit(node, matmul, flat, weights)
    out = around.emit(node, reshape, product, shape=(length, m, weights.type.shape[1]))
    return _swapped(around, node, out) if turned else out


def _swapped(around: Around, like: Node, x: Value) -> Value:
    """A value with its last two axes the other way round."""
    lead = x.type.ndim - 2
    return around.emit(like, permute, x, axes=(*range(lead), lead + 1, lead))
