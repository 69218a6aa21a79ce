"""Loops in the main function.

A scalar that a loop carries is a local; an array is a buffer that holds the newest value. The copies that
this writes at the end of an iteration are removed by ``copy_elision`` where the new value can be made
in place. What a loop collects of its carries, as the gradient of a loop keeps what each iteration began with,
is one row after another, with a row more than the loop has iterations: an iteration reads a row and writes
the next, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Bind, Block, Const, Get, If, Leave, Load, Scalar, While
from weft.ops.collective import shards_here
from weft.passes.loops import Counter, find_counter
from weft.schedule.arrays import Array, Progression
from weft.schedule.late_sizes import LateSizes, tell_size
from weft.schedule.pointwise.rules import as_constant
from weft.schedule.region import Failure, Lower, Scope, is_same, lower_region, put

SMALL = 64  # elements of an array that is rather copied than read from memory in each iteration


class History(NamedTuple):
    """An array that a loop carries, before each iteration and after the last.

    Attributes:
        rows: all of them, in order, or from the last to the first where the loop goes backward.
        length: the number of iterations.
        reverse: whether the loop goes backward.
    """

    rows: Array
    length: Any
    reverse: bool

    @property
    def first(self) -> Array:
        """What the loop begins with."""
        return self.rows.row(self.length if self.reverse else 0)

    @property
    def last(self) -> Array:
        """What the loop ends with."""
        return self.rows.row(0 if self.reverse else self.length)

    @property
    def stack(self) -> Array:
        """What each iteration begins with, at the place of its row."""
        rows = self.rows
        offset = rows.row(1).offset if self.reverse else rows.offset
        return Array(rows.buffer, (self.length, *rows.shape[1:]), rows.strides, offset)

    def before(self, row: Index) -> Array:
        """What the iteration of a row begins with."""
        return self.stack.row(row)

    def after(self, row: Index) -> Array:
        """What the iteration of a row ends with."""
        return self.rows.row(row if self.reverse else row + 1)


def find_histories(scope: Scope, node: Node, inits: Sequence[Value]) -> dict[int, History]:
    """By the number of a stack that a scan gives, the history of the carry that is collected in it."""
    attrs = node.attrs
    body, length, count = attrs["body"], attrs["length"], attrs["carries"]
    if attrs["counted"]:
        return {}
    carried = dict(zip(body.inputs[:count], inits, strict=True))
    found: dict[int, History] = {}
    for k, value in enumerate(body.outputs[count:]):
        stack = node.outputs[count + k]
        is_free = stack not in scope.wanted and stack not in scope.layouts
        if is_free and value in carried and not _is_small(value):
            del carried[value]  # once is enough
            rows = scope.writer.temporary((length + 1, *value.type.shape), value.type.dtype)
            held = scope.writer.origins.buffers
            held[rows.buffer] = held[rows.buffer]._replace(value=stack)
            found[k] = History(rows, length, attrs["reverse"])
            scope.places[stack] = found[k].stack
    return found


def _is_small(value: Value) -> bool:
    size = size_of(value.type.shape)
    return not isinstance(size, Size) and size < SMALL


_ROWS = 16  # that a loop which collects has room for at first


class _Carries:
    """What a loop carries: a local for each scalar, a buffer, or a history, for each array."""

    def __init__(
        self,
        scope: Scope,
        values: Sequence[Value],
        outputs: Sequence[Value],
        histories: Mapping[int, History] | None = None,
    ) -> None:
        self.scope = scope
        self.outputs = outputs
        self.holders: list[Any] = []
        for k, (value, out) in enumerate(zip(values, outputs, strict=True)):
            history = histories.get(k) if histories else None
            if value.type.shape == ():
                self.holders.append(scope.writer.main.local(scope.scalar(value)))
            else:
                self.holders.append(history or scope.output(out))
                put(scope, scope.place(value), history.first if history else self.holders[-1])

    def places(self, row: Index | None = None) -> list[Any]:
        """What the carries are at the beginning of an iteration."""
        return [self._now(h, row) for h in self.holders]

    def _now(self, holder: Any, row: Index | None) -> Any:
        if isinstance(holder, Array):
            return holder
        if isinstance(holder, History):
            assert row is not None
            return holder.before(row)
        return self.scope.writer.main.get(holder)

    def wanted(self, row: Index | None = None) -> list[Array | None]:
        """No array, unless the old value stays: it must not be lost before it was read for the last time."""
        return [h.after(row) if isinstance(h, History) and row is not None else None for h in self.holders]

    def advance(self, outs: Sequence[Any], row: Index | None = None) -> None:
        """The carries become what an iteration gave, all at once."""
        b = self.scope.writer.main
        buffers = {h.buffer for h in self.holders if isinstance(h, Array)}
        next_places = [
            h if target is None else target for h, target in zip(self.holders, self.wanted(row), strict=True)
        ]
        moved = []
        for holder, place in zip(next_places, outs, strict=True):
            # Two carries may change places: neither may be overwritten before the other was read.
            swapped = isinstance(place, Array) and place.buffer in buffers and not is_same(place, holder)
            moved.append(self.scope.writer.copied(place) if swapped else place)
        for holder, place in zip(next_places, moved, strict=True):
            if isinstance(holder, Array):
                put(self.scope, place, holder)
            else:
                assert not isinstance(place, Array)
                b.set(holder, place)

    def publish(self) -> None:
        """After the loop the carries are its outputs."""
        for value, holder in zip(self.outputs, self.holders, strict=True):
            last = holder.last if isinstance(holder, History) else holder
            self.scope.places[value] = last if isinstance(last, Array) else self.scope.writer.main.get(last)


def lower_scan(scope: Scope, node: Node, lower: Lower) -> None:
    """A loop along arrays, whose length is known."""
    attrs, xs = node.attrs, list(node.inputs)
    b = scope.writer.main
    steps = Index.of(attrs["length"])
    if attrs["counted"]:
        steps = b.term(b.cast(scope.scalar(xs.pop(0)), int64))
    count, mapped = attrs["carries"], attrs["mapped"]
    along = [_walked(scope, v) for v in xs[count : count + mapped]]
    fixed = scope.writer.target.fixed_places(scope, attrs["body"], xs[count + mapped :])
    histories = find_histories(scope, node, xs[:count])
    old = {attrs["body"].inputs.index(attrs["body"].outputs[count + k]): h for k, h in histories.items()}
    carries = _Carries(scope, xs[:count], node.outputs[:count], old)
    collected = node.outputs[count:]
    late = LateSizes(scope, node, collected)
    stacks = [histories[k].stack if k in histories else scope.output(v) for k, v in enumerate(collected)]
    zero = attrs["counted"] and not _is_full(scope, node)
    if zero:
        _fill_with_zeros(scope, stacks)
    with _loop(scope, node, steps) as i:
        row = _reversed(b, steps, i) if attrs["reverse"] else i
        rows = [_row(b, x, row) for x in along]
        targets = [stack.row(row) for stack in stacks]
        wanted = [*carries.wanted(row), *late.wanted(collected, targets)]
        before = [*carries.places(row), *rows, *fixed]
        done = _collect_old(scope, attrs["body"], before, targets)
        outs = lower_region(scope, attrs["body"], before, wanted, lower)
        late.after_iteration(
            collected, stacks, (lambda held: _fill_with_zeros(scope, held)) if zero else None
        )
        numbers = [None if attrs["counted"] else _even(x, row, attrs["length"]) for x in outs[count:]]
        _collect(scope, outs[count:], targets, numbers, done)
        carries.advance(outs[:count], row)
    carries.publish()
    _publish_numbers(scope, node.outputs[count:], numbers)


def _is_full(scope: Scope, node: Node) -> bool:
    """Whether a counted loop goes round as often as it can, so that every row is written."""
    told = [n for n in scope.graph.nodes if node.inputs[0] in n.outputs]
    return any(n.op is shards_here and n.attrs["count"] == node.attrs["length"] for n in told)


def _fill_with_zeros(scope: Scope, stacks: Sequence[Array]) -> None:
    for stack in stacks:
        put(scope, Const(np.zeros((), stack.dtype)[()], stack.dtype), stack)


def _reversed(b: Builder, steps: Index, i: Index) -> Index:
    """The row of an iteration that goes backward, with bounds that are told where the length varies."""
    bounds = steps.bounds()
    if steps.is_fixed or bounds is None:
        return steps - 1 - i
    return b.term(b.scalar("sub", (steps - 1, i), int64), bounds[1])


# What loops collect


def _even(place: Any, row: Index, size: Any) -> Any:
    """What all iterations give, if it is one number, or numbers at even distances; else None."""
    if isinstance(place, Const):
        return place
    if not isinstance(place, Index) or not isinstance(place.offset, int) or len(row.terms) != 1:
        return None
    ((variable, factor),) = row.terms.items()
    if set(place.terms) != {variable} or factor != 1 or row.offset != 0:
        return None
    step = place.terms[variable]
    return Progression(place.offset, step, size, int64) if isinstance(step, int) else None


def _collect_old(scope: Scope, body: Graph, before: Sequence[Any], targets: Sequence[Array]) -> set[int]:
    """Store the arrays that an iteration begins with and that are collected, so that they may change then."""
    done = set()
    for k, value in enumerate(body.outputs[len(body.outputs) - len(targets) :]):
        place = before[body.inputs.index(value)] if value in body.inputs else None
        if isinstance(place, Array):
            put(scope, place, targets[k])
            done.add(k)
    return done


def _collect(
    scope: Scope, outs: Sequence[Any], targets: Sequence[Array], numbers: Sequence[Any], done: set[int]
) -> None:
    """Store what an iteration gives, but for what is known as numbers, or done."""
    for k, (place, target) in enumerate(zip(outs, targets, strict=True)):
        if numbers[k] is None and k not in done:
            put(scope, place, target)


def _publish_numbers(scope: Scope, stacks: Sequence[Value], numbers: Sequence[Any]) -> None:
    for value, number in zip(stacks, numbers, strict=True):
        if number is not None:
            scope.places[value] = number


def _walked(scope: Scope, value: Value) -> Any:
    place = scope.place(value)
    return place if isinstance(place, Progression | Const) else scope.array(value)


def _row(b: Builder, place: Any, row: Index) -> Any:
    if isinstance(place, Const):
        return place
    return place.row(row) if isinstance(place, Array) else place.element(b, row)


@contextmanager
def _loop(scope: Scope, node: Node, steps: Index) -> Iterator[Index]:
    with scope.writer.main.loop(steps) as i:
        scope.writer.loops.update(dict.fromkeys(i.terms, node))
        scope.writer.depth += 1
        yield i
        scope.writer.depth -= 1


def lower_while(scope: Scope, node: Node, lower: Lower) -> None:
    """A loop with a test; one that counts is a loop whose length is known when it begins.

    Where only the device knows its length, it is tested there, so that no host waits to be told.
    """
    counter = find_counter(node)
    if counter is None or (scope.writer.target.tests_loops and _is_told_late(scope, node, counter)):
        _repeat(scope, node, lower)
    else:
        _count(scope, node, counter, lower)


def _is_told_late(scope: Scope, node: Node, counter: Counter) -> bool:
    """Whether the length of a loop, which collects nothing, is computed from what is in memory."""
    ends = [node.inputs[counter.carry], counter.stop]
    places = [scope.place(x) for x in ends if isinstance(x, Value)]
    return node.attrs["trips"] is None and any(map(_is_in_memory, places))


def _is_in_memory(x: Any) -> bool:
    if isinstance(x, Scalar):
        return any(map(_is_in_memory, x.args))
    if isinstance(x, Index):
        return any(v.value is not None and _is_in_memory(v.value) for v in x.terms)
    return isinstance(x, Array | Load | Get)


def _count(scope: Scope, node: Node, counter: Counter, lower: Lower) -> None:
    attrs, b, number = node.attrs, scope.writer.main, counter.carry
    count = attrs["carries"]
    start = scope.scalar(node.inputs[number])
    stop = scope.scalar(counter.stop) if isinstance(counter.stop, Value) else as_constant(counter.stop)
    assert start is not None
    assert stop is not None
    steps = b.term(b.max(b.sub(stop, start), 0))
    others = [k for k in range(count) if k != number]
    carries = _Carries(scope, [node.inputs[k] for k in others], [node.outputs[k] for k in others])
    fixed = scope.writer.target.fixed_places(scope, attrs["body"], node.inputs[count:])
    values = node.outputs[count:-1] if attrs["trips"] is not None else ()
    late = LateSizes(scope, node, values)
    stacks = _room(scope, node, steps, values)
    with _loop(scope, node, steps) as i:
        targets = [stack.row(i) for stack in stacks]
        before = carries.places()
        before.insert(number, b.add(start, i))
        wanted = [None] * count + late.wanted(values, targets)
        before += fixed
        done = _collect_old(scope, attrs["body"], before, targets)
        outs = lower_region(scope, attrs["body"], before, wanted, lower)
        late.after_iteration(values, stacks)
        numbers = [_even(x, i, attrs["trips"]) for x in outs[count:]]
        _collect(scope, outs[count:], targets, numbers, done)
        carries.advance([outs[k] for k in others])
    carries.publish()
    _publish_numbers(scope, values, numbers)
    scope.places[node.outputs[number]] = b.add(start, steps)


def _room(scope: Scope, node: Node, steps: Index, values: Sequence[Value]) -> list[Array]:
    """Memory for what a loop collects whose length is known; it may tell that and collect nothing."""
    if node.attrs["trips"] is None:
        return []
    (name,) = node.attrs["trips"].names()
    tell_size(scope, node, name, steps)
    scope.places[node.outputs[-1]] = steps
    return [scope.output(v) for v in values]


def _repeat(scope: Scope, node: Node, lower: Lower) -> None:
    attrs, writer = node.attrs, scope.writer
    b, count = writer.main, attrs["carries"]
    carries = _Carries(scope, node.inputs[:count], node.outputs[:count])
    fixed = [scope.place(v) for v in node.inputs[count:]]
    collected = _Collected(scope, node) if attrs["trips"] is not None else None
    test, body = Block(), Block()
    with writer.inside(test, loop=True):
        (holds,) = lower_region(scope, attrs["test"], [*carries.places(), *fixed], [None], lower)
    with writer.inside(body, loop=True):
        targets = collected.rows() if collected else []
        late_wanted = collected.late.wanted(collected.values, targets) if collected else []
        wanted = [*carries.wanted(), *late_wanted]
        outs = lower_region(scope, attrs["body"], [*carries.places(), *fixed], wanted, lower)
        if collected:
            collected.late.after_iteration(collected.values, collected.stacks)
        for place, target in zip(outs[count:], targets, strict=True):
            put(scope, place, target)
        carries.advance(outs[:count])
        if collected:
            collected.advance()
        if writer.failures or writer.hosts:
            b.add_statement(Leave())
    loop = While(test, holds, body)
    writer.loops[loop] = node
    b.add_statement(loop)
    carries.publish()
    if collected:
        collected.publish(node)


class _Collected:
    """What a loop collects: rows in memory from the heap, which grows as the loop goes on.

    Where the number of rows is known, as of a loop that runs again, there is memory for them all.
    """

    def __init__(self, scope: Scope, node: Node) -> None:
        self.scope = scope
        self.node = node
        self.writer = scope.writer
        b = self.writer.main
        (self.name,) = node.attrs["trips"].names()
        self.is_known = self.name in self.writer.bound
        self.count = b.local(0, int64)
        self.room = b.local(Index.of(node.attrs["trips"]) if self.is_known else _ROWS, int64)
        if not self.is_known:
            self.writer.told.add(self.name)
            b.add_statement(Bind(self.name, b.get(self.room)))
        self.values = node.outputs[node.attrs["carries"] : -1]
        self.late = LateSizes(scope, node, self.values)
        self.stacks = [scope.output(v) for v in self.values]

    def rows(self) -> list[Array]:
        """The rows of this iteration; there is room for them."""
        b = self.writer.main
        count = b.get(self.count)
        full = b.le(b.get(self.room), count)
        if self.is_known:
            known = Index.of(self.node.attrs["trips"])
            number = self.writer.failure(Failure(self.node, "recount"))
            b.fail(full, number, known, b.add(count, 1))
            b.add_statement(Leave())
        else:
            b.add_statement(If(full, self._grow(), Block()))
        row = b.term(count)
        return [stack.row(row) for stack in self.stacks]

    def _grow(self) -> Block:
        b, grow = self.writer.main, Block()
        with b.inside(grow):
            b.set(self.room, b.mul(b.get(self.room), 2))
            b.add_statement(Bind(self.name, b.get(self.room)))
            for stack in self.stacks:
                self.writer.allocate(stack.buffer, stack.size)
        return grow

    def advance(self) -> None:
        """One more row is there."""
        b = self.writer.main
        b.set(self.count, b.add(b.get(self.count), 1))

    def publish(self, node: Node) -> None:
        """After the loop its length is known."""
        count = self.writer.main.get(self.count)
        tell_size(self.scope, node, self.name, count)
        self.scope.places[node.outputs[-1]] = count
