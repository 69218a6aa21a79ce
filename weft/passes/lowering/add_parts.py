"""Sums of parts that are padded to a whole: parts of one place are added up before they are padded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from weft.ir.graph import Graph, Node, Value
from weft.ops.arithmetic import add
from weft.ops.view.slices import pad_axes
from weft.passes.base import graph_pass
from weft.passes.dce import dce

_LEAST = 8  # parts of a sum that is worth it
_MOST = 512  # places


@graph_pass(regions=True, once=True)
def add_parts(graph: Graph) -> Graph:
    """Write ``pad(a) + pad(b) + pad(c)`` as ``pad(a + b) + pad(c)``, where a and b have one place, c another.

    So is the gradient of a program that reads elements of a small array many times. A sum of n arrays reads
    all of them for each of its elements; now it reads as many as there are places. Each element is added up
    in the order of before.

    >>> import weft
    >>> from weft.passes.lowering.add_parts import add_parts
    >>> def f(x):
    ...     return sum([x[i] * weft.sin(x[j]) for i in (0, 1) for j in (1, 2, 3)])
    >>> graph = weft.make_graph(weft.grad(f))(weft.ones(4)).optimize()
    >>> [sum(n.op.name == "pad" for n in g.nodes) for g in (graph, add_parts(graph))]
    [12, 4]
    """
    sums = _sums(graph)
    if not sums:
        return graph
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _rewritten(node, sums[node]) if node in sums else [node]
    return dce(graph.replace(nodes=nodes))


def _sums(graph: Graph) -> dict[Node, list[list[Node]]]:
    """The sums that are rewritten, with their parts by place."""
    adds = [node for node in graph.nodes if node.op is add]
    if len(adds) < _LEAST - 1:
        return {}
    made = {v: node for node in graph.nodes for v in node.outputs}
    uses: dict[Value, int] = {}
    for v in (*[v for node in graph.nodes for v in node.inputs], *graph.results):
        uses[v] = uses.get(v, 0) + 1
    inner: set[Node] = set()

    def is_inner(value: Value, around: Node) -> bool:
        node = made.get(value)
        same = node is not None and node.op is add and value.type == around.outputs[0].type
        return same and uses[value] == 1

    for node in adds:
        inner.update(made[v] for v in node.inputs if is_inner(v, node))
    found: dict[Node, list[list[Node]]] = {}
    for node in adds:
        parts = None if node in inner else _parts(node, made, inner)
        if parts is not None and len(parts) >= _LEAST and (places := _by_place(parts)) is not None:
            found[node] = places
    return found


def _parts(top: Node, made: dict[Value, Node], inner: set[Node]) -> list[Node] | None:
    """The padded parts of a sum, in their order; None where it is made of something else."""
    found: list[Node] = []
    waiting = [*reversed(top.inputs)]
    while waiting:
        node = made.get(waiting.pop())
        if node is None:
            return None
        if node in inner:
            waiting += reversed(node.inputs)
        elif node.op is pad_axes and node.outputs[0].type == top.outputs[0].type and _is_plain(node):
            found.append(node)
        else:
            return None
    return found


def _is_plain(pad: Node) -> bool:
    attrs = pad.attrs
    sides = (*attrs["low"], *attrs["high"])
    known = all(isinstance(n, int) and n >= 0 for n in sides)
    return known and attrs["value"] == 0 and not any(attrs["interior"])


def _by_place(parts: Sequence[Node]) -> list[list[Node]] | None:
    """Parts by place; None where that gains nothing, or places overlap, so that the order would change."""
    groups: dict[Any, list[Node]] = {}
    for part in parts:
        groups.setdefault((part.attrs["low"], part.inputs[0].type), []).append(part)
    if len(groups) > min(_MOST, len(parts) // 2):
        return None
    boxes = [[(a, a + n) for a, n in zip(low, t.shape, strict=True)] for low, t in groups]
    apart = all(
        any(a[1] <= b[0] or b[1] <= a[0] for a, b in zip(p, q, strict=True))
        for p, q in combinations(boxes, 2)
    )
    return list(groups.values()) if apart else None


def _rewritten(top: Node, places: Sequence[Sequence[Node]]) -> list[Node]:
    """The nodes of a sum, that of the parts of each place first."""
    nodes: list[Node] = []

    def total(values: Sequence[Value], last: Value | None = None) -> Value:
        so_far = values[0]
        for i, value in enumerate(values[1:], 2):
            out = last if last is not None and i == len(values) else Value(so_far.type)
            nodes.append(Node(add, [so_far, value], {}, [out], top.location))
            so_far = out
        return so_far

    padded: list[Value] = []
    for parts in places:
        given = total([part.inputs[0] for part in parts])
        one = len(places) == 1
        padded.append(top.outputs[0] if one else Value(top.outputs[0].type))
        nodes.append(Node(pad_axes, [given], parts[0].attrs, [padded[-1]], top.location))
    if len(places) > 1:
        total(padded, top.outputs[0])
    return nodes
