"""Which objects a capture made, and which were there before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from weft.capture.program.classes import base_method
from weft.ops.op import TensorLike
from weft.tensor.mode import thread

CONTAINERS = (list, dict, set)
_HOLDERS = (*CONTAINERS, tuple, Iterator)


def note_made(obj: Any) -> Any:
    """Note that the running capture made an object: nobody outside holds it. Returns it."""
    return thread.capture.note_made(obj)


def note_fresh(obj: Any) -> Any:
    """Note that the running capture made a container that a function gave, unless it was found outside."""
    return note_made(obj) if isinstance(obj, CONTAINERS) and not is_outside(obj) else obj


def is_made_here(obj: Any) -> bool:
    """Whether the running capture made an object itself."""
    return id(obj) in thread.capture.notes.made


def is_made_inside(obj: Any) -> bool:
    """Whether the running capture or one around it made an object."""
    capture = thread.capture
    while capture is not None:
        if id(obj) in capture.notes.made:
            return True
        capture = capture.parent
    return False


def was_there(obj: Any) -> bool:
    """Whether a container, or another object, was there before the region that has ended just now."""
    return is_from_outside(obj) or is_made_inside(obj)


def is_from_outside(obj: Any) -> bool:
    """Whether a container, or another object, was there before the capture."""
    return is_outside(obj) or not thread.capture.root.is_inside(obj)


def note_outside(obj: Any) -> None:
    """Note that a container was found outside of the capture, and with it those that it holds."""
    if isinstance(obj, TensorLike) or not isinstance(obj, _HOLDERS):
        return
    outside, waiting = thread.capture.root.notes.outside, [obj]
    while waiting:
        at = waiting.pop()
        if isinstance(at, tuple):
            waiting += at
        elif id(at) not in outside and not is_made_inside(at):
            if at is obj or isinstance(at, CONTAINERS):  # not an iterator among arguments
                outside[id(at)] = at
            if isinstance(at, CONTAINERS) and len(at) <= _MOST:
                waiting += dict.values(at) if isinstance(at, dict) else base_method(type(at), "__iter__")(at)


_MOST = 1000  # items of a container that are looked at for others


def is_reference(obj: Any) -> bool:
    """Whether a variable that holds a container from outside holds that very one, as is hoped at first."""
    if not isinstance(obj, CONTAINERS):
        return False
    root = thread.capture.root
    return root.by_value is not None and id(obj) in root.notes.outside and id(obj) not in root.by_value


def note_arguments(root: Any, found: Iterable[Any]) -> None:
    """Note what the arguments of a capture are made of as outside of it."""
    root.notes.outside.update({id(x): x for x in found if isinstance(x, (*CONTAINERS, Iterator))})


def is_outside(obj: Any) -> bool:
    """Whether a container is known to have been there before the capture."""
    return id(obj) in thread.capture.root.notes.outside
