"""Running sums and extremes on a GPU: a block for each line, which it goes along in segments.

Each thread folds some elements that lie side by side; in shared memory the threads' results are folded in
turn, over distances that double (W. D. Hillis, G. L. Steele, CACM 29(12), 1986); and what all segments before
gave is carried on. Short lines are a thread's each. Few long ones are cut into parts: what each part gives
comes first, then the running results of that, with which the blocks of the parts begin.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.reductions import write_running
from weft.schedule.extents import ceil_div, is_number, running_dtype
from weft.schedule.folding import Fold, fold_of
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, unflattened

_THREADS = 256
_OWN = 4  # elements of a thread
_LONG = 256  # from which on a line is a block's
_MANY = 132  # lines from which on there are enough blocks
_PARTS = 256  # of a line that is cut, as long as each is short: what they give is a block's
_LONGEST_PART = 8192


@lowers(target="gpu", fold_over="prefix")
def _prefixes(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (x,), (out,) = inputs, outputs
    axis = node.attrs["axis"]
    length = x.shape[axis]
    if is_number(length) and length < _LONG:
        write_running(writer, node, inputs, outputs)
        return
    fold = fold_of(node.op.fold, running_dtype(x.dtype))
    _write_lines(writer, node.op.name, x, out, axis, fold, node.attrs.get("reverse", False))


def _write_lines(
    writer: Writer, name: str, x: Array, out: Array, axis: int, fold: Fold, reverse: bool
) -> None:
    lines, length = size_of((*x.shape[:axis], *x.shape[axis + 1 :])), x.shape[axis]
    each = _part_of(length) if is_number(length) else 0
    if not is_number(length) or not is_number(lines) or lines > _MANY or length < 2 * each:
        with writer.kernel(name, [x], [out], inline=False) as k:
            _Line(k, axis, fold, reverse).write()
        return
    parts = ceil_div(length, each)
    totals, sums = (writer.temporary((lines, parts), fold.dtype, "p") for _ in range(2))
    with writer.kernel(f"{name}_parts", [x], [totals], inline=False) as k:
        _Line(k, axis, fold, reverse, parts).write_totals()
    _write_lines(writer, f"{name}_sums", totals, sums, 1, fold, False)
    with writer.kernel(name, [x, sums], [out], inline=False) as k:
        _Line(k, axis, fold, reverse, parts).write()


def _part_of(length: int) -> int:
    """Elements of a part of a line: a segment, or as many of them as leave few parts."""
    each = _THREADS * _OWN
    while each < _LONGEST_PART and each * _PARTS < length:
        each *= 2
    return each


class _Line:
    """Writes a kernel for lines, each of which is so many parts."""

    def __init__(self, k: Kernel, axis: int, fold: Fold, reverse: bool, parts: int = 1) -> None:
        self.b: Builder = k.builder
        self.x, *self.sums = k.reads
        (self.out,) = k.writes
        self.axis, self.fold, self.reverse, self.parts = axis, fold, reverse, parts
        self.length = self.x.shape[axis]
        self.each = self.length if parts == 1 else _part_of(self.length)
        self.row: Buffer = self.b.scratch("parts", fold.dtype, _THREADS, "shared")
        self.others = (*self.x.shape[:axis], *self.x.shape[axis + 1 :])

    def write(self) -> None:
        """Write the grid and all in it."""
        b = self.b
        with b.parallel(size_of(self.others) * self.parts) as block, b.threads(_THREADS) as t:
            line, part = self._place(block)
            place = unflattened(b, line, self.others)
            carried = b.local(self._before_part(line, part))
            with b.loop(ceil_div(self.each, _THREADS * _OWN)) as segment:
                first = part * self.each + segment * (_THREADS * _OWN) + t * _OWN
                prefixes = self._own_prefixes(place, first)
                before, whole = self._over_threads(t, prefixes[-1])
                before = self.fold(b, b.get(carried), before)
                for n, prefix in enumerate(prefixes):
                    self._store(place, first + n, self.fold(b, before, prefix))
                b.set(carried, self.fold(b, b.get(carried), whole))

    def write_totals(self) -> None:
        """Write what each part gives as a whole."""
        b = self.b
        with b.parallel(size_of(self.others) * self.parts) as block, b.threads(_THREADS) as t:
            line, part = self._place(block)
            place = unflattened(b, line, self.others)
            total = b.local(self.fold.start, self.fold.dtype)
            with b.loop(ceil_div(self.each, _THREADS * _OWN)) as segment:
                first = part * self.each + segment * (_THREADS * _OWN) + t * _OWN
                b.set(total, self.fold(b, b.get(total), self._own_prefixes(place, first)[-1]))
            _, whole = self._over_threads(t, b.get(total))
            with b.if_(b.lt(t, 1)):
                b.store(self.out.buffer, self.out.at(line, part), whole)

    def _place(self, block: Index) -> tuple[Index, Index]:
        """The line and the part of a block."""
        if self.parts == 1:
            return block, Index.of(0)
        return self.b.quotient(block, self.parts), self.b.remainder(block, self.parts)

    def _before_part(self, line: Index, part: Index) -> Value:
        """What all parts before give."""
        b, start = self.b, self.b.constant(self.fold.start, self.fold.dtype)
        if not self.sums:
            return start
        (sums,) = self.sums
        last = b.term(b.max(part - 1, 0), self.parts)
        return b.select(b.lt(part, 1), start, b.load(sums.buffer, sums.at(line, last)))

    def _at(self, place: list[Index], n: Index) -> list[Index]:
        i = Index.of(self.length) - 1 - n if self.reverse else n
        return [*place[: self.axis], i, *place[self.axis :]]

    def _own_prefixes(self, place: list[Index], first: Index) -> list[Value]:
        """The running results of a thread's own elements; what is beyond the end counts for nothing."""
        b, out = self.b, list[Value]()
        for n in range(_OWN):
            there = b.lt(first + n, Index.of(self.length))
            inside = b.term(b.min(first + n, Index.of(self.length) - 1), self.length)
            x = b.cast(b.load(self.x.buffer, self.x.at(*self._at(place, inside))), self.fold.dtype)
            x = b.select(there, x, b.constant(self.fold.start, self.fold.dtype))
            out.append(self.fold(b, out[-1], x) if out else x)
        return out

    def _over_threads(self, t: Index, own: Value) -> tuple[Value, Value]:
        """What all threads before gave, and what all of them gave."""
        b, total = self.b, self.b.local(own)
        b.barrier()  # what was read of the segment before
        b.store(self.row, t, own)
        distance = 1
        while distance < _THREADS:
            b.barrier()
            other = b.load(self.row, self._before(t, distance))
            reached = b.le(distance, t)
            start = b.constant(self.fold.start, self.fold.dtype)
            b.set(total, self.fold(b, b.select(reached, other, start), b.get(total)))
            b.barrier()
            b.store(self.row, t, b.get(total))
            distance *= 2
        b.barrier()
        start = b.constant(self.fold.start, self.fold.dtype)
        before = b.select(b.lt(t, 1), start, b.load(self.row, self._before(t, 1)))
        return before, b.load(self.row, _THREADS - 1)

    def _before(self, t: Index, distance: int) -> Index:
        """The thread so far before, or the first."""
        return self.b.term(self.b.max(t - distance, 0), _THREADS)

    def _store(self, place: list[Index], n: Index, value: Value) -> None:
        b = self.b
        with b.if_(b.lt(n, Index.of(self.length))):
            b.store(self.out.buffer, self.out.at(*self._at(place, n)), b.cast(value, self.out.dtype))
