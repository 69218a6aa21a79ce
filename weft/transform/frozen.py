"""Tensors that may be one with others, which the graph does not know: they must not be changed in place.

After a loop in which ``a, b = b, a + b`` is run as often as a tensor says, nobody knows which tensor ``a``
is. As long as none of them is changed in place, and no two of them leave the function, that does not matter,
which is the common case, and costs nothing. Where it matters, the capture begins again and tells more.

After ``x.data = y`` both show the same elements, which no graph tells either: they are a *group*, and where
that matters it is refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any

from weft.base.concrete import is_concrete
from weft.base.frames import format_location
from weft.base.records import NamedTuple
from weft.errors import CaptureError
from weft.ops.alias import CHOICE
from weft.tensor.alias import family_of, views_of, with_ancestors
from weft.tensor.mode import thread


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


class Group(NamedTuple):
    """Tensors that show the same elements since one of them was assigned those of another one as its data.

    Attributes:
        members: all of them, and their views.
        takers: those that were assigned.
        place: file and line of the last assignment, if known.
    """

    members: tuple[weakref.ref[Any], ...]
    takers: tuple[weakref.ref[Any], ...]
    place: tuple[str, int] | None

    @property
    def where(self) -> str:
        """The assignment, in words."""
        line = "" if self.place is None else f" at {format_location(self.place)}"
        return f"the assignment of data{line}"

    def without(self, tensor: object) -> Group:
        """What is left when a tensor shows other elements."""
        members, takers = (tuple(r for r in refs if r() is not tensor) for refs in self[:2])
        return Group(members, takers, self.place)


class Frozen(dict[int, Entry]):
    """Tensors that may be one with others, by id; and groups that share elements, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[int, Group] = {}

    def __bool__(self) -> bool:
        return bool(len(self) or self.groups)


class Again(BaseException):
    """A capture, or a part of it, must begin again: no handler of captured code may take it for an error."""


class Restart(Again):
    """The capture must begin again, and tell more."""

    def __init__(self, telling: Telling) -> None:
        super().__init__(telling)
        self.telling = telling


class SetUp(Again):
    """The capture must begin again: what captured code uses was set up, from outside, in a branch or loop."""


class ByValue(Again):
    """The capture must begin again, and join what containers from outside hold, by their ids."""

    def __init__(self, found: set[int]) -> None:
        super().__init__(found)
        self.found = found


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
    old = _entry_of(frozen, tensor)
    if old is None or _is_worse(told_by, old.told_by):
        other = None if beside is None else weakref.ref(beside)
        old_shown = Telling.NOTHING if old is None else old.shown_by
        frozen[id(tensor)] = Entry(weakref.ref(tensor), other, where, told_by, max(shown_by, old_shown))
    elif shown_by > old.shown_by:
        frozen[id(tensor)] = old._replace(shown_by=shown_by)


def _is_worse(new: Telling, old: Telling) -> bool:
    return new is Telling.NOTHING or (old is not Telling.NOTHING and new > old)


def is_frozen(frozen: Frozen, tensor: object) -> bool:
    """Whether a tensor may be one with others, or shares its elements with others that are no views of it."""
    return _entry_of(frozen, tensor) is not None or _group_of(frozen, tensor) is not None


def _entry_of(frozen: Mapping[int, Entry], tensor: object) -> Entry | None:
    found = frozen.get(id(tensor))
    if found is None or found.tensor() is not tensor:
        return None
    return found if found.other is None or found.other() is not None else None


def _group_of(frozen: Frozen, tensor: Any) -> Group | None:
    """The group whose elements a tensor shows, if somebody shows them who is no view of it."""
    if not frozen.groups:
        return None
    family = {id(x) for x in family_of(tensor)}
    for group in frozen.groups.values():
        alive = {id(x) for r in group.members if (x := r()) is not None}
        if alive & family and alive - family:
            return group
    return None


def take_over(
    frozen: Frozen, tensor: Any, source: Any, place: tuple[str, int] | None, *, always: bool
) -> None:
    """Note that a tensor shows the elements of another one from now on.

    Args:
        frozen: where it is noted.
        tensor: that was assigned.
        source: whose elements it shows.
        place: of the statement.
        always: whether every call comes here, so that it shows nothing of what it did before.
    """
    _check_source(frozen, source)
    if always:
        leave_group(frozen, tensor)
    shown = [*family_of(source), tensor]
    members, takers = {id(x): weakref.ref(x) for x in shown}, {id(tensor): weakref.ref(tensor)}
    for number, group in list(frozen.groups.items()):
        alive = {id(x): r for r in group.members if (x := r()) is not None}
        if not alive or alive.keys() & members.keys():
            del frozen.groups[number]
        if alive.keys() & members.keys():
            members |= alive
            takers |= {id(r()): r for r in group.takers if r() is not None}
    number = max(frozen.groups, default=0) + 1
    frozen.groups[number] = Group(tuple(members.values()), tuple(takers.values()), place)


