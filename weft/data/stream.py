"""Elements one after the other: for stages that must see all elements before the one that is asked for.

A stream's ``state`` is a small tree of counts, made of what has come out of it; given back when the stream is
opened again, the rest follows exactly. Nothing in it is data: what a buffer held is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from weft.base.philox import Key
from weft.data.access import PASSES
from weft.data.keys import Words, below
from weft.data.stage import Element, Filter, Flatten, Generator, Interleave
from weft.data.transform import call_user, spread
from weft.data.tree import to_arrays
from weft.errors import ArgumentError

State = dict[str, Any]
Open = Callable[[int, State | None], "Stream"]  # from an epoch and a state to the stream of an input


class Stream:
    """The elements of one epoch of a stage."""

    def next(self) -> Element:
        """The next element; ``StopIteration`` after the last."""
        raise NotImplementedError

    def state(self) -> State:
        """Where it is."""
        raise NotImplementedError

    def close(self) -> None:
        """End the threads and processes that work for it."""


class Derived(Stream):
    """A stream that reads another one, and is where that is unless it says otherwise."""

    _source: Stream

    def state(self) -> State:
        return self._source.state()

    def close(self) -> None:
        self._source.close()


# Steps: what can be computed element by element, in step or ahead of time. A feed is a stream of what is to
# be computed: the number of an element, and the stretch of another stream that it is made of, or None.


class RangeFeed(Stream):
    """Numbers of elements that can be had by number."""

    def __init__(self, size: int, state: State | None) -> None:
        self._size = size
        self._position: int = state["position"] if state else 0

    def next(self) -> tuple[int, Any]:
        i = self._position
        if i >= self._size:
            raise StopIteration
        self._position = i + 1
        return i, None

    def state(self) -> State:
        return {"position": self._position}


class ChunkFeed(Derived):
    """Stretches of a stream, each as long as one element of what is made of them.

    Args:
        source: the stream.
        width: the length of a stretch.
        wanted: whether element i can be made of a stretch, which may be short at the end.
        state: where to begin.
    """

    def __init__(
        self, source: Stream, width: int, wanted: Callable[[int, Any], bool], state: State | None
    ) -> None:
        self._source = source
        self._width = width
        self._wanted = wanted
        self._position: int = state["position"] if state else 0
        self._ended = False

    def next(self) -> tuple[int, Any]:
        if self._ended:
            raise StopIteration
        elements: list[Element] = []
        while len(elements) < self._width and not self._ended:
            try:
                elements.append(self._source.next())
            except StopIteration:
                self._ended = True
        chunk = (self._position * self._width, elements, self._ended)
        if not elements or not self._wanted(self._position, chunk):
            raise StopIteration
        self._position += 1
        return self._position - 1, chunk

    def state(self) -> State:
        return {"position": self._position, "input": self._source.state()}


class ReadFeed(Derived):
    """Elements of a stream as they are."""

    def __init__(self, source: Stream) -> None:
        self._source = source

    def next(self) -> tuple[int, Any]:
        return 0, self._source.next()


class Steps(Derived):
    """Elements computed when they are asked for."""

    def __init__(self, feed: Stream, work: Callable[[int, Any], Element]) -> None:
        self._source = feed
        self._work = work

    def next(self) -> Element:
        return self._work(*self._source.next())


# Stages of their own


class GeneratorStream(Stream):
    """What an iterator gives. To resume, it is made anew, and what was seen is read again and dropped."""

    def __init__(self, stage: Generator, number: int, epoch: int, state: State | None) -> None:
        self._stage, self._number, self._epoch = stage, number, epoch
        self._position = 0
        made = self._call(stage.function)
        if not hasattr(made, "__iter__"):
            got = type(made).__name__
            raise ArgumentError("from_generator", f"the function must return an iterator, got {got}")
        self._iterator = iter(made)
        for _ in range(state["position"] if state else 0):
            self.next()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return call_user(self._stage, self._number, self._epoch, self._position, function, *arguments)

    def next(self) -> Element:
        element = self._call(next, self._iterator, self)  # itself: what no iterator gives
        if element is self:
            raise StopIteration
        self._position += 1
        return to_arrays(element)

    def state(self) -> State:
        return {"position": self._position}

    def close(self) -> None:
        end = getattr(self._iterator, "close", None)
        if end is not None:
            end()


class FilterStream(Derived):
    """The elements for which a function is true."""

    def __init__(self, stage: Filter, number: int, epoch: int, source: Stream, seen: int) -> None:
        self._stage, self._number, self._epoch = stage, number, epoch
        self._source = source
        self._seen = seen

    def next(self) -> Element:
        while True:
            element = self._source.next()
            arguments, i = spread(element), self._seen
            self._seen += 1
            if call_user(self._stage, self._number, self._epoch, i, self._stage.predicate, *arguments):
                return element

    def state(self) -> State:
        return {"seen": self._seen, "input": self._source.state()}


class FlattenStream(Derived):
    """The elements of each element."""

    def __init__(self, stage: Flatten, number: int, epoch: int, source: Stream, state: State | None) -> None:
        self._stage, self._number, self._epoch = stage, number, epoch
        self._source = source
        self._before = source.state()  # where the source was before the element that is being read
        self._taken = 0
        self._inner: Iterator[Element] = iter(())
        if state and state["taken"]:
            self._enter()
            for _ in range(state["taken"]):
                self.next()

    def _enter(self) -> None:
        before = self._source.state()
        element = self._source.next()  # which may be the end: then nothing changes
        self._before, self._taken = before, 0
        self._inner = self._call(iter, element)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return call_user(self._stage, self._number, self._epoch, self._taken, function, *arguments)

    def next(self) -> Element:
        while True:
            element = self._call(next, self._inner, self)
            if element is not self:
                self._taken += 1
                return to_arrays(element)
            self._enter()

    def state(self) -> State:
        return {"taken": self._taken, "input": self._before}


class ShuffleStream(Derived):
    """Elements in random order, through a buffer. To resume, the stream is read again from its start."""

    def __init__(self, source: Stream, key: Key, buffer: int | None, state: State | None) -> None:
        self._source = source
        self._words = Words(key)
        self._size = buffer
        self._held: list[Element] = []
        self._given = 0
        self._more = True
        for _ in range(state["given"] if state else 0):
            self.next()

    def next(self) -> Element:
        while self._more and (self._size is None or len(self._held) < self._size):
            try:
                self._held.append(self._source.next())
            except StopIteration:
                self._more = False
        if not self._held:
            raise StopIteration
        place = below(self._words[self._given], len(self._held))
        element = self._held[place]
        self._given += 1
        self._fill(place)
        return element

    def _fill(self, place: int) -> None:
        """Put the next element, or if there is none the last of the buffer, in the place of a given one."""
        try:
            if not self._more:
                raise StopIteration
            self._held[place] = self._source.next()
        except StopIteration:
            self._more = False
            self._held[place] = self._held[-1]
            self._held.pop()

    def state(self) -> State:
        return {"given": self._given}


class TakeStream(Derived):
    """The elements from one number to another."""

    def __init__(self, source: Stream, first: int, count: int | None, state: State | None) -> None:
        self._source = source
        self._skip: int = state["skip"] if state else first
        self._count = count
        self._taken: int = state["taken"] if state else 0

    def next(self) -> Element:
        while self._skip:
            self._skip -= 1
            self._source.next()
        if self._taken == self._count:
            raise StopIteration
        element = self._source.next()
        self._taken += 1
        return element

    def state(self) -> State:
        return {"taken": self._taken, "skip": self._skip, "input": self._source.state()}


class RepeatStream(Derived):
    """Several epochs of the input as one."""

    def __init__(self, open_: Open, times: int | None, epoch: int, state: State | None) -> None:
        self._open = open_
        self._times = times
        self._first = epoch * (PASSES if times is None else times)
        self._turn: int = state["turn"] if state else 0
        self._source = open_(self._first + self._turn, state and state["input"])
        self._empty = state is None

    def next(self) -> Element:
        while True:
            try:
                element = self._source.next()
            except StopIteration:
                if self._empty or self._turn + 1 == self._times:
                    raise
                self._source.close()
                self._turn += 1
                self._source = self._open(self._first + self._turn, None)
                self._empty = True
            else:
                self._empty = False
                return element

    def state(self) -> State:
        return {"turn": self._turn, "input": self._source.state()}


class ConcatStream(Derived):
    """The elements of one input after those of another."""

    def __init__(self, opens: list[Open], epoch: int, state: State | None) -> None:
        self._opens = opens
        self._epoch = epoch
        self._part: int = state["part"] if state else 0
        self._source = opens[self._part](epoch, state and state["input"])

    def next(self) -> Element:
        while True:
            try:
                return self._source.next()
            except StopIteration:
                if self._part + 1 == len(self._opens):
                    raise
                self._source.close()
                self._part += 1
                self._source = self._opens[self._part](self._epoch, None)

    def state(self) -> State:
        return {"part": self._part, "input": self._source.state()}


class ZipStream(Stream):
    """Tuples of an element of each input."""

    def __init__(self, sources: list[Stream]) -> None:
        self._sources = sources

    def next(self) -> Element:
        return tuple([source.next() for source in self._sources])  # a list: StopIteration goes through it

    def state(self) -> State:
        return {"inputs": [source.state() for source in self._sources]}

    def close(self) -> None:
        for source in self._sources:
            source.close()


class InterleaveStream(ZipStream):
    """Elements of each input in turn; where one has ended, its turn is left out."""

    def __init__(self, stage: Interleave, sources: list[Stream], state: State | None) -> None:
        super().__init__(sources)
        self._block = stage.block
        self._ended: list[bool] = list(state["ended"]) if state else [False] * len(sources)
        self._turn: int = state["turn"] if state else 0
        self._given: int = state["given"] if state else 0  # in this turn

    def next(self) -> Element:
        while not all(self._ended):
            if self._given < self._block and not self._ended[self._turn]:
                try:
                    element = self._sources[self._turn].next()
                except StopIteration:
                    self._ended[self._turn] = True
                else:
                    self._given += 1
                    return element
            self._turn = (self._turn + 1) % len(self._sources)
            self._given = 0
        raise StopIteration

    def state(self) -> State:
        return {"turn": self._turn, "given": self._given, "ended": list(self._ended), **super().state()}
