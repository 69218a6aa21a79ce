"""Methods of builtin classes, called by themselves: ``object.__setattr__(x, n, v)``, ``super().append(x)``.

A method of the user that overrides one ends so. What it does to the object is done by the functions that
converted code calls for the plain form, which tell the capture of it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any

from weft.capture.runtime.access import base_delitem, base_getitem, base_setitem
from weft.capture.runtime.attributes import fetch, remove, store
from weft.capture.runtime.number import Number, is_number, number_of
from weft.capture.runtime.owners import CONTAINERS
from weft.capture.runtime.places import before_change
from weft.capture.runtime.whole import items, whole
from weft.ops.op import TensorLike

BASES = (MethodDescriptorType, MethodWrapperType, WrapperDescriptorType)
Rest = tuple[Any, ...]


def call_base(function: Any, args: Rest, kwargs: dict[str, Any]) -> Any:
    """What a method of a builtin class does; NotImplemented if nothing is to be told of it."""
    if isinstance(function, MethodWrapperType):
        owner, rest = function.__self__, args
    elif args:
        owner, *others = args
        rest = tuple(others)
    else:
        return NotImplemented
    name = function.__name__
    if isinstance(owner, TensorLike) or kwargs:
        return NotImplemented
    if is_number(owner) and any(isinstance(x, Number) for x in (owner, *rest)):
        method = getattr(number_of(owner), name, None)
        return NotImplemented if method is None else method(*rest)
    if name in _OF_OBJECTS and len(rest) == _OF_OBJECTS[name][1]:
        return _OF_OBJECTS[name][0](owner, *rest)
    if isinstance(owner, CONTAINERS) and name in _OF_CONTAINERS:
        return _OF_CONTAINERS[name](function, args, owner, *rest)
    return NotImplemented


def _initialise(function: Any, args: Rest, owner: Any, *rest: Any) -> Any:
    """``super().__init__(items)`` of a class made from a container."""
    for x in rest:
        items(x)
    before_change(owner)
    return function(*args)


def _look(function: Any, args: Rest, owner: Any, *rest: Any) -> Any:
    """A method that looks into a container."""
    whole(owner)
    return function(*args)


_OF_OBJECTS: dict[str, tuple[Callable[..., Any], int]] = {
    "__setattr__": (store, 2),
    "__delattr__": (remove, 1),
    "__getattribute__": (fetch, 1),
}
_OF_CONTAINERS: dict[str, Callable[..., Any]] = {
    "__getitem__": lambda _, __, owner, key: base_getitem(owner, key),
    "__setitem__": lambda _, __, owner, key, value: base_setitem(owner, key, value),
    "__delitem__": lambda _, __, owner, key: base_delitem(owner, key),
    "__init__": _initialise,
    "__iadd__": _initialise,
    "__contains__": _look,
    "__len__": _look,
    "__iter__": _look,
    "__eq__": _look,
}
