"""Displays and items in converted code: reads are guarded and writes journaled by the capture."""

from __future__ import annotations

import operator
import os
from collections import defaultdict
from typing import Any

import numpy as np

from weft.capture.program.classes import base_method
from weft.capture.program.slots import MISSING, ItemSlot
from weft.capture.runtime.ambient import note_environment
from weft.capture.runtime.attributes import remove, store
from weft.capture.runtime.effects import changing_environment
from weft.capture.runtime.hashed import known_key, settled
from weft.capture.runtime.keys import pick, read_tensor, write_tensor
from weft.capture.runtime.lists import GraphList, check_growth
from weft.capture.runtime.methods import method_of, plain_key
from weft.capture.runtime.number import Number
from weft.capture.runtime.opaque import note_new
from weft.capture.runtime.owners import (
    CONTAINERS,
    is_made_inside,
    is_outside,
    note_fresh,
    note_made,
    note_outside,
)
from weft.capture.runtime.picked import is_own_item
from weft.capture.runtime.places import (
    ContentsSlot,
    before_change,
    check_joined_change,
    keeps,
    note_read,
    write_place,
)
from weft.capture.runtime.sequences import listed
from weft.capture.runtime.untold import change_watched
from weft.capture.runtime.users_keys import note_key, note_keys
from weft.capture.runtime.whole import items, whole
from weft.tensor.mode import call_user, thread
from weft.tensor.tensor import Tensor

# Displays


def new_list(items: list[Any]) -> list[Any]:
    """A list display or comprehension; one of tensors, or an empty one, may come to be grown by the graph."""
    if thread.capture is None:
        return items
    grows = not items or any(isinstance(x, Tensor | Number) for x in items)
    out: list[Any] = note_made(GraphList(items) if grows else items)
    return out


def new_dict(items: dict[Any, Any]) -> dict[Any, Any]:
    """A dict display or comprehension."""
    if thread.capture is None:
        return items
    note_keys(items)
    made: dict[Any, Any] = note_made(settled(items))
    return made


def new_set(items: set[Any]) -> set[Any]:
    """A set display or comprehension."""
    if thread.capture is None:
        return items
    note_keys(items)
    made: set[Any] = note_made(settled(items))
    return made


# Items


def tensor_key(key: Any) -> Any:
    """A key of a tensor: a truth value that only a run tells is a mask, as Python's are."""
    key = plain_key(key)
    if type(key) is tuple:
        return tuple(map(_mask, key))
    return _mask(key)


def _mask(part: Any) -> Any:
    return part.tensor if isinstance(part, Number) and part.kind is bool else part


def getitem(obj: Any, key: Any) -> Any:
    """``obj[key]``."""
    if thread.capture is None:
        return obj[key]
    if isinstance(obj, Tensor):
        return read_tensor(obj, tensor_key(key))
    method = method_of(obj, "__getitem__")
    return base_getitem(obj, key) if method is None else call_user(method, obj, key)


def base_getitem(obj: Any, key: Any) -> Any:
    """An item of something whose class has no method of the user for it, or which asks its base."""
    if not isinstance(obj, dict):
        key = plain_key(key)
    if isinstance(key, Number) and (picked := pick(obj, key)) is not MISSING:
        return picked
    key = known_key(key)
    if isinstance(obj, list | dict | tuple):
        return _read_item(obj, key)
    if obj is os.environ:
        note_environment(key)
        return obj[key]
    out = whole(obj)[key]
    return note_new(out) if isinstance(obj, np.ndarray) else out


def _read_item(obj: Any, key: Any) -> Any:
    """An item of a container, which is guarded where the container is from outside."""
    note_read(obj, "last" if type(key) is int and key == -1 else "all")
    root, inside = thread.capture.root, is_made_inside(obj)
    if isinstance(obj, dict):
        note_key(key, obj)
    noted = not inside and root.guards_reads
    if isinstance(key, slice):
        if noted:
            _note_slice(root, obj, key)
        value = base_method(type(obj), "__getitem__")(obj, key)
        return note_made(value) if isinstance(value, list) else value
    if type(obj) is not dict and isinstance(obj, dict) and key not in obj:
        found = _missing(obj, key)
        if found is not _ABSENT:
            return found
    try:
        value = base_method(type(obj), "__getitem__")(obj, key)
    except LookupError:
        if noted and isinstance(obj, dict):
            root.read_member(obj, key, False)
        elif noted:
            root.read_length(obj)
        raise
    if noted:
        root.read_item(obj, key, value)
        note_outside(value)
    return value


def _note_slice(root: Any, obj: Any, key: slice) -> None:
    """Note what a slice takes of a list from outside as read."""
    places = range(len(obj))[key]
    if len(places) > _MOST:
        items(obj)
        return
    root.read_length(obj)
    for i in places:
        value = ItemSlot(obj, i).get()
        root.read_item(obj, i, value)
        note_outside(value)


