"""What the kernel of a group is about, whatever the machine: what it reads and makes, and in which sweep.

A group works row by row on arrays of one shape. What a row is reduced to is known when a sweep over its
columns has ended, so a value has a *level*, the sweep in which it can be computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.base.sizes import Size, is_known
from weft.ir.graph import Node, Value
from weft.ir.literals import format_literal
from weft.loop.ir import Const
from weft.ops.view.primitives import join
from weft.ops.view.slices import pad_axes
from weft.schedule.arrays import Array, Progression
from weft.schedule.fusion import Frame, Group, is_reduction, reduction
from weft.schedule.region import Scope
from weft.schedule.use_def import UseDef

MOST_PIECES = 8  # of a sweep that is cut


def last_axis_breaks(node: Node) -> list[int]:
    """Where, along the last axis, a node goes on with another of its inputs, or with padding."""
    shape, attrs = node.outputs[0].type.shape, node.attrs
    if node.op is join and attrs["axis"] == len(shape) - 1:
        sizes = [v.type.shape[-1] for v in node.inputs]
        return [sum(sizes[:i]) for i in range(1, len(sizes))] if is_known(sizes) else []
    if node.op is pad_axes and attrs["interior"][-1] == 0 and is_known((attrs["low"][-1], attrs["high"][-1])):
        return [attrs["low"][-1], shape[-1] - attrs["high"][-1]]
    return []


class GroupCode:
    """What is known of a group before its kernel is written.

    Attributes:
        made: by value, the node of the group that makes it.
        kinds: by value, what it is: "full", "row", "column" or "all".
        levels: by value, in which sweep it is computed.
        external: what is read from outside.
        inlined: by value, the nodes that are computed where they are read, those of the group included.
    """

    def __init__(self, scope: Scope, use_def: UseDef, group: Group, anchor: Value | None = None) -> None:
        self.scope = scope
        self.use_def = use_def
        self.frame = group.frame
        self.nodes = [use_def.nodes[i] for i in group.members]
        self.made = {node.outputs[0]: node for node in self.nodes}
        self.outputs = use_def.used_outside(group.members)
        self.kinds = {v: self._kind(node) for v, node in self.made.items()}
        self.levels = self._find_levels()
        self.inlined: dict[Value, Node] = dict(self.made)
        self.anchor = anchor
        self.external = self._find_external()
        self.flat = group.frame.split is None or self._is_one_long_row()
        self.breaks = self._find_breaks()
        start = len(self.frame.shape) - 1 if self.breaks else self._even_from() if self.flat else 0
        if self.flat and start > 0:
            self.frame, self.flat = Frame(self.frame.shape, start), False

    # What is what

    def _kind(self, node: Node) -> str:
        """What a value is: "full", "row", "column" or "all"."""
        if is_reduction(node):
            return reduction(node, self.frame)
        return self.frame.kind(node.outputs[0].type.shape)

    def _is_one_long_row(self) -> bool:
        rows = self.frame.rows
        return not isinstance(rows, Size) and rows == 1 and {"row", "column"}.isdisjoint(self.kinds.values())

    def _find_levels(self) -> dict[Value, int]:
        """By value, in which sweep it is computed; what a row is reduced to is known in the next one."""
        levels: dict[Value, int] = {}
        for v, node in self.made.items():
            roots = [self.use_def.root(x) for x in node.inputs]
            level = max((levels[r] for r in roots if r in levels), default=0)
            reduces_row = is_reduction(node) and self.kinds[v] == "row"
            # What a sweep folds is complete at its end, so the next one is the first that can use it.
            levels[v] = level + 1 if reduces_row else level
        return levels

    def _find_external(self) -> list[Value]:
        """What is read from outside; views that no strides describe are computed where they are read."""
        found: dict[Value, None] = {}

        def visit(value: Value) -> None:
            if value in self.made or value is self.anchor:
                return
            i = self.use_def.producer.get(value)
            root = self.use_def.root(value)
            # A view of what is made here is no array: elements are computed through it.
            if i is not None and (root in self.made or root is self.anchor):
                self.inlined[value] = self.use_def.nodes[i]
                visit(self.use_def.nodes[i].inputs[0])
            elif self.scope.find(value) is not None:
                found[value] = None
            else:
                assert i is not None
                self.inlined[value] = self.use_def.nodes[i]
                for x in self.use_def.nodes[i].inputs:
                    visit(x)

        for node in self.nodes:
            for x in node.inputs:
                visit(x)
        return list(found)

    def _find_breaks(self) -> list[int]:
        """Columns at which another part of what is joined begins: the sweep is cut there."""
        shape = self.frame.shape
        if not shape or isinstance(shape[-1], Size):
            return []
        found = {
            c for node in self.nodes for c in last_axis_breaks(node) if node.outputs[0].type.shape == shape
        }
        inside = sorted(c for c in found if 0 < c < shape[-1])
        return inside if len(inside) < MOST_PIECES else []

    def _even_from(self) -> int:
        """The first axis from which on all that is read from outside walks evenly through memory."""
        start = 0
        for node in self.nodes:
            shape = node.outputs[0].type.shape
            if is_reduction(node) or shape != self.frame.shape:
                continue
            for v in node.inputs:
                place = self.scope.find(v) if v in self.external else None
                if isinstance(place, Array):
                    start = max(start, _even_axes(place, shape))
            if node.outputs[0] in self.scope.parts:
                start = max(start, _even_axes(self.scope.parts[node.outputs[0]], shape))
        return start

    def memory(self) -> list[Value]:
        """What is read from memory, of that from outside."""
        found = [v for v in self.external if isinstance(self.scope.place(v), Array) or v.type.shape == ()]
        return [v for v in found if not isinstance(self.scope.place(v), Const)]


def _even_axes(x: Array, shape: tuple[Any, ...]) -> int:
    """The first axis of a shape from which on an array that broadcasts to it is walked through evenly."""
    lead = len(shape) - x.ndim
    strides = [0] * lead + [
        s if isinstance(n, Size) or n != 1 else 0 for s, n in zip(x.strides, x.shape, strict=True)
    ]
    axis = len(shape) - 1
    while axis > 0:
        before, size = strides[axis - 1], shape[axis]
        unit = not isinstance(shape[axis - 1], Size) and shape[axis - 1] == 1
        if not unit and before != strides[axis] * size:
            return axis
        if unit:
            strides[axis - 1] = strides[axis] * size
        axis -= 1
    return 0


def key_of(group: GroupCode, reads: Mapping[Value, Array], writes: Mapping[Value, Array]) -> Any:
    """What the code of a group depends on; None where that cannot be told.

    The layers of a network have groups that differ in nothing but the arrays they work on: with equal keys
    the kernel is written once, and launched for each of them.

    Args:
        group: the group.
        reads, writes: the arrays of its values that are in memory; the kernel is launched on them.
    """
    values = [*group.external, *group.inlined]
    numbers = {v: i for i, v in enumerate(values)}
    if group.anchor is not None:
        numbers[group.anchor] = -1
    if any(node.regions for node in group.inlined.values()):
        return None
    sources = [
        array_key(reads[v]) if v in reads else _number_key(group.scope.place(v)) for v in group.external
    ]
    if None in sources:
        return None
    nodes = [_node_key(node, numbers) for node in group.inlined.values()]
    targets = [(numbers[v], array_key(array)) for v, array in writes.items()]
    frame, in_loop = group.frame, group.scope.writer.depth > 0
    form = (frame.shape, frame.split, group.flat, tuple(group.breaks), in_loop)
    order = tuple(numbers[v] for v in (*group.made, *reads))
    return ("group", form, tuple(sources), tuple(nodes), tuple(targets), order)


def array_key(array: Array) -> Any:
    """What code that uses an array depends on."""
    return array.dtype, array.shape, array.strides


def _number_key(place: Any) -> Any:
    """What code depends on that has a number, or numbers, in it; None for what it would have to be given."""
    if isinstance(place, Const):
        return place.dtype, np.asarray(place.value, place.dtype).tobytes()
    if isinstance(place, Progression):
        return place.dtype, place.start, place.step, place.shape
    return None


def _node_key(node: Node, numbers: Mapping[Value, int]) -> Any:
    attrs = tuple([(name, format_literal(value)) for name, value in node.attrs.items()])
    types = tuple([(v.type.dtype, v.type.shape) for v in node.outputs])
    return node.op, attrs, tuple([numbers[v] for v in node.inputs]), types
