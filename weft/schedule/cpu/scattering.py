"""Changes of parts of an array: scatter, scatter_add, update_slice; and concat, which fills a new one.

All begin with a copy of the array into the result, which is left out where the array is not needed any more.
Of duplicate indices the last one counts, or they add up in their order: so indices are handled one after the
other, and columns are shared out among threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.base.dtypes import bfloat16, float16, float32
from weft.base.shapes import broadcast_shapes, size_of
from weft.ir.graph import Node
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.folds import TASK
from weft.schedule.extents import block_of, ceil_div, is_number, weight
from weft.schedule.folding import fold_of
from weft.schedule.pointwise.rules import broadcast_index
from weft.schedule.pointwise.views import both, bounds_values, place_on_axis
from weft.schedule.region import Failure
from weft.schedule.target import lowers
from weft.schedule.writer import SMALL, Kernel, Writer, over, unflattened

_NARROW = 64  # columns that are not worth sharing out


@lowers("scatter", "scatter_add", target="cpu")
def _scatter(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    x, v, *indices = inputs
    adds = node.op.name == "scatter_add"
    with changed_copy(writer, x, outputs[0], adds) as target:
        numbers = [writer.failure(Failure(node, "bounds")) for _ in indices]
        with writer.kernel(node.op.name, [v, *indices], [target], inline=is_brief(writer, v)) as k:
            write_scattered(k, numbers, adds)


@contextmanager
def changed_copy(writer: Writer, x: Array, out: Array, adds: bool) -> Iterator[Array]:
    """Where an array is changed: in the result, a copy of it; half types add up in a wider one."""
    if not (adds and x.dtype in (float16, bfloat16)):
        writer.copy(x, out)
        yield out
        return
    wide = writer.temporary(x.shape, float32)
    convert(writer, x, wide)
    yield wide
    convert(writer, wide, out)


def is_brief(writer: Writer, part: Array) -> bool:
    """Whether a part that changes is so small that the code for it stands in the main function."""
    return is_number(part.size) and part.size <= (SMALL if writer.depth else 1)


def convert(writer: Writer, source: Array, target: Array) -> None:
    """Copy an array into one of another dtype."""
    with writer.kernel("cast", [source], [target]) as k:
        b, (x,), (y,) = k
        over(b, x.shape, lambda *i: b.store(
            y.buffer, y.at(*i), b.cast(b.load(x.buffer, x.at(*i)), y.dtype)
        ))  # fmt: skip


def write_scattered(k: Kernel, failures: Sequence[int | None], adds: bool) -> None:
    """Each row of values to the row that its indices name, in order."""
    b, (_, *indices), (out,) = k
    shape = broadcast_shapes("scatter", [i.shape for i in indices])
    rest = out.shape[len(indices) :]
    width = size_of(rest)
    chunk = _columns(width, size_of(shape))
    fold = fold_of("add", out.dtype)
    with b.parallel(ceil_div(width, chunk) if not is_number(chunk, 0) else 1) as c:
        first, count = block_of(b, c, width, chunk) if not is_number(chunk, 0) else (Index.of(0), 0)
        with b.loop(size_of(shape)) as i:
            place = tuple(unflattened(b, i, tuple(shape)))
            start, safe = row_start(k, place, failures)
            with b.vector(count) as j:
                value = value_at(k, i, place, first + j, width, rest)
                at = start + first + j
                if adds:
                    value = fold(b, b.load(out.buffer, at, safe), b.cast(value, out.dtype))
                b.store(out.buffer, at, value, safe)


def _columns(width: Any, rows: Any) -> Any:
    """How many columns one task takes: at most eight tasks, each with some work."""
    if not is_number(width):
        return 256
    if width < 2 * _NARROW or weight(rows, width) < TASK:
        return width
    return max(ceil_div(ceil_div(width, 8), 16) * 16, _NARROW)


def row_start(
    k: Kernel, place: tuple[Index, ...], failures: Sequence[int | None]
) -> tuple[Index, Value | None]:
    """Where the row that indices name begins, and whether it may be touched.

    Where there is None for a failure, others note that an index is out of range.
    """
    b, (_, *indices), (out,) = k
    start, safe = out.offset, None
    for axis, (index, failure) in enumerate(zip(indices, failures, strict=True)):
        number = b.load(index.buffer, index.at(*broadcast_index(place, index.shape)))
        size = out.shape[axis]
        on_axis, outside = place_on_axis(b, number, size)
        if failure is not None:
            b.fail(outside, failure, *bounds_values(b, axis, size, number))
        if not (is_number(size) and size > 0):
            safe = both(b, safe, b.not_(outside))
        start = start + on_axis * out.strides[axis]
    return start, safe


def value_at(
    k: Kernel, row: Index, place: tuple[Index, ...], column: Index, width: Any, rest: Sequence[Any]
) -> Value:
    """The element of the values for a row and a column."""
    b, (v, *_), _ = k
    if v.is_dense:
        return b.load(v.buffer, v.flat(row * width + column))
    return b.load(v.buffer, v.at(*place, *unflattened(b, column, tuple(rest))))


# Slices and parts


@lowers("update_slice", target="cpu")
def _update(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (x, v), (out,) = inputs, outputs
    writer.copy(x, out)
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    with writer.kernel(node.op.name, [v], [out], inline=is_brief(writer, v)) as k:
        b, (part,), (whole,) = k

        def write(*index: Index) -> None:
            moved = [i * step + start for i, start, step in zip(index, starts, steps, strict=True)]
            b.store(whole.buffer, whole.at(*moved), b.load(part.buffer, part.at(*index)))

        over(b, v.shape, write)


@lowers("concat", target="cpu")
def _concat(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (out,), axis = outputs, node.attrs["axis"]
    start: Any = 0
    for part in inputs:
        at = out.offset + Index.of(start) * out.strides[axis]
        writer.copy(part, Array(out.buffer, part.shape, out.strides, at))
        start = start + part.shape[axis]
