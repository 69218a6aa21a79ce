"""Forms of containers: items, lengths, iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import weft
from tests.capture.special_methods.forms import Counts, form


class Container(Counts):
    def __init__(self) -> None:
        super().__init__()
        self.held = weft.tensor(1.0)

    def __getitem__(self, key: Any) -> Any:
        self.note()
        return self.held * key

    def __setitem__(self, key: Any, value: Any) -> None:
        self.note()
        self.held = value * key

    def __delitem__(self, key: Any) -> None:
        self.note(2.0)

    def __contains__(self, x: Any) -> bool:
        self.note(0.25)
        return bool(self.n > 1.0)

    def __call__(self, x: Any) -> Any:
        self.note()
        return x + self.n

    def __iter__(self) -> Iterator[Any]:
        self.note(0.125)
        return iter([self.held, self.held * 2.0])

    def __reversed__(self) -> Any:
        self.note(4.0)
        return [self.held * 5.0]


@form(Container)
def getitem(o: Any, x: Any) -> Any:
    return o[2.0] + x


@form(Container)
def setitem(o: Any, x: Any) -> Any:
    o[3.0] = x
    return o.held + 0.0


@form(Container)
def setitem_augmented(o: Any, x: Any) -> Any:
    o[2.0] += x
    return o.held + 0.0


@form(Container)
def delitem(o: Any, x: Any) -> Any:
    del o[0]
    return x * 2.0


class Sized(Counts):
    def __len__(self) -> int:
        self.note(0.5)
        return 2


@form(Sized)
def length(o: Any, x: Any) -> Any:
    return x * len(o)


@form(Sized)
def truth_by_length(o: Any, x: Any) -> Any:
    return x + 1.0 if o else x


@form(Container)
def contains(o: Any, x: Any) -> Any:
    return x * 2.0 if (x in o) and x > 0 else x


@form(Container)
def called(o: Any, x: Any) -> Any:
    return o(x) + o(x)


@form(Container)
def iterated(o: Any, x: Any) -> Any:
    for y in o:
        x = x + y
    return x


@form(Container)
def unpacked(o: Any, x: Any) -> Any:
    a, b = o
    return a + b * x


@form(Container)
def starred(o: Any, x: Any) -> Any:
    return weft.stack([x, *o]).sum()


@form(Container)
def as_list(o: Any, x: Any) -> Any:
    return sum(list(o), x) + float(len(tuple(o)))


@form(Container)
def in_a_comprehension(o: Any, x: Any) -> Any:
    return weft.stack([y * x for y in o]).sum()


@form(Container)
def reversed_(o: Any, x: Any) -> Any:
    for y in reversed(o):
        x = x + y
    return x


@form(Container)
def zipped(o: Any, x: Any) -> Any:
    for y, k in zip(o, [1.0, 2.0], strict=True):
        x = x + y * k
    return x


class Steps(Counts):
    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    def __iter__(self) -> Any:
        return Countdown(self)


class Countdown:
    def __init__(self, of: Any) -> None:
        self.of = of
        self.left = 3

    def __next__(self) -> Any:
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        self.of.note()
        return self.of.n * 2.0


@form(Steps)
def next_method(o: Any, x: Any) -> Any:
    for y in o:
        x = x + y
    return x


@form(Steps)
def next_by_hand(o: Any, x: Any) -> Any:
    steps = iter(o)
    return next(steps) + next(steps) * x


class Indexed(Counts):
    def __getitem__(self, index: int) -> Any:
        if index > 2:
            raise IndexError
        self.note()
        return self.n


@form(Indexed)
def iterated_by_index(o: Any, x: Any) -> Any:
    for y in o:
        x = x + y
    return x
