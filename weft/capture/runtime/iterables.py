"""What a ``for`` of the graph goes along: ranges, the rows of tensors, and mixtures of them.

A ``Source`` tells its length and its items. ``rows`` are tensors with one row for each item, which a scan
goes along; ``item_of`` makes the item from them. ``item_at`` makes it from its index, for loops that may
end early. Iterated by Python, a source gives plain items.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from weft.base.sizes import Size
from weft.capture.runtime.extents import is_sure
from weft.capture.runtime.number import Number, fresh_index, number_of
from weft.capture.runtime.refs import related
from weft.ops.op import OPS
from weft.ops.size import count_to
from weft.ops.view.slices import flip_axes
from weft.tensor.checkpoint import Checkpointed
from weft.tensor.choices import without_history
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import enable_grad, thread
from weft.tensor.tensor import Tensor
from weft.transform.frozen import Telling, freeze


class Source:
    """Something with a length that gives one item after another.

    Attributes:
        length: an int, a named size, or a Number.
        rows: tensors with one row for each item; None if the length is a Number.
        every: of how many turns of a loop along it the gradient keeps one state; None for all.
    """

    every: int | None = None
    length: Any
    rows: Sequence[Any] | None
    _started: Iterator[Any] | None = None

    def item_of(self, rows: Sequence[Any]) -> Any:
        """The item that one row of each tensor makes."""
        raise NotImplementedError  # each kind of source says it

    def item_at(self, index: Number) -> Any:
        """The item with an index."""
        raise NotImplementedError  # each kind of source says it

    def plain(self) -> Iterator[Any]:
        """The items as Python iterates over them."""
        raise NotImplementedError  # each kind of source says it

    def __iter__(self) -> Iterator[Any]:
        return self.plain()

    def __next__(self) -> Any:
        if self._started is None:
            self._started = self.plain()
        return next(self._started)


_MOST_ROWS = 2**20  # numbers of a range that are all there at once; a longer loop counts itself


class Range(Source):
    """``range(start, stop, step)``, where each may be a number that only a run tells."""

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start, self.stop, self.step = start, stop, step
        self.length = _range_length(start, stop, step)
        self.rows = None

    @property
    def is_plain(self) -> bool:
        """Whether Python knows all of it."""
        return all(isinstance(x, int) for x in (self.start, self.stop, self.step))

    def __getitem__(self, key: Any) -> Any:
        return self._known()[key]

    def __contains__(self, x: object) -> bool:
        return x in self._known()

    def __eq__(self, other: object) -> bool:
        return self._known() == (other._known() if isinstance(other, Range) else other)

    def __hash__(self) -> int:
        return hash(self._known())

    def __repr__(self) -> str:
        return repr(self._known())

    def index(self, x: Any) -> int:
        """Where a number is."""
        return self._known().index(x)

    def count(self, x: Any) -> int:
        """How often a number is in it."""
        return self._known().count(x)

    def _known(self) -> builtins.range:
        """The range itself, whose numbers calls are then compared with."""
        values = [x.value() if isinstance(x, Number) else x for x in (self.start, self.stop, self.step)]
        return builtins.range(*values)

    def prepare(self) -> None:
        """Make the rows."""
        if isinstance(self.length, Number) or (isinstance(self.length, int) and self.length > _MOST_ROWS):
            return
        steps = count_to(self.length, np.dtype("int64"))
        tensor = steps if isinstance(steps, Tensor) else None
        if tensor is None and self.is_plain:
            values = np.arange(self.start, self.stop, self.step, dtype=np.int64)
            self.rows = [captured_constant(values)]
            return
        index = tensor if tensor is not None else captured_constant(steps)
        self.rows = [index * number_of(self.step).tensor + number_of(self.start).tensor]

    def item_of(self, rows: Sequence[Any]) -> Any:
        """The item of a row of each tensor."""
        return self._item(rows[0])

    def _item(self, tensor: Any) -> Number:
        """An item with what is known of it: it is 0 or more, and between two ends."""
        low, high = self._ends()
        if low is None or not is_sure(low):
            return fresh_index(tensor, known_sign=False)
        return fresh_index(tensor, low=low, high=high)

    def _ends(self) -> tuple[Any, Any]:
        """What items are at least and at most, as forms; None where that is not known."""
        if self.is_plain:
            values = builtins.range(self.start, self.stop, self.step)
            return (min(values[0], values[-1]), max(values[0], values[-1])) if values else (0, 0)
        if not isinstance(self.step, int):
            return None, None
        start, stop = number_of(self.start).form, number_of(self.stop).form
        if self.step > 0:
            return start, None if stop is None else stop - 1
        return None if stop is None else stop + 1, start

    def item_at(self, index: Number) -> Any:
        """The item with an index."""
        item: Number = index
        if not _is_plain(self.step, 1):
            item = item * self.step
        if not _is_plain(self.start, 0):
            item = item + self.start
        return self._item(item.tensor)

    def plain(self) -> Iterator[Any]:
        """The items for Python."""
        return iter(
            builtins.range(
                *[int(x) if isinstance(x, Number) else x for x in (self.start, self.stop, self.step)]
            )
        )

    def __len__(self) -> int:
        return len(builtins.range(int(self.start), int(self.stop), int(self.step)))


def _is_plain(x: Any, number: int) -> bool:
    """Whether something is a number of Python, known now."""
    return isinstance(x, int) and x == number


def _range_length(start: Any, stop: Any, step: Any) -> Any:
    if all(isinstance(x, int) for x in (start, stop, step)):
        return len(builtins.range(start, stop, step))
    if isinstance(stop, Size) and start == 0 and _is_plain(step, 1):
        return stop
    span: Any = number_of(stop) if _is_plain(start, 0) else number_of(stop) - start
    if _is_plain(step, 1):
        count = span
    elif isinstance(step, int):
        count = (span + (step - 1)) // step if step > 0 else (span + (step + 1)) // step
    else:
        count = -(-span // step)
    zero = number_of(0).tensor
    return Number(int, OPS["maximum"].on_tensors(count.tensor, zero))


class Rows(Source):
    """The numbers in a list that a loop has filled, as the rows of a tensor."""

    def __init__(self, tensor: Any, kind: type | None = None) -> None:
        self.tensor = tensor
        self.kind = kind
        self.length = tensor.shape[0]
        self.rows = [tensor]

    def item_of(self, rows: Sequence[Any]) -> Any:
        """The item of a row of each tensor."""
        return rows[0] if self.kind is None else Number(self.kind, rows[0])

    def item_at(self, index: Number) -> Any:
        """The item with an index."""
        return self.item_of([self.tensor[index.tensor]])

    def plain(self) -> Iterator[Any]:
        """The items for Python."""
        return iter(self.tensor)


class Views(Rows):
    """The rows of a tensor, which are views of it.

    A loop goes along their values as long as nobody can see that they are views: where one of them, or the
    tensor, is changed or leaves the capture, that begins again, and the loop takes each row by its index.
    """

    def prepare(self) -> None:
        """Make the indices of the rows, where views are told from values."""
        if thread.capture.root.telling:
            index = Range(0, self.length, 1)
            index.prepare()
            self.rows = index.rows

    def item_of(self, rows: Sequence[Any]) -> Any:
        """The item of a row, or of the index of one."""
        if self.rows is None or self.rows[0] is not self.tensor:
            return self.tensor[rows[0]]
        row = rows[0] if thread.recording else without_history(rows[0])
        for x in (*related(self.tensor), row):
            freeze(
                thread.capture.root.frozen, x, "a loop over the rows of a tensor", told_by=Telling.REFERENCES
            )
        return row

    def item_at(self, index: Number) -> Any:
        """The row with an index."""
        return self.tensor[index.tensor]


class Filled(Views):
    """The tensors in a list that a loop has filled: they have graphs of their own, whether or not a loop over
    them records.
    """

    def item_of(self, rows: Sequence[Any]) -> Any:
        """The item of a row, or of the index of one."""
        with enable_grad():
            return super().item_of(rows)

    def item_at(self, index: Number) -> Any:
        """The item with an index."""
        with enable_grad():
            return super().item_at(index)


class Zipped(Source):
    """``zip(...)`` of sources: as long as the shortest."""

    def __init__(self, parts: Sequence[Source]) -> None:
        self.parts = parts
        lengths = [p.length for p in parts]
        known = [n for n in lengths if isinstance(n, int)]
        if len(known) == len(lengths):
            self.length: Any = min(lengths)
        elif all(isinstance(n, Size) and n == lengths[0] for n in lengths):
            self.length = lengths[0]
        else:
            shortest = number_of(lengths[0]).tensor
            for n in lengths[1:]:
                shortest = OPS["minimum"].on_tensors(shortest, number_of(n).tensor)
            self.length = Number(int, shortest)
        self.rows = None

    def prepare(self) -> None:
        """Make the rows, cut to the length of the shortest."""
        prepare_all(self.parts)
        if not isinstance(self.length, Number) and all(p.rows is not None for p in self.parts):
            cut = self.length
            self.rows = [r if r.shape[0] == cut else r[:cut] for p in self.parts for r in p.rows or ()]

    def item_of(self, rows: Sequence[Any]) -> Any:
        """The item of a row of each tensor."""
        items, start = [], 0
        for part in self.parts:
            count = len(part.rows or ())
            items.append(part.item_of(rows[start : start + count]))
            start += count
        return tuple(items)

    def item_at(self, index: Number) -> Any:
        """The item with an index."""
        return tuple(part.item_at(index) for part in self.parts)

    def plain(self) -> Iterator[Any]:
        """The items for Python."""
        return builtins.zip(*self.parts, strict=False)


class Reversed(Source):
    """``reversed(...)`` of a source."""

    def __init__(self, part: Source) -> None:
        self.part = part
        self.length = part.length
        self.rows = None

    def prepare(self) -> None:
        """Turn the rows round."""
        prepare_all([self.part])
        if self.part.rows is not None:
            self.rows = [_flipped(r) for r in self.part.rows]

    def item_of(self, rows: Sequence[Any]) -> Any:
        """The item of a row of each tensor."""
        return self.part.item_of(rows)

    def item_at(self, index: Number) -> Any:
        """The item with an index."""
        return self.part.item_at(self.length - 1 - index)

    def plain(self) -> Iterator[Any]:
        """The items for Python."""
        return iter(list(self.part)[::-1])


class Tail(Source):
    """A source without its first item; its length is known."""

    def __init__(self, part: Source) -> None:
        self.part = part
        self.length = part.length - 1
        self.every = part.every
        self.rows = None

    def prepare(self) -> None:
        """Cut the rows."""
        prepare_all([self.part])
        if self.part.rows is not None:
            self.rows = [r[1:] for r in self.part.rows]

    def item_of(self, rows: Sequence[Any]) -> Any:
        """The item of a row of each tensor."""
        return self.part.item_of(rows)

    def item_at(self, index: Number) -> Any:
        """The item with an index."""
        return self.part.item_at(index + 1)

    def plain(self) -> Iterator[Any]:
        """The items for Python."""
        items = iter(self.part)
        next(items)
        return items


def _flipped(tensor: Any) -> Any:
    """A tensor with its rows in reverse order."""
    return flip_axes(tensor, (0,))


def prepare_all(parts: Sequence[Source]) -> None:
    """Make the rows of sources."""
    for part in parts:
        prepare: Callable[[], None] | None = getattr(part, "prepare", None)
        if prepare is not None:
            prepare()


def source_of(x: Any) -> Source | None:
    """The source that something iterable is, or None if only Python can iterate over it."""
    if isinstance(x, Source):
        return x
    if isinstance(x, Checkpointed):
        inner = source_of(x.items)
        found = None if inner is None else copy(inner)
        if found is not None:
            found.every = x.every
        return found
    if isinstance(x, builtins.range):
        return Range(x.start, x.stop, x.step)
    if isinstance(x, Tensor) and x.ndim:
        return Views(x)
    if getattr(x, "is_grown", False):  # see weft.capture.runtime.lists.GraphList
        tensor, kind = x.rows
        return Filled(tensor) if kind is None else Rows(tensor, kind)
    return None
