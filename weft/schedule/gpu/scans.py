"""Running sums and extremes on a GPU: a block for each line, which it goes along in segments.

Each thread folds some elements that lie side by side; in shared memory the threads' results are folded in
turn, over distances that double (W. D. Hillis, G. L. Steele, CACM 29(12), 1986); and what all segments before
gave is carried on. Short lines are a thread's each.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.folds import Fold, fold_of
from weft.schedule.cpu.reductions import _running
from weft.schedule.extents import ceil_div, is_number, running_dtype
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, unflattened

_THREADS = 256
_OWN = 4  # elements of a thread
_LONG = 256  # from which on a line is a block's


@lowers(target="gpu", fold_over="prefix")
def _prefixes(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (x,), (out,) = inputs, outputs
    axis = node.attrs["axis"]
    length = x.shape[axis]
    if is_number(length) and length < _LONG:
        _running(writer, node, inputs, outputs)
        return
    fold = fold_of(node.op.fold, running_dtype(x.dtype))
    with writer.kernel(node.op.name, [x], [out], inline=False) as k:
        _Line(k, axis, fold, node.attrs.get("reverse", False)).write()


class _Line:
    """Writes the kernel."""

    def __init__(self, k: Kernel, axis: int, fold: Fold, reverse: bool) -> None:
        self.b: Builder = k.builder
        (self.x,), (self.out,) = k.reads, k.writes
        self.axis, self.fold, self.reverse = axis, fold, reverse
        self.length = self.x.shape[axis]
        self.row: Buffer = self.b.scratch("parts", fold.dtype, _THREADS, "shared")

    def write(self) -> None:
        """Write the grid and all in it."""
        b, others = self.b, (*self.x.shape[: self.axis], *self.x.shape[self.axis + 1 :])
        with b.parallel(size_of(others)) as line, b.threads(_THREADS) as t:
            place = unflattened(b, line, others)
            carried = b.local(self.fold.start, self.fold.dtype)
            with b.loop(ceil_div(self.length, _THREADS * _OWN)) as segment:
                first = segment * (_THREADS * _OWN) + t * _OWN
                prefixes = self._own_prefixes(place, first)
                before, whole = self._over_threads(t, prefixes[-1])
                before = self.fold(b, b.get(carried), before)
                for n, prefix in enumerate(prefixes):
                    self._store(place, first + n, self.fold(b, before, prefix))
                b.set(carried, self.fold(b, b.get(carried), whole))

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
