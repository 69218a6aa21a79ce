"""Builtins on sequences in converted code: lengths, ranges, what ``for`` goes along, and reductions.

Where they meet tensors or Numbers of a capture they give values of the graph; on everything plain they do
what Python does. They are entered into ``HANDLERS`` of ``weft.capture.runtime.builtins``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from weft.base.dtypes import kind as kind_of
from weft.base.sizes import Size
from weft.capture.runtime.branch import and_, if_exp, or_
from weft.capture.runtime.builtins import HANDLERS, handles, item
from weft.capture.runtime.items import total_of
from weft.capture.runtime.iterables import Range, Reversed, Source, Zipped, source_of
from weft.capture.runtime.iterators import END, Ahead, iterable_of, next_of
from weft.capture.runtime.lists import GraphList
from weft.capture.runtime.meet import truth_of
from weft.capture.runtime.methods import may_have_methods, method_of, plain_key
from weft.capture.runtime.mixed import mixed_of
from weft.capture.runtime.number import KINDS, Number, higher_kind, is_number, number_of
from weft.capture.runtime.operators import binary
from weft.capture.runtime.owners import CONTAINERS, is_made_inside, note_made
from weft.capture.runtime.places import note_read
from weft.capture.runtime.truth import as_bool, asked, is_staged
from weft.capture.runtime.users_keys import note_keys
from weft.capture.runtime.whole import truth
from weft.errors import CaptureError, ShapeError
from weft.ops.alias import link_taken
from weft.ops.op import OPS
from weft.ops.rows import rows
from weft.tensor.indexing import BRACKETS
from weft.tensor.mode import call_user, thread
from weft.tensor.tensor import Tensor

# Lengths and iteration


@handles(len)
def _len(x: Any) -> Any:
    if isinstance(x, Tensor) and x.ndim:
        return x.shape[0]
    if isinstance(x, Source):
        return x.length
    if isinstance(x, list):
        note_read(x, "len")
    if isinstance(x, GraphList) and x.is_grown:
        return x.graph_length
    method = method_of(x, "__len__")
    if method is not None:
        return call_user(method, x)
    if isinstance(x, CONTAINERS) and not is_made_inside(x):
        thread.capture.root.read_length(x)
    return len(x)


@handles(range)
def _range(*args: Any) -> Any:
    args = plain_key(args)
    if not any(isinstance(x, Number | Tensor | Size) for x in args):
        return range(*args)
    bounds = [_bound(x) for x in args]
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    return Range(start, stop, step)


def _bound(x: Any) -> Any:
    if isinstance(x, Tensor):
        if kind_of(x.dtype) not in "iu" or not is_staged(x):
            return operator.index(x)
        return item(x)
    if isinstance(x, Number) and x.kind is float:
        raise TypeError("'float' object cannot be interpreted as an integer")
    return x


@handles(zip)
def _zip(*iterables: Any, strict: bool = False) -> Any:
    parts = [p for x in iterables if (p := _loopable(x)) is not None]
    if not parts or len(parts) < len(iterables):
        return zip(*map(plain_items, iterables), strict=strict)
    if strict and len({str(p.length) for p in parts}) > 1:
        return zip(*iterables, strict=True)
    return Zipped(parts)


@handles(enumerate)
def _enumerate(iterable: Any, start: Any = 0) -> Any:
    part = _loopable(iterable)
    if part is None:
        return enumerate(plain_items(iterable), start)
    return Zipped(
        [
            Range(start, start + part.length, 1)
            if not isinstance(part.length, Size)
            else _count(start, part),
            part,
        ]
    )


def _count(start: Any, part: Source) -> Range:
    return (
        Range(start, part.length, 1)
        if isinstance(start, int) and start == 0
        else Range(start, number_of(part.length) + start, 1)
    )


@handles(reversed)
def _reversed(iterable: Any) -> Any:
    if isinstance(iterable, range):
        return iterable[::-1]
    method = method_of(iterable, "__reversed__")
    if method is not None:
        return iterable_of(call_user(method, iterable))
    method = method_of(iterable, "__getitem__")
    if method is not None:
        return map(partial(call_user, method, iterable), range(operator.index(_len(iterable)) - 1, -1, -1))
    part = _loopable(iterable)
    return reversed(iterable) if part is None else Reversed(part)


@handles(iter)
def _iter(x: Any, *sentinel: Any) -> Any:
    if sentinel:
        return iter(lambda: call_user(x), *sentinel)
    method = method_of(x, "__iter__")
    return iter(iterable_of(x)) if method is None else call_user(method, x)


@handles(next)
def _next(iterator: Any, *default: Any) -> Any:
    return next_of(iterator, *default)


def _loopable(x: Any) -> Source | None:
    """The source that something is, if a loop of the graph can go along it."""
    return source_of(x) if thread.capture.root.stages_control else None


def plain_items(x: Any) -> Any:
    """Something that Python iterates over, noted as read; methods of the user are run converted."""
    if isinstance(x, list):
        note_read(x)
    return iterable_of(x)


@handles(list)
def _list(*args: Any) -> Any:
    return note_made(GraphList(listed(args[0]) if args else ()))


@handles(tuple)
def _tuple(*args: Any) -> Any:
    return tuple(args[0] if isinstance(args[0], GraphList) else listed(args[0])) if args else ()


def listed(x: Any) -> list[Any]:
    """The items of something that Python iterates over; those of a tensor are its rows."""
    if isinstance(x, GraphList) and x.is_grown:
        note_read(x)
        return x.content
    if isinstance(x, Tensor) and x.ndim and isinstance(x.shape[0], int) and x.shape[0]:
        views = list(rows.on_tensors(x, count=x.shape[0]))
        for i, view in enumerate(views):
            link_taken(view, x, BRACKETS, i)
        return views
    return list(plain_items(x))


def _collected(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """A new dict or set, whose keys are compared with each other."""
    given = [list(x) if isinstance(x, Iterator) else x for x in args]
    for x in given if kind is set else ():
        note_keys(x)
    made = kind(*given, **kwargs)
    if kind is dict:
        note_keys(made)
    return note_made(made)


for _kind in (dict, set):
    HANDLERS[_kind] = partial(_collected, _kind)


# Order


# Reductions


@handles(sum)
def _sum(iterable: Any, /, start: Any = 0) -> Any:
    if is_staged(iterable) and iterable.ndim:
        total = iterable.sum(axis=0, dtype=None if kind_of(iterable.dtype) != "b" else KINDS[int])
        return total if isinstance(start, int) and start == 0 else start + total
    if isinstance(iterable, GraphList) and iterable.is_grown:
        note_read(iterable)
        return start + total_of(iterable.content)
    if isinstance(iterable, Source):
        iterable = list(iterable)
    given = list(plain_items(iterable))
    if not any(may_have_methods(x) or mixed_of(x) for x in (start, *given)):
        return sum(given, start)
    for x in given:
        start = binary("+", start, x)
    return start


@handles(any)
def _any(iterable: Iterable[Any]) -> Any:
    return _truths(iterable, stop_at=True)


@handles(all)
def _all(iterable: Iterable[Any]) -> Any:
    return _truths(iterable, stop_at=False)


def _truths(iterable: Any, *, stop_at: bool) -> Any:
    """Whether any or all hold: Python's way up to the first tensor, from there in the graph."""
    if is_staged(iterable) and iterable.ndim == 1:
        truth = truth_of(iterable)
        return Number(bool, (truth.any() if stop_at else truth.all())._value())
    items = iter(plain_items(iterable))
    for x in items:
        answer = asked(x)
        if is_staged(answer):
            ahead = Ahead(items, "any()" if stop_at else "all()")
            rest = [answer, *iter(ahead.next, END)]
            ahead.end()
            thunks = [lambda x=x: as_bool(x) for x in rest]
            return (or_ if stop_at else and_)(*thunks)
        if bool(answer) is stop_at:
            return stop_at
    return not stop_at


