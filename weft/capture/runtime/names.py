"""``getattr``, ``hasattr``, ``setattr``, ``delattr`` in converted code: attributes whose name is a value."""

from __future__ import annotations

from typing import Any

from weft.capture.program.slots import MISSING
from weft.capture.runtime.attributes import delattr_, getattr_, setattr_
from weft.capture.runtime.builtins import handles
from weft.capture.runtime.owners import is_made_inside
from weft.capture.runtime.text import resolve_text
from weft.ops.op import TensorLike
from weft.tensor.mode import thread


def note_missing(obj: Any, name: str) -> None:
    """Tell the root that an attribute was looked for and is not there."""
    root = thread.capture.root
    if not isinstance(obj, TensorLike) and not is_made_inside(obj):
        root.read_attr(obj, name, MISSING)


@handles(getattr)
def _getattr(obj: Any, name: str, *default: Any) -> Any:
    name = resolve_text(name)
    found = _find(obj, name)
    if found is MISSING and not default:
        return getattr_(obj, name)
    return default[0] if found is MISSING else found


@handles(hasattr)
def _hasattr(obj: Any, name: str) -> bool:
    return _find(obj, resolve_text(name)) is not MISSING


def _find(obj: Any, name: str) -> Any:
    """An attribute, or MISSING if it is not there, which is noted."""
    try:
        return getattr_(obj, name)
    except AttributeError:
        note_missing(obj, name)
        return MISSING


@handles(setattr)
def _setattr(obj: Any, name: str, value: Any) -> None:
    setattr_(obj, resolve_text(name), value)


@handles(delattr)
def _delattr(obj: Any, name: str) -> None:
    delattr_(obj, name)
