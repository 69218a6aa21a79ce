"""Things from outside that Python itself looks into: operators, ``==``, unpacking, text, truth, builtins.

Nobody tells which part of a list ``a + b`` or ``sum(a)`` reads, so that all of it is noted as read: by
``items`` what a container holds, by ``whole`` also what is in that, and the attributes of objects.
"""

from __future__ import annotations

import array
import collections
import io
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from weft.base.sizes import Size
from weft.capture.program.classes import has_users
from weft.capture.program.slots import AttrSlot
from weft.capture.runtime.joined import check_not_ended
from weft.capture.runtime.number import Number
from weft.capture.runtime.opaque import note_moved
from weft.capture.runtime.owners import CONTAINERS, is_made_here, is_made_inside, is_outside, note_outside
from weft.capture.runtime.text import Marked
from weft.capture.runtime.undefined import check_defined
from weft.errors import CaptureError
from weft.ops.op import TensorLike
from weft.tensor.mode import thread

_PLAIN: tuple[type, ...] = (TensorLike, Number, Size, np.ndarray, np.generic, np.dtype, type)
_PLAIN = (*_PLAIN, types.ModuleType, BaseException, Marked)
_SIMPLE = frozenset({bool, int, float, complex, str, bytes, type(None), range, slice, type(...)})
_KNOWN = (list, tuple, dict, set)
_OTHERS = (collections.deque, array.array, bytearray, memoryview, Mapping)
_MOST = 10_000  # things that one use may look into: beyond it somebody hands a world to a function


def items(x: Any) -> Any:
    """Something that Python takes apart: what it holds is noted as read. Returns it."""
    if thread.capture is not None and type(x) not in _SIMPLE:
        check_iterator(x)
        _note_items(thread.capture.root, x)
    return x


def whole(x: Any) -> Any:
    """Something that Python looks into: all of it is noted as read. Returns it."""
    if thread.capture is not None and type(x) not in _SIMPLE and not isinstance(x, _PLAIN):
        note_whole(x)
    return x


def note_whole(*found: Any, objects: bool = True) -> None:
    """Note that everything in some things was read; the attributes of objects too, if wanted."""
    root = thread.capture.root
    waiting: list[Any] = [*found]
    seen: dict[int, Any] = {}
    parts: set[int] = set()  # of objects that captured code made, which a library keeps in them
    while waiting and len(seen) < _MOST:
        at = waiting.pop()
        check_defined(at)
        if type(at) in _SIMPLE or isinstance(at, _PLAIN) or id(at) in seen:
            continue
        seen[id(at)] = at
        inner = _note_items(root, at, is_part=id(at) in parts)
        if inner is None:
            inner = _note_attributes(root, at) if objects else ()
            if is_made_inside(at):
                parts |= {id(x) for x in inner if not is_outside(x)}
        waiting += inner


def _note_items(root: Any, x: Any, *, is_part: bool = False) -> Iterable[Any] | None:
    """Note what a container holds as read, and give it; None if it is no container."""
    if not isinstance(x, (*_KNOWN, *_OTHERS)) or (not isinstance(x, _KNOWN) and _is_users(x)):
        return None
    if getattr(x, "is_grown", False):  # captured code made it: see weft.capture.runtime.lists.GraphList
        return ()
    if root.guards_reads and not is_part:
        note_outside(x)
        root.read_contents(x)
    return list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, _KNOWN) else ()


def _is_users(x: Any) -> bool:
    """Whether methods of the user give the items of something, which tell themselves what they read."""
    return has_users(type(x), "__getitem__", "__iter__")


def check_iterator(x: Any) -> None:
    """Raise where captured code moves an iterator on that others hold: from outside, or around a region."""
    check_not_ended(x)
    if thread.capture.region and isinstance(x, Iterator) and is_made_inside(x) and not is_made_here(x):
        raise CaptureError(
            "next",
            "an iterator must be made in the branch or loop of the graph that moves it on, got one from "
            "around it, whose place would depend on the way",
            hint="make the iterator inside, or take its items into a list before",
        )
    if isinstance(x, Iterator) and thread.capture._attempts:
        note_moved(x)
    if is_outside(x) and isinstance(x, Iterator) and not isinstance(x, io.IOBase):
        raise CaptureError(
            "next",
            f"captured code must not move an iterator from outside on, got a {type(x).__name__}, of which "
            "only the capture would take an item, not each call",
            hint="take the item outside, and pass it as an argument",
        )


def _note_attributes(root: Any, x: Any) -> list[Any]:
    """Note the attributes of an object as read, and give them."""
    kind = type(x)
    if kind.__module__ == "builtins" or hasattr(kind, "_weft_version") or isinstance(x, types.FunctionType):
        return []
    own = getattr(x, "__dict__", None)
    names = [*own] if type(own) is dict else []
    names += [n for base in kind.__mro__ for n in _slots(base) if hasattr(x, n)]
    found = [(name, AttrSlot(x, name).get()) for name in names]
    if root.guards_reads:
        root.read_attr(x, "__class__", kind)
        if type(own) is dict:
            root.read_names(x, own)
        for name, value in found:
            root.read_attr(x, name, value)
            if not is_made_inside(x):
                note_outside(value)
    return [value for _, value in found]


def _slots(kind: type) -> tuple[str, ...]:
    found = kind.__dict__.get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    return tuple(n for n in names if not n.startswith("__"))


def truth(x: Any) -> bool:
    """The truth of something plain, which is guarded where it is from outside."""
    kind = type(x)
    if kind is bool or kind in _SIMPLE or thread.capture is None or isinstance(x, _PLAIN):
        return bool(x)
    if isinstance(x, CONTAINERS):
        thread.capture.root.read_length(x)
        return bool(x)
    return bool(x)
