"""Elements by number: what a stage gives as element i of an epoch, without those before it.

Everything here is a pure function of the epoch and the number, so workers can share the work in any way.
Where rows can be taken from arrays all at once, ``gather`` does: a shuffled batch is one ``take`` an array.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np

from weft.data import check
from weft.data.collate import collate, pad_batch, rows_of
from weft.data.keys import buffered_order, permutation, stage_key
from weft.data.stage import Arrays, Batch, Element, Files, IntArray, Interleave, Items, Repeat, Shuffle
from weft.data.transform import Transform, call_user
from weft.data.tree import map_tree, to_arrays

ENDLESS = 2**62  # the size of what has no end
PASSES = 2**32  # how many epochs of its input an endless repeat may take in one of its own

Rows = slice | IntArray  # which elements: from here to there, or these


def numbers_in(rows: Rows) -> Any:
    """The numbers that rows stand for."""
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()


class Access:
    """Elements of a stage by number."""

    def size(self) -> int:
        """How many there are in an epoch."""
        raise NotImplementedError

    def get(self, epoch: int, i: int) -> Element:
        """Element i of an epoch."""
        raise NotImplementedError

    def many(self, epoch: int, rows: Rows) -> list[Element]:
        """Some elements."""
        return [self.get(epoch, i) for i in numbers_in(rows)]

    def gather(self, epoch: int, rows: Rows) -> Element | None:
        """Some elements, stacked, in memory of their own; None if they must be made one by one."""
        return None


# Sources


class ArraysAccess(Access):
    """Rows of arrays. Single rows are views that cannot be written to: a stage must not change the data."""

    def __init__(self, stage: Arrays) -> None:
        self._tree = map_tree(_guarded, stage.tree)
        self._count = stage.count

    def size(self) -> int:
        return self._count

    def get(self, epoch: int, i: int) -> Element:
        return map_tree(lambda array: array[i], self._tree)

    def many(self, epoch: int, rows: Rows) -> list[Element]:
        if type(self._tree) is not tuple or not all(type(x) is np.ndarray for x in self._tree):
            return super().many(epoch, rows)
        return list(zip(*[_guarded(array[rows]) for array in self._tree], strict=True))

    def gather(self, epoch: int, rows: Rows) -> Element | None:
        if isinstance(rows, slice):
            return map_tree(lambda array: np.array(array[rows]), self._tree)
        return map_tree(lambda array: array.take(rows, axis=0), self._tree)


def _guarded(array: Any) -> Any:
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


class _Read(Access):
    def __init__(self, stage: Any, number: int) -> None:
        self._stage = stage
        self._number = number


class ItemsAccess(_Read):
    """Items of a dataset."""

    _stage: Items

    def size(self) -> int:
        return len(self._stage.dataset)

    def get(self, epoch: int, i: int) -> Element:
        read = self._stage.dataset.__getitem__
        return to_arrays(call_user(self._stage, self._number, epoch, i, read, i))


class FilesAccess(_Read):
    """What a function reads from each file."""

    _stage: Files

    def size(self) -> int:
        return self._stage.count

    def get(self, epoch: int, i: int) -> Element:
        stage = self._stage
        return to_arrays(call_user(stage, self._number, epoch, i, stage.read, stage.paths[i]))


class Window(Access):
    """A stretch of a stream, in place of the stream, for the thread that set it."""

    def __init__(self) -> None:
        self._here = threading.local()

    def set(self, start: int, elements: list[Element], ended: bool) -> None:
        """Show these elements from now on, the first of which has number ``start``."""
        self._here.start = start
        self._here.elements = elements
        self._here.size = start + len(elements) if ended else ENDLESS

    def size(self) -> int:
        found: int = self._here.size
        return found

    def get(self, epoch: int, i: int) -> Element:
        return self._here.elements[i - self._here.start]

    def many(self, epoch: int, rows: Rows) -> list[Element]:
        if not isinstance(rows, slice):
            return super().many(epoch, rows)
        start: int = self._here.start
        found: list[Element] = self._here.elements[rows.start - start : rows.stop - start]
        return found


# One input


class _Derived(Access):
    """As many elements as another stage has, made of those."""

    def __init__(self, source: Access) -> None:
        self._source = source

    def size(self) -> int:
        return self._source.size()


class TransformAccess(_Derived):
    """Each element changed."""

    def __init__(self, source: Access, transform: Transform) -> None:
        super().__init__(source)
        self._transform = transform

    def get(self, epoch: int, i: int) -> Element:
        return self._transform.apply(epoch, i, self._source.get(epoch, i))

    def many(self, epoch: int, rows: Rows) -> list[Element]:
        found = self._source.many(epoch, rows)
        return self._transform.apply_many(epoch, numbers_in(rows), found)

    def gather(self, epoch: int, rows: Rows) -> Element | None:
        if type(self._transform).apply_rows is Transform.apply_rows:
            return None
        found = self._source.gather(epoch, rows)
        return None if found is None else self._transform.apply_rows(found)


class BatchAccess(Access):
    """Elements put together; of a batch that is shared out among ranks, the part of one of them."""

    def __init__(self, source: Access, stage: Batch, number: int) -> None:
        self._source = source
        self._stage = stage
        self._number = number
        rank, count = stage.part or (0, 1)
        self._width = stage.size // count
        self._first = rank * self._width
        self._own = stage if stage.part is None else replace(stage, size=self._width)

    def size(self) -> int:
        count, n = self._source.size(), self._stage.size
        return count // n if self._stage.last == "drop" else -(-count // n)

    def get(self, epoch: int, i: int) -> Element:
        stage, start = self._stage, i * self._stage.size
        count = min(stage.size, self._source.size() - start)
        if count == stage.size or stage.part is None:
            first = start + self._first
            return self._made(epoch, i, slice(first, first + min(count, self._width)), self._own)
        if stage.last == "pad":  # a part of it may have no element at all
            whole = self._made(epoch, i, slice(start, start + count), stage)
            return rows_of(whole, self._first, self._first + self._width)
        check.parts(count, stage.part[1])
        width = count // stage.part[1]
        first = start + stage.part[0] * width
        return self._made(epoch, i, slice(first, first + width), self._own)

    def _made(self, epoch: int, i: int, rows: slice, stage: Batch) -> Element:
        source = self._source
        if stage.collate is not None:
            elements = source.many(epoch, rows)
            batch = to_arrays(call_user(stage, self._number, epoch, i, stage.collate, elements))
        else:
            batch = source.gather(epoch, rows) if stage.ragged is False else None
            if batch is None:
                batch = collate(source.many(epoch, rows), stage, rows.start)
        if stage.last == "pad" or stage.mask:
            return pad_batch(batch, rows.stop - rows.start, stage)
        return batch


class ShuffleAccess(_Derived):
    """Elements in an order drawn for each epoch."""

    def __init__(self, source: Access, stage: Shuffle, number: int) -> None:
        super().__init__(source)
        self._stage = stage
        self._number = number
        self._orders: dict[int, IntArray] = {}  # of the last epochs asked for

    def get(self, epoch: int, i: int) -> Element:
        return self._source.get(epoch, int(self._order(epoch)[i]))

    def many(self, epoch: int, rows: Rows) -> list[Element]:
        return self._source.many(epoch, self._order(epoch)[rows])

    def gather(self, epoch: int, rows: Rows) -> Element | None:
        return self._source.gather(epoch, self._order(epoch)[rows])

    def _order(self, epoch: int) -> IntArray:
        found = self._orders.get(epoch)
        if found is None:
            found = self._draw(epoch)
            last = dict(list(self._orders.items())[-1:])
            self._orders = {**last, epoch: found}  # replaced: threads read it
        return found

    def _draw(self, epoch: int) -> IntArray:
        key, count = stage_key(self._stage.seed, self._number, epoch), self.size()
        buffer = self._stage.buffer
        if buffer is None or buffer >= count:
            return permutation(key, count)
        return buffered_order(key, count, buffer)


class RangeAccess(Access):
    """The elements from one number to another."""

    def __init__(self, source: Access, first: int, count: int | None) -> None:
        self._source = source
        self._first = first
        self._count = count

    def size(self) -> int:
        rest = max(0, self._source.size() - self._first)
        return rest if self._count is None else min(rest, self._count)

    def get(self, epoch: int, i: int) -> Element:
        return self._source.get(epoch, self._first + i)

    def many(self, epoch: int, rows: Rows) -> list[Element]:
        return self._source.many(epoch, self._moved(rows))

    def gather(self, epoch: int, rows: Rows) -> Element | None:
        return self._source.gather(epoch, self._moved(rows))

    def _moved(self, rows: Rows) -> Rows:
        if isinstance(rows, slice):
            return slice(rows.start + self._first, rows.stop + self._first)
        return rows + self._first


class RepeatAccess(Access):
    """Several epochs of the input as one: epochs 0..n-1 in epoch 0, n..2n-1 in epoch 1."""

    def __init__(self, source: Access, stage: Repeat) -> None:
        self._source = source
        self._times = stage.times

    def size(self) -> int:
        count = self._source.size()
        return count * self._times if self._times is not None else (ENDLESS if count else 0)

    def _inner(self, epoch: int, turn: int) -> int:
        return epoch * (PASSES if self._times is None else self._times) + turn

    def get(self, epoch: int, i: int) -> Element:
        turn, j = divmod(i, self._source.size())
        return self._source.get(self._inner(epoch, turn), j)

    def gather(self, epoch: int, rows: Rows) -> Element | None:
        if not isinstance(rows, slice) or rows.start == rows.stop:
            return None
        count = self._source.size()
        turn, start = divmod(rows.start, count)
        if (rows.stop - 1) // count != turn:
            return None
        return self._source.gather(self._inner(epoch, turn), slice(start, start + rows.stop - rows.start))


class CacheAccess(_Derived):
    """Elements of epoch 0, made when first asked for and kept in memory."""

    def __init__(self, source: Access) -> None:
        super().__init__(source)
        self._kept: dict[int, Element] = {}

    def get(self, epoch: int, i: int) -> Element:
        found = self._kept.get(i, self._kept)
        if found is self._kept:
            found = self._kept[i] = map_tree(_guarded_copy, self._source.get(0, i))
        return found


def _guarded_copy(leaf: Any) -> Any:
    """A leaf that can be kept: not a part of something larger, and not to be written to."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    kept = np.array(leaf)
    kept.flags.writeable = False
    return kept


