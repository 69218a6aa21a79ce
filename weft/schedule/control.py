"""Branches, effects and changes of single elements in the main function; which ops are control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import bool_, int64
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node
from weft.ir.order import sizes_defined, sizes_of
from weft.loop.ir import Block, If, Leave
from weft.ops.index import scatter_add_nd, scatter_nd
from weft.schedule.arrays import Array, Progression
from weft.schedule.late_sizes import LateSizes, tell_size
from weft.schedule.loops import lower_scan, lower_while
from weft.schedule.pointwise.views import bounds_values, place_on_axis
from weft.schedule.region import Failure, Lower, Place, Scope, lower_region, put, run_on_host


def lower_control(scope: Scope, node: Node, lower: Callable[[Scope], None]) -> None:
    """Lower a node with regions, or with an effect; ``lower`` lowers the nodes of a scope."""
    _RULES[node.op.name](scope, node, lower)
    scope.writer.bound |= sizes_defined(node) | sizes_of(node.outputs)


def is_control(node: Node) -> bool:
    """Whether a node is lowered here."""
    return node.op.name in _RULES


# Branches


def _cond(scope: Scope, node: Node, lower: Lower) -> None:
    predicate, *xs = node.inputs
    true, false = node.attrs["branches"]
    late = LateSizes(scope, node, node.outputs)
    results = _results(scope, node)
    condition = scope.scalar(predicate)
    places = [scope.place(x) for x in xs]  # what has to be written for that is there in every branch
    blocks = [_branch(scope, graph, places, results, lower, late) for graph in (true, false)]
    scope.writer.main.add_statement(If(condition, *blocks))
    _publish(scope, node, results)


def _switch(scope: Scope, node: Node, lower: Lower) -> None:
    index, *xs = node.inputs
    late = LateSizes(scope, node, node.outputs)
    results = _results(scope, node)
    b = scope.writer.main
    number = b.cast(scope.scalar(index), int64)
    places = [scope.place(x) for x in xs]
    blocks = [_branch(scope, graph, places, results, lower, late) for graph in node.attrs["branches"]]
    rest = blocks[-1]
    for i in range(len(blocks) - 2, -1, -1):  # below the first or above the last: clamped
        outer = Block()
        with b.inside(outer):
            test = b.le(number, i)
            b.add_statement(If(test, blocks[i], rest))
        rest = outer
    b.block.statements += rest.statements
    _publish(scope, node, results)


def _results(scope: Scope, node: Node) -> list[Any]:
    """A local for each scalar that comes out, an array for each of the others."""
    b = scope.writer.main
    return [b.local(0, v.type.dtype) if v.type.shape == () else scope.output(v) for v in node.outputs]


def _publish(scope: Scope, node: Node, results: Sequence[Any]) -> None:
    for value, result in zip(node.outputs, results, strict=True):
        if not isinstance(result, Array):
            scope.places[value] = scope.writer.main.get(result)


def _branch(
    scope: Scope, graph: Graph, inputs: Sequence[Place], results: Sequence[Any], lower: Lower, late: LateSizes
) -> Block:
    block = Block()
    with scope.writer.inside(block, loop=False):
        wanted = [r if isinstance(r, Array) else None for r in results]
        outs = lower_region(scope, graph, inputs, wanted, lower)
        late.after_branch(graph.outputs, results)
        for place, result in zip(outs, results, strict=True):
            if isinstance(result, Array):
                put(scope, place, result)
            else:
                scope.writer.main.set(result, place)
    return block


# Calls


def _call(scope: Scope, node: Node, lower: Lower) -> None:
    """What is called, in its place."""
    body: Graph = node.attrs["body"]
    places = [scope.place(v) for v in node.inputs[: len(body.inputs)]]
    outs = lower_region(scope, body, places, [None] * len(body.outputs), lower)
    scope.places.update(zip(node.outputs, outs, strict=True))


# Sizes that only the run tells


def _true_places(scope: Scope, node: Node, lower: Lower) -> None:
    """Count the true ones, which tells the size, then write where they are."""
    b, trips = scope.writer.main, node.attrs["trips"]
    mask = scope.array(node.inputs[0])
    if isinstance(trips, Size):
        count = b.local(0, int64)
        with b.loop(mask.shape[0]) as i:
            b.set(count, b.add(b.get(count), b.cast(b.load(mask.buffer, mask.at(i)), int64)))
        (name,) = trips.names()
        tell_size(scope, node, name, b.get(count))
    out = scope.output(node.outputs[0])
    place = b.local(0, int64)
    with b.loop(mask.shape[0]) as i, b.if_(b.load(mask.buffer, mask.at(i))):
        at = b.get(place)
        b.store(out.buffer, out.at(b.term(at)), i)
        b.set(place, b.add(at, 1))


def _count_below(scope: Scope, node: Node, lower: Lower) -> None:
    """The number tells the size; what is counted takes no memory."""
    b, trips = scope.writer.main, node.attrs["trips"]
    if isinstance(trips, Size):
        (name,) = trips.names()
        tell_size(scope, node, name, b.cast(scope.scalar(node.inputs[0]), int64))
    scope.places[node.outputs[0]] = Progression(0, 1, trips, int64)


# Effects


def _print(scope: Scope, node: Node, lower: Lower) -> None:
    scope.writer.main.add_statement(Leave())
    run_on_host(scope, node)


def _check(scope: Scope, node: Node, lower: Lower) -> None:
    _unless(scope, node, scope.scalar(node.inputs[0]))


def _guard(scope: Scope, node: Node, lower: Lower) -> None:
    x, expected = node.inputs
    b, asked = scope.writer.main, node.attrs["asked"]
    if asked == "value" or x.type.dtype.kind not in "biu":
        run_on_host(scope, node)
        b.add_statement(Leave())
        return
    now = scope.scalar(x)
    if asked == "bool":
        same = b.eq(b.cast(now, bool_), b.cast(scope.scalar(expected), bool_))
    else:
        same = b.eq(now, b.cast(scope.scalar(expected), now.dtype))
    _unless(scope, node, same)


def _unless(scope: Scope, node: Node, holds: Any) -> None:
    """Let the op's own kernel raise, unless a condition holds."""
    wrong = Block()
    with scope.writer.inside(wrong, loop=False):
        run_on_host(scope, node)
        scope.writer.main.add_statement(Leave())
    scope.writer.main.add_statement(If(holds, Block(), wrong))


