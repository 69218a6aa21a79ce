"""Right sides of products in panels: the kernel that packs them, once for many calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import DType, int8, uint8, uint32
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.ops.panels import PACKED
from weft.schedule.arrays import Array, Shape
from weft.schedule.cpu.matmul.tile import Load, Side, load_wide, pack
from weft.schedule.cpu.units import Unit
from weft.schedule.target import lowers
from weft.schedule.writer import Writer

_EACH = {dtype: group for dtype, (_, group) in PACKED.items()}  # numbers that are packed as one


@lowers("pack_panels", target="cpu")
def _pack_panels(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (source,), (out,) = inputs, outputs
    count, _, width = out.shape
    rest = source.shape[1] % width
    if out.size == 0:
        return
    with writer.kernel("pack_panels", [source], [out], inline=False) as kernel:
        b, (x,), (target,) = kernel.builder, kernel.reads, kernel.writes
        with b.parallel(count) as j:
            if not rest:
                _pack_panel(b, x, target, j, width)
            else:
                with b.if_(b.lt(j, count - 1)) as otherwise:
                    _pack_panel(b, x, target, j, width)
                with b.inside(otherwise):
                    _pack_panel(b, x, target, j, rest)


def _pack_panel(b: Builder, x: Array, target: Array, j: Index, lanes: int) -> None:
    """Copy the columns of a panel, of which the last may have fewer."""
    _, steps, width = target.shape
    first, (along, apart) = target.at(j, 0, 0), x.strides
    if lanes < width:
        with b.vector(steps * width) as i:
            b.store(target.buffer, first + i, 0)
    start, each = x.offset + j * (width * apart), _EACH.get(x.dtype, 1)
    whole, rest = divmod(x.shape[0], each)
    for count, step, filled in ((whole, 0, each), (1, whole, rest)):
        if count and filled:
            side = Side(x.buffer, start + step * (each * along))
            place = first + step * width
            load = load_wide if each == 1 else _word_loader(along, filled)
            pack(b, target.buffer, lanes, width, side, [(count, each * along)], apart, place, load, each)


def _word_loader(apart: Any, count: int) -> Load:
    """What reads so many bytes that lie so far apart as a word."""
    unit = Unit("dot_i8")
    return lambda b, buffer, index: unit.load_word(b, buffer, index, apart, count, left=False)


def unpacked(writer: Writer, panels: Array, shape: Shape, dtype: DType) -> Array:
    """The matrix of bytes that lies in panels of words, in another dtype, for what has no use for words."""
    out, width = writer.temporary(shape, dtype, "w"), panels.shape[2]
    with writer.kernel("unpack", [panels], [out]) as kernel:
        b, (source,), (target,) = kernel.builder, kernel.reads, kernel.writes
        with b.parallel(shape[0]) as step, b.loop(shape[1]) as column:
            panel, lane = b.quotient(column, width), b.remainder(column, width)
            word = b.load(source.buffer, source.at(panel, b.quotient(step, 4), lane))
            bits = b.cast(b.shr(word, b.cast(b.remainder(step, 4) * 8, uint32)), uint8)
            b.store(target.buffer, target.at(step, column), b.cast(b.bitcast(bits, int8), dtype))
    return out
