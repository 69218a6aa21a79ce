"""Tiles of products: sums of products kept in registers, in lanes of vectors and in unrolled rows.

Each lane of a tile sums ``left[row, p] * right[p, lane]`` over p. Numbers of the left side are read one at a
time and need no order in memory; those of the right side are read in vectors, so its lanes should lie side by
side: ``pack`` lays them so where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from weft.base.dtypes import DType, bool_
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Local, Value
from weft.schedule.extents import is_number, sum_dtype, sum_instruction


class Step(NamedTuple):
    """One loop of a sum: how far it goes, and how far each step of it moves on both sides."""

    extent: Any
    left: Any
    right: Any


class Side(NamedTuple):
    """Where one side of a product is read."""

    buffer: Buffer
    start: Index


Load = Callable[[Builder, Buffer, Any], Value]
Add = Callable[[Builder, Value, Value, Value], Value]
UNROLLED = 4  # steps of an inner loop that are written out
Finished = Callable[[int, Index, Value], None]


def multiply(b: Builder, x: Any, y: Any) -> Value:
    """The product of two numbers in the dtype of sums."""
    if x.dtype == bool_:
        return b.and_(x, y)
    return b.mul(x, y)


def load_wide(b: Builder, buffer: Buffer, index: Any, mask: Any = None) -> Value:
    """A number as it is summed."""
    value = b.load(buffer, index, mask)
    return b.cast(value, sum_dtype(value.dtype))


def add_product(b: Builder, total: Value, x: Value, y: Value) -> Value:
    """A total with a product added."""
    product = multiply(b, x, y)
    return cast(Value, getattr(b, sum_instruction(product.dtype))(total, product))


def add_tile(
    b: Builder,
    lanes: Any,
    left: Sequence[Side],
    right: Side,
    steps: Sequence[Step],
    finished: Finished,
    *,
    lane_stride: Any = 1,
    begin: Callable[[int, Index], Value] | None = None,
    sums: DType | None = None,
    add: Add = add_product,
) -> None:
    """Sum a tile of ``len(left)`` rows and so many lanes, and hand on each row's sum.

    ``finished(row, lane, sum)`` is called inside the vector loop over the lanes. Sums begin at 0, or where
    ``begin(row, lane)`` says. Their dtype is that of both sides, and products are added, unless told else.
    """
    # A local in a vector loop is a register for each vector of lanes: with rows unrolled, a tile of them. The
    # plan sees to it that they are not more than the machine has.
    dtype = sums or sum_dtype(right.buffer.dtype)
    count = 0 if isinstance(lanes, Size | Index) else lanes
    with b.vector(lanes, lanes=count) as lane:
        totals = [b.local(begin(row, lane) if begin else 0, dtype) for row in range(len(left))]
        _add(b, totals, left, Side(right.buffer, right.start + lane * lane_stride), steps, Index.of(0), add)
        for row, total in enumerate(totals):
            finished(row, lane, b.get(total))


def _add(
    b: Builder, sums: list[Local], left: Sequence[Side], right: Side, steps: Sequence[Step], moved: Index,
    add: Add,
) -> None:  # fmt: skip
    if not steps:
        y = load_wide(b, right.buffer, right.start)  # one vector, which all rows use
        for total, side in zip(sums, left, strict=True):
            x = load_wide(b, side.buffer, side.start + moved)
            b.set(total, add(b, b.get(total), x, y))
        return
    step, *rest = steps
    # A short inner loop, such as that over the taps of a window, would cost more than what it does.
    if not rest and moved.terms and not isinstance(step.extent, Size) and step.extent <= UNROLLED:
        for p in range(step.extent):
            side = Side(right.buffer, right.start + p * step.right)
            _add(b, sums, left, side, rest, moved + p * step.left, add)
        return
    with b.loop(step.extent) as i:
        side = Side(right.buffer, right.start + i * step.right)
        _add(b, sums, left, side, rest, moved + i * step.left, add)


def add_dots(
    b: Builder, left: Sequence[Side], right: Sequence[Side], extent: Any, finished: Any, lanes: int = 0
) -> None:
    """Sum products along two sides whose elements lie side by side, for each row and each column.

    ``finished(row, column, sum)`` is called after the loop.
    """
    dtype = sum_dtype(left[0].buffer.dtype)
    sums = [[b.local(0, dtype) for _ in right] for _ in left]
    # Each sum is a vector along k, added up at the end; rows and columns share what is loaded.
    with b.vector(extent, lanes=lanes) as p:
        xs = [load_wide(b, side.buffer, side.start + p) for side in left]
        ys = [load_wide(b, side.buffer, side.start + p) for side in right]
        for x, row in zip(xs, sums, strict=True):
            for y, total in zip(ys, row, strict=True):
                b.accumulate(total, sum_instruction(dtype), multiply(b, x, y))
    for i, row in enumerate(sums):
        for j, total in enumerate(row):
            finished(i, j, b.get(total))


TURNED = 16  # lines that are turned at a time


def pack(
    b: Builder, target: Buffer, lanes: int, width: int, source: Side, steps: Sequence[tuple[Any, Any]],
    lane_stride: Any, first: Any = 0, load: Load = load_wide, step: int = 1,
) -> None:  # fmt: skip
    """Lay a side of a product out, as it is summed: lanes side by side, ``width`` apart from step to step.

    ``steps`` are the loops of the sum: how far each goes, and how far each step of it moves in the source.
    The first number goes to ``first``. What ``load`` reads at once may be as many numbers as ``step`` says.
    """
    (extent, stride), *outer = steps[::-1]
    # Where the source lies in order along the sum, reading it so is better than gathering lanes.
    turns = is_number(stride, step) and not is_number(lane_stride, 1)

    def copy(rest: Sequence[tuple[Any, Any]], at: Index, place: Index) -> None:
        if rest:
            (count, apart), *inner = rest
            with b.loop(count) as p:
                copy(inner, at + p * apart, place * count + p)
        elif turns:
            _turn(
                b,
                target,
                lanes,
                width,
                Side(source.buffer, at),
                place * (extent * width) + first,
                extent,
                lane_stride,
                load,
                step,
            )
        else:
            with b.loop(extent) as p, b.vector(lanes, lanes=lanes) as lane:
                value = load(b, source.buffer, at + p * stride + lane * lane_stride)
                b.store(target, (place * extent + p) * width + lane + first, value)

    copy(outer[::-1], source.start, Index.of(0))


def _turn(
    b: Builder, target: Buffer, lanes: int, width: int, source: Side, place: Index, extent: Any, apart: Any,
    load: Load, step: int,
) -> None:  # fmt: skip
    """Copy lines of the source, one for each lane, into columns.

    Number by number, some lines at a time: that is faster than to scatter vectors.
    """

    def turn(start: Index, count: int) -> None:
        with b.loop(extent) as p:
            for lane in range(count):
                value = load(b, source.buffer, source.start + (start + lane) * apart + p * step)
                b.store(target, place + p * width + start + lane, value)

    with b.loop(lanes // TURNED) as i:
        turn(i * TURNED, TURNED)
    if lanes % TURNED:
        turn(Index.of(lanes - lanes % TURNED), lanes % TURNED)