_MOST = 1000  # items that a slice may take so that each is guarded; of more the whole list is
_ABSENT = object()


def _missing(obj: dict[Any, Any], key: Any) -> Any:
    """What a dict of a class with ``__missing__`` gives for a key that it does not have."""
    method = method_of(obj, "__missing__")
    factory = obj.default_factory if isinstance(obj, defaultdict) else None
    if method is None and factory is None:
        return _ABSENT
    note_member(obj, key)
    if method is not None:
        return call_user(method, obj, key)
    value = call_user(factory)  # type: ignore[arg-type]
    base_setitem(obj, key, note_fresh(value))
    return value


def setitem(obj: Any, key: Any, value: Any) -> None:
    """``obj[key] = value``."""
    if thread.capture is None:
        obj[key] = value
    elif isinstance(obj, Tensor):
        write_tensor(obj, tensor_key(key), value)
    else:
        if obj is os.environ:
            raise changing_environment("os.environ")
        method = method_of(obj, "__setitem__")
        if method is None:
            base_setitem(obj, key, value)
        else:
            call_user(method, obj, key, value)


def base_setitem(obj: Any, key: Any, value: Any) -> None:
    """Set an item of something whose class has no method of the user for it, or which asks its base."""
    if not isinstance(obj, dict):
        key = plain_key(key)
    if isinstance(key, Number) and is_own_item(obj, key, value):
        return
    key = known_key(key)
    if isinstance(obj, dict):
        note_key(key, obj)
    owner = _namespace_of(obj)
    if owner is not None:
        store(owner, key, value)
        return
    if isinstance(obj, list) and isinstance(key, slice):
        _set_slice(obj, key, value)
        return
    if not (isinstance(obj, dict | list) and keeps(ItemSlot(obj, key), value)):
        before_item(obj, key)
    if isinstance(obj, CONTAINERS):
        base_method(type(obj), "__setitem__")(obj, key, value)
    else:
        change_watched(operator.setitem, obj, key, value)


def _set_slice(obj: list[Any], key: slice, value: Any) -> None:
    """Assign to a slice of a list: to each item of one from outside, which keeps its length."""
    check_joined_change(obj)
    if isinstance(obj, GraphList):
        obj.need_plain("an assignment")
    content = [*list.__iter__(obj)]
    content[key] = listed(value)
    if is_outside(obj):
        if len(content) != len(obj):
            check_growth(obj, "an assignment to a slice")
        thread.capture.root.read_length(obj)
    write_place(ContentsSlot(obj), content)


def delitem(obj: Any, key: Any) -> None:
    """``del obj[key]``."""
    method = method_of(obj, "__delitem__")
    if method is None:
        base_delitem(obj, key)
    else:
        call_user(method, obj, key)


def base_delitem(obj: Any, key: Any) -> None:
    """Delete an item of something whose class has no method of the user for it, or which asks its base."""
    if not isinstance(obj, dict):
        key = plain_key(key)
    key = known_key(key)
    owner = None if thread.capture is None else _namespace_of(obj)
    if owner is not None:
        remove(owner, key)
        return
    if thread.capture is not None and isinstance(obj, CONTAINERS):
        if isinstance(obj, dict):
            note_key(key, obj)
            note_member(obj, key)
        elif isinstance(obj, list):
            check_growth(obj, "del")
        before_item(obj, key)
    if thread.capture is not None and obj is os.environ:
        raise changing_environment("os.environ")
    if isinstance(obj, CONTAINERS):
        base_method(type(obj), "__delitem__")(obj, key)
    elif thread.capture is not None:
        change_watched(operator.delitem, obj, key)
    else:
        del obj[key]


def _namespace_of(obj: Any) -> Any:
    """The object whose attributes a dict holds, which captured code got by ``obj.__dict__``; else None."""
    found = thread.capture.root.notes.namespaces.get(id(obj)) if type(obj) is dict else None
    return None if found is None else found[1]


def note_member(obj: dict[Any, Any], key: Any) -> None:
    """Note that captured code relies on a key being in a dict from outside, or not being there."""
    if not is_made_inside(obj):
        thread.capture.root.read_member(obj, key, key in obj)


def before_item(obj: Any, key: Any) -> None:
    """Tell the capture that an item is about to change."""
    check_joined_change(obj)
    capture = thread.capture
    if isinstance(obj, GraphList):
        obj.need_plain("an assignment")
    if capture.region and isinstance(obj, CONTAINERS) and not _is_namespace(obj):
        before_change(obj)
    elif (isinstance(obj, dict) and not is_made_inside(obj)) or (
        isinstance(obj, list) and is_outside(obj) and not isinstance(key, slice)
    ):
        capture.before_write(ItemSlot(obj, key))
    elif isinstance(obj, CONTAINERS):
        capture.remember(ContentsSlot(obj))


def _is_namespace(obj: Any) -> bool:
    """Whether a dict is that of a module: its names change one by one."""
    return isinstance(obj, dict) and "__name__" in obj and "__builtins__" in obj
