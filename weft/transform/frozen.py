"""Tensors that may be one with others, which the graph does not know: they must not be changed in place.

After a loop in which ``a, b = b, a + b`` is run as often as a tensor says, nobody knows which tensor ``a``
is. As long as none of them is changed in place that does not matter, which is the common case, and costs
nothing. Where one is, the capture begins again and carries which tensor each variable is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from weft.base.records import NamedTuple
from weft.errors import CaptureError


class Entry(NamedTuple):
    """A tensor, the one it may be one with if known, the statement that made it so, and what mends it."""

    tensor: weakref.ref[Any]
    other: weakref.ref[Any] | None
    where: str
    mends: bool


Frozen = dict[int, Entry]  # by id of the tensor


class Restart(BaseException):
    """The capture must begin again, and tell apart which tensors variables refer to."""


def freeze(frozen: Frozen, tensor: object, where: str, *, mends: bool, beside: object | None = None) -> None:
    """Say that a tensor may be one with others, or with the one beside it as long as that lives.

    Args:
        frozen: where it is noted.
        tensor: that must not be changed.
        where: the statement that made it so.
        mends: whether a capture that tells references apart knows which one it is.
        beside: the only one that it may be one with.
    """
    if not is_frozen(frozen, tensor) or not mends:
        other = None if beside is None else weakref.ref(beside)
        frozen[id(tensor)] = Entry(weakref.ref(tensor), other, where, mends)


def is_frozen(frozen: Frozen, tensor: object) -> bool:
    """Whether a tensor may be one with others."""
    found = frozen.get(id(tensor))
    if found is None or found.tensor() is not tensor:
        return False
    return found.other is None or found.other() is not None


def hand_on(frozen: Frozen, ways: Iterable[object], tensor: object) -> None:
    """Freeze what a variable holds that was frozen on some way."""
    for way in ways:
        if is_frozen(frozen, way):
            found = frozen[id(way)]
            freeze(frozen, tensor, found.where, mends=found.mends)


def needs_telling(frozen: Frozen, leaving: Iterable[object], is_outside: Callable[[Any], bool]) -> bool:
    """Whether somebody outside could see which tensor one is that leaves the capture: it takes two."""
    left = {id(x) for x in leaving if is_frozen(frozen, x) and frozen[id(x)].mends}
    alive = [x for e in frozen.values() if e.mends and (x := e.tensor()) is not None]
    return bool(left) and len(left.union(id(x) for x in alive if is_outside(x))) > 1


def check_frozen(frozen: Frozen, tensor: object) -> None:
    """Told before a tensor changes in place."""
    if not is_frozen(frozen, tensor):
        return
    found = frozen[id(tensor)]
    if found.mends:
        raise Restart
    raise CaptureError(
        "capture",
        f"a tensor that is changed in place must not be one with others, got one of {found.where}, which may",
        hint="write `x = x + y` in place of `x += y`, or take a copy with .clone() before",
    )
