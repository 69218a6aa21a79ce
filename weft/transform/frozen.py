"""Tensors that may be one with others, which the graph does not know: they must not be changed in place.

After a loop in which ``a, b = b, a + b`` is run as often as a tensor says, nobody knows which tensor ``a``
is. As long as none of them is changed in place, and no two of them leave the function, that does not matter,
which is the common case, and costs nothing. Where it matters, the capture begins again and tells more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from weft.base.records import NamedTuple
from weft.errors import CaptureError


class Telling(IntEnum):
    """What a capture carries beside values; each carries what those before it do, too.

    REFERENCES: which tensor each variable is, and of which rows are views. ITEMS: which tensors lists hold.
    """

    NOTHING = 0
    REFERENCES = 1
    ITEMS = 2


class Entry(NamedTuple):
    """A tensor, the one it may be one with if known, the statement that made it so, and what tells it.

    ``shown_by`` is what must be told if it leaves, so that who gets it from a call sees which one it is.
    """

    tensor: weakref.ref[Any]
    other: weakref.ref[Any] | None
    where: str
    told_by: Telling
    shown_by: Telling


Frozen = dict[int, Entry]  # by id of the tensor


class Restart(BaseException):
    """The capture must begin again, and tell more."""

    def __init__(self, telling: Telling) -> None:
        super().__init__(telling)
        self.telling = telling


def freeze(
    frozen: Frozen,
    tensor: object,
    where: str,
    *,
    told_by: Telling,
    beside: object | None = None,
    leaves: bool = True,
) -> None:
    """Say that a tensor may be one with others, or with the one beside it as long as that lives.

    Args:
        frozen: where it is noted.
        tensor: that must not be changed.
        where: the statement that made it so.
        told_by: what a capture must tell to know which one it is; NOTHING if none can.
        beside: the only one that it may be one with.
        leaves: whether that shows outside: a list whose length a run tells gives away tensors of their own.
    """
    shown_by = told_by if leaves else Telling.NOTHING
    old = frozen[id(tensor)] if is_frozen(frozen, tensor) else None
    if old is None or _is_worse(told_by, old.told_by):
        other = None if beside is None else weakref.ref(beside)
        old_shown = Telling.NOTHING if old is None else old.shown_by
        frozen[id(tensor)] = Entry(weakref.ref(tensor), other, where, told_by, max(shown_by, old_shown))
    elif shown_by > old.shown_by:
        frozen[id(tensor)] = old._replace(shown_by=shown_by)


def _is_worse(new: Telling, old: Telling) -> bool:
    return new is Telling.NOTHING or (old is not Telling.NOTHING and new > old)


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
            freeze(frozen, tensor, found.where, told_by=found.told_by, leaves=bool(found.shown_by))


def check_leaving(frozen: Frozen, leaving: Iterable[object], is_outside: Callable[[Any], bool]) -> None:
    """Raise Restart if somebody outside could see which tensor one is that leaves: it takes two."""
    shown = {key: e for key, e in frozen.items() if e.shown_by}
    left = {id(x) for x in leaving if is_frozen(shown, x)}
    alive = [x for e in shown.values() if (x := e.tensor()) is not None]
    seen = left.union(id(x) for x in alive if is_outside(x))
    if left and len(seen) > 1:
        raise Restart(min(shown[x].shown_by for x in seen))


def check_known(frozen: Frozen, tensor: object) -> bool:
    """Whether it is known which tensor one is; raises Restart where a capture that tells more knows it."""
    if not is_frozen(frozen, tensor):
        return True
    if told_by := frozen[id(tensor)].told_by:
        raise Restart(told_by)
    return False


def check_frozen(frozen: Frozen, tensor: object) -> None:
    """Told before a tensor changes in place."""
    if check_known(frozen, tensor):
        return
    found = frozen[id(tensor)]
    raise CaptureError(
        "capture",
        f"a tensor that is changed in place must not be one with others, got one of {found.where}, which may",
        hint="write `x = x + y` in place of `x += y`, or take a copy with .clone() before",
    )
