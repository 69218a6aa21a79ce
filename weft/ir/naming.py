"""What the values of a graph are called in the user's program, and how a node follows from the leaves.

A leaf has the name of its argument or parameter. What a line assigns, ``h = x @ w``, has the name that it
gives. Names are found when an error or a tool asks for them; a graph holds none but those of its leaves.
"""

from __future__ import annotations

import linecache
import re
from functools import partial
from typing import Any

from weft.base.frames import format_location
from weft.errors import NonFiniteError, WeftError
from weft.ir.graph import Graph, Node, Value
from weft.ir.labels import ConstantNames, Labels

_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)\s*(?::[^=]+)?=(?!=)")
_MOST = 8  # nodes that a path shows
_ROLES = {"arg": "argument", "param": "parameter", "weight": "parameter", "state": "state"}


class Names:
    """The names of the values of a graph and its regions.

    >>> import weft
    >>> from weft.ir.naming import Names
    >>> graph = weft.make_graph(lambda x: weft.tanh(x) * 2.0)(weft.ones(3))
    >>> names = Names(graph)
    >>> [names.name(v) for v in (*graph.inputs, *graph.nodes[1].inputs)]
    ['x', '%0', 'f32(2.0)']
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order: dict[Node, int] = {}
        self._makers: dict[Value, Node] = {}
        self._operands: dict[Value, Value] = {}  # by input of a region, what it stands for around it
        self._labels: dict[Value, str] = {}
        self._inner: set[Value] = set()  # what its own line goes on with, so that it is not what that assigns
        self._roles = dict(zip(graph.inputs, graph.roles, strict=True))
        self._visit(graph, ConstantNames())

    def _visit(self, graph: Graph, constants: ConstantNames) -> None:
        labels = Labels(graph, constants)
        for value in (*graph.inputs, *graph.constants):
            self._labels[value] = labels[value]
        for node in graph.nodes:
            for region in node.regions:
                before = len(node.inputs) - len(region.inputs)  # a predicate, or a count
                self._operands.update(zip(region.inputs, node.inputs[before:], strict=False))
                self._visit(region, constants)
            self.order[node] = len(self.order)
            for value in node.inputs:
                maker = self._makers.get(value)
                if maker is not None and _line(maker) == _line(node):
                    self._inner.add(value)
            for value in node.outputs:
                self._makers[value] = node
                self._labels[value] = labels[value]

    def name(self, value: Value) -> str:
        """What a value is called: by the user, or else in the text of the graph."""
        return self.given(value) or self._labels.get(value, "%?")

    def given(self, value: Value) -> str:
        """The name that the user gave a value; "" if it has none."""
        if value.name:
            return value.name
        if value in self._operands:
            return self.given(self._operands[value])
        maker = self._makers.get(value)
        if maker is None or maker.location is None or len(maker.outputs) > 1 or value in self._inner:
            return ""
        if maker.location.phase or maker.location.function == "<lambda>":  # its line assigns something else
            return ""
        found = _ASSIGNED.match(linecache.getline(*maker.location.place))
        return found[1] if found else ""

    def maker(self, value: Value) -> Node | None:
        """The node that makes a value, in the graph or around the region that it is an input of."""
        while value in self._operands:
            value = self._operands[value]
        return self._makers.get(value)

    def leaf(self, value: Value) -> str:
        """A value that no node makes, in words: ``x: f32[3] (argument)``; "" of a number."""
        while value in self._operands:
            value = self._operands[value]
        role = _ROLES.get(self._roles.get(value, ""), "constant")
        return "" if role == "constant" and not value.name else f"{self.name(value)}: {value.type} ({role})"

    def line(self, node: Node) -> str:
        """A node in words: ``h = matmul(x, w)  at model.py:9: h = x @ w``."""
        made = ", ".join(map(self.name, node.outputs))
        head = f"{made} = " if made else ""
        text = f"{head}{node.op.name}({', '.join(map(self.name, node.inputs))})"
        return text if node.location is None else f"{text}  at {format_location(node.location.place)}"


def _line(node: Node) -> tuple[str, int] | None:
    return None if node.location is None else node.location.place


def path_to(node: Node, graph: Graph) -> tuple[str, ...]:
    """How a node of a graph follows from the leaves, line by line: leaves, then the nodes nearest to it.

    >>> import weft
    >>> from weft.ir.naming import path_to
    >>> graph = weft.make_graph(lambda x: weft.log(x * 2.0))(weft.ones(3))
    >>> [line.partition("  at")[0] for line in path_to(graph.nodes[-1], graph)]
    ['x: f32[3] (argument)', '%0 = mul(x, f32(2.0))', '%1 = log(%0)']
    """
    names = Names(graph)
    if node not in names.order:
        return ()
    nodes, leaves, queue = {node: None}, dict[str, None](), [node]
    for current in queue:
        for value in current.inputs:
            maker = names.maker(value)
            if maker is None:
                leaves[names.leaf(value)] = None
            elif maker not in nodes:
                nodes[maker] = None
                queue.append(maker)
    shown = sorted(list(nodes)[:_MOST], key=names.order.__getitem__)
    left = len(nodes) - len(shown)
    gap = [f"... {left} more nodes ..."] if left else []
    return (*filter(None, leaves), *gap, *map(names.line, shown))


def explain_error(error: WeftError, graph: Graph) -> WeftError:
    """An error that a node of a graph raised; when it is shown, it names what went in, and the path to it.

    Not before: some errors are part of how things go, such as that of a guard which does not hold.
    """
    node: Any = error.__dict__.pop("node", None)
    if node is not None:
        error.details = partial(_details, node, graph, isinstance(error, NonFiniteError))
    return error


def _details(
    node: Node, graph: Graph, with_path: bool
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    names = Names(graph)
    given = ((names.given(v), str(v.type)) for v in node.inputs)
    tensors = dict(pair for pair in given if pair[0])
    return tuple(tensors.items()), path_to(node, graph) if with_path else ()
