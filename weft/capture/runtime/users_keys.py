"""Keys of dicts and sets whose classes say by ``__hash__`` and ``__eq__`` of the user what they are.

Python asks these methods itself, in an order of its own, so they are asked before, converted: what they read
is guarded then, and they must change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from weft.capture.program.classes import class_attribute
from weft.capture.runtime.methods import is_users, may_have_methods, method_of
from weft.capture.runtime.number import Number
from weft.capture.runtime.places import watching
from weft.errors import CaptureError
from weft.ops.op import TensorLike
from weft.tensor.mode import call_user, thread

_MOST = 1000  # keys of a container that one is compared with
_SIMPLE = frozenset({str, int, float, bool, bytes, type(None)})


def note_key(key: Any, container: Collection[Any] = ()) -> None:
    """Note what is read where a dict or set is asked for a key."""
    if type(key) in _SIMPLE:
        return
    if isinstance(key, tuple | frozenset):
        note_keys(key)
    elif _is_users_key(key):
        number = _hash_of(key)
        for other in container if len(container) <= _MOST else ():
            if other is not key and _is_users_key(other) and _hash_of(other) == number:
                _ask(other, "__eq__", key)


def note_keys(keys: Iterable[Any]) -> None:
    """Note what is read where a dict or set is made of keys, which are compared with each other."""
    met: list[Any] = []
    for key in keys:
        if type(key) not in _SIMPLE:
            note_key(key, met)
            met.append(key)


def _is_users_key(key: Any) -> bool:
    if not may_have_methods(key) or isinstance(key, type | TensorLike | Number):
        return False
    return any(is_users(class_attribute(type(key), name)) for name in ("__hash__", "__eq__"))


def _hash_of(key: Any) -> Any:
    """The hash of a key; None of what has none, which Python refuses."""
    found = _ask(key, "__hash__")
    return found if found is not NotImplemented else hash(key) if type(key).__hash__ is not None else None


def _ask(key: Any, name: str, *args: Any) -> Any:
    """What a method of a key gives, which must change nothing; NotImplemented if it is none of the user."""
    method, capture = method_of(key, name), thread.capture
    if method is None:
        return NotImplemented
    with watching(capture):
        out = call_user(method, key, *args)
        changed = [slot for slot, held in capture._attempts[-1].values() if slot.get() is not held]
    if changed:
        raise CaptureError(
            name,
            "captured code must hash and compare keys of a dict or set without changing anything, got a "
            f"change of {changed[0].describe()}, which a run could not repeat as often as Python asks",
            hint="make the change where the key is used",
        )
    return out
