"""One element of each row, by its class."""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dtypes import int64
from weft.ir.graph import Node
from weft.loop.index import Index
from weft.schedule.arrays import Array
from weft.schedule.extents import is_number
from weft.schedule.region import Failure
from weft.schedule.target import lowers
from weft.schedule.writer import Writer, over


@lowers("pick_class", target="cpu", any_layout=True)
def _pick_class(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    x, target = inputs
    axis, ignored = node.attrs["axis"], node.attrs["ignore"]
    classes = x.shape[axis]
    failure = writer.failure(Failure(node, "class"))
    with writer.kernel("pick_class", [x, target], list(outputs)) as k:
        b, (rows, numbers), (out,) = k

        def write(*index: Index) -> None:
            wide = b.cast(b.load(numbers.buffer, numbers.at(*index)), int64)
            ignore = b.constant(ignored, int64)
            kept = b.not_(b.eq(wide, ignore))
            inside = b.and_(b.le(0, wide), b.lt(wide, Index.of(classes)))
            b.fail(b.and_(kept, b.not_(inside)), failure, Index.of(classes), ignore, wide)
            place = b.term(b.select(inside, wide, b.constant(0, int64)), classes)
            safe = None if is_number(classes) and classes > 0 else inside
            read = b.load(rows.buffer, rows.at(*index[:axis], place, *index[axis:]), safe)
            b.store(out.buffer, out.at(*index), b.select(kept, read, b.constant(0, read.dtype)))

        over(b, out.shape, write)
