"""Units: what is lowered as one piece, and what each needs from others.

A unit is a node by itself, or a group of nodes that become one kernel. Views are in no unit: whoever reads
one reads what it is a view of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.ir.graph import Graph, Node, Value
from weft.ir.order import first_definitions, needed_nodes, sizes_of, sizes_used


def is_view(node: Node) -> bool:
    """Whether a node gives elements of its input in another order."""
    return node.op.view is not None


class UseDef:
    """The nodes of a graph that are needed, and who makes and uses what.

    Attributes:
        nodes: in an order in which they can run.
        producer: by value, the number of the node that makes it.
        results: values that must be in memory at the end.
        needs, users: by number of a node, the numbers of those whose values it uses, or that use its own;
            views are looked through, and have none themselves.
        kept: what the results are, or are views of.
        readers: by value that a node makes, the numbers of those, views aside, that read it or a view of it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: Sequence[Node] = needed_nodes(graph.nodes, graph.results)
        self.producer = {v: i for i, node in enumerate(self.nodes) for v in node.outputs}
        self.results = set(graph.results)
        self._roots: dict[Value, Value] = {}
        self._definitions = first_definitions(self.nodes)
        self.needs: list[set[int]] = [
            set() if is_view(n) else self._needs(i) for i, n in enumerate(self.nodes)
        ]
        self.kept = {self.root(v) for v in self.results}
        self.readers: dict[Value, set[int]] = {}
        self.users: list[set[int]] = [set() for _ in self.nodes]
        for i, needed in enumerate(self.needs):
            for j in needed:
                self.users[j].add(i)
            for v in self.nodes[i].inputs if needed else ():
                self.readers.setdefault(self.root(v), set()).add(i)

    def root(self, value: Value) -> Value:
        """What a value is a view of, itself if it is none."""
        found = self._roots.get(value)
        if found is None:
            i = self.producer.get(value)
            node = None if i is None else self.nodes[i]
            found = value if node is None or not is_view(node) else self.root(node.inputs[0])
            self._roots[value] = found
        return found

    def _needs(self, i: int) -> set[int]:
        """The nodes, views aside, that must have run before a node."""
        node = self.nodes[i]
        found = {self.producer.get(self.root(v), -1) for v in node.inputs}
        if self._definitions:
            asked = self._sizes_asked(node)
            found |= {self._definitions[name] for name in asked if name in self._definitions}
            found.discard(i)
        found.discard(-1)
        return found

    def _sizes_asked(self, node: Node) -> set[str]:
        """The names of sizes that must be known before a node runs: its own, and of views that it reads."""
        asked = sizes_used(node) | sizes_of((*node.inputs, *node.outputs))
        for value in node.inputs:
            while (i := self.producer.get(value)) is not None and is_view(self.nodes[i]):
                asked |= sizes_used(self.nodes[i])
                value = self.nodes[i].inputs[0]
        return asked

    def used_outside(self, members: Iterable[int]) -> list[Value]:
        """The values of some nodes that other nodes use, or that are results, in order."""
        inside = set(members)
        made = [v for i in sorted(inside) for v in self.nodes[i].outputs]
        return [v for v in made if v in self.kept or not self.readers.get(v, inside) <= inside]
