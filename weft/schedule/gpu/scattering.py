"""scatter and scatter_add on a GPU, in a fixed order: of duplicate indices the last counts, or all add up.

Rows of the result are shared out among blocks, and all blocks go through all indices in order: each takes
those that name rows of its own, its threads a column each, or several side by side where rows are long. So
an element has one thread, which meets its indices in their order. Each thread looks at one index at a time;
they are passed over in groups where none is of the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import int64
from weft.base.shapes import broadcast_shapes, size_of
from weft.ir.graph import Node
from weft.loop.index import Index
from weft.loop.ir import Buffer, Value
from weft.ops.index import gather_nd
from weft.passes.base import is_elementwise
from weft.schedule.arrays import Array
from weft.schedule.cpu.scattering import changed_copy, is_brief, row_start, value_at, write_scattered
from weft.schedule.extents import ceil_div, is_number
from weft.schedule.folding import fold_of
from weft.schedule.gpu.machine import Gpu
from weft.schedule.region import Failure
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, unflattened

_GROUP = 32  # indices that are passed over at once
_AT_ONCE = 4  # indices that a thread looks at between two barriers
_FEW = 16  # indices that are not worth it


@lowers("scatter", "scatter_add", target="gpu")
def _scatter(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    x, v, *indices = inputs
    adds, brief = node.op.name == "scatter_add", is_brief(writer, v)
    with changed_copy(writer, x, outputs[0], adds) as target:
        # A host waits for the last kernel that can fail: what a lookup notes, this need not note again.
        noted = _is_noted(writer, node)
        numbers = [None if noted else writer.failure(Failure(node, "bounds")) for _ in indices]
        with writer.kernel(node.op.name, [v, *indices], [target], inline=brief) as k:
            count = size_of(broadcast_shapes("scatter", [i.shape for i in indices]))
            if brief or (is_number(count) and count <= _FEW) or any(is_number(s, 0) for s in target.shape):
                write_scattered(k, numbers, adds)
            else:
                machine = writer.target.machine
                assert isinstance(machine, Gpu)
                _Rows(k, numbers, adds, machine).write()


def _is_noted(writer: Writer, node: Node) -> bool:
    """Whether a lookup of the same graph fails where an index is out of range."""
    graph = writer.origins.graph
    if graph is None or len(node.inputs) != 3 or not any(n is node for n in graph.nodes):
        return False
    x, _, index = node.inputs
    found = {
        n.outputs[0]
        for n in graph.nodes
        if n.op is gather_nd and n.inputs[1:] == (index,) and n.inputs[0].type.shape[0] == x.type.shape[0]
    }
    # All of it must be looked up: of what only parts are used, the others may never be.
    whole = {v for n in graph.nodes if is_elementwise(n) for v in n.inputs if v.type.shape == _shape(n)}
    return not found.isdisjoint(whole)


def _shape(node: Node) -> tuple[Any, ...]:
    return node.outputs[0].type.shape


class _Rows:
    """Writes the kernel."""

    def __init__(self, k: Kernel, failures: Sequence[int | None], adds: bool, machine: Gpu) -> None:
        self.k, self.b, self.failures, self.adds = k, k.builder, failures, adds
        (_, *indices), (self.out,) = k.reads, k.writes
        self.shape = tuple(broadcast_shapes("scatter", [i.shape for i in indices]))
        self.count = size_of(self.shape)
        lead, self.rest = self.out.shape[: len(indices)], self.out.shape[len(indices) :]
        self.width: Any = size_of(self.rest)
        self.rows: Any = size_of(lead)
        self.threads, self.group = machine.threads, _GROUP
        self.lanes = self._lanes(machine)
        self.chunks = ceil_div(self.width, self.threads * self.lanes)
        wanted = max(1, machine.blocks * 2 // self.chunks) if is_number(self.chunks) else machine.blocks
        self.parts = min(wanted, self.rows) if is_number(self.rows) else wanted
        self.each = ceil_div(self.rows, self.parts)

    def _lanes(self, machine: Gpu) -> int:
        """Columns of a thread: as many as it reaches at once where a row has more than there are threads."""
        lanes, most = 1, machine.access_bytes // self.out.dtype.itemsize
        if is_number(self.width):
            while lanes < most and self.width > self.threads * lanes and self.width % (2 * lanes) == 0:
                lanes *= 2
        return lanes

    def write(self) -> None:
        """Write the grid and all in it."""
        b = self.b
        several = self.threads * _AT_ONCE
        rows = b.scratch("rows", int64, several, "shared")
        groups = b.scratch("groups", int64, several // self.group, "shared")
        with b.parallel(self.parts * self.chunks) as block, b.threads(self.threads) as t:
            part, chunk = b.quotient(block, self.chunks), b.remainder(block, self.chunks)
            column = (chunk * self.threads + t) * self.lanes
            with b.loop(ceil_div(self.count, several)) as turn:
                first = turn * several
                b.barrier()  # what was read of the turn before
                for n in range(_AT_ONCE):
                    self._look(rows, first + n * self.threads + t, t + n * self.threads, part)
                b.barrier()
                self._sum_up(rows, groups, t)
                b.barrier()
                with b.loop(several // self.group) as g, b.if_(b.lt(0, b.load(groups, g))):
                    self._group(rows, first, g, column)

    def _group(self, rows: Buffer, first: Index, g: Index, column: Index) -> None:
        """Those of a group that are of this block, one after the other."""
        b = self.b
        with b.loop(self.group) as n:
            row = b.load(rows, g * self.group + n)
            with b.if_(b.and_(b.le(0, row), b.lt(column, Index.of(self.width)))):
                number, start = first + g * self.group + n, b.term(row) * self.width + self.out.offset
                if self.lanes == 1:
                    self._apply(number, start, column)
                    return
                with b.vector(self.lanes, lanes=self.lanes) as c:
                    self._apply(number, start, column + c)

    def _look(self, rows: Buffer, number: Index, t: Index, part: Index) -> None:
        """The row that an index names, if it is of this block; else -1."""
        b = self.b
        b.store(rows, t, -1)
        with b.if_(b.lt(number, Index.of(self.count))):
            place = tuple(unflattened(b, number, self.shape))
            start, safe = row_start(self.k, place, self.failures)
            row = b.quotient(b.term(b.sub(start, self.out.offset)), self.width)
            own = b.and_(b.le(part * self.each, row), b.lt(row, (part + 1) * self.each))
            own = own if safe is None else b.and_(own, safe)
            b.store(rows, t, b.select(own, row, Index.of(-1)))

    def _sum_up(self, rows: Buffer, groups: Buffer, t: Index) -> None:
        """How many of each group there are."""
        b = self.b
        with b.if_(b.lt(t, Index.of(groups.size))):
            total = b.local(0, int64)
            with b.loop(self.group) as n:
                there = b.le(0, b.load(rows, t * self.group + n))
                b.set(total, b.add(b.get(total), b.cast(there, int64)))
            b.store(groups, t, b.get(total))

    def _apply(self, number: Index, start: Index, column: Index) -> None:
        b, out = self.b, self.out
        place = tuple(unflattened(b, number, self.shape))
        value: Value = value_at(self.k, number, place, column, self.width, self.rest)
        at = start + column
        if self.adds:
            value = fold_of("add", out.dtype)(b, b.load(out.buffer, at), b.cast(value, out.dtype))
        b.store(out.buffer, at, value)
