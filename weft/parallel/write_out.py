"""Loops that a mesh needs turn after turn: those that cut a batch of their own, or whose turns tell sizes.

A loop that goes over microbatches notes in its body how each is cut. What ranks do together stands outside of
loops, so such a loop is written out; so is one whose turns are of different sizes, and one through which
ranks could not go on parts alone.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.base.sizes import Size, solve
from weft.ir.graph import Graph, Node, Value, substitute_sizes
from weft.ir.rewrite import Draft, sweep
from weft.ops.collective import shard
from weft.ops.control import scan
from weft.ops.places import count_below
from weft.passes.base import graph_pass
from weft.passes.fold import fold
from weft.passes.unroll import unrolled

LIMIT = 20_000  # nodes that a loop may become


@graph_pass(once=True)
def write_out(graph: Graph, limit: int = LIMIT) -> Graph:
    """Write out loops that cut a batch in their turns, or whose turns are of sizes of their own.

    Args:
        graph: of whole tensors.
        limit: nodes that a loop may become; a longer one stays.

    >>> import weft
    >>> from weft import parallel as par
    >>> _ = par.mesh(data=1)
    >>> def f(x):
    ...     total = 0.0
    ...     for i in range(2):
    ...         total = total + par.shard(x[4 * i : 4 * i + 4], "data").sum()
    ...     return total
    >>> graph = weft.make_graph(f, name="f")(weft.ones(8)).optimize()
    >>> [node.op.name for node in graph.nodes]
    ['scan']
    >>> [node.op.name for node in par.write_out(graph).optimize().nodes]
    ['slice', 'shard', 'sum', 'add', 'slice', 'shard', 'sum', 'add']
    """
    while True:
        chosen = [n for n in graph.nodes if n.op is scan and _is_wanted(n) and fits(n, limit)]
        if not chosen:
            return graph
        graph = written_out(graph, chosen)


def _is_wanted(node: Node) -> bool:
    inside = [n for region in node.regions for n in region.walk()]
    return any(n.op is shard for n in inside) or any(has_open_sizes(n) for n in inside)


def has_open_sizes(node: Node) -> bool:
    """Whether a node makes something of a size that only a run tells.

    A node that does no more than tell a number as a size is none of them: what is taken at that number, as
    step i of a sequence, is as large in every turn.
    """
    return node.op is not count_below and any(isinstance(s, Size) for v in node.outputs for s in v.type.shape)


def fits(node: Node, limit: int = LIMIT) -> bool:
    """Whether a scan becomes no more nodes than a limit."""
    length, counted = node.attrs["length"], node.attrs["counted"]
    if counted or not isinstance(length, int):
        return False
    return length * sum(1 for region in node.regions for _ in region.walk()) <= limit


def written_out(graph: Graph, nodes: Collection[Node]) -> Graph:
    """The graph with some of its scans written out, and the sizes known that their turns tell."""
    chosen = {node.outputs for node in nodes}

    def rule(draft: Draft, node: Node) -> list[Value] | None:
        if node.outputs not in chosen:
            return None
        found = unrolled(draft, node, node.attrs["length"])
        return None if found is None else list(found)

    graph = sweep(graph, {scan: [rule]}, again=False)
    while True:
        graph = fold(graph)
        sizes: dict[str, int] = {}
        for node in graph.nodes:
            if node.op is count_below and node.inputs[0] in graph.constants:
                trips = node.attrs["trips"]
                if isinstance(trips, Size):
                    solve(trips, int(graph.constants[node.inputs[0]]), sizes)
        if not sizes:
            return graph
        graph = substitute_sizes(graph, sizes)
