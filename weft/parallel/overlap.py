"""Overlap: sums over ranks, and what is scattered and gathered, go on while something else is computed.

What is gathered of inputs, as parameters of ZeRO are, is started when the one before it is there: so one is
under way and no more are whole before they are needed. In the program of a stage, calls keep their order, and
what a rank receives comes while the part before runs: so no more is there than what two parts need.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from weft.ir.graph import Graph, Node, Value
from weft.ops.call import call
from weft.ops.collective import all_gather, all_reduce
from weft.ops.pipeline import receive, start_receive, wait_receive
from weft.ops.started import HALVES, start_all_gather, start_all_reduce, start_reduce_scatter
from weft.ops.view.primitives import permute
from weft.passes.base import graph_pass

_FIRST, _USUAL, _LAST = 0, 1, 2
_WHOLE = {half: op for op, halves in HALVES.items() for half in halves}
_WHOLE |= {start_receive: receive, wait_receive: receive}
_STARTS = {start_receive, *[start for start, _ in HALVES.values()]}
_WAITS = {wait for _, wait in HALVES.values()}  # but for messages, which calls wait for in their order
_SUMS = (start_all_reduce, start_reduce_scatter)
_TOLD = ("source", "number", "axis", "mesh")  # what a wait for a message says of it
_ALL = ""  # the sequence of effects that come one after another whatever they are along


@graph_pass(once=True)
def overlap(graph: Graph) -> Graph:
    """Start sums over ranks, scattering and gathering as early as possible, and wait as late as possible.

    One with nothing to compute between the two stays as it is.

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
    nodes = _joined(_spread(_halved(graph), _moved(graph)))
    return graph.replace(nodes=nodes) if any(n.op in _STARTS for n in nodes) else graph


def _moved(graph: Graph) -> set[Value]:
    """Inputs, and what is only moved of them."""
    found = set(graph.inputs)
    for node in graph.nodes:
        if node.op.moves and node.is_pure and found.issuperset(node.inputs):
            found.update(node.outputs)
    return found


def _halved(graph: Graph) -> list[Node]:
    """The nodes with two for each collective that can be started."""
    nodes: list[Node] = []
    number = 0
    turned = {v for n in graph.nodes if n.op is permute for v in n.outputs}  # copied for the start
    for node in graph.nodes:
        if node.op is receive:
            (out,) = node.outputs
            coming, told = Value(out.type), {k: node.attrs[k] for k in _TOLD}
            nodes.append(Node(start_receive, [], node.attrs, [coming], node.location))
            nodes.append(Node(wait_receive, [coming], told, [out], node.location))
            continue
        if node.op not in HALVES or (node.op is all_reduce and node.inputs[0] in turned):
            nodes.append(node)
            continue
        (x,), (out,), attrs = node.inputs, node.outputs, {**node.attrs, "number": number}
        coming, (start, wait) = Value(out.type), HALVES[node.op]
        nodes.append(Node(start, [x], attrs, [coming], node.location))
        nodes.append(Node(wait, [coming, x], attrs, node.outputs, node.location))
        number += 1
    return nodes


def _spread(nodes: list[Node], moved: set[Value]) -> list[Node]:
    """The nodes in another order: what starts comes first, what waits last, the others in their own."""
    needs = _needs(nodes, moved)
    users: list[list[int]] = [[] for _ in nodes]
    for i, needed in enumerate(needs):
        for j in needed:
            users[j].append(i)
    waits = [len(needed) for needed in needs]
    early = _leading(nodes)
    turns = [_FIRST if i in early else _turn(node) for i, node in enumerate(nodes)]
    ready = [(turns[i], i) for i, count in enumerate(waits) if count == 0]
    heapify(ready)
    order = []
    while ready:
        _, i = heappop(ready)
        order.append(nodes[i])
        for j in users[i]:
            waits[j] -= 1
            if waits[j] == 0:
                heappush(ready, (turns[j], j))
    return order


