"""Calls in converted code: the functions a function calls are converted when they are called.

weft's own functions, builtins, NumPy and the standard library are called as they are; functions of the user
that are handed to weft (``weft.vmap(f)``, ``weft.cond(p, f, g)``) are converted first.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from weft.base.trees import tree_map
from weft.capture.convert.functions import is_converted
from weft.capture.convert.source import is_library
from weft.capture.program.classes import class_attribute
from weft.capture.program.slots import MISSING
from weft.capture.runtime.ambient import call_ambient
from weft.capture.runtime.apart import with_parts
from weft.capture.runtime.attributes import getattr_
from weft.capture.runtime.bases import BASES, call_base
from weft.capture.runtime.builtins import HANDLERS, handles
from weft.capture.runtime.callers import call_caller
from weft.capture.runtime.container_calls import call_container, search
from weft.capture.runtime.effects import check_followed, check_repeatable, check_setting, is_log
from weft.capture.runtime.entering import enter
from weft.capture.runtime.handed import FUNCTIONS, callback, converted_of, is_weft_function, with_text
from weft.capture.runtime.hashed import known_key, settled
from weft.capture.runtime.lists import check_plain
from weft.capture.runtime.methods import find_method, is_users, method_of
from weft.capture.runtime.mixed import is_class_told, mixed_of
from weft.capture.runtime.number import Number
from weft.capture.runtime.objects import base, construct, is_users_class, note_copied
from weft.capture.runtime.opaque import note_new
from weft.capture.runtime.owners import CONTAINERS, is_made_inside, note_made, note_outside
from weft.capture.runtime.places import note_read
from weft.capture.runtime.sequences import KEYS, check_key_made, plain_items
from weft.capture.runtime.undefined import check_defined
from weft.capture.runtime.untold import call_watched
from weft.capture.runtime.users_keys import note_keys
from weft.capture.runtime.weft_calls import call_weft
from weft.capture.runtime.whole import check_iterator, items, note_whole
from weft.capture.runtime.wrappers import unwrapped
from weft.capture.runtime.written import asked_for
from weft.errors import CaptureError
from weft.tensor.mode import call_user, thread
from weft.tensor.tensor import Tensor

_KEYS = (list, tuple, set, frozenset, dict)
_BUILTIN = (types.BuiltinFunctionType, type)
_DEEPEST = 24  # regions, one in another, that calls of one function may open


def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``."""
    if thread.capture is None:
        return function(*args, **kwargs)
    for answer in (call_ambient, call_caller):
        found = answer(function, args, kwargs)
        if found is not MISSING:
            return found
    if _takes_values(function, args):
        look = partial(tree_map, _looked_at) if _looks_inside(function) else _looked_at
        args, kwargs = tuple(map(look, args)), {k: look(x) for k, x in kwargs.items()}
    if isinstance(function, _BUILTIN):
        return _call_builtin(function, args, kwargs)
    if isinstance(function, BASES):
        return _call_base(function, args, kwargs)
    if isinstance(function, types.MethodType) and _is_plain_change(function):
        return call_container(function.__self__, function, args, kwargs)
    if is_weft_function(function):
        check_setting(function)
        _note_lists(args)
        return call_weft(function, args, kwargs)
    function = unwrapped(function)
    if isinstance(function, functools.partial):
        items(function.keywords)
        note_outside(function.args)
        return call(function.func, *function.args, *args, **{**function.keywords, **kwargs})
    wrapper = None if isinstance(function, FUNCTIONS) else class_attribute(type(function), "__call__")
    if is_users(wrapper) and unwrapped(wrapper) is not wrapper:
        return call(wrapper, function, *args, **kwargs)
    converted = converted_of(function)
    if converted is None:
        copied = args[0] if args else kwargs.get("x")
        if any(function is f for f in _COPIES_BY) and (own := method_of(copied, _COPIES_BY[function])):
            return call_user(own, copied, *(({},) if function is copy.deepcopy else ()))
        _note_lists(args)
        check_repeatable(function, args, kwargs)
        owner = getattr(function, "__self__", None)
        if isinstance(function, KEYS):
            check_key_made(function)
        if isinstance(function, FUNCTIONS) and not is_library(_code_file(function)):
            check_followed(function)
            enter(function, None)
        if is_log(function):
            return function(*args, **kwargs)
        args, kwargs = with_text(function, args, kwargs)
        if _calls_back(function, owner):
            args, kwargs = tuple(map(callback, args)), {k: callback(x) for k, x in kwargs.items()}
        _check_plain(function, args, kwargs)
        note_whole(*args, *kwargs.values(), owner)
        out = settled(call_watched(function, args, kwargs))
        return note_copied(out, copied) if any(function is x for x in _COPYING) else out
    return _call_converted(function, converted, args, kwargs)