_RULES: dict[str, Callable[[Scope, Node, Lower], None]] = {
    "cond": _cond,
    "switch": _switch,
    "call": _call,
    "function": _call,
    "scan": lower_scan,
    "while_loop": lower_while,
    "true_places": _true_places,
    "count_below": _count_below,
    "print": _print,
    "check": _check,
    "guard": _guard,
}


# One element of an array changed, as in ``x[i, j] = v``: the copy of the array goes away where it can


def changes_element(node: Node) -> bool:
    """Whether a node changes one element of an array."""
    if node.op not in (scatter_nd, scatter_add_nd):
        return False
    x, v, *indices = node.inputs
    return v.type.shape == () and len(indices) == len(x.type.shape) > 0


def change_element(scope: Scope, node: Node) -> None:
    """Write the change into the main function."""
    x, v, *indices = node.inputs
    b = scope.writer.main
    value = scope.scalar(v)
    places = []
    for axis, index in enumerate(indices):
        number, size = scope.scalar(index), x.type.shape[axis]
        place, outside = place_on_axis(b, number, size)
        failure = scope.writer.failure(Failure(node, "bounds"))
        b.fail(outside, failure, *bounds_values(b, axis, size, number))
        places.append(place)
    source, out = scope.array(x), scope.output(node.outputs[0])
    scope.writer.copy(source, out)
    at = Array(out.buffer, out.shape, out.strides, out.offset).at(*places)
    if node.op is scatter_add_nd:
        value = b.add(b.load(out.buffer, at), value)
    b.store(out.buffer, at, value)
