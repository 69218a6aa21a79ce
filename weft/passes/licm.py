"""Loop-invariant motion: what is the same in every iteration is computed once, before the loop."""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.order import sizes_defined, sizes_of, sizes_used
from weft.ir.rewrite import giving, reading
from weft.ops.control import while_loop
from weft.ops.view.primitives import broadcast_to
from weft.passes.base import graph_pass
from weft.passes.dce import pick
from weft.passes.loops import Loop, as_loop, new_value, remade, with_inputs


@graph_pass(regions=True)
def licm(graph: Graph) -> Graph:
    """Move nodes that use nothing of an iteration out of loops; carries that never change become operands.

    A loop may not run at all, so a node moves only if it cannot fail and has no effect. Branches keep what is
    theirs.

    >>> import weft
    >>> graph = weft.make_graph(lambda x, y: weft.fori_loop(0, 9, lambda i, s: s + weft.exp(y), x))(
    ...     weft.ones(2), weft.ones(2))
    >>> [node.op.name for node in weft.passes.licm(graph).nodes]
    ['exp', 'scan']
    """
    now: dict[Value, Value] = {}
    constants: dict[Value, Array] = {}
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        node = reading(node, now) if now else node
        loop = as_loop(node)
        if loop is not None:
            loop = _fix_carries(loop, now)
            loop = _hoist(loop, nodes, constants)
            changed = changed or loop.node is not node
            node = loop.node
        nodes.append(node)
    if not changed and not now:
        return graph
    return giving(graph, now, nodes=nodes, constants={**graph.constants, **constants})


# Carries that never change


def _fix_carries(loop: Loop, now: dict[Value, Value]) -> Loop:
    """A loop whose carries that stay as they are become fixed operands; ``now`` gets their outputs."""
    body = loop.body
    given = dict(zip(loop.same(body), loop.fixed, strict=True))
    stays = [
        after is before or given.get(after) is init
        for before, after, init in zip(loop.carried(body), body.outputs, loop.inits, strict=False)
    ]
    if not any(stays):
        return loop
    moves = [not s for s in stays]
    now.update(zip(pick(loop.outs, stays), pick(loop.inits, stays), strict=True))
    outputs = [*pick(body.outputs[: len(moves)], moves), *loop.collected]
    test = loop.test and loop.test.replace(inputs=_reordered(loop, loop.test, moves, stays))
    return remade(
        loop,
        [*pick(loop.outs, moves), *loop.node.outputs[len(moves) :]],
        inits=pick(loop.inits, moves),
        fixed=[*loop.fixed, *pick(loop.inits, stays)],
        body=with_inputs(body, _reordered(loop, body, moves, stays), outputs),
        test=test,
    )


def _reordered(loop: Loop, region: Graph, moves: Sequence[bool], stays: Sequence[bool]) -> list[Value]:
    carried = loop.carried(region)
    return [*pick(carried, moves), *region.inputs[len(carried) :], *pick(carried, stays)]


# Nodes


class _Out(NamedTuple):
    """What moves out of a region: nodes, and which of their values are still used inside."""

    nodes: list[Node]
    needed: list[Value]


def _hoist(loop: Loop, nodes: list[Node], constants: dict[Value, Array]) -> Loop:
    """A loop without what is invariant in its regions, which goes to ``nodes`` and ``constants``."""
    fixed = list(loop.fixed)
    added: list[list[Value]] = [[] for _ in loop.regions]
    regions = list(loop.regions)
    for k, region in enumerate(loop.regions):
        out = _invariant(loop, region)
        if not out.nodes:
            continue
        outside = dict(zip(loop.same(region), loop.fixed, strict=True))
        _emit(out, region, outside, nodes, constants)
        gone = set(out.nodes)
        regions[k] = region.replace(nodes=[n for n in region.nodes if n not in gone])
        fixed += [outside[v] for v in out.needed]
        for i, inputs in enumerate(added):
            inputs += out.needed if i == k else [new_value(v) for v in out.needed]
    if len(fixed) == len(loop.fixed):
        return loop
    regions = [with_inputs(r, [*r.inputs, *more], r.outputs) for r, more in zip(regions, added, strict=True)]
    test = None if loop.test is None else regions[1]
    return remade(loop, loop.node.outputs, fixed=fixed, body=regions[0], test=test)


def _emit(
    out: _Out, region: Graph, outside: dict[Value, Value], nodes: list[Node], constants: dict[Value, Array]
) -> None:
    """Put copies of nodes outside; ``outside`` gets the values that stand for theirs."""
    for node in out.nodes:
        for v in node.inputs:
            if v in region.constants and v not in outside:
                outside[v] = Value(v.type, v.name)
                constants[outside[v]] = region.constants[v]
        outside.update((v, Value(v.type)) for v in node.outputs)
        inputs, outputs = [outside[v] for v in node.inputs], [outside[v] for v in node.outputs]
        nodes.append(Node(node.op, inputs, node.attrs, outputs, node.location))


def _invariant(loop: Loop, region: Graph) -> _Out:
    known = {*loop.same(region), *region.constants}
    told = {name for node in region.walk() for name in sizes_defined(node)}
    found: list[Node] = []
    for node in region.nodes:
        if told and not told.isdisjoint(sizes_used(node) | sizes_of(node.outputs)):
            continue  # each iteration tells the size anew
        if known.issuperset(node.inputs) and node.is_pure and node.outputs and _cannot_fail(node):
            found.append(node)
            known.update(node.outputs)
    found = _worthwhile(found)
    gone = set(found)
    stays = {v for n in region.nodes if n not in gone for v in n.inputs}.union(region.outputs)
    return _Out(found, [v for n in found for v in n.outputs if v in stays])


def _worthwhile(nodes: list[Node]) -> list[Node]:
    """Nodes without broadcasts that only the loop uses: in place they are free, outside they take memory."""
    kept: list[Node] = []
    used: set[Value] = set()
    for node in reversed(nodes):
        if node.op is not broadcast_to or not used.isdisjoint(node.outputs):
            kept.append(node)
            used.update(node.inputs)
    return kept[::-1]


def _cannot_fail(node: Node) -> bool:
    """Whether a node gives a result whatever its inputs are, in finite time."""
    op = node.op
    if op is while_loop:
        return False
    if regions := node.regions:
        return all(_cannot_fail(n) for region in regions for n in region.nodes)
    if op.total and op.scalar is None and not op.linear:
        return not any(isinstance(s, Size) for v in node.inputs for s in v.type.shape)  # an axis may be empty
    return bool(op.total)
