"""The order in which the nodes of an ONNX graph can be imported: as they stand, or sorted."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from weft.errors import GraphError

if TYPE_CHECKING:
    import onnx

_GRAPH, _GRAPHS = 5, 10  # kinds of attributes


def title(node: onnx.NodeProto) -> str:
    """What a node is called in errors."""
    name = node.name or next(filter(None, node.output), "")
    return f"{node.op_type} node {name!r}" if name else f"{node.op_type} node"


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            yield attribute.g
        elif attribute.type == _GRAPHS:
            yield from attribute.graphs


def needs(node: onnx.NodeProto) -> set[str]:
    """The names that a node uses, those that its graphs take from around it included."""
    names = set(node.input)
    for graph in subgraphs(node):
        names |= _free_names(graph)
    return names - {""}


def _free_names(graph: onnx.GraphProto) -> set[str]:
    made = {item.name for item in (*graph.input, *graph.initializer)}
    made |= {item.values.name for item in graph.sparse_initializer}
    used = {item.name for item in graph.output}
    for node in graph.node:
        made.update(node.output)
        used |= needs(node)
    return used - made


def ordered(
    nodes: Sequence[onnx.NodeProto], given: Container[str], where: str
) -> list[tuple[int, onnx.NodeProto]]:
    """Nodes with their numbers from 1 on, each after those that make what it uses.

    Args:
        nodes: of one graph.
        given: names that exist before.
        where: what the graph is called in errors.
    """
    makers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers:
                raise GraphError(
                    "onnx.load",
                    f"{where}: a value must be made once, got {name!r} from {title(nodes[makers[name]])} "
                    f"and {title(node)}",
                )
            makers[name] = i
    waits = [{makers[n] for n in needs(node) if n in makers and n not in given} for node in nodes]
    if all(max(before, default=-1) < i for i, before in enumerate(waits)):
        return list(enumerate(nodes, 1))
    return [(i + 1, nodes[i]) for i in _sorted(nodes, waits, where)]


def _sorted(nodes: Sequence[onnx.NodeProto], waits: Sequence[set[int]], where: str) -> list[int]:
    try:
        return list(TopologicalSorter(dict(enumerate(waits))).static_order())
    except CycleError as error:
        told = " → ".join(title(nodes[i]) for i in error.args[1])
        raise GraphError("onnx.load", f"{where}: nodes must not form a cycle, got {told}") from None