def _calls_back(function: Any, owner: Any) -> bool:
    """Whether a function of a library takes functions to call them, and does not look at them."""
    if isinstance(owner, AbstractContextManager):
        return True
    module = getattr(function, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in _CALLERS


_CALLERS = frozenset({"heapq", "bisect", "re", "statistics", "collections", "numpy", "scipy"})
_COPIES_BY: dict[Any, str] = {copy.copy: "__copy__", copy.deepcopy: "__deepcopy__"}
_COPYING = (copy.copy, copy.deepcopy, dataclasses.replace)
_BY_VALUE = frozenset({"numpy", "json", "decimal", "fractions", "statistics", "datetime", "random", "cmath"})


def _takes_values(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a function takes no numbers but Python's own."""
    if function is pow:
        return len(args) > 2
    module = getattr(function, "__module__", None)
    known = isinstance(module, str) and module.partition(".")[0] in _BY_VALUE
    return known or function is deque or isinstance(function, np.ufunc)


def _looks_inside(function: Any) -> bool:
    """Whether a function that takes values takes them in lists and dicts, too."""
    return str(getattr(function, "__module__", "")).partition(".")[0] in ("json", "statistics")


def _code_file(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return "" if code is None else code.co_filename


def _looked_at(x: Any) -> Any:
    """A number that only a run tells as a library gets it: it is looked at, which leaves a guard."""
    return x.kind(x) if isinstance(x, Number) else x


def _is_plain_change(method: types.MethodType) -> bool:
    """Whether a method is one of our lists, which are told of as those of Python are."""
    return isinstance(method.__self__, CONTAINERS) and not is_users(method.__func__)


def _note_lists(args: tuple[Any, ...]) -> None:
    """Note that a function which is not converted may look at lists."""
    for x in args:
        if isinstance(x, list):
            note_read(x)


def _check_plain(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where a function that is called as it is would see how a list of open length is held."""
    if not any(function is f for f in _QUIET):
        check_plain((*args, *kwargs.values()), getattr(function, "__name__", "this use"))


def _call_builtin(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a builtin or a class; an iterator that it makes belongs to the running capture."""
    if thread.capture.root.notes.marks:
        args, kwargs = with_text(function, args, kwargs)
    out = settled(_call_noted(function, args, kwargs))
    if not isinstance(out, Iterator) or is_made_inside(out):
        return out
    thread.capture.root.notes.feeds[id(out)] = (out, [x for x in args if isinstance(x, Iterator)])
    return note_made(out)


def _call_noted(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = with_parts(function, args)
    _note_arguments(function, args, kwargs)
    if function is hash:
        args = tuple(map(known_key, args))
    if function is type and len(args) == 3:
        for kind in args[1]:
            base(kind)
    handler = HANDLERS.get(function)
    if handler is not None:
        out = handler(*args, **kwargs)
        return note_new(out)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, CONTAINERS):
        return call_container(owner, function, args, kwargs)
    if isinstance(owner, str) and function.__name__ in ("format", "format_map"):
        args, kwargs = tuple(map(asked_for, args)), {k: asked_for(x) for k, x in kwargs.items()}
    if isinstance(owner, tuple) and (found := search(owner, function.__name__, args)) is not None:
        return found[0]
    if function is frozenset or (isinstance(owner, frozenset) and args):
        note_keys((*(owner or ()), *[k for x in args if isinstance(x, _KEYS) for k in x]))
    if isinstance(function, type) and find_method(function, "__del__"):
        raise CaptureError(
            function.__name__,
            "captured code must not make an object with __del__, which Python runs when nobody holds it any "
            "more: only the capture would do that, not each call",
            hint="end it in a `with` block or a `finally`",
        )
    if is_users_class(function):
        return _own(construct(function, args, kwargs))
    _note_lists(args)
    check_repeatable(function, args, kwargs)
    _check_plain(function, args, kwargs)
    out = call_watched(function, tuple(map(callback, args)), {k: callback(x) for k, x in kwargs.items()})
    return _own(out) if isinstance(function, type) else out


def _own(made: Any) -> Any:
    """Something that a class made in the capture."""
    known = isinstance(made, Tensor) or thread.capture.root.is_named(made)
    if type(made).__module__ != "builtins" and not known:
        _forget_changes(note_made(made))
    return made


def _call_base(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a builtin class, such as ``object.__setattr__`` or ``dict.update``."""
    args, kwargs = with_text(function, args, kwargs)
    out = call_base(function, args, kwargs)
    if out is not NotImplemented:
        return out
    bound = isinstance(function, types.MethodWrapperType)
    owner = function.__self__ if bound else args[0] if args else None
    check_iterator(owner)
    if not bound and isinstance(owner, CONTAINERS):
        return call_container(owner, functools.partial(function, owner), args[1:], kwargs, function.__name__)
    _note_lists(args)
    check_repeatable(function, args, kwargs)
    _check_plain(function, args, kwargs)
    note_whole(*args, *kwargs.values(), owner)
    return call_watched(function, args, kwargs)


_QUIET = frozenset(
    {len, isinstance, issubclass, id, range, getattr, hasattr, setattr, delattr, callable, bool}
)
_ASKING = frozenset({isinstance, issubclass, type, callable})
_TAKES = frozenset({zip, enumerate, reversed, list, tuple, set, frozenset, dict, iter, map, filter, next})


def _note_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note what a builtin reads of its arguments from outside."""
    for x in (*args, getattr(function, "__self__", None)):
        check_iterator(x)
    if function in _ASKING:
        check_defined(*args)
    if function is isinstance or (function is type and len(args) == 1):
        _note_class(function, *args)
    elif function in _TAKES or getattr(function, "__module__", "") == "itertools":
        for x in args:
            items(x)
    elif function not in _QUIET and (function in HANDLERS or not is_users_class(function)):
        note_whole(*args, *kwargs.values(), getattr(function, "__self__", None))


def _note_class(function: Any, x: Any, asked: Any = None) -> None:
    """Note that captured code asked for the class of something."""
    if isinstance(x, Tensor):
        mixed = mixed_of(x)
        if mixed is not None and (function is type or not is_class_told(x, asked)):
            raise CaptureError(
                function.__name__,
                f"what {mixed.where} leaves a number on one way and a tensor on another must not be asked "
                "for its type, which only the run knows",
                hint="make it a tensor on both ways, with weft.tensor(...)",
            )
    elif not is_made_inside(x):
        thread.capture.root.read_attr(x, "__class__", type(x))


def _forget_changes(made: Any) -> None:
    """What the constructor of a new object did to it is no change of something from outside."""
    journal = thread.capture.journal
    for key in [k for k in journal if k[:2] == ("attr", id(made))]:
        del journal[key]


# Functions that call functions


@handles(map)
def _map(function: Any, *iterables: Any) -> Any:
    return map(lambda *items: call(function, *items), *map(plain_items, iterables))


@handles(filter)
def _filter(function: Any, iterable: Any) -> Any:
    return filter(None if function is None else lambda x: call(function, x), plain_items(iterable))


# Recursion


def _call_converted(function: Any, converted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a converted function; one that calls itself in ever deeper branches is told that it never ends."""
    capture = thread.capture
    if not is_converted(function):  # a function made by captured code closes over what the capture made
        enter(function, converted)
    if not capture.region:
        out = converted(*args, **kwargs)
        return note_made(out) if isinstance(out, types.GeneratorType) else out
    code = getattr(function, "__code__", function)
    captures = capture.root.notes.running.setdefault(code, [])
    captures.append(capture)
    try:
        if len({id(c) for c in captures}) > _DEEPEST:
            raise _endless(function)
        out = converted(*args, **kwargs)
        return note_made(out) if isinstance(out, types.GeneratorType) else out
    finally:
        captures.pop()


def _endless(function: Any) -> CaptureError:
    name = getattr(function, "__name__", "the function")
    return CaptureError(
        name,
        f"must not call itself without end while it is captured, got {_DEEPEST} calls in branches of each "
        "other: a tensor decides the depth",
        hint="write the recursion as a `while` loop, or let a plain Python number end it",
    )


# Methods


def call_method(obj: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """``obj.name(*args, **kwargs)``."""
    if thread.capture is None:
        return getattr(obj, name)(*args, **kwargs)
    if isinstance(obj, CONTAINERS) and method_of(obj, name) is None:
        return call_container(obj, getattr_(obj, name), args, kwargs)
    return call(getattr_(obj, name), *args, **kwargs)