@handles(min)
def _min(*args: Any, **kwargs: Any) -> Any:
    return _extreme(min, "<", "argmin", args, kwargs)


@handles(max)
def _max(*args: Any, **kwargs: Any) -> Any:
    return _extreme(max, ">", "argmax", args, kwargs)


def _extreme(function: Any, better: str, argument: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The first least or greatest, as Python finds it."""
    if len(args) == 1 and not kwargs and is_staged(args[0]) and args[0].ndim == 1:
        return args[0][getattr(args[0], argument)()]
    items = list(plain_items(args[0])) if len(args) == 1 else list(args)
    if items and any(map(may_have_methods, items)):
        return _extreme_object(better, items, **kwargs)
    if kwargs.get("key") is not None:
        kwargs = {**kwargs, "key": partial(call_user, kwargs["key"])}
    if not kwargs and any(isinstance(x, Size) for x in items) and all(map(is_number, items)):
        return _extreme_size(function, better, items)
    if kwargs or not any(map(is_staged, items)):
        return function(items, **kwargs) if len(args) == 1 else function(*items, **kwargs)
    best = items[0]
    for x in items[1:]:
        best = _better(x, best, better)
    return best


def _extreme_size(function: Any, better: str, items: list[Any]) -> Any:
    """The least or greatest of numbers with a named size among them: a size itself where bounds tell."""
    if not any(isinstance(x, Number) for x in items):
        try:
            return function(items)
        except ShapeError:
            pass
    best = items[0]
    for x in items[1:]:
        best = _better(x, best, better)
    return best


def _extreme_object(better: str, items: list[Any], key: Any = None, default: Any = None) -> Any:
    """The first least or greatest of objects, by their own methods."""
    keys = items if key is None else [call_user(key, x) for x in items]
    best = 0
    for i in range(1, len(items)):
        if truth(asked(binary(better, keys[i], keys[best]))):
            best = i
    return items[best]


def _better(x: Any, best: Any, better: str) -> Any:
    if is_number(x) and is_number(best):
        a, b = number_of(x), number_of(best)
        kind = higher_kind(a.kind, b.kind)
        wins = binary(better, a, b)
        return Number(kind, OPS["where"].on_tensors(wins.tensor, a.as_kind(kind), b.as_kind(kind)))
    return if_exp(binary(better, x, best), lambda: x, lambda: best)


@handles(sorted)
def _sorted(iterable: Any, /, *, key: Any = None, reverse: Any = False) -> Any:
    if is_staged(iterable) and iterable.ndim == 1 and key is None:
        return _sorted_rows(iterable, descending=bool(reverse))
    down = truth(asked(reverse))
    return note_made(sorted(plain_items(iterable), key=partial(_sort_key, key), reverse=down))


def _sorted_rows(x: Any, *, descending: bool) -> list[Any]:
    """The elements of a tensor in order, each a view of it at a position that the run tells."""
    order = x.argsort(axis=-1, descending=descending, stable=True)
    out: list[Any] = note_made(listed(x[order]))
    for view, i in zip(out, listed(order), strict=True):
        link_taken(view, x, BRACKETS, i)
    return out


class _Ordered:
    """An object of the user while it is sorted: its comparison runs converted."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __lt__(self, other: Any) -> bool:
        return truth(asked(binary("<", self.x, other.x if isinstance(other, _Ordered) else other)))

    def __gt__(self, other: Any) -> bool:  # which is something plain
        return truth(asked(binary("<", other, self.x)))


KEYS = type(functools.cmp_to_key(lambda a, b: 0))


@handles(functools.cmp_to_key)
def _cmp_to_key(compare: Any) -> Any:
    """A key that compares by a function, which is run converted."""
    return note_made(functools.cmp_to_key(partial(call_user, compare)))


def check_key_made(key: Any) -> None:
    """Raise where a key that compares by a function is from outside: nobody can follow that function."""
    if not is_made_inside(key):
        raise CaptureError(
            "cmp_to_key",
            "a key that compares by a function must be made in captured code, got one from outside, whose "
            "function cannot be followed",
            hint="call functools.cmp_to_key in the captured function",
        )


def _sort_key(key: Any, x: Any) -> Any:
    found = x if key is None else call_user(key, x)
    return _Ordered(found) if may_have_methods(found) else found
