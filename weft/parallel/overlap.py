"""Overlap: sums over ranks go on while something else is computed."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from weft.ir.graph import Graph, Node, Value
from weft.ops.collective import all_reduce
from weft.ops.started import start_all_reduce, wait_all_reduce
from weft.passes.base import graph_pass

_FIRST, _USUAL, _LAST = 0, 1, 2


@graph_pass(once=True)
def overlap(graph: Graph) -> Graph:
    """Start each sum over ranks as early as possible, and wait for it as late as possible.

    A sum with nothing to compute between the two stays as it is.

    >>> import weft
    >>> from weft import parallel as par
    >>> text = '''
    ... graph f(%x: f32[2], %y: f32[3]) {
    ...   %0: f32[2] = all_reduce(%x, axis="data", mesh="data=2")
    ...   %1: f32[3] = exp(%y)
    ...   return %0, %1
    ... }'''
    >>> print(par.overlap(weft.parse_graph(text)).to_text(locations=False), end="")
    graph f(%x: f32[2], %y: f32[3]) {
      %0: f32[2] = start_all_reduce(%x, axis="data", mesh="data=2", number=0)
      %1: f32[3] = exp(%y)
      %2: f32[2] = wait_all_reduce(%0, %x, axis="data", mesh="data=2", number=0)
      return %2, %1
    }
    """
    nodes = _joined(_spread(_halved(graph)))
    return graph.replace(nodes=nodes) if any(n.op is start_all_reduce for n in nodes) else graph


def _halved(graph: Graph) -> list[Node]:
    """The nodes with two for each sum."""
    nodes: list[Node] = []
    number = 0
    for node in graph.nodes:
        if node.op is not all_reduce:
            nodes.append(node)
            continue
        (x,), attrs = node.inputs, {**node.attrs, "number": number}
        coming = Value(x.type)
        nodes.append(Node(start_all_reduce, [x], attrs, [coming], node.location))
        nodes.append(Node(wait_all_reduce, [coming, x], attrs, node.outputs, node.location))
        number += 1
    return nodes


def _spread(nodes: list[Node]) -> list[Node]:
    """The nodes in another order: what starts comes first, what waits last, the others in their own."""
    needs = _needs(nodes)
    users: list[list[int]] = [[] for _ in nodes]
    for i, needed in enumerate(needs):
        for j in needed:
            users[j].append(i)
    waits = [len(needed) for needed in needs]
    ready = [(_turn(nodes[i]), i) for i, count in enumerate(waits) if count == 0]
    heapify(ready)
    order = []
    while ready:
        _, i = heappop(ready)
        order.append(nodes[i])
        for j in users[i]:
            waits[j] -= 1
            if waits[j] == 0:
                heappush(ready, (_turn(nodes[j]), j))
    return order


def _turn(node: Node) -> int:
    return _FIRST if node.op is start_all_reduce else _LAST if node.op is wait_all_reduce else _USUAL


def _needs(nodes: list[Node]) -> list[set[int]]:
    """For each node the numbers of those that it comes after: what it reads, and effects before it.

    Waits are in the order of waits; other effects in that of theirs, and those of no sequence after waits.
    """
    made = {v: i for i, node in enumerate(nodes) for v in node.outputs}
    found: list[set[int]] = []
    last: list[int] = []
    wait: list[int] = []
    for i, node in enumerate(nodes):
        needed = {made[v] for v in node.inputs if v in made}
        if node.op is wait_all_reduce:
            needed.update(wait)
            wait = [i]
        elif not node.is_pure:
            needed.update(last)
            if not node.op.sequence:
                needed.update(wait)
                wait = [i]
            last = [i]
        found.append(needed)
    return found


def _joined(nodes: list[Node]) -> list[Node]:
    """The nodes without pairs that have no work between them: these are sums as before."""
    work = [0]  # before each node
    for node in nodes:
        works = node.op not in (start_all_reduce, wait_all_reduce) and node.op.view is None
        work.append(work[-1] + works)
    begun = {node.outputs[0]: i for i, node in enumerate(nodes) if node.op is start_all_reduce}
    idle = {v for i, n in enumerate(nodes) for v in n.inputs[:1] if v in begun and work[i] == work[begun[v]]}
    out: list[Node] = []
    for node in nodes:
        if node.op is wait_all_reduce and node.inputs[0] in idle:
            attrs = {k: v for k, v in node.attrs.items() if k != "number"}
            out.append(Node(all_reduce, node.inputs[1:], attrs, node.outputs, node.location))
        elif not (node.op is start_all_reduce and node.outputs[0] in idle):
            out.append(node)
    return out