def _check_source(frozen: Frozen, source: Any) -> None:
    """Raise if it is not known whose elements a tensor is to show; Restart where telling more helps."""
    for entry in [e for x in with_ancestors(source) if (e := _entry_of(frozen, x)) is not None]:
        if entry.told_by:
            raise Restart(entry.told_by)
        message = (
            f"a tensor that is assigned must be a known one, got one of {entry.where}, which may be another"
        )
        raise CaptureError("data", message, hint="write `x.copy_(y)`, or `x.data = y.clone()`")


def check_replaceable(tensor: Any, *, always: bool) -> None:
    """Raise if a tensor must not be assigned data: others would keep the old elements, or a way would not."""
    views, hint = views_of(tensor), "write `x.copy_(y)` or `x.data.copy_(y)`"
    if any(view._link[1] is CHOICE for view in views):
        message = "must not be replaced while a variable may be this tensor or another one, got such a one"
        raise CaptureError("data", message, hint=hint)
    lent = thread.capture.root.has_lent
    if any(is_concrete(view._data) or lent(view) for view in views) or hasattr(tensor, "_link"):
        what = "is a view" if hasattr(tensor, "_link") else "has views"
        message = "must not be replaced while others show the old elements, which would keep them"
        raise CaptureError("data", f"{message}, got a tensor that {what}", hint=hint)
    if views and not always:
        message = "must not be replaced in a branch or loop while views live, got a tensor that has some"
        raise CaptureError("data", message, hint="take the views after it, or write `x.data.copy_(y)`")


def leave_group(frozen: Frozen, tensor: object) -> None:
    """Note that a tensor is to show other elements."""
    for number, group in list(frozen.groups.items()):
        frozen.groups[number] = group.without(tensor)


def check_groups(frozen: Frozen, is_seen: Callable[[Any], bool]) -> None:
    """Raise if two that share elements are seen when a call has ended: it would leave them apart."""
    for group in frozen.groups.values():
        takers = [x for r in group.takers if (x := r()) is not None and is_seen(x)]
        members = [x for r in group.members if (x := r()) is not None and is_seen(x)]
        if takers and len(members) > 1:
            raise CaptureError(
                "data",
                "a tensor that takes over elements must not share them with others after the call, got one",
                hint="copy the elements with `x.data.copy_(y)`, or write `x.data = y.clone()`",
                location=group.place,
            )


def hand_on(frozen: Frozen, ways: Iterable[object], tensor: object) -> None:
    """Freeze what a variable holds that was frozen on some way."""
    for way in ways:
        if (entry := _entry_of(frozen, way)) is not None:
            freeze(frozen, tensor, entry.where, told_by=entry.told_by, leaves=bool(entry.shown_by))
        elif (group := _group_of(frozen, way)) is not None:
            freeze(frozen, tensor, group.where, told_by=Telling.NOTHING)


def check_leaving(frozen: Frozen, leaving: Iterable[object], is_outside: Callable[[Any], bool]) -> None:
    """Raise Restart if somebody outside could see which tensor one is that leaves: it takes two."""
    shown = {key: e for key, e in frozen.items() if e.shown_by}
    left = {id(x) for x in leaving if _entry_of(shown, x) is not None}
    alive = [x for e in shown.values() if (x := e.tensor()) is not None]
    seen = left.union(id(x) for x in alive if is_outside(x))
    if left and len(seen) > 1:
        raise Restart(min(shown[x].shown_by for x in seen))


def check_known(frozen: Frozen, tensor: object) -> bool:
    """Whether it is known which tensor one is; raises Restart where a capture that tells more knows it."""
    return _doubt(frozen, tensor) is None


def check_picked(frozen: Frozen, tensor: object) -> None:
    """Raise Restart if a tensor may be one of others, and a capture that tells references knows which."""
    entry = _entry_of(frozen, tensor)
    if entry is not None and entry.told_by == Telling.REFERENCES:
        raise Restart(entry.told_by)


def _doubt(frozen: Frozen, tensor: object) -> str | None:
    """The statement after which it is not known which tensor one is; raises Restart if telling more helps."""
    if (entry := _entry_of(frozen, tensor)) is not None:
        if entry.told_by:
            raise Restart(entry.told_by)
        return entry.where
    group = _group_of(frozen, tensor)
    return None if group is None else group.where


def check_frozen(frozen: Frozen, tensor: object) -> None:
    """Told before a tensor changes in place."""
    if (where := _doubt(frozen, tensor)) is not None:
        raise CaptureError(
            "capture",
            f"a tensor that is changed in place must not be one with others, got one of {where}, which may",
            hint="write `x = x + y` in place of `x += y`, or take a copy with .clone() before",
        )
