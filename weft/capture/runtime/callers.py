"""Callables of Python's library that call functions of the user, or read attributes and items, when called.

``functools.singledispatch``, ``operator.methodcaller``, ``attrgetter`` and ``itemgetter`` say by themselves
what they do; converted code does that in their place, so that it is followed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from weft.capture.program.slots import MISSING
from weft.capture.runtime.access import getitem
from weft.capture.runtime.attributes import getattr_
from weft.capture.runtime.number import Number
from weft.capture.runtime.owners import is_made_inside
from weft.tensor.mode import call_user, thread


def call_caller(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What such a callable gives; MISSING for any other one."""
    if type(function) in _GETTERS and len(args) == 1 and not kwargs:
        return _GETTERS[type(function)](function, args[0])
    if _is_dispatching(function) and args:
        return call_user(_chosen(function, args[0]), *args, **kwargs)
    return MISSING


# Getters, which tell what they were made of to pickle


def _call_method(caller: Any, obj: Any) -> Any:
    made, rest = caller.__reduce__()
    if isinstance(made, partial):
        return call_user(getattr_(obj, made.args[0]), *rest, **made.keywords)
    name, *args = rest
    return call_user(getattr_(obj, name), *args)


def _get_attributes(getter: Any, obj: Any) -> Any:
    found = []
    for name in getter.__reduce__()[1]:
        at = obj
        for step in name.split("."):
            at = getattr_(at, step)
        found.append(at)
    return found[0] if len(found) == 1 else tuple(found)


def _get_items(getter: Any, obj: Any) -> Any:
    found = [getitem(obj, key) for key in getter.__reduce__()[1]]
    return found[0] if len(found) == 1 else tuple(found)


_GETTERS: dict[type, Callable[[Any, Any], Any]] = {
    operator.methodcaller: _call_method,
    operator.attrgetter: _get_attributes,
    operator.itemgetter: _get_items,
}


# Functions that look at the class of their first argument


_generic: Any = functools.singledispatch(lambda x: None)
_CODE = _generic.__code__  # of all functions of this kind


def _is_dispatching(function: Any) -> bool:
    return isinstance(function, FunctionType) and function.__code__ is _CODE


@functools.lru_cache(maxsize=256)
def _question(function: Any, kind: type) -> Callable[[], Any]:
    """What asks which function is entered for a class: one object, so that it is one guard."""
    return partial(function.dispatch, kind)


def _chosen(function: Any, x: Any) -> Any:
    """The function that is entered for the class of an argument; a call is to find the same one."""
    root = thread.capture.root
    kind = x.kind if isinstance(x, Number) else x.__class__
    if not is_made_inside(x):
        root.read_attr(x, "__class__", kind)
    chosen = function.dispatch(kind)
    root.read_call(_question(function, kind), chosen)
    root.read_function(chosen)
    return chosen
