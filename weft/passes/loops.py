"""Control flow as passes see it: which operand of a node is which input of its regions, and which output.

``Loop`` shows a ``while_loop`` or a ``scan`` in one form, and makes a node of changed parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.control import cond, scan, switch, while_loop

BRANCHES = (cond, switch)
LOOPS = (while_loop, scan)
CONTROL = (*BRANCHES, *LOOPS)


class Loop(NamedTuple):
    """A loop taken apart.

    Attributes:
        node: the ``while_loop`` or ``scan``.
        steps: the operand that tells the number of iterations, in a tuple, or nothing.
        inits: operands that are carries at first.
        rows: operands of which each iteration sees one row.
        fixed: operands that stay the same.
        body: gives the next carries, then what is collected.
        test: whether to go on, of a ``while_loop``; else None.
    """

    node: Node
    steps: tuple[Value, ...]
    inits: tuple[Value, ...]
    rows: tuple[Value, ...]
    fixed: tuple[Value, ...]
    body: Graph
    test: Graph | None

    @property
    def regions(self) -> tuple[Graph, ...]:
        """The body and, if there is one, the test."""
        return (self.body,) if self.test is None else (self.body, self.test)

    def carried(self, region: Graph) -> tuple[Value, ...]:
        """The inputs of a region that are carries."""
        return region.inputs[: len(self.inits)]

    def same(self, region: Graph) -> tuple[Value, ...]:
        """The inputs of a region that stay the same in every iteration."""
        start = len(self.inits) + len(self.rows)
        return region.inputs[start:]

    @property
    def collected(self) -> tuple[Value, ...]:
        """The outputs of the body that come out stacked."""
        return self.body.outputs[len(self.inits) :]

    @property
    def outs(self) -> tuple[Value, ...]:
        """The outputs of the node that are carries at the end."""
        return self.node.outputs[: len(self.inits)]

    @property
    def stacks(self) -> tuple[Value, ...]:
        """The outputs of the node that are stacked, without the number of iterations after them."""
        start = len(self.inits)
        return self.node.outputs[start : start + len(self.collected)]

    @property
    def trips(self) -> tuple[Value, ...]:
        """The output of the node that is the number of iterations, in a tuple, or nothing."""
        return self.node.outputs[len(self.body.outputs) :]


def as_loop(node: Node) -> Loop | None:
    """A node as a loop, if it is one."""
    attrs = node.attrs
    if node.op is while_loop:
        n = attrs["carries"]
        return Loop(node, (), node.inputs[:n], (), node.inputs[n:], attrs["body"], attrs["test"])
    if node.op is scan:
        head = 1 if attrs["counted"] else 0
        n = head + attrs["carries"]
        m = n + attrs["mapped"]
        xs = node.inputs
        return Loop(node, xs[:head], xs[head:n], xs[n:m], xs[m:], attrs["body"], None)
    return None


def loop_node(
    loop: Loop,
    *,
    inits: Sequence[Value],
    rows: Sequence[Value],
    fixed: Sequence[Value],
    body: Graph,
    test: Graph | None,
    outputs: Sequence[Value],
    **changes: object,
) -> Node:
    """The node of a loop with other parts; one that collects nothing tells no number of trips."""
    attrs: dict[str, Any] = {**loop.node.attrs, "body": body, "carries": len(inits), **changes}
    if loop.node.op is scan:
        attrs["mapped"] = len(rows)
    else:
        attrs["test"] = test
        if len(outputs) == len(inits):
            attrs["trips"] = None
    return Node(loop.node.op, [*loop.steps, *inits, *rows, *fixed], attrs, outputs, loop.node.location)


def with_inputs(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    """A region with other inputs and outputs; constants that nothing uses are left out."""
    used = {v for node in graph.nodes for v in node.inputs}.union(outputs)
    constants = {v: a for v, a in graph.constants.items() if v in used}
    return Graph(graph.name, inputs, graph.nodes, outputs, constants=constants)


def new_value(value: Value) -> Value:
    """A value of the same type and name."""
    return Value(TensorType(value.type.shape, value.type.dtype), value.name)