def _leading(nodes: list[Node]) -> set[int]:
    """The numbers of nodes that move elements for nothing but a sum: it can start when they are done."""
    users: dict[Value, list[int]] = {}
    for i, node in enumerate(nodes):
        for v in node.inputs:
            users.setdefault(v, []).append(i)
    found: set[int] = set()
    for i in reversed(range(len(nodes))):
        node = nodes[i]
        used = [j for v in node.outputs for j in users.get(v, ())]
        sums = all(j in found or nodes[j].op in _SUMS or nodes[j].op in _WAITS for j in used)
        if node.op.moves and node.is_pure and used and sums:
            found.add(i)
    return found


def _turn(node: Node) -> int:
    return _FIRST if node.op in _STARTS else _LAST if node.op in _WAITS else _USUAL


def _needs(nodes: list[Node], moved: set[Value]) -> list[set[int]]:
    """For each node the numbers of those that it comes after: what it reads, and effects before it.

    Waits are in the order of waits; other effects in that of theirs along each axis, and those of no sequence
    after waits. What is gathered of inputs, after the last such wait. Calls are in their order, and a message
    is started after the part before the last one.
    """
    made = {v: i for i, node in enumerate(nodes) for v in node.outputs}
    found: list[set[int]] = []
    last: dict[str, int] = {}
    wait: list[int] = []
    gathered: list[int] = []
    called: list[int] = []
    earlier: list[int] = []  # the last call before the part that runs
    for i, node in enumerate(nodes):
        needed = {made[v] for v in node.inputs if v in made}
        found.append(needed)
        if node.op is call:
            needed.update(called)
            earlier = earlier if is_later_piece(node.attrs["function"]) else called
            called = [i]
        if node.op is start_receive:
            needed.update(earlier)
            continue
        if node.op is start_all_gather and node.inputs[0] in moved:
            needed.update(gathered)
        if node.op in _WAITS:
            needed.update(wait)
            wait = [i]
            if _WHOLE[node.op] is all_gather and node.inputs[1] in moved:
                gathered = [i]
        elif not node.is_pure:
            axes = _axes(node)
            if axes is None:
                needed.update(last.values(), wait)
                wait, last = [i], {_ALL: i}
            else:
                needed.update([last[axis] for axis in (*axes, _ALL) if axis in last])
                last.update(dict.fromkeys(axes, i))
    return found


def is_later_piece(function: str) -> bool:
    """Whether a call goes on with the part of a stage that another one began: ``weights0.1``."""
    number = function.rpartition(".")[2]
    return number.isdecimal() and "." in function and int(number) > 0


def _axes(node: Node) -> set[str] | None:
    """The axes along which a node has an effect; None for one that comes after all others."""
    inner = (
        [n for region in node.regions for n in region.walk() if not n.is_pure] if node.op is call else [node]
    )
    if not all(n.op.sequence for n in inner):
        return None
    return {name for n in inner for name in str(n.attrs[n.op.sequence]).split(",")}


def _joined(nodes: list[Node]) -> list[Node]:
    """The nodes without pairs that have no work between them: these are sums as before."""
    work = [0]  # before each node
    for node in nodes:
        works = node.op not in _WHOLE and node.op.view is None
        work.append(work[-1] + works)
    begun = {node.outputs[0]: i for i, node in enumerate(nodes) if node.op in _STARTS}
    idle = {v for i, n in enumerate(nodes) for v in n.inputs[:1] if v in begun and work[i] == work[begun[v]]}
    said = {node.outputs[0]: node.attrs for node in nodes if node.op is start_receive}
    out: list[Node] = []
    for node in nodes:
        if node.op is wait_receive and node.inputs[0] in idle:
            out.append(Node(receive, [], said[node.inputs[0]], node.outputs, node.location))
        elif node.op in _WAITS and node.inputs[0] in idle:
            attrs = {k: v for k, v in node.attrs.items() if k != "number"}
            out.append(Node(_WHOLE[node.op], node.inputs[1:], attrs, node.outputs, node.location))
        elif not (node.op in _STARTS and node.outputs[0] in idle):
            out.append(node)
    return out
