"""The kernel of a group: rows in parallel, and for each row one sweep over its columns after another.

What it reads, what it writes and how it is cut into blocks is decided here; ``row_sweeps`` writes its body.
Reductions over rows give partial results, one for each block of rows, which a second kernel combines; the
number of blocks depends on the shape alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.base.shapes import size_of
from weft.base.sizes import Size, is_known
from weft.ir.graph import Node, Value
from weft.ir.literals import format_literal
from weft.loop.ir import Const
from weft.ops.view.primitives import join
from weft.ops.view.slices import pad_axes
from weft.schedule.arrays import Array, Progression
from weft.schedule.cpu.row_sweeps import CHEAP, Sweeps, accumulator, clipped
from weft.schedule.extents import fold_instruction, identity
from weft.schedule.fusion import Frame, Group, is_reduction, reduction
from weft.schedule.region import Scope
from weft.schedule.use_def import UseDef
from weft.schedule.writer import Kernel, even_block

BLOCK = 16384  # elements that one iteration of a parallel loop works on, about
FEW_BLOCKS = 8  # of small arrays whose elements take long to compute
MOST_BLOCKS = 64  # partial results of a reduction over rows
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


class RowKernel:
    """Writes the kernel of one group."""

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
        return start

    def memory(self) -> list[Value]:
        """What is read from memory, of that from outside."""
        found = [v for v in self.external if isinstance(self.scope.place(v), Array) or v.type.shape == ()]
        return [v for v in found if not isinstance(self.scope.place(v), Const)]

    # Writing

    def lower(self, name: str) -> None:
        """Write the kernel, and those that combine partial results."""
        memory = self.memory()
        reads = [self.scope.array(v) for v in memory]
        blocks, rows_each = self._blocks()
        targets = {v: self._target(v, blocks) for v in self.outputs}
        writes = list(targets.values())
        key = _key_of(self, dict(zip(memory, reads, strict=True)), targets)
        if not self.scope.writer.launch_again(key, [*reads, *writes]):
            with self.scope.writer.kernel(name, reads, writes, key=key) as k:
                sources = {v: self.scope.place(v) for v in self.external}
                sources |= dict(zip(memory, k.reads, strict=True))
                inner = dict(zip(targets, k.writes, strict=True))
                Sweeps(self, k, sources, inner, blocks, rows_each).write()
        for v, target in targets.items():
            if self.kinds[v] in ("column", "all"):
                self._combine(v, target, blocks)

    def _blocks(self) -> tuple[Any, Any]:
        """The number of iterations of the parallel loop, and how many rows (or columns, if flat) each has."""
        rows, columns = self.frame.rows, self.frame.columns
        if self.flat:
            total = size_of(self.frame.shape)
            if isinstance(total, Size):
                return (total + (BLOCK - 1)) // BLOCK, BLOCK
            each = BLOCK if set(self.kinds.values()) != {"full"} else even_block(total, BLOCK)
            return max(1, -(-total // each)), max(1, min(total, each))
        # Each block has partial results of its own. Their number follows from the shape alone, so that sums
        # are rounded alike with any number of threads.
        partial = any(k in ("column", "all") for k in self.kinds.values())
        if isinstance(rows, Size):
            return (MOST_BLOCKS, (rows + (MOST_BLOCKS - 1)) // MOST_BLOCKS) if partial else (rows, 1)
        if rows == 0:
            return int(partial), 1
        width = 256 if isinstance(columns, Size) else max(columns, 1)
        if partial:
            count = max(1, min(rows, MOST_BLOCKS, rows * width // (2 * BLOCK)))
        else:
            work = rows * width * 4 // BLOCK
            # How much longer an element takes than one that is only read, added and written, about.
            weight = 1 + 2 * sum(bool(node.op.cost > CHEAP) for node in self.nodes)
            dear = min(FEW_BLOCKS, rows * width * 4 * weight // BLOCK)
            count = max(1, min(rows, max(work, dear)))
        each = -(-rows // count)
        return -(-rows // each), each

    def _target(self, value: Value, blocks: Any) -> Array:
        """Where a value that is used outside is written: in its place, or partial results in theirs."""
        if self.kinds[value] in ("full", "row"):
            return self.scope.output(value)
        if not isinstance(blocks, Size) and blocks == 1 and accumulator(self.made[value]) == value.type.dtype:
            return self.scope.output(value)
        width = self.frame.columns if self.kinds[value] == "column" else 1
        return self.scope.writer.temporary((blocks, width), accumulator(self.made[value]))

    def _combine(self, value: Value, partial: Array, blocks: Any) -> None:
        if not isinstance(blocks, Size) and blocks == 1 and accumulator(self.made[value]) == value.type.dtype:
            return
        out = self.scope.output(value)
        instruction = fold_instruction(self.made[value].op.fold, partial.dtype)
        with self.scope.writer.kernel("combine", [partial], [out]) as k:
            _combine(k, instruction)


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


def _key_of(row_kernel: RowKernel, reads: Mapping[Value, Array], writes: Mapping[Value, Array]) -> Any:
    """What the code of a group depends on; None where that cannot be told.

    The layers of a network have groups that differ in nothing but the arrays they work on: with equal keys
    the kernel is written once, and launched for each of them.

    Args:
        row_kernel: the group.
        reads, writes: the arrays of its values that are in memory; the kernel is launched on them.
    """
    values = [*row_kernel.external, *row_kernel.inlined]
    numbers = {v: i for i, v in enumerate(values)}
    if row_kernel.anchor is not None:
        numbers[row_kernel.anchor] = -1
    if any(node.regions for node in row_kernel.inlined.values()):
        return None
    sources = [
        _array_key(reads[v]) if v in reads else _number_key(row_kernel.scope.place(v))
        for v in row_kernel.external
    ]
    if None in sources:
        return None
    nodes = [_node_key(node, numbers) for node in row_kernel.inlined.values()]
    targets = [(numbers[v], _array_key(array)) for v, array in writes.items()]
    frame, in_loop = row_kernel.frame, row_kernel.scope.writer.depth > 0
    form = (frame.shape, frame.split, row_kernel.flat, tuple(row_kernel.breaks), in_loop)
    order = tuple(numbers[v] for v in (*row_kernel.made, *reads))
    return ("row_kernel", form, tuple(sources), tuple(nodes), tuple(targets), order)


def _array_key(array: Array) -> Any:
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


def _combine(k: Kernel, instruction: str) -> None:
    """Combine the rows of an array, from the first to the last."""
    b = k.builder
    (x,), (out,) = k.reads, k.writes
    count, width = x.shape
    lanes = 256
    tasks = 1 if isinstance(width, Size) or width <= lanes else -(-width // lanes)
    with b.parallel(tasks) as t:
        stop: Any = width if tasks == 1 else clipped(b, (t + 1) * lanes, width)
        with b.vector(stop, t * lanes if tasks > 1 else 0) as c:
            # A named size may be 0: then there is no first row.
            first = 0 if isinstance(count, Size) else 1
            start = b.load(x.buffer, x.at(0, c)) if first else identity(instruction, x.dtype)
            total = b.local(start, x.dtype)
            with b.loop(count, first) as i:
                b.set(total, getattr(b, instruction)(b.get(total), b.load(x.buffer, x.at(i, c))))
            b.store(out.buffer, out.flat(c), b.cast(b.get(total), out.dtype))
