"""Loops along rows: what an iteration looks up by its number is a row of an array that the loop goes along.

``x[t]`` in a loop over ``range(len(x))`` is row t of x: it need not be checked, and what is done with each
row alone can be seen. A loop that collects its rows gives them as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.records import NamedTuple
from weft.base.sizes import Size, size_names
from weft.ir.graph import Array, Graph, Node, Value
from weft.ops.control import scan
from weft.ops.index import gather_nd
from weft.ops.size import iota
from weft.ops.view.primitives import permute, reshape
from weft.ops.view.slices import slice_axes
from weft.passes.dce import pick
from weft.passes.loops import Loop, as_loop, remade, with_inputs
from weft.transform.partition import bytes_of

ROOM = 32 << 20  # bytes that a loop may keep, however little it goes along


class Around:
    """The graph around loops, while it is written anew.

    Attributes:
        nodes: so far.
        now: values that stand for others from now on.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.now: dict[Value, Value] = {}
        self.makers: dict[Value, Node] = {}

    def add(self, node: Node) -> None:
        """Put a node at the end."""
        self.nodes.append(node)
        self.makers.update((v, node) for v in node.outputs)

    def emit(self, like: Node, op: Any, *inputs: Value, **attrs: Any) -> Value:
        """What an op gives, which comes from the same line as another node."""
        out = Value(op.type_rule(*[v.type for v in inputs], **attrs))
        self.add(Node(op, inputs, attrs, [out], like.location))
        return out


def as_scan(node: Node) -> Loop | None:
    """A node as a loop along all rows, if it is one."""
    return as_loop(node) if node.op is scan and not node.attrs["counted"] else None


def is_view(node: Node) -> bool:
    """Whether a node gives the elements that it gets, in another shape or order of axes."""
    return node.op is reshape or node.op is permute


def has_room(loop: Loop, values: Sequence[Value], room: int = ROOM) -> bool:
    """Whether a loop may keep values of each iteration: few, or no more than it goes along anyhow."""
    n, length = len(loop.inits), loop.node.attrs["length"]
    rows = loop.body.inputs[n : n + len(loop.rows)]
    if isinstance(length, Size) or size_names(s for v in (*values, *loop.body.inputs) for s in v.type.shape):
        return False  # there is no telling, and products along sizes that are not known are slow
    size = sum(map(bytes_of, values))
    return length * size <= room or size <= sum(map(bytes_of, rows))


class Stacks:
    """Values of an iteration as arrays of those of all iterations: rows, what is collected, views of these.

    Attributes:
        known: by value of the body, the array.
        makers: by value of the body, the node that makes it.
    """

    def __init__(self, around: Around, loop: Loop, *, collected: bool = False) -> None:
        self.around, self.length = around, loop.node.attrs["length"]
        n = len(loop.inits)
        self.known = dict(zip(loop.body.inputs[n : n + len(loop.rows)], loop.rows, strict=True))
        if collected:
            self.known = {**dict(zip(loop.collected, loop.stacks, strict=True)), **self.known}
        self.makers = {v: node for node in loop.body.nodes for v in node.outputs}

    def base(self, value: Value) -> Value:
        """The value that one is a view of."""
        while value not in self.known and (node := self.makers.get(value)) is not None and is_view(node):
            (value,) = node.inputs
        return value

    def has(self, value: Value) -> bool:
        """Whether the array of a value is there, or a view of one that is."""
        return self.base(value) in self.known

    def of(self, value: Value) -> Value:
        """All values, along a first axis."""
        views: list[Node] = []
        base = value
        while base not in self.known:
            views.append(self.makers[base])
            base = views[-1].inputs[0]
        for node in reversed(views):
            self.known[node.outputs[0]] = self._view(node, self.known[node.inputs[0]])
        return self.known[value]

    def _view(self, node: Node, stack: Value) -> Value:
        if node.op is reshape:
            return self.around.emit(node, reshape, stack, shape=(self.length, *node.attrs["shape"]))
        axes = (0, *[a + 1 for a in node.attrs["axes"]])
        return self.around.emit(node, permute, stack, axes=axes)


