"""Dead code: what no result needs is left out, inside control flow too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from weft.ir.graph import Graph, Node, Operand, Value, map_operands, operands_of
from weft.ir.order import first_definitions, needed_nodes, sizes_defined, sizes_of, sizes_used
from weft.ops.call import call
from weft.passes.base import graph_pass
from weft.passes.loops import BRANCHES, Loop, as_loop, remade, with_inputs

T = TypeVar("T")


@graph_pass
def dce(graph: Graph) -> Graph:
    """Leave out nodes and constants that no result needs; and of loops, branches and calls unused outputs,
    carries that decide nothing, and operands that no region uses. Effects stay.

    >>> import weft
    >>> graph = weft.parse_graph('''
    ... graph f(%x: f32[3]) {
    ...   %0: f32[3] = exp(%x)
    ...   %1: f32[3] = tanh(%x)
    ...   return %1
    ... }''')
    >>> [node.op.name for node in weft.passes.dce(graph).nodes]
    ['tanh']
    """
    wanted = set(graph.results)
    kept: list[Node] = []
    changed = False
    tells = bool(first_definitions(graph.nodes))
    asked: set[str] = set()
    for node in reversed(graph.nodes):
        if tells:
            wanted.update(_tellers(node, asked, wanted))
        if wanted.isdisjoint(node.outputs) and node.is_pure:
            changed = True
            continue
        new = _shrink(node, wanted) if node.attrs else node
        if tells:
            asked |= sizes_used(new)
        changed = changed or new is not node
        wanted.update(new.inputs)
        kept.append(new)
    constants = {v: a for v, a in graph.constants.items() if v in wanted}
    if not changed and len(constants) == len(graph.constants):
        return graph
    return graph.replace(nodes=kept[::-1], constants=constants)


def _tellers(node: Node, asked: set[str], wanted: set[Value]) -> list[Value]:
    """An output of a node that must stay since it alone tells a size that nodes after it ask for."""
    told = sizes_defined(node) & asked
    telling = [v for v in node.outputs if told & sizes_of([v])]
    return [] if not telling or any(v in wanted for v in telling) else telling[:1]


def _shrink(node: Node, wanted: set[Value]) -> Node:
    if node.op in BRANCHES:
        return _shrink_branches(node, wanted)
    if node.op is call:
        return _shrink_call(node, wanted)
    loop = as_loop(node)
    return node if loop is None else _shrink_loop(loop, wanted)


def clean(region: Graph, outputs: Sequence[Value]) -> Graph:
    """A region without what some of its outputs do not need; its inputs stay."""
    same = len(outputs) == len(region.outputs)
    return dce.function(region if same else region.replace(outputs=outputs))


def used_inputs(regions: Sequence[Graph]) -> list[bool]:
    """For each input of regions with the same inputs, whether one of them uses it."""
    used: list[set[Value]] = [{v for n in r.nodes for v in n.inputs}.union(r.outputs) for r in regions]
    columns = zip(*[r.inputs for r in regions], strict=True)
    return [any(v in u for v, u in zip(column, used, strict=True)) for column in columns]


def pick(items: Sequence[T], flags: Sequence[bool]) -> list[T]:
    """The items that are flagged."""
    return [x for x, flag in zip(items, flags, strict=True) if flag]


def _shrink_call(node: Node, wanted: set[Value]) -> Node:
    keep = [v in wanted for v in node.outputs]
    before = node.attrs["body"]
    body = clean(before, pick(before.outputs, keep))
    named = set(operands_of(node.attrs["arguments"]))
    used = [u or i in named for i, u in enumerate(used_inputs([body]))]
    if all(keep) and all(used) and body is before:
        return node
    numbers = {i: k for k, i in enumerate(i for i, u in enumerate(used) if u)}
    attrs = {
        "function": node.attrs["function"],
        "arguments": map_operands(node.attrs["arguments"], lambda i: Operand(numbers[i])),
        "body": with_inputs(body, pick(body.inputs, used), body.outputs),
    }
    return Node(node.op, pick(node.inputs, used), attrs, pick(node.outputs, keep), node.location)


def _shrink_branches(node: Node, wanted: set[Value]) -> Node:
    keep = [v in wanted for v in node.outputs]
    before = node.attrs["branches"]
    branches = [clean(b, pick(b.outputs, keep)) for b in before]
    used = used_inputs(branches)
    if all(keep) and all(used) and all(a is b for a, b in zip(before, branches, strict=True)):
        return node
    branches = [with_inputs(b, pick(b.inputs, used), b.outputs) for b in branches]
    inputs = [node.inputs[0], *pick(node.inputs[1:], used)]
    attrs = {**node.attrs, "branches": tuple(branches)}
    return Node(node.op, inputs, attrs, pick(node.outputs, keep), node.location)


def _shrink_loop(loop: Loop, wanted: set[Value]) -> Node:
    carried = _needed_carries(loop, wanted)
    stacked = [v in wanted for v in loop.stacks]
    counted = any(v in wanted for v in loop.trips)
    body = clean(loop.body, pick(loop.body.outputs, [*carried, *stacked]))
    test = None if loop.test is None else clean(loop.test, loop.test.outputs)
    rows, fixed = _used_operands(loop, body, test)
    unchanged = all(carried) and all(stacked) and all(rows) and all(fixed)
    unchanged = unchanged and body is loop.body and test is loop.test
    if unchanged and (counted or any(stacked) or not loop.trips):
        return loop.node
    outputs = [*pick(loop.outs, carried), *pick(loop.stacks, stacked)]
    outputs += loop.trips if counted or any(stacked) else ()
    inside = [*carried, *rows, *fixed]
    return remade(
        loop,
        outputs,
        inits=pick(loop.inits, carried),
        rows=pick(loop.rows, rows),
        fixed=pick(loop.fixed, fixed),
        body=with_inputs(body, pick(body.inputs, inside), body.outputs),
        test=None if test is None else with_inputs(test, pick(test.inputs, [*carried, *fixed]), test.outputs),
    ).node


def _needed_carries(loop: Loop, wanted: set[Value]) -> list[bool]:
    """Which carries are wanted, or decide what is wanted, how often the loop goes round, or effects."""
    body, n = loop.body, len(loop.inits)
    needed = {i for i, v in enumerate(loop.outs) if v in wanted}
    if loop.test is not None:
        used = _used_by(loop.test, loop.test.outputs)
        needed |= {i for i, v in enumerate(loop.carried(loop.test)) if v in used}
    results = [v for v, out in zip(loop.collected, loop.stacks, strict=True) if out in wanted]
    while True:
        used = _used_by(body, [*results, *[body.outputs[i] for i in needed]])
        more = needed | {i for i, v in enumerate(loop.carried(body)) if v in used}
        if more == needed:
            return [i in needed for i in range(n)]
        needed = more


def _used_by(region: Graph, results: Sequence[Value]) -> set[Value]:
    nodes = needed_nodes(region.nodes, results)
    return {v for node in nodes for v in node.inputs}.union(results)


def _used_operands(loop: Loop, body: Graph, test: Graph | None) -> tuple[list[bool], list[bool]]:
    in_body = used_inputs([body])
    n, m = len(loop.inits), len(loop.inits) + len(loop.rows)
    rows, fixed = in_body[n:m], in_body[m:]
    if test is not None:
        fixed = [a or b for a, b in zip(fixed, used_inputs([test])[n:], strict=True)]
    return rows, fixed
