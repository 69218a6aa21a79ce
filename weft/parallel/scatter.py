"""Sums over ranks of which each rank needs a part."""

from __future__ import annotations

from weft.ir.graph import Graph, Node, Value
from weft.ops import collective as ops


def scatter_sums(graph: Graph, apart: str = "") -> Graph:
    """Sums of which only parts are needed, as ``reduce_scatter``: each rank gets its own part.

    Args:
        graph: of one rank.
        apart: an axis along which sums stay as they are.
    """
    users: dict[Value, list[Node | None]] = {v: [None] for v in graph.results}
    for node in graph.nodes:
        for v in node.inputs:
            users.setdefault(v, []).append(node)
    gone: set[Node] = set()
    nodes: list[Node] = []
    for node in graph.nodes:
        if node in gone:
            continue
        take = _only_taken(node, users)
        if take is None or apart in take.attrs["axis"].split(","):
            nodes.append(node)
            continue
        gone.add(take)
        attrs = {"axis": take.attrs["axis"], "dim": take.attrs["dim"], "mesh": take.attrs["mesh"]}
        attrs["ordered"] = node.attrs["ordered"]
        nodes.append(Node(ops.reduce_scatter, node.inputs, attrs, take.outputs, node.location))
    return graph.replace(nodes=nodes) if gone else graph


def _only_taken(node: Node, users: dict[Value, list[Node | None]]) -> Node | None:
    """The node that takes the part of a sum, if nobody needs more of it."""
    if node.op is not ops.all_reduce:
        return None
    used = users.get(node.outputs[0], [])
    (take, *more) = used or [None]
    if take is None or more or take.op is not ops.take_shard:
        return None
    return take if all(take.attrs[k] == node.attrs[k] for k in ("axis", "mesh")) else None
