"""What a graph is made of: how many nodes of each op, how much data, how many operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.ir.graph import Graph, Node, Value


class GraphStats(NamedTuple):
    """Counts; where named sizes are in them, they are expressions in these.

    Attributes:
        ops: nodes by op, the most frequent first; a call of a composite counts under its name.
        nodes: of the graph, without those of regions.
        inner_nodes: of regions.
        parameters: elements of the inputs that are parameters or state.
        parameter_bytes: their bytes.
        constant_bytes: bytes of constants, those of regions too.
        value_bytes: bytes of all values that nodes make, as if none shared memory.
        flops: additions and multiplications of products (matrix products, convolutions), and one for each
            element of an op that works element by element; the body of a loop counts once.
    """

    ops: Mapping[str, int]
    nodes: int
    inner_nodes: int
    parameters: Any
    parameter_bytes: Any
    constant_bytes: int
    value_bytes: Any
    flops: Any

    def __str__(self) -> str:
        rows = [
            ("nodes", f"{self.nodes} and {self.inner_nodes} in regions" if self.inner_nodes else self.nodes),
            ("parameters", f"{_grouped(self.parameters)} ({_grouped(self.parameter_bytes)} bytes)"),
            ("constants", f"{_grouped(self.constant_bytes)} bytes"),
            ("values", f"{_grouped(self.value_bytes)} bytes"),
            ("flops", _grouped(self.flops)),
            *self.ops.items(),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _grouped(x: object) -> str:
    return f"{x:,}" if isinstance(x, int) else str(x)


def stats(graph: Graph) -> GraphStats:
    """Counts of a graph: nodes by op, parameters, bytes, floating-point operations.

    >>> import weft
    >>> graph = weft.make_graph(lambda x, w: weft.tanh(x @ w))(weft.ones((2, 4)), weft.ones((4, 3)))
    >>> print(graph.stats())
    nodes       2
    parameters  0 (0 bytes)
    constants   0 bytes
    values      48 bytes
    flops       54
    matmul      1
    tanh        1
    """
    nodes = list(graph.nodes)
    inside = [n for node in nodes if node.op.name != "call" for region in node.regions for n in region.walk()]
    names = Counter(_name(n) for n in (*nodes, *inside))
    held = [v for v, role in zip(graph.inputs, graph.roles, strict=True) if role != "arg"]
    return GraphStats(
        ops=dict(names.most_common()),
        nodes=len(nodes),
        inner_nodes=len(inside),
        parameters=sum(size_of(v.type.shape) for v in held),
        parameter_bytes=_bytes(held),
        constant_bytes=_constant_bytes(graph),
        value_bytes=_bytes(v for node in nodes for v in node.outputs),
        flops=sum(map(node_flops, nodes)),
    )


def _name(node: Node) -> str:
    return str(node.attrs["function"]) if node.op.name == "call" else str(node.op.name)


def _bytes(values: Iterable[Value]) -> Any:
    return sum(size_of(v.type.shape) * v.type.dtype.itemsize for v in values)


def _constant_bytes(graph: Graph) -> int:
    own = sum(a.nbytes for a in graph.constants.values())
    return own + sum(_constant_bytes(region) for node in graph.nodes for region in node.regions)


def node_flops(node: Node) -> Any:
    """Floating-point operations of a node; of a node with regions, those of their nodes, once."""
    if node.regions:
        return sum(node_flops(n) for region in node.regions for n in region.nodes)
    made: Any = sum(size_of(v.type.shape) for v in node.outputs)
    if node.op.products is not None:
        return 2 * made * node.op.products(*[v.type.shape for v in node.inputs])
    return made if node.op.accepts else 0