# Look-ups


class _Numbers(NamedTuple):
    """The numbers of iterations: ``start``, and then each larger by ``step``; or 0, 1, ... below a size."""

    start: int
    step: int
    count: Any

    def are_rows_of(self, value: Value) -> bool:
        """Whether all of them are rows of a value."""
        size = value.type.shape[0]
        if self.count == size and (self.start, self.step) == (0, 1):
            return True
        known = isinstance(self.count, int) and isinstance(size, int)
        return known and self.start >= 0 and self.start + self.step * (self.count - 1) < size


def _numbers(around: Around, rows: Value) -> _Numbers | None:
    """The numbers that a loop goes along, if they are evenly apart."""
    array: Array | None = around.graph.constants.get(rows)
    if array is not None:
        if array.ndim != 1 or array.dtype.kind not in "iu" or array.size < 2:
            return None
        start, step = int(array[0]), int(array[1]) - int(array[0])
        even = step > 0 and np.array_equal(array, np.arange(array.size) * step + start)
        return _Numbers(start, step, int(array.size)) if even else None
    node = around.makers.get(rows)
    if node is None or node.op is not iota or node.attrs["dtype"].kind not in "iu":
        return None
    return _Numbers(0, 1, node.attrs["size"])


def follow_rows(around: Around, loop: Loop) -> Loop:
    """The loop with look-ups by the number of the iteration as rows."""
    body, n = loop.body, len(loop.inits)
    inner = body.inputs[n : n + len(loop.rows)]
    numbers = {v: _numbers(around, rows) for v, rows in zip(inner, loop.rows, strict=True)}
    outside = dict(zip(loop.same(body), loop.fixed, strict=True))
    nodes: list[Node] = []
    rows: dict[Value, Value] = {}
    for node in body.nodes:
        table, *at = node.inputs if node.op is gather_nd else (None,)
        found = numbers.get(at[0]) if len(at) == 1 else None
        if found is None or table not in outside or not found.are_rows_of(table):
            nodes.append(node)
        else:
            rows[node.outputs[0]] = _taken(around, node, outside[table], found)
    if not rows:
        return loop
    inputs = [*body.inputs[:n], *inner, *rows, *loop.same(body)]
    new = with_inputs(body.replace(nodes=nodes), inputs, body.outputs)
    return remade(loop, loop.node.outputs, rows=[*loop.rows, *rows.values()], body=new)


def _taken(around: Around, like: Node, table: Value, numbers: _Numbers) -> Value:
    """The rows of a table that have these numbers."""
    shape = table.type.shape
    if numbers == (0, 1, shape[0]):
        return table
    stop = numbers.start + numbers.step * (numbers.count - 1) + 1
    rest = shape[1:]
    starts, steps = (numbers.start, *[0] * len(rest)), (numbers.step, *[1] * len(rest))
    return around.emit(like, slice_axes, table, starts=starts, stops=(stop, *rest), steps=steps)


# Stacks


def share_stacks(around: Around, loop: Loop) -> Loop:
    """The loop without rows that it collects: they are there."""
    body, n = loop.body, len(loop.inits)
    given = dict(zip(body.inputs[n : n + len(loop.rows)], loop.rows, strict=True))
    kept = [v not in given for v in loop.collected]
    if all(kept):
        return loop
    pairs = zip(loop.stacks, loop.collected, strict=True)
    around.now.update((stack, given[v]) for stack, v in pairs if v in given)
    outputs = [*loop.outs, *pick(loop.stacks, kept)]
    new = with_inputs(body, body.inputs, [*body.outputs[:n], *pick(loop.collected, kept)])
    return remade(loop, outputs, body=new)
