"""Things of the user that Python takes apart: ``dict(m)``, ``f(**m)``, ``set(a)``, ``items.extend(a)``."""

from __future__ import annotations

import operator
from collections import deque
from functools import partial
from typing import Any

from weft.capture.program.classes import class_attribute
from weft.capture.runtime.attributes import getattr_
from weft.capture.runtime.iterators import items, iterable_of
from weft.capture.runtime.methods import is_users, may_have_methods, method_of
from weft.capture.runtime.whole import whole
from weft.tensor.mode import call_user, thread


def mapped(x: Any) -> Any:
    """A mapping of the user as a dict of what its methods give; anything else, noted as read, as it is."""
    if thread.capture is None or not may_have_methods(x) or not _is_users_mapping(x):
        return items(x)
    method = method_of(x, "__getitem__")
    read = partial(operator.getitem, whole(x)) if method is None else partial(call_user, method, x)
    return {key: read(key) for key in iterable_of(call_user(getattr_(x, "keys")))}


def _is_users_mapping(x: Any) -> bool:
    """Whether Python asks methods of the user for the keys and items of something."""
    kind = type(x)
    if isinstance(x, dict) and class_attribute(kind, "__iter__") is dict.__iter__:
        return False  # whose items are taken past its methods
    return any(is_users(class_attribute(kind, name)) for name in ("keys", "__getitem__")) and hasattr(
        kind, "keys"
    )


def with_parts(function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a builtin that takes them apart: methods of the user give their items."""
    if function is dict:
        return tuple(map(mapped, args))
    if function in _MAKERS or getattr(function, "__module__", "") == "itertools":
        return tuple(map(iterable_of, args))
    owner = getattr(function, "__self__", None)
    return parts_for(owner, function.__name__, args) if isinstance(owner, frozenset | deque) else args


def parts_for(container: Any, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a method of a container."""
    if name not in _TAKING:
        return args
    return tuple(map(mapped if isinstance(container, dict) else iterable_of, args))


_MAKERS = (set, frozenset, deque)
_TAKING = frozenset({"__init__", "update", "extend", "extendleft", "union", "intersection", "difference"})
_TAKING |= {"symmetric_difference", "intersection_update", "difference_update", "isdisjoint", "__ior__"}
_TAKING |= {"symmetric_difference_update", "issubset", "issuperset"}
