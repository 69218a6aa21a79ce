"""The input of a convolution with the zeros around it and between its elements, that windows reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.shapes import size_of
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.schedule.arrays import Array
from weft.schedule.cpu.convolution.plan import Convolution
from weft.schedule.writer import Writer, unflattened


def padded(writer: Writer, conv: Convolution) -> Array:
    """x with zeros, in memory of its own; x itself where there are none."""
    if not conv.is_padded:
        return conv.x
    out = writer.temporary((*conv.x.shape[:2], *conv.padded_sizes), conv.x.dtype, "z")
    with writer.kernel("pad", [conv.x], [out]) as kernel:
        b, (source,), (target,) = kernel.builder, kernel.reads, kernel.writes
        with b.parallel(size_of(out.shape[:2])) as plane:
            i, c = unflattened(b, plane, out.shape[:2])
            write_padded(b, conv, source.row(i).row(c), target.row(i).row(c))
    return out


def write_padded(b: Builder, conv: Convolution, source: Array, target: Array) -> None:
    """Fill a dense array with zeros, then put the elements of another where they belong.

    The last axes of both are those that windows slide over; those before them are equal.
    """
    with b.vector(target.size) as i:
        b.store(target.buffer, target.flat(i), 0)
    lead = source.ndim - conv.rank
    _write_lines(b, conv, source, target, lead, [], [])


def _write_lines(
    b: Builder,
    conv: Convolution,
    source: Array,
    target: Array,
    lead: int,
    at: Sequence[Index],
    to: Sequence[Index],
) -> None:
    axis = len(at)
    if axis == source.ndim:
        b.store(target.buffer, target.at(*to), b.load(source.buffer, source.at(*at)))
        return
    low: Any = 0
    spread, size = 1, source.shape[axis]
    if axis >= lead:
        low, spread = conv.low[axis - lead], conv.spread[axis - lead]
        first, stop = _inside(low, spread, size, target.shape[axis])
    else:
        first, stop = 0, size
    last = axis == source.ndim - 1
    with (b.vector if last else b.loop)(stop - first) as i:
        _write_lines(b, conv, source, target, lead, [*at, i + first], [*to, (i + first) * spread + low])


def _inside(low: Any, spread: int, size: Any, whole: Any) -> tuple[Any, Any]:
    """The first element of an axis that lies in the padded one, and where they stop doing so."""
    if spread == 1:
        return 0, size
    first = max(0, -(low // spread))
    return first, min(size, -(-(whole - low) // spread))
