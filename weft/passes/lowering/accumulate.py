"""Sums that begin at zero and are then added to something: they begin at that instead.

The gradient of ``x[i, j]`` in a loop is an array of zeros with one element changed, added to what the loop
carries. As ``scatter_add(carry, v, i, j)`` it changes that element alone; and an inner loop, or a branch,
that starts from zeros, and whose result is added to the carry of a loop around it, starts from that. Only the
order of additions is another one, as in any reduction. The gradient of a slice is zeros around a part: in a
loop, that part of what is carried is added to.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from weft.base.records import NamedTuple
from weft.base.sizes import is_known
from weft.ir.graph import Graph, Node, Value
from weft.ir.order import kahn_order
from weft.ir.rewrite import giving, is_uniform, reading
from weft.ops.arithmetic import add
from weft.ops.control import scan, while_loop
from weft.ops.index import scatter_add_nd
from weft.ops.view.slices import pad_axes, slice_axes, update_slice
from weft.passes.base import graph_pass
from weft.passes.loops import BRANCHES, with_inputs
from weft.passes.lowering.recompute import is_backward


@graph_pass(regions=True, once=True)
def accumulate(graph: Graph) -> Graph:
    """Begin sums of zeros where they are added to.

    >>> import weft
    >>> graph = weft.parse_graph('''
    ... graph f(%c: f32[4], %v: f32[], %i: i64[]) {
    ...   %0: f32[4] = scatter_add(f32[4](0.0, ...), %v, %i)
    ...   %1: f32[4] = add(%c, %0)
    ...   return %1
    ... }''')
    >>> [node.op.name for node in weft.passes.accumulate(graph).nodes]
    ['scatter_add']
    """
    while (better := _begin_one(graph)) is not None:
        graph = better
    nodes = [_with_parts(node) if node.op in (scan, while_loop) else node for node in graph.nodes]
    return graph if all(map(operator.is_, nodes, graph.nodes)) else graph.replace(nodes=nodes)


def _with_parts(loop: Node) -> Node:
    """A loop whose body adds parts to what it carries, instead of zeros around them."""
    body: Graph = loop.attrs["body"]
    while (better := _begin_one(body, parts=True)) is not None:
        body = better
    if body is loop.attrs["body"]:
        return loop
    return Node(loop.op, loop.inputs, {**loop.attrs, "body": body}, loop.outputs, loop.location)


def _begin_one(graph: Graph, *, parts: bool = False) -> Graph | None:
    """The graph with one more sum that begins where it is added to; None if there is none.

    With ``parts``, zeros around a part are a beginning, too, for what a loop carries.
    """
    sums = [node for node in graph.nodes if node.op is add]
    if not sums:
        return None
    use_def = _Uses(graph, parts)
    for node in reversed(sums) if parts else sums:  # what is added to what is carried comes last
        for base, part in (node.inputs, node.inputs[::-1]):
            fits = base.type == part.type and (not parts or use_def.is_carried(base))
            start = use_def.start(part) if fits else None
            if start is not None and not use_def.depends(base, start.node):
                return _begin_at(graph, node, part, start, base)
    return None


class _Start(NamedTuple):
    """Where a sum begins: the node that takes zeros, and what it is with a base in their place."""

    node: Node
    taking: Callable[[Value], Sequence[Node]]


_Origin = Value | Callable[[], _Start | None]


def _begin_at(graph: Graph, total: Node, part: Value, start: _Start, base: Value) -> Graph:
    """The graph where a sum begins at a base, so that what comes of it is the total."""
    now = {total.outputs[0]: part}
    taking = [
        start.taking(base) if node is start.node else [node] for node in graph.nodes if node is not total
    ]
    nodes = [reading(node, now) for made in taking for node in made]
    used = {v for node in nodes for v in node.inputs} | {now.get(v, v) for v in graph.results}
    constants = {v: a for v, a in graph.constants.items() if v in used}
    return giving(graph, now, nodes=kahn_order(nodes), constants=constants)


class _Uses:
    """Who makes and who uses the values of a graph."""

    def __init__(self, graph: Graph, parts: bool = False) -> None:
        self.graph = graph
        self.parts = parts
        self.makers = {v: node for node in graph.nodes for v in node.outputs}
        self.uses = Counter([v for node in graph.nodes for v in node.inputs])
        self.uses.update(graph.results)
        self._elsewhere: set[Value] = set()  # values known to begin at something else than zeros

    def start(self, value: Value) -> _Start | None:
        """Where a sum begins that nobody else sees; None if it begins at something else than zeros."""
        pending: list[_Origin] = [value]
        reached: list[Value] = []
        while pending:
            item = pending.pop()
            if not isinstance(item, Value):
                if (found := item()) is not None:
                    return found
                continue
            node = self.makers.get(item)
            if node is None or self.uses[item] != 1 or item in self._elsewhere:
                continue
            reached.append(item)
            pending += reversed(self._origins(node, item))
        self._elsewhere.update(reached)
        return None

    def _origins(self, node: Node, value: Value) -> list[_Origin]:
        """What a value that a node makes may begin with, in order: values, or what tells a start."""
        found: list[_Origin] = []
        for place in _summed(node, value):
            x = node.inputs[place]
            if self.is_zero(x):
                found.append(partial(_Start, node, partial(_with_input, node, place)))
            else:
                found.append(x)
        if self.parts and node.op is pad_axes and _is_around_a_part(node):
            found.append(partial(_Start, node, partial(_added_to_part, node)))
        if node.op in BRANCHES:
            found.append(partial(_start_in_branches, node, node.outputs.index(value)))
        return found

    def is_zero(self, value: Value) -> bool:
        array = self.graph.constants.get(value)
        return array is not None and is_uniform(array, np.zeros((), array.dtype))

    def is_carried(self, value: Value) -> bool:
        """Whether a value is one that a loop carries, maybe changed, and that nobody else reads."""
        node = self.makers.get(value)
        if self.uses[value] != 1 or value in self.graph.constants:
            return False
        return node is None or node.op.in_place or bool(node.regions)

    def depends(self, value: Value, node: Node) -> bool:
        """Whether a value needs what a node makes."""
        reached = set(node.outputs)
        for other in self.graph.nodes:
            if not reached.isdisjoint(other.inputs):
                reached.update(other.outputs)
        return value in reached


def _with_input(node: Node, place: int, value: Value) -> list[Node]:
    inputs = [*node.inputs[:place], value, *node.inputs[place + 1 :]]
    return [Node(node.op, inputs, node.attrs, node.outputs, node.location)]


def _is_around_a_part(pad: Node) -> bool:
    """Whether a node puts zeros around a part, and cuts nothing off, as the gradient of a slice does."""
    around = (*pad.attrs["low"], *pad.attrs["high"])
    if pad.attrs["value"] != 0:
        return False
    return is_backward(pad) or (is_known(around) and min(around, default=0) >= 0)


def _added_to_part(pad: Node, base: Value) -> list[Node]:
    """The nodes that add to a part of a base what had zeros around it."""
    (v,), low, attrs = pad.inputs, pad.attrs["low"], pad.attrs
    steps = tuple([i + 1 for i in attrs["interior"]])
    stops = tuple([a + n * s for a, n, s in zip(low, v.type.shape, steps, strict=True)])
    at = {"starts": low, "stops": stops, "steps": steps}
    part, total = Value(v.type), Value(v.type)
    return [
        Node(slice_axes, [base], at, [part], pad.location),
        Node(add, [part, v], {}, [total], pad.location),
        Node(update_slice, [base, total], at, pad.outputs, pad.location),
    ]


# Branches


def _start_in_branches(node: Node, k: int) -> _Start | None:
    """Where a sum begins that each branch gives as an output with a number."""
    branches = [_taking_base(branch, k) for branch in node.attrs["branches"]]
    if None in branches:
        return None
    attrs = {**node.attrs, "branches": tuple(branches)}
    return _Start(
        node, lambda base: [Node(node.op, [*node.inputs, base], attrs, node.outputs, node.location)]
    )


def _taking_base(region: Graph, k: int) -> Graph | None:
    """A region with one more input, at which one of its outputs begins instead of at zeros."""
    use_def, out = _Uses(region), region.outputs[k]
    base = Value(out.type)
    outputs, nodes = list(region.outputs), region.nodes
    if use_def.is_zero(out):
        outputs[k] = base
    elif (start := use_def.start(out)) is not None:
        nodes = tuple(
            made for node in nodes for made in (start.taking(base) if node is start.node else [node])
        )
    else:
        return None
    return with_inputs(region.replace(nodes=nodes), [*region.inputs, base], outputs)


# Sums


def _summed(node: Node, value: Value) -> Sequence[int]:
    """The inputs to which a node does nothing but add, to give one of its outputs."""
    if node.op is add and all(v.type == value.type for v in node.inputs):
        return 0, 1
    if node.op is scatter_add_nd:
        return (0,)
    k = node.outputs.index(value)
    if node.op is scan and k < node.attrs["carries"] and _only_adds(node.attrs["body"], k, k):
        return (k + bool(node.attrs["counted"]),)
    if node.op in BRANCHES:
        branches: Sequence[Graph] = node.attrs["branches"]
        places = range(len(branches[0].inputs))
        return [i + 1 for i in places if all(_only_adds(branch, i, k) for branch in branches)]
    return ()


def _only_adds(region: Graph, i: int, k: int) -> bool:
    """Whether a region does nothing with one of its inputs but add to it, to give one of its outputs."""
    use_def = _Uses(region)
    value, users = region.inputs[i], {v: node for node in region.nodes for v in node.inputs}
    while value is not region.outputs[k]:
        node = users.get(value)
        if node is None or use_def.uses[value] != 1:
            return False
        after = [v for v in node.outputs if node.inputs.index(value) in _summed(node, v)]
        if len(after) != 1:
            return False
        (value,) = after
    return use_def.uses[value] == 1
