"""Values that a gradient computes again instead of keeping them.

A value of the forward pass that the backward pass uses has to lie in memory in between. If it is computed
element by element from values that are kept anyway, the backward pass computes it again, in the kernel that
uses it: that takes less time than writing and reading it, and no memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.graph import Graph, Node, Value
from weft.passes.base import graph_pass, is_elementwise
from weft.passes.dce import dce

DEEP = 4  # ops in a row that are computed again


def is_backward(node: Node) -> bool:
    """Whether a node belongs to a gradient."""
    return node.location is not None and node.location.phase == "backward"


@graph_pass(once=True)
def recompute(graph: Graph) -> Graph:
    """Give backward nodes copies of cheap forward nodes of their own.

    >>> import weft
    >>> def f(x):
    ...     return weft.sum(weft.tanh(x * 2.0) * x)
    >>> graph = weft.make_graph(weft.value_and_grad(f))(weft.ones(8)).optimize()
    >>> len(graph.nodes), len(weft.passes.recompute(graph).nodes)
    (9, 11)
    """
    if not any(is_backward(node) for node in graph.nodes):
        return graph
    return _Recomputing(graph).run()


class _Recomputing:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = {v: node for node in graph.nodes for v in node.outputs}
        self.copies: dict[Value, Value] = {}
        self.kept = self._find_kept()
        for value in self._used_later():
            if not self._cone(value, DEEP):
                self.kept.add(value)
        self.nodes: list[Node] = []

    def _find_kept(self) -> set[Value]:
        """What lies in memory during the backward pass anyway."""
        kept = {*self.graph.inputs, *self.graph.constants, *self.graph.results}
        for node in self.graph.nodes:
            if is_backward(node) and not is_elementwise(node):
                kept.update(v for v in node.inputs)
        return kept

    def _used_later(self) -> list[Value]:
        """What the forward pass makes and the backward pass uses, in order."""
        used = {v for node in self.graph.nodes if is_backward(node) for v in node.inputs}
        return [v for node in self.graph.nodes if not is_backward(node) for v in node.outputs if v in used]

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if not is_backward(node) or not is_elementwise(node):
                self.nodes.append(node)
                continue
            inputs = [self._again(v, node) for v in node.inputs]
            same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            if not same:
                node = Node(node.op, inputs, node.attrs, node.outputs, node.location)
            self.nodes.append(node)
        return dce(self.graph.replace(nodes=self.nodes)) if self.copies else self.graph

    def _again(self, value: Value, user: Node) -> Value:
        """A copy of a value for the backward pass, or the value itself."""
        if value in self.copies:
            return self.copies[value]
        cone = self._cone(value, DEEP)
        if not cone:
            return value
        for node in cone:
            inputs = [self.copies.get(v, v) for v in node.inputs]
            out = Value(node.outputs[0].type)
            self.copies[node.outputs[0]] = out
            self.nodes.append(Node(node.op, inputs, node.attrs, [out], user.location))
        return self.copies[value]

    def _cone(self, value: Value, depth: int) -> Sequence[Node]:
        """The forward nodes that compute a value from what is kept, in order; none where that is not so."""
        node = self.made.get(value)
        if node is None or value in self.kept or is_backward(node) or not is_elementwise(node) or not depth:
            return ()
        found: dict[Node, None] = {}
        for v in node.inputs:
            if v in self.kept or v in self.copies or v.type.shape == ():
                continue
            part = self._cone(v, depth - 1)
            if not part:
                return ()
            found.update(dict.fromkeys(part))
        found[node] = None
        return list(found)
