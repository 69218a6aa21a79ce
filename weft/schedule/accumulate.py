"""Sums that begin at zero and are then added to something: they begin at that instead.

The gradient of ``x[i, j]`` in a loop is an array of zeros with one element changed, added to what the loop
carries. As ``scatter_add(carry, v, i, j)`` it changes that element alone; and an inner loop that starts from
zeros, and whose result is added to a carry of the outer one, starts from the carry. Only the order of
additions is another one, as in any reduction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from weft.ir.graph import Graph, Node, Value
from weft.ir.order import kahn_order
from weft.ir.rewrite import is_uniform, map_regions
from weft.ops.arithmetic import add
from weft.ops.control import scan
from weft.ops.index import scatter_add_nd
from weft.passes.loops import as_loop


def accumulate(graph: Graph) -> Graph:
    """The graph, and its regions, with sums that begin where they are added to.

    >>> import weft
    >>> from weft.schedule.accumulate import accumulate
    >>> graph = weft.parse_graph('''
    ... graph f(%c: f32[4], %v: f32[], %i: i64[]) {
    ...   %0: f32[4] = scatter_add(f32[4](0.0, ...), %v, %i)
    ...   %1: f32[4] = add(%c, %0)
    ...   return %1
    ... }''')
    >>> [node.op.name for node in accumulate(graph).nodes]
    ['scatter_add']
    """
    nodes = [map_regions(node, accumulate) if node.attrs else node for node in graph.nodes]
    if any(a is not b for a, b in zip(nodes, graph.nodes, strict=True)):
        graph = graph.replace(nodes=nodes)
    while (better := _begin_one(graph)) is not None:
        graph = better
    return graph


def _begin_one(graph: Graph) -> Graph | None:
    """The graph with one more sum that begins where it is added to; None if there is none."""
    sums = [node for node in graph.nodes if node.op is add]
    if not sums:
        return None
    web = _Uses(graph)
    for node in sums:
        for base, part in (node.inputs, node.inputs[::-1]):
            start = web.start(part) if base.type == part.type else None
            if start is not None and not web.depends(base, start[0]):
                return _begin_at(graph, node, base, part, *start)
    return None


def _begin_at(graph: Graph, total: Node, base: Value, part: Value, first: Node, place: int) -> Graph:
    """The graph where a node takes a base instead of zeros, so that what comes of it is the total."""
    (out,) = total.outputs

    def now(v: Value) -> Value:
        return part if v is out else v

    nodes = []
    for node in graph.nodes:
        if node is total:
            continue
        inputs = [now(v) for v in node.inputs]
        if node is first:
            inputs[place] = base
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        nodes.append(node if same else Node(node.op, inputs, node.attrs, node.outputs, node.location))
    used = {v for node in nodes for v in node.inputs} | {now(v) for v in graph.results}
    return graph.replace(
        nodes=kahn_order(nodes),
        outputs=[now(v) for v in graph.outputs],
        updates=[(old, now(v)) for old, v in graph.updates],
        constants={v: a for v, a in graph.constants.items() if v in used},
    )


class _Uses:
    """Who makes and who uses the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {v: node for node in graph.nodes for v in node.outputs}
        self.uses = Counter([v for node in graph.nodes for v in node.inputs])
        self.uses.update(graph.results)

    def start(self, value: Value) -> tuple[Node, int] | None:
        """Where a sum that nobody else sees begins: the node that takes zeros, and as which input."""
        node = self.makers.get(value)
        if node is None or self.uses[value] != 1:
            return None
        for place in _summed(node, value):
            x = node.inputs[place]
            if (array := self.graph.constants.get(x)) is not None:
                if is_uniform(array, np.zeros((), array.dtype)):
                    return node, place
            elif (found := self.start(x)) is not None:
                return found
        return None

    def depends(self, value: Value, node: Node) -> bool:
        """Whether a value needs what a node makes."""
        reached = set(node.outputs)
        for other in self.graph.nodes:
            if not reached.isdisjoint(other.inputs):
                reached.update(other.outputs)
        return value in reached


def _summed(node: Node, value: Value) -> Sequence[int]:
    """The inputs to which a node does nothing but add, to give one of its outputs."""
    if node.op is add and all(v.type == value.type for v in node.inputs):
        return 0, 1
    if node.op is scatter_add_nd:
        return (0,)
    if node.op is scan:
        loop, k = as_loop(node), node.outputs.index(value)
        assert loop is not None
        if k < len(loop.inits) and _only_adds(loop.body, k):
            return (len(loop.steps) + k,)
    return ()


def _only_adds(body: Graph, k: int) -> bool:
    """Whether the body of a loop does nothing but add to its carry with a number."""
    web = _Uses(body)
    value, users = body.inputs[k], {v: node for node in body.nodes for v in node.inputs}
    while value is not body.outputs[k]:
        node = users.get(value)
        if node is None or web.uses[value] != 1:
            return False
        after = [v for v in node.outputs if node.inputs.index(value) in _summed(node, v)]
        if len(after) != 1:
            return False
        (value,) = after
    return web.uses[value] == 1
