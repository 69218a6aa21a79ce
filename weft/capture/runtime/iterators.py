"""Iteration over objects of the user: ``__iter__``, ``__next__`` and ``__getitem__`` run converted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.capture.program.classes import MISSING, class_attribute
from weft.capture.runtime.methods import may_have_methods, method_of
from weft.capture.runtime.whole import items as note_items
from weft.tensor.mode import call_user, thread


class _Iterated:
    """An iterator of the user, whose method runs converted."""

    def __init__(self, iterator: Any, method: Any) -> None:
        self.iterator = iterator
        self.method = method

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return call_user(self.method, self.iterator)


def iterable_of(x: Any) -> Any:
    """Something that Python can iterate over, where methods of the user run converted."""
    if thread.capture is None or not may_have_methods(x):
        return x
    method = method_of(x, "__iter__")
    if method is not None:
        x = call_user(method, x)
    elif class_attribute(type(x), "__iter__") is MISSING and method_of(x, "__getitem__") is not None:
        return _by_index(x)
    step = method_of(x, "__next__")
    return x if step is None else _Iterated(x, step)


def _by_index(x: Any) -> Iterator[Any]:
    """The items of something that has ``__getitem__`` alone."""
    index = 0
    while True:
        try:
            value = call_user(method_of(x, "__getitem__"), x, index)
        except IndexError:
            return
        yield value
        index += 1


def items(x: Any) -> Any:
    """Something that Python takes apart, noted as read where it is from outside."""
    if thread.capture is None:
        return x
    if may_have_methods(x) and not hasattr(type(x), "keys"):  # a mapping may be meant by **x
        x = iterable_of(x)
    return note_items(x)


def next_of(iterator: Any, *default: Any) -> Any:
    """``next(iterator)``."""
    method = method_of(iterator, "__next__")
    if method is None:
        return next(iterator, *default)
    try:
        return call_user(method, iterator)
    except StopIteration:
        if not default:
            raise
        return default[0]
