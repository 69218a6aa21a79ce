"""Methods of builtin classes, called by themselves: ``object.__setattr__(x, n, v)``, ``super().append(x)``.

A method of the user that overrides one ends so. What it does to the object is done by the functions that
converted code calls for the plain form, which tell the capture of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any

from weft.capture.runtime.attributes import fetch, remove, store
from weft.capture.runtime.container_calls import SPECIAL
from weft.capture.runtime.number import Number, is_number, number_of
from weft.capture.runtime.owners import CONTAINERS
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
    if isinstance(owner, CONTAINERS) and name in SPECIAL:
        bound = function if isinstance(function, MethodWrapperType) else partial(function, owner)
        return SPECIAL[name](name, bound, owner, *rest)
    return NotImplemented


_OF_OBJECTS: dict[str, tuple[Callable[..., Any], int]] = {
    "__setattr__": (store, 2),
    "__delattr__": (remove, 1),
    "__getattribute__": (fetch, 1),
}
