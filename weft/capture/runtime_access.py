"""Attributes and items in converted code: reads are guarded and writes journaled by the capture."""

from __future__ import annotations

import builtins
import operator
import os
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

from weft.capture.convert_source import is_library
from weft.capture.number import Number
from weft.capture.runtime_ambient import note_environment
from weft.capture.runtime_effects import changing_environment
from weft.capture.runtime_keys import pick, read_tensor, write_tensor
from weft.capture.runtime_lists import GraphList
from weft.capture.runtime_places import (
    CONTAINERS,
    ContentsSlot,
    before_change,
    is_made_here,
    is_made_inside,
    is_outside,
    note_made,
    note_outside,
    note_read,
)
from weft.capture.runtime_text import resolve_text
from weft.capture.runtime_whole import items, whole
from weft.capture.slots import MISSING, AttrSlot, CellSlot, ItemSlot
from weft.errors import CaptureError
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
    return items if thread.capture is None else note_made(items)


def new_set(items: set[Any]) -> set[Any]:
    """A set display or comprehension."""
    return items if thread.capture is None else note_made(items)


# Attributes


def getattr_(obj: Any, name: str) -> Any:
    """``obj.name``."""
    capture = thread.capture
    if capture is None or isinstance(obj, Tensor | Number):
        return builtins.getattr(obj, name)
    found = _computed(obj, name)
    if found is not None:
        return call_user(*found)
    value = builtins.getattr(obj, name, MISSING)
    read = builtins.getattr(capture.root, "read_attr", None)
    if read is not None and not is_made_inside(obj):
        read(obj, name, value)
        note_outside(value)
    return builtins.getattr(obj, name) if value is MISSING else value


def _computed(obj: Any, name: str) -> tuple[Any, ...] | None:
    """The function of the user that gives an attribute, with its arguments; None if it is just there."""
    kind = type(obj)
    found = _class_attribute(kind, name)
    read = builtins.getattr(thread.capture.root, "read_attr", None)
    if isinstance(found, property):
        if read is not None:
            read(kind, name, found)
        return None if found.fget is None else (found.fget, obj)
    method = _class_attribute(kind, "__getattr__")
    own = builtins.getattr(obj, "__dict__", ())
    if (
        not isinstance(method, FunctionType)
        or is_library(method.__code__.co_filename)
        or found is not MISSING
    ):
        return None
    if name in own:
        return None
    if read is not None:
        thread.capture.root.read_member(own, name, False)
    return method, obj, name


def _class_attribute(kind: type, name: str) -> Any:
    """What a class or its bases hold under a name, as it stands there."""
    return next((c.__dict__[name] for c in kind.__mro__ if name in c.__dict__), MISSING)


def setattr_(obj: Any, name: str, value: Any) -> None:
    """``obj.name = value``."""
    capture = thread.capture
    if capture is not None and not isinstance(obj, Tensor) and _is_changed(obj, name, value):
        slot = CellSlot(obj) if isinstance(obj, CellType) else AttrSlot(obj, name)
        (capture.remember if is_made_here(obj) else capture.before_write)(slot)
    builtins.setattr(obj, name, value)


def delattr_(obj: Any, name: str) -> None:
    """``del obj.name``."""
    capture = thread.capture
    if capture is not None and not is_made_here(obj) and not _is_property(obj, name):
        note_member(builtins.getattr(obj, "__dict__", {}), name)
        capture.before_write(AttrSlot(obj, name))
    builtins.delattr(obj, name)


def _is_changed(obj: Any, name: str, value: Any) -> bool:
    """Whether setting an attribute changes what the capture must know of."""
    if _is_property(obj, name):
        return False
    return builtins.getattr(obj, name, MISSING) is not value


def _is_property(obj: Any, name: str) -> bool:
    """Whether setting an attribute runs a function, which tells of what it changes itself."""
    return hasattr(builtins.getattr(type(obj), name, None), "__set__") and not isinstance(obj, CellType)


# Items


def getitem(obj: Any, key: Any) -> Any:
    """``obj[key]``."""
    capture = thread.capture
    if capture is None:
        return obj[key]
    if isinstance(obj, Tensor):
        return read_tensor(obj, key)
    if isinstance(key, Number):
        return pick(obj, key)
    if isinstance(key, str):
        key = resolve_text(key)
    if isinstance(obj, list | dict | tuple):
        return _read_item(obj, key)
    if obj is os.environ:
        note_environment(key)
        return obj[key]
    method = builtins.getattr(type(obj), "__getitem__", None)
    if isinstance(method, FunctionType):
        return call_user(method, whole(obj) if is_library(method.__code__.co_filename) else obj, key)
    return whole(obj)[key]


def _read_item(obj: Any, key: Any) -> Any:
    """An item of a container, which is guarded where the container is from outside."""
    note_read(obj, "last" if type(key) is int and key == -1 else "all")
    root, inside = thread.capture.root, is_made_inside(obj)
    noted = not inside and hasattr(root, "read_item")
    if isinstance(key, slice):
        value = obj[key] if inside else items(obj)[key]
        return note_made(value) if isinstance(value, list) else value
    try:
        value = obj[key]
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


def setitem(obj: Any, key: Any, value: Any) -> None:
    """``obj[key] = value``."""
    capture = thread.capture
    if capture is None:
        obj[key] = value
    elif isinstance(obj, Tensor):
        write_tensor(obj, key, value)
    else:
        if isinstance(key, Number):
            key = key.value()
        elif isinstance(key, str):
            key = resolve_text(key)
        if obj is os.environ:
            raise changing_environment("os.environ")
        if not (isinstance(obj, dict | list) and ItemSlot(obj, key).get() is value):
            before_item(obj, key)
        obj[key] = value


def delitem(obj: Any, key: Any) -> None:
    """``del obj[key]``."""
    if thread.capture is not None and isinstance(obj, CONTAINERS):
        if isinstance(obj, dict):
            note_member(obj, key)
        before_item(obj, key)
    if thread.capture is not None and obj is os.environ:
        raise changing_environment("os.environ")
    del obj[key]


def note_member(obj: dict[Any, Any], key: Any) -> None:
    """Note that captured code relies on a key being in a dict from outside, or not being there."""
    if hasattr(thread.capture.root, "read_member") and not is_made_inside(obj):
        thread.capture.root.read_member(obj, key, key in obj)


def before_item(obj: Any, key: Any) -> None:
    """Tell the capture that an item is about to change."""
    capture = thread.capture
    if isinstance(obj, GraphList):
        obj._need_plain("an assignment")
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


def check_growth(obj: Any, method: str) -> None:
    """Raise where a container from outside changes in a way that a capture cannot keep."""
    if is_outside(obj) and not isinstance(obj, GraphList):
        raise CaptureError(
            method,
            f"captured code must not change the length of a {type(obj).__name__} from outside, "
            "which only the capture would do, not each call",
            hint="return the value, and let the caller keep it",
        )


# Augmented assignment

_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "@=": operator.imatmul,
    "&=": operator.iand,
    "|=": operator.ior,
    "^=": operator.ixor,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
}


def augmented(sign: str, current: Any, operand: Any) -> Any:
    """``current += operand``: changed in place where its class does so."""
    if thread.capture is not None:
        if isinstance(current, Tensor) and isinstance(operand, Number):
            operand = operand.next_to(current)
        elif isinstance(current, CONTAINERS):
            items(operand)
            check_growth(current, sign)
            before_change(current)
            if isinstance(current, GraphList):
                current.extend(operand)
                return current
    return _IN_PLACE[sign](current, operand)
