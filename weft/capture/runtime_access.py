"""Attributes and items in converted code: reads are guarded and writes journaled by the capture."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from types import CellType
from typing import Any

from weft.capture.number import Number
from weft.capture.runtime_keys import pick, read_tensor, write_tensor
from weft.capture.runtime_lists import GraphList
from weft.capture.runtime_places import (
    CONTAINERS,
    before_change,
    is_made_here,
    is_made_inside,
    is_outside,
    note_made,
    note_outside,
    note_read,
)
from weft.capture.runtime_text import resolve_text
from weft.capture.slots import MISSING, AttrSlot, CellSlot, ItemSlot
from weft.errors import CaptureError
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor

# Displays


def new_list(items: list[Any]) -> list[Any]:
    """A list display or comprehension; an empty one may come to stand for what a loop appends to it."""
    if thread.capture is None:
        return items
    out: list[Any] = note_made(items if items else GraphList())
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
    value = builtins.getattr(obj, name)
    capture = thread.capture
    if capture is not None and not isinstance(obj, Tensor | Number):
        read = builtins.getattr(capture.root, "read_attr", None)
        if read is not None and not is_made_inside(obj):
            read(obj, name, value)
            note_outside(value)
    return value


def setattr_(obj: Any, name: str, value: Any) -> None:
    """``obj.name = value``."""
    capture = thread.capture
    if capture is not None and not isinstance(obj, Tensor) and _is_changed(obj, name, value):
        capture.before_write(CellSlot(obj) if isinstance(obj, CellType) else AttrSlot(obj, name))
    builtins.setattr(obj, name, value)


def delattr_(obj: Any, name: str) -> None:
    """``del obj.name``."""
    capture = thread.capture
    if capture is not None and not is_made_here(obj) and not _is_property(obj, name):
        capture.before_write(AttrSlot(obj, name))
    builtins.delattr(obj, name)


def _is_changed(obj: Any, name: str, value: Any) -> bool:
    """Whether setting an attribute changes what the capture must know of."""
    if is_made_here(obj) or _is_property(obj, name):
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
    value = obj[key]
    if isinstance(obj, list | dict | tuple) and not (
        isinstance(obj, GraphList) and obj.stacked_rows is not None
    ):
        note_read(obj)
        read = builtins.getattr(capture.root, "read_item", None)
        if read is not None and not isinstance(key, slice) and not is_made_inside(obj):
            read(obj, key, value)
            note_outside(value)
        if isinstance(value, list) and isinstance(key, slice):
            note_made(value)
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
        if not (isinstance(obj, dict | list) and ItemSlot(obj, key).get() is value):
            before_item(obj, key)
        obj[key] = value


def delitem(obj: Any, key: Any) -> None:
    """``del obj[key]``."""
    if thread.capture is not None and isinstance(obj, CONTAINERS):
        before_item(obj, key)
    del obj[key]


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
            check_growth(current, sign)
            before_change(current)
            if isinstance(current, GraphList):
                current.extend(operand)
                return current
    return _IN_PLACE[sign](current, operand)
