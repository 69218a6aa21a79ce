"""Containers that are one of two, or of several: which one only a run tells.

Where two ways leave different lists or dicts from outside in a variable, what they hold is joined, as a new
container. To read that is right. A change must reach the one that the run picked, and a change of one of
those is seen by who holds the new one: both are refused, as nothing carries which one it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.records import NamedTuple
from weft.errors import CaptureError
from weft.tensor.mode import thread

_KINDS = (list, dict, set)


class Joined(NamedTuple):
    """A container with those from outside that it may be.

    Attributes:
        made: the new container.
        ways: those that it may be, by id.
        where: the statement that joined them.
    """

    made: Any
    ways: dict[int, Any]
    where: str


def note_joined(made: Any, ways: Sequence[Any], where: str, least: int = 2) -> None:
    """Note which containers from outside something may be, and what it holds; at least so many of them."""
    root = thread.capture.root
    if isinstance(made, _KINDS):
        found: dict[int, Any] = {}
        for x in ways:
            known = root.notes.joined.get(id(x))
            found |= {id(x): x} if known is None else known.ways
        found = {key: x for key, x in found.items() if isinstance(x, _KINDS) and key in root.notes.outside}
        if len(found) >= least and not any(made is x for x in ways):
            root.notes.joined[id(made)] = Joined(made, found, where)
    for parts in _children(made, ways):
        note_joined(parts[0], parts[1:], where, least)


def _children(made: Any, ways: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What stands in the same place of some containers, if they are alike."""
    if isinstance(made, dict) and all(isinstance(x, dict) and x.keys() == made.keys() for x in ways):
        return [(made[key], *[x[key] for x in ways]) for key in made]
    if isinstance(made, list | tuple) and all(
        isinstance(x, list | tuple) and len(x) == len(made) for x in ways
    ):
        return list(zip(made, *ways, strict=True))
    return []


def before_joined_change(obj: Any) -> None:
    """Raise where a container is to change of which only a run tells which one it is."""
    notes = thread.capture.root.notes
    if not notes.joined:
        return
    if id(obj) in notes.joined:
        raise _error("change", obj, notes.joined[id(obj)].where)
    notes.stale.update(key for key, joined in notes.joined.items() if id(obj) in joined.ways)


def before_joined_read(obj: Any) -> None:
    """Raise where a container is read that may be one which was changed since."""
    notes = thread.capture.root.notes
    if id(obj) in notes.stale:
        raise _error("read", obj, notes.joined[id(obj)].where)


def check_joined_leaves(obj: Any) -> None:
    """Raise where a container leaves a capture of which only a run tells which one it is."""
    joined = thread.capture.root.notes.joined.get(id(obj))
    if joined is not None and joined.made is obj:
        raise _error("leave", obj, joined.where)


_DOES = {
    "change": ("captured code must not change", "change it inside of the branches"),
    "read": ("captured code must not read", "read it before the other one is changed"),
    "leave": ("captured code must not return or store", "return or store it inside of the branches"),
}


def _error(what: str, obj: Any, where: str) -> CaptureError:
    does, hint = _DOES[what]
    kind = next(k.__name__ for k in _KINDS if isinstance(obj, k))
    since = ", of which one has been changed since" if what == "read" else ""
    return CaptureError(
        kind, f"{does} a {kind} of which only the run tells which one it is, after {where}{since}", hint=hint
    )
