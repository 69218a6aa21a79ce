"""Branches, loops and effects in the main function.

A scalar that a loop carries is a local; an array is a buffer that holds the newest value. The copies that this
writes at the end of an iteration are removed by ``coalesce`` wherever the new value can be made in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, int64
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.loop.index import Index
from weft.loop.ir import Bind, Block, Const, If, Leave, While
from weft.schedule.arrays import Array, Progression
from weft.schedule.region import Scope, run_on_host

_ROWS = 16  # that a loop which collects has room for at first


def lower_control(scope: Scope, node: Node, lower: Callable[[Scope], None]) -> None:
    """Lower a node with regions, or with an effect; ``lower`` lowers the nodes of a scope."""
    _RULES[node.op.name](scope, node, lower)


def is_control(node: Node) -> bool:
    """Whether a node is lowered here."""
    return node.op.name in _RULES


Lower = Callable[[Scope], None]


# Regions


def _lower_region(
    scope: Scope, graph: Graph, inputs: Sequence[Any], wanted: Sequence[Array | None], lower: Lower
) -> list[Any]:
    """Lower a region here; gives the places of its outputs, which are the wanted ones where that is easy."""
    inner = Scope(scope.writer, graph, inputs)
    given = {*graph.inputs, *graph.constants}
    for value, array in zip(graph.outputs, wanted, strict=True):
        if array is not None and value not in given:
            inner.wanted.setdefault(value, array)
    lower(inner)
    return [_place(inner, v) for v in graph.outputs]


def _place(scope: Scope, value: Value) -> Any:
    """Where an output is: a scalar where it is one element, else an array."""
    if value.type.shape == ():
        return scope.scalar(value)
    place = scope.place(value)
    return place if isinstance(place, Const) else scope.array(value)


def _put(scope: Scope, place: Any, target: Array) -> None:
    """Make an array hold a value, unless it does already."""
    if isinstance(place, Array):
        if not _same(place, target):
            scope.writer.copy(place, target)
    elif target.shape == ():
        scope.writer.main.store(target.buffer, target.offset, place)
    else:
        with scope.writer.kernel("fill", [], [target]) as k:
            _fill(k, place)


def _fill(k: Any, number: Const) -> None:
    from weft.schedule.writer import over

    (out,) = k.writes
    over(k.builder, out.shape, lambda *i: k.builder.store(out.buffer, out.at(*i), number))


def _same(a: Array, b: Array) -> bool:
    same_start = a.offset is b.offset or repr(a.offset) == repr(b.offset)
    return a.buffer is b.buffer and same_start and a.strides == b.strides


# Branches


def _cond(scope: Scope, node: Node, lower: Lower) -> None:
    predicate, *xs = node.inputs
    true, false = node.attrs["branches"]
    results = _results(scope, node)
    condition = scope.scalar(predicate)
    blocks = [_branch(scope, graph, xs, results, lower) for graph in (true, false)]
    scope.writer.main.add_statement(If(condition, *blocks))
    _publish(scope, node, results)


def _switch(scope: Scope, node: Node, lower: Lower) -> None:
    index, *xs = node.inputs
    results = _results(scope, node)
    b = scope.writer.main
    number = b.cast(scope.scalar(index), int64)
    blocks = [_branch(scope, graph, xs, results, lower) for graph in node.attrs["branches"]]
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
    return [
        b.local(np.zeros((), v.type.dtype)[()], v.type.dtype) if v.type.shape == () else scope.output(v)
        for v in node.outputs
    ]


def _publish(scope: Scope, node: Node, results: Sequence[Any]) -> None:
    for value, result in zip(node.outputs, results, strict=True):
        if not isinstance(result, Array):
            scope.places[value] = scope.writer.main.get(result)


def _branch(scope: Scope, graph: Graph, xs: Sequence[Value], results: Sequence[Any], lower: Lower) -> Block:
    block = Block()
    with scope.writer.inside(block, loop=False):
        wanted = [r if isinstance(r, Array) else None for r in results]
        outs = _lower_region(scope, graph, [scope.place(x) for x in xs], wanted, lower)
        for place, result in zip(outs, results, strict=True):
            if isinstance(result, Array):
                _put(scope, place, result)
            else:
                scope.writer.main.set(result, place)
    return block


# Loops


class _Carries:
    """What a loop carries: a local for each scalar, a buffer for each array."""

    def __init__(self, scope: Scope, node: Node, values: Sequence[Value]) -> None:
        self.scope = scope
        self.holders: list[Any] = []
        b = scope.writer.main
        for value, out in zip(values, node.outputs, strict=False):
            if value.type.shape == ():
                self.holders.append(b.local(scope.scalar(value)))
            else:
                array = scope.output(out)
                _put(scope, scope.place(value), array)
                self.holders.append(array)

    def places(self) -> list[Any]:
        """What the carries are at the beginning of an iteration."""
        b = self.scope.writer.main
        return [h if isinstance(h, Array) else b.get(h) for h in self.holders]

    def wanted(self) -> list[Array | None]:
        """No array: the new value must not be written before the old one was read for the last time."""
        return [None] * len(self.holders)

    def advance(self, outs: Sequence[Any]) -> None:
        """The carries become what an iteration gave, all at once."""
        b = self.scope.writer.main
        buffers = {h.buffer for h in self.holders if isinstance(h, Array)}
        moved = []
        for holder, place in zip(self.holders, outs, strict=True):
            swapped = isinstance(place, Array) and place.buffer in buffers and not _same(place, holder)
            moved.append(self.scope.writer.copied(place) if swapped else place)
        for holder, place in zip(self.holders, moved, strict=True):
            if isinstance(holder, Array):
                _put(self.scope, place, holder)
            else:
                b.set(holder, place)

    def publish(self, node: Node) -> None:
        """After the loop the carries are its outputs."""
        for value, holder in zip(node.outputs, self.holders, strict=False):
            self.scope.places[value] = (
                holder if isinstance(holder, Array) else self.scope.writer.main.get(holder)
            )


def _scan(scope: Scope, node: Node, lower: Lower) -> None:
    attrs, xs = node.attrs, list(node.inputs)
    b = scope.writer.main
    steps = Index.of(attrs["length"])
    if attrs["counted"]:
        steps = b.term(b.cast(scope.scalar(xs.pop(0)), int64))
    count, mapped = attrs["carries"], attrs["mapped"]
    along = [_walked(scope, v) for v in xs[count : count + mapped]]
    fixed = [scope.place(v) for v in xs[count + mapped :]]
    carries = _Carries(scope, node, xs[:count])
    stacks = [scope.output(v) for v in node.outputs[count:]]
    if attrs["counted"]:
        for stack in stacks:
            _put(scope, Const(np.zeros((), stack.dtype)[()], stack.dtype), stack)
    with _loop(scope, steps) as i:
        row = steps - 1 - i if attrs["reverse"] else i
        rows = [x.row(row) if isinstance(x, Array) else x.element(b, row) for x in along]
        targets = [stack.row(row) for stack in stacks]
        wanted = [*carries.wanted(), *targets]
        outs = _lower_region(scope, attrs["body"], [*carries.places(), *rows, *fixed], wanted, lower)
        same = [isinstance(place, Const) and not attrs["counted"] for place in outs[count:]]
        for place, target, is_same in zip(outs[count:], targets, same, strict=True):
            if not is_same:
                _put(scope, place, target)
        carries.advance(outs[:count])
    carries.publish(node)
    for value, place, is_same in zip(node.outputs[count:], outs[count:], same, strict=True):
        if is_same:  # a number, in each row: nothing is stored
            scope.places[value] = place


def _walked(scope: Scope, value: Value) -> Any:
    place = scope.place(value)
    return place if isinstance(place, Progression) else scope.array(value)


@contextmanager
def _loop(scope: Scope, steps: Index) -> Iterator[Index]:
    with scope.writer.main.loop(steps) as i:
        scope.writer.depth += 1
        yield i
        scope.writer.depth -= 1


def _while(scope: Scope, node: Node, lower: Lower) -> None:
    attrs, writer = node.attrs, scope.writer
    b, count = writer.main, attrs["carries"]
    carries = _Carries(scope, node, node.inputs[:count])
    fixed = [scope.place(v) for v in node.inputs[count:]]
    collected = _Collected(scope, node) if attrs["trips"] is not None else None
    test, body = Block(), Block()
    with writer.inside(test, loop=True):
        (holds,) = _lower_region(scope, attrs["test"], [*carries.places(), *fixed], [None], lower)
    with writer.inside(body, loop=True):
        targets = collected.rows() if collected else []
        wanted = [*carries.wanted(), *targets]
        outs = _lower_region(scope, attrs["body"], [*carries.places(), *fixed], wanted, lower)
        for place, target in zip(outs[count:], targets, strict=True):
            _put(scope, place, target)
        carries.advance(outs[:count])
        if collected:
            collected.advance()
        if writer.failures or writer.hosts:
            b.add_statement(Leave())
    b.add_statement(While(test, holds, body))
    carries.publish(node)
    if collected:
        collected.publish(node)


class _Collected:
    """What a loop collects: rows in memory from the heap, which grows as the loop goes on."""

    def __init__(self, scope: Scope, node: Node) -> None:
        self.scope = scope
        self.writer = scope.writer
        b = self.writer.main
        (self.name,) = node.attrs["trips"].names()
        self.count = b.local(0, int64)
        self.room = b.local(_ROWS, int64)
        self.writer.told.add(self.name)
        b.add_statement(Bind(self.name, b.get(self.room)))
        self.stacks = [scope.output(v) for v in node.outputs[node.attrs["carries"] : -1]]

    def rows(self) -> list[Array]:
        """The rows of this iteration; there is room for them."""
        b = self.writer.main
        count = b.get(self.count)
        grow = Block()
        with b.inside(grow):
            b.set(self.room, b.mul(b.get(self.room), 2))
            b.add_statement(Bind(self.name, b.get(self.room)))
            for stack in self.stacks:
                self.writer.allocate(stack.buffer, stack.size)
        b.add_statement(If(b.le(b.get(self.room), count), grow, Block()))
        row = b.term(count)
        return [stack.row(row) for stack in self.stacks]

    def advance(self) -> None:
        """One more row is there."""
        b = self.writer.main
        b.set(self.count, b.add(b.get(self.count), 1))

    def publish(self, node: Node) -> None:
        """After the loop its length is known."""
        b = self.writer.main
        count = b.get(self.count)
        b.add_statement(Bind(self.name, count))
        self.scope.places[node.outputs[-1]] = count


def _true_places(scope: Scope, node: Node, lower: Lower) -> None:
    """Count the true ones, which tells the size, then write where they are."""
    b, trips = scope.writer.main, node.attrs["trips"]
    mask = scope.array(node.inputs[0])
    if isinstance(trips, Size):
        count = b.local(0, int64)
        with b.loop(mask.shape[0]) as i:
            b.set(count, b.add(b.get(count), b.cast(b.load(mask.buffer, mask.at(i)), int64)))
        (name,) = trips.names()
        scope.writer.told.add(name)
        b.add_statement(Bind(name, b.get(count)))
    out = scope.output(node.outputs[0])
    place = b.local(0, int64)
    with b.loop(mask.shape[0]) as i, b.if_(b.load(mask.buffer, mask.at(i))):
        at = b.get(place)
        b.store(out.buffer, out.at(b.term(at)), i)
        b.set(place, b.add(at, 1))


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
    "scan": _scan,
    "while_loop": _while,
    "true_places": _true_places,
    "print": _print,
    "check": _check,
    "guard": _guard,
}