# Several inputs


class _Joined(Access):
    def __init__(self, sources: list[Access]) -> None:
        self._sources = sources


class ZipAccess(_Joined):
    """Tuples of an element of each input."""

    def size(self) -> int:
        return min(source.size() for source in self._sources)

    def get(self, epoch: int, i: int) -> Element:
        return tuple(source.get(epoch, i) for source in self._sources)

    def gather(self, epoch: int, rows: Rows) -> Element | None:
        found = tuple(source.gather(epoch, rows) for source in self._sources)
        return None if any(x is None for x in found) else found


class ConcatAccess(_Joined):
    """The elements of one input after those of another."""

    def size(self) -> int:
        return sum(source.size() for source in self._sources)

    def get(self, epoch: int, i: int) -> Element:
        for source in self._sources:
            count = source.size()
            if i < count:
                return source.get(epoch, i)
            i -= count
        raise IndexError(i)


class InterleaveAccess(Access):
    """Elements of each input in turn; where one has ended, its turn is left out."""

    def __init__(self, sources: list[Access], stage: Interleave) -> None:
        self._sources = sources
        self._order = interleaved([source.size() for source in sources], stage.block)

    def size(self) -> int:
        return len(self._order[0])

    def get(self, epoch: int, i: int) -> Element:
        which, inner = self._order
        return self._sources[which[i]].get(epoch, int(inner[i]))


def interleaved(counts: list[int], block: int) -> tuple[IntArray, IntArray]:
    """For each element the input that it comes from, and its number there."""
    which = np.repeat(np.arange(len(counts)), counts)
    inner = np.concatenate([np.arange(count) for count in counts])
    order = np.lexsort((inner, which, inner // block))
    return which[order], inner[order]
