"""What both directions of attention share: sizes of blocks, products in scratch memory, turned rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.ir.graph import Graph
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Const, Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.matmul.loops import Contraction, Finish
from weft.schedule.cpu.matmul.plan import Matrices, tile
from weft.schedule.cpu.matmul.tile import Side, Step
from weft.schedule.pointwise.rules import Indices, Reader, as_constant
from weft.schedule.writer import Kernel

LANES = 32  # rows of queries (or of keys, backwards) that are worked on side by side
BLOCK = 64  # the others, of which scores are held at a time

Begin = Callable[[Index, Index], Value]


class Axis(NamedTuple):
    """A number of elements, and how far apart they lie."""

    size: Any
    stride: Any


Axes = tuple[Axis, Step, Axis]  # rows of the left side, what is summed over, columns of the right side


class Direction:
    """Writes the kernel of one direction.

    Attributes:
        at: the place in the batch that a task works on.
    """

    def __init__(self, kernel: Kernel, machine: Machine, query: Array, keys: Array, values: Array) -> None:
        self.b: Builder = kernel.builder
        self.machine = machine
        self.query, self.keys, self.values = query, _transposed(keys), values
        self.rows, self.features = query.shape[-2:]
        self.count, self.width = values.shape[-2:]
        self.dtype = query.dtype
        self.at: Sequence[Index] = ()

    def scratch(self, name: str, rows: int) -> Buffer:
        """Memory of a task, with a line of lanes for each row."""
        return self.b.scratch(name, self.dtype, rows * LANES)

    def number(self, value: float) -> Const:
        """A number in code."""
        return Const(self.dtype.type(value), self.dtype)

    def fill(self, target: Buffer, number: Any) -> None:
        """Set all elements of a buffer."""
        with self.b.vector(target.size) as i:
            self.b.store(target, i, number)

    def inside(self, row: Index, rows: Any) -> Value | None:
        """Whether a row is there; None where blocks of lanes end with the matrix."""
        return None if _is_whole(rows) else self.b.lt(row, Index.of(rows))

    def there(self, first: Index, rows: Any) -> Any:
        """How many rows of a block are there."""
        return LANES if _is_whole(rows) else self.b.term(self.b.min(Index.of(rows) - first, LANES), LANES + 1)

    def turn_in(self, target: Buffer, array: Array, first: Index) -> None:
        """Copy rows of a matrix into the columns of a buffer; those behind its end are 0."""
        b, (rows, features) = self.b, array.shape[-2:]
        with b.loop(LANES) as lane:
            mask, row = self.inside(first + lane, rows), first + lane
            with b.vector(features) as c:
                b.store(target, c * LANES + lane, b.load(array.buffer, array.at(*self.at, row, c), mask))

    def side(self, array: Array, row: Any) -> Side:
        """A matrix from a row on, at the place of the batch."""
        return Side(array.buffer, array.at(*self.at, row, 0))

    def multiply(
        self, left: Side, right: Side, axes: Axes, finish: Finish, begin: Begin | None = None
    ) -> None:
        """Write the loops of a product: rows of the left side, what is summed, columns of the right side."""
        rows, step, columns = axes
        depth = step.extent if isinstance(step.extent, int) else BLOCK
        strides = (rows.stride, step.left), (step.right, columns.stride)
        matrices = Matrices(rows.size, columns.size, depth, *strides, right.buffer.dtype)
        cut = tile(matrices, 1, self.machine, may_pack=False, may_turn=False)
        left_rows, shape = ((rows.size,), (rows.stride,)), (cut.rows, cut.lanes)
        contraction = Contraction(self.b, left, right, left_rows, columns, [step], shape, finish, begin=begin)
        contraction.write(Index.of(0), 1, Index.of(0), 1)

    def score(self, array: Array, row: Index, count: Any, turned: Buffer, target: Buffer) -> None:
        """Products of rows of an array with what is turned."""
        apart, along = array.strides[-2:]
        axes = Axis(count, apart), Step(array.shape[-1], along, LANES), Axis(LANES, 1)

        def finish(i: Index, lane: Index, x: Value) -> None:
            self.b.store(target, i * LANES + lane, x)

        self.multiply(self.side(array, row), Side(turned, Index.of(0)), axes, finish)

    def add_rows(
        self, array: Array, row: Index, count: Any, scores: Buffer, held: Buffer, factor: Buffer | None = None
    ) -> None:
        """Add rows of an array, weighted for each lane, to what is held, times a factor of the lane."""
        b, (apart, along) = self.b, array.strides[-2:]
        axes = Axis(array.shape[-1], along), Step(count, apart, LANES), Axis(LANES, 1)

        def begin(i: Index, lane: Index) -> Value:
            before = b.load(held, i * LANES + lane)
            return before if factor is None else b.mul(before, b.load(factor, lane))

        def finish(i: Index, lane: Index, x: Value) -> None:
            b.store(held, i * LANES + lane, x)

        self.multiply(self.side(array, row), Side(scores, Index.of(0)), axes, finish, begin)

    def element(self, region: Graph, inputs: Sequence[Any], index: Indices, mask: Any = None) -> Value:
        """Write the code for one element of what a region of elementwise ops gives.

        Its first input is that element of the first value; the others are arrays.
        """
        numbers = {v: as_constant(array) for v, array in region.constants.items()}
        sources = {**dict(zip(region.inputs, inputs, strict=True)), **numbers}
        reader = Reader(self.b, sources, {n.outputs[0]: n for n in region.nodes})
        return reader.read(region.outputs[0], index, mask)


def _transposed(x: Array) -> Array:
    """Matrices with rows as columns."""
    shape, strides = ((*s[:-2], s[-1], s[-2]) for s in (x.shape, x.strides))
    return Array(x.buffer, shape, strides, x.offset)


def _is_whole(rows: Any) -> bool:
    """Whether blocks of lanes end with the matrix."""
    return not isinstance(rows, Size) and rows % LANES == 0
