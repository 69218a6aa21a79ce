"""What both directions of attention share: sizes of blocks, products in scratch memory, turned rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.base.dtypes import DType
from weft.base.sizes import Size
from weft.ir.graph import Graph
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Const, Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.matmul.loops import Contraction
from weft.schedule.cpu.matmul.plan import Matrices, tile
from weft.schedule.cpu.matmul.tile import Side, Step
from weft.schedule.pointwise.rules import Indices, Reader, as_constant

LANES = 32  # rows of queries (or of keys, backwards) that are worked on side by side
BLOCK = 64  # the others, of which scores are held at a time

Finish = Callable[[Index, Index, Value], None]


class Axis(NamedTuple):
    """A number of elements, and how far apart they lie."""

    size: Any
    stride: Any


def multiply(
    b: Builder,
    machine: Machine,
    left: Side,
    right: Side,
    axes: tuple[Axis, Step, Axis],
    finish: Finish,
    begin: Callable[[Index, Index], Value] | None = None,
) -> None:
    """Write the loops of a product: rows of the left side, what is summed over, columns of the right side."""
    rows, step, columns = axes
    depth = step.extent if isinstance(step.extent, int) else BLOCK
    strides = (rows.stride, step.left), (step.right, columns.stride)
    matrices = Matrices(rows.size, columns.size, depth, *strides, right.buffer.dtype)
    cut = tile(matrices, 1, machine, may_pack=False, may_turn=False)
    contraction = Contraction(
        b,
        left,
        right,
        ((rows.size,), (rows.stride,)),
        columns,
        [step],
        (cut.rows, cut.lanes),
        finish,
        begin=begin,
    )
    contraction.write(Index.of(0), 1, Index.of(0), 1)


def matrix_side(array: Array, at: Sequence[Index], row: Any) -> Side:
    """A matrix from a row on, at a place of the batch."""
    return Side(array.buffer, array.at(*at, row, 0))


def transposed(x: Array) -> Array:
    """Matrices with rows as columns."""
    shape, strides = ((*s[:-2], s[-1], s[-2]) for s in (x.shape, x.strides))
    return Array(x.buffer, shape, strides, x.offset)


def turn_in(b: Builder, target: Buffer, array: Array, at: Sequence[Index], first: Index, lanes: int) -> None:
    """Copy rows of a matrix into the columns of a buffer; those behind its end are 0."""
    rows, features = array.shape[-2:]
    with b.loop(lanes) as lane:
        mask = inside(b, first + lane, rows, lanes)
        with b.vector(features) as c:
            b.store(target, c * lanes + lane, b.load(array.buffer, array.at(*at, first + lane, c), mask))


def blocks_of(size: Any, block: int) -> Any:
    """How many blocks there are, the last of which may be short."""
    return (size + block - 1) // block


def _divides(lanes: int, rows: Any) -> bool:
    return not isinstance(rows, Size) and rows % lanes == 0


def inside(b: Builder, row: Index, rows: Any, lanes: int) -> Value | None:
    """Whether a row is there; None where blocks of so many lanes end with the matrix."""
    return None if _divides(lanes, rows) else b.lt(row, Index.of(rows))


def there(b: Builder, first: Index, rows: Any, lanes: int) -> Any:
    """How many rows of a block are there."""
    if _divides(lanes, rows):
        return lanes
    return b.term(b.min(Index.of(rows) - first, lanes), lanes + 1)


def fill(b: Builder, target: Buffer, number: Any) -> None:
    """Set all elements of a buffer."""
    with b.vector(target.size) as i:
        b.store(target, i, number)


def number(value: float, dtype: DType) -> Const:
    """A number in code."""
    return Const(dtype.type(value), dtype)


def element(b: Builder, region: Graph, inputs: Sequence[Any], index: Indices, mask: Any = None) -> Value:
    """Write the code for one element of what a region of elementwise ops gives.

    Its first input is that element of the first value; the others are arrays.
    """
    numbers = {v: as_constant(array) for v, array in region.constants.items()}
    sources = {**dict(zip(region.inputs, inputs, strict=True)), **numbers}
    return Reader(b, sources, {n.outputs[0]: n for n in region.nodes}).read(region.outputs[0], index, mask)
