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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from weft.base.dtypes import result_dtype
from weft.base.sizes import is_known
from weft.base.trees import tree_leaves
from weft.capture.convert.functions import convert, is_converted
from weft.capture.convert.source import is_library
from weft.capture.program.classes import class_attribute
from weft.capture.program.slots import MISSING, CellSlot, ItemSlot
from weft.capture.runtime.access import before_item
from weft.capture.runtime.ambient import call_ambient
from weft.capture.runtime.attributes import getattr_
from weft.capture.runtime.bases import BASES, call_base
from weft.capture.runtime.builtins import HANDLERS, handles, item
from weft.capture.runtime.effects import check_followed, check_repeatable, is_log
from weft.capture.runtime.items import rows_of
from weft.capture.runtime.joined import before_joined_read
from weft.capture.runtime.lists import GraphList, check_growth, check_some, stacked
from weft.capture.runtime.methods import find_method, is_users, method_of, plain_key
from weft.capture.runtime.mixed import mixed_of
from weft.capture.runtime.number import Number, is_number, number_of
from weft.capture.runtime.objects import construct, is_users_class, note_copied
from weft.capture.runtime.opaque import note_new
from weft.capture.runtime.owners import CONTAINERS, is_made_inside, note_made, note_outside
from weft.capture.runtime.places import before_change, check_joined_change, note_read
from weft.capture.runtime.sequences import plain_items
from weft.capture.runtime.text import looked_at, settled
from weft.capture.runtime.truth import is_staged
from weft.capture.runtime.undefined import Undefined
from weft.capture.runtime.untold import call_watched, call_weft_watched
from weft.capture.runtime.whole import check_iterator, check_key, items, note_whole, whole
from weft.capture.runtime.wrappers import unwrapped
from weft.errors import CaptureError
from weft.ops.rows import rows
from weft.ops.select import cast
from weft.ops.view.primitives import stack
from weft.tensor.choices import without_history
from weft.tensor.convert import number_dtype
from weft.tensor.mode import call_user, thread
from weft.tensor.tensor import Tensor

_BUILTIN = (types.BuiltinFunctionType, type)
_FUNCTIONS = (types.FunctionType, types.MethodType)
_DEEPEST = 24  # regions, one in another, that calls of one function may open


def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``."""
    if thread.capture is None:
        return function(*args, **kwargs)
    found = call_ambient(function, args, kwargs)
    if found is not MISSING:
        return found
    if _takes_values(function, args):
        args, kwargs = tuple(map(_looked_at, args)), {k: _looked_at(x) for k, x in kwargs.items()}
    if isinstance(function, _BUILTIN):
        return _call_builtin(function, args, kwargs)
    if isinstance(function, BASES):
        return _call_base(function, args, kwargs)
    if isinstance(function, types.MethodType) and _is_plain_change(function):
        return _call_container(function.__self__, function, args, kwargs)
    if _is_weft(function):
        _note_lists(args)
        return _call_weft(function, args, kwargs)
    function = unwrapped(function)
    if isinstance(function, functools.partial):
        items(function.keywords)
        note_outside(function.args)
        return call(function.func, *function.args, *args, **{**function.keywords, **kwargs})
    wrapper = None if isinstance(function, _FUNCTIONS) else class_attribute(type(function), "__call__")
    if is_users(wrapper) and unwrapped(wrapper) is not wrapper:
        return call(wrapper, function, *args, **kwargs)
    converted = _converted(function)
    if converted is None:
        copied = args[0] if args else kwargs.get("x")
        if any(function is f for f in _COPIES_BY) and (own := method_of(copied, _COPIES_BY[function])):
            return call_user(own, copied, *(({},) if function is copy.deepcopy else ()))
        _note_lists(args)
        check_repeatable(function, args, kwargs)
        owner = getattr(function, "__self__", None)
        if isinstance(function, _FUNCTIONS) and not is_library(_code_file(function)):
            check_followed(function)
            enter(function, None)
        if is_log(function):
            return function(*args, **kwargs)
        args, kwargs = _with_text(function, args, kwargs)
        if _calls_back(function, owner):
            args, kwargs = tuple(map(_callback, args)), {k: _callback(x) for k, x in kwargs.items()}
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


def _call_builtin(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a builtin or a class; an iterator that it makes belongs to the running capture."""
    if thread.capture.root.notes.marks:
        out = settled(_call_noted(function, *_with_text(function, args, kwargs)))
    else:
        out = _call_noted(function, args, kwargs)
    if not isinstance(out, Iterator) or is_made_inside(out):
        return out
    thread.capture.root.notes.feeds[id(out)] = (out, [x for x in args if isinstance(x, Iterator)])
    return note_made(out)


def _with_text(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of a function that looks at the letters of text."""
    if function is type and len(args) == 1 and isinstance(args[0], str):
        return (looked_at(args[0]),), kwargs
    is_error = isinstance(function, type) and issubclass(function, BaseException)
    if is_error or function in _PUTS_TOGETHER or getattr(function, "__name__", "") in ("join", "format"):
        return args, kwargs
    return tuple(map(looked_at, args)), {k: looked_at(x) for k, x in kwargs.items()}


_PUTS_TOGETHER = frozenset({print, str, repr, isinstance, id, callable})


def _call_noted(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _note_arguments(function, args, kwargs)
    if function is hash:
        check_key(*args[:1])
    handler = HANDLERS.get(function)
    if handler is not None:
        out = handler(*args, **kwargs)
        return note_new(out)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, CONTAINERS):
        return _call_container(owner, function, args, kwargs)
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
    out = call_watched(function, tuple(map(_callback, args)), {k: _callback(x) for k, x in kwargs.items()})
    return _own(out) if isinstance(function, type) else out


def _own(made: Any) -> Any:
    """Something that a class made in the capture."""
    known = isinstance(made, Tensor) or thread.capture.root.is_named(made)
    if type(made).__module__ != "builtins" and not known:
        _forget_changes(note_made(made))
    return made


def _callback(x: Any) -> Any:
    """An argument; a function of the user that a builtin is to call is converted."""
    if not isinstance(x, _FUNCTIONS) or _is_weft(x):
        return x
    return (lambda *args, **kwargs: call(x, *args, **kwargs)) if _converted(x) is not None else x


def _call_base(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a builtin class, such as ``object.__setattr__`` or ``dict.update``."""
    args, kwargs = _with_text(function, args, kwargs)
    out = call_base(function, args, kwargs)
    if out is not NotImplemented:
        return out
    bound = isinstance(function, types.MethodWrapperType)
    owner = function.__self__ if bound else args[0] if args else None
    check_iterator(owner)
    if not bound and isinstance(owner, CONTAINERS):
        return _call_container(owner, functools.partial(function, owner), args[1:], kwargs, function.__name__)
    _note_lists(args)
    check_repeatable(function, args, kwargs)
    note_whole(*args, *kwargs.values(), owner)
    return call_watched(function, args, kwargs)


_QUIET = frozenset(
    {len, isinstance, issubclass, id, range, getattr, hasattr, setattr, delattr, callable, bool}
)
_TAKES = frozenset({zip, enumerate, reversed, list, tuple, set, frozenset, dict, iter, map, filter, next})


def _note_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note what a builtin reads of its arguments from outside."""
    for x in (*args, getattr(function, "__self__", None)):
        check_iterator(x)
    if function in (isinstance, type) and args:
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
        if mixed is not None and any(
            function is type or isinstance(kind(), asked) != isinstance(x, asked) for kind in mixed.ways.kinds
        ):
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


def _is_weft(function: Any) -> bool:
    module = getattr(function, "__module__", None)
    if not isinstance(module, str) or not (module == "weft" or module.startswith("weft.")):
        return False
    code = getattr(function, "__code__", None)
    return code is None or is_library(code.co_filename)


def _converted(function: Any) -> Callable[..., Any] | None:
    found: Callable[..., Any] | None = convert(function)
    return found


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


# weft's own functions


def _call_weft(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of weft: the user's functions among the arguments are converted."""
    name = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", None)
    if name == "item" and isinstance(owner, Tensor) and not args and not kwargs:
        return item(owner)
    if name == "tolist" and isinstance(owner, Tensor) and is_staged(owner) and _is_short(owner):
        return _nested(owner)
    if name in _JOINS and args and isinstance(args[0], list) and not isinstance(owner, Tensor):
        found = stacked(args[0])
        if found is not None:
            check_some(name, args[0])
            joined = _stack_again(function, name, found, args[1:], kwargs)
            return joined if thread.recording else without_history(joined)
    args, kwargs = _with_text(function, args, kwargs)
    note_whole(*args, *kwargs.values(), objects=False)
    given = tuple(_argument(x, name) for x in args)
    return call_weft_watched(function, given, {k: _argument(x, name) for k, x in kwargs.items()})


_MOST_NUMBERS = 256  # that tolist() makes Numbers of; of more the values are looked at


def _is_short(tensor: Tensor) -> bool:
    return is_known(tensor.shape) and tensor.size <= _MOST_NUMBERS


def _nested(tensor: Tensor) -> Any:
    """Nested lists of Numbers."""
    if tensor.ndim == 0:
        return item(tensor)
    parts = rows.on_tensors(tensor, count=tensor.shape[0]) if tensor.shape[0] else ()
    return note_made([_nested(part) for part in parts])


def _stack_again(function: Any, name: str, found: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The stack or join of a list whose rows come from one tensor."""
    axis = kwargs.get("axis", args[0] if args else 0)
    if name == "vstack" or not isinstance(axis, int):
        return function(found, *args, **kwargs)
    at = axis if axis >= 0 else axis + found.ndim - (name == "concat")
    moved = found if at == 0 else found.moveaxis(0, at)
    return moved if name == "stack" else moved.reshape(_merged(moved.shape, at))


def _merged(shape: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """A shape with an axis and the next one as one."""
    return (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


_JOINS = frozenset({"stack", "vstack", "concat"})
_MAKERS = frozenset({"tensor", "asarray", "as_tensor", "full", "full_like", "from_numpy", "scalar_tensor"})


def _argument(x: Any, name: str) -> Any:
    if isinstance(x, GraphList) and x.is_grown and name in _MAKERS:
        tensor, kind = rows_of(x.content)
        return tensor if kind is None else cast(tensor, dtype=number_dtype(kind()))
    if isinstance(x, Number) and name in _MAKERS:
        return x.in_dtype(_alone(x))
    if isinstance(x, list | tuple) and name in _MAKERS and any(isinstance(y, Number) for y in tree_leaves(x)):
        return _stacked_numbers(x)
    if isinstance(x, _FUNCTIONS) and not _is_weft(x):
        converted = _converted(x)
        return x if converted is None else converted
    if any(method_of(x, name) is not None for name in _ARRAYS):
        note_whole(x)
    return x if name in _MAKERS or name == "arange" else plain_key(x)


_ARRAYS = ("__array__", "__float__", "__dlpack__")  # methods by which an object says its elements


def _stacked_numbers(x: Any) -> Any:
    """Nested lists of numbers, some of which only a run tells, as a tensor."""
    if not isinstance(x, list | tuple):
        return number_of(x).in_dtype(_alone(number_of(x))) if is_number(x) else x
    parts = [_stacked_numbers(y) for y in x]
    common = result_dtype("tensor", *[p.dtype for p in parts])
    return stack([p if p.dtype == common else p.astype(common) for p in parts])


def _alone(number: Number) -> Any:
    """The dtype of a Python number without tensors beside it."""
    return number_dtype(number.example)


# Methods


def call_method(obj: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """``obj.name(*args, **kwargs)``."""
    if thread.capture is None:
        return getattr(obj, name)(*args, **kwargs)
    if isinstance(obj, CONTAINERS) and method_of(obj, name) is None:
        return _call_container(obj, getattr_(obj, name), args, kwargs)
    return call(getattr_(obj, name), *args, **kwargs)


def _call_container(
    obj: Any, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = ""
) -> Any:
    """Call a method of a list, dict or set."""
    name = name or method.__name__
    if not isinstance(obj, list):  # what is given is a key
        check_key(*args[:1])
        args, kwargs = _with_text(method, args, kwargs)
    elif name in ("pop", "insert"):
        args = (*map(plain_key, args[:1]), *args[1:])
    args = tuple(map(_callback, args))
    kwargs = {k: _callback(x) for k, x in kwargs.items()}
    if isinstance(obj, list):
        return _call_list(obj, name, method, args, kwargs)
    if isinstance(obj, dict):
        return _call_dict(obj, name, method, args, kwargs)
    if name in _SET_CHANGES:
        check_growth(obj, name)
        before_change(obj)
    else:
        whole(obj)
    return method(*args, **kwargs)


_LIST_CHANGES = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort"})
_LIST_CHANGES |= {"__imul__"}
_DICT_CHANGES = frozenset({"update", "pop", "popitem", "clear", "setdefault", "move_to_end", "subtract"})
_SET_CHANGES = frozenset({"add", "discard", "remove", "pop", "clear", "update", "difference_update"})
_SET_CHANGES |= {"intersection_update", "symmetric_difference_update"}


_COPIES = frozenset({"copy", "fromkeys", "__add__", "__mul__", "__rmul__", "__or__", "__ror__"})


def _call_list(obj: list[Any], name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if name not in _LIST_CHANGES:
        note_read(obj)
        whole(obj)
        out = method(*args, **kwargs)
        return note_made(out) if isinstance(out, list) and name in _COPIES else out
    check_growth(obj, name)
    before_change(obj)
    if name not in ("append", "extend"):
        note_read(obj)
    return method(*args, **kwargs)


def _call_dict(
    obj: dict[Any, Any], name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if name not in _DICT_CHANGES:
        _note_dict(obj, name, args)
        out = method(*args, **kwargs)
        return note_made(out) if type(out) is dict and name in _COPIES else out
    if name in ("setdefault", "pop"):
        _note_dict(obj, "get", args)
    if is_made_inside(obj) or thread.capture.region:
        before_change(obj)
    elif name == "update" and (not args or isinstance(args[0], dict)):
        for key in {**(args[0] if args else {}), **kwargs}:
            before_item(obj, key)
    elif name in ("setdefault", "pop"):
        check_joined_change(obj)
        thread.capture.before_write(ItemSlot(obj, args[0]))
    else:
        check_growth(obj, name)
    return method(*args, **kwargs)


def _note_dict(obj: dict[Any, Any], name: str, args: tuple[Any, ...]) -> None:
    """Tell the root what is read of a dict from outside."""
    root = thread.capture.root
    before_joined_read(obj)
    if is_made_inside(obj) or not root.guards_reads:
        return
    if name == "get":
        if args[0] in obj:
            root.read_item(obj, args[0], obj[args[0]])
        else:
            root.read_member(obj, args[0], False)
    elif name in ("items", "keys", "values", "copy"):
        root.read_contents(obj)


# The start and the end of a function


def returned(value: Any) -> Any:
    """What a function gives at its end: None if it was never set."""
    if type(value) is Undefined:
        if value.why:
            raise value.error()
        return None
    return value


def enter(function: Any, converted: Any, args: Any = ()) -> None:
    """Note what a converted function reads of its globals and of the functions around it."""
    capture = thread.capture
    if capture is None or not capture.root.guards_reads:
        return
    plain = _plain_function(function)
    if plain is None:
        return
    if not isinstance(function, _FUNCTIONS):
        capture.root.read_attr(type(function), "__call__", plain)
    for value in (*(plain.__defaults__ or ()), *(plain.__kwdefaults__ or {}).values()):
        if not is_made_inside(value):
            note_outside(value)
    root, scope = capture.root, plain.__globals__
    globals_read, cells_read = _names_read(plain.__code__)
    for name in globals_read:
        root.read_global(scope, name, scope.get(name, MISSING))
        note_outside(scope.get(name))
    cells = dict(zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True))
    for name in cells_read:
        content = CellSlot(cells[name]).get()
        if not is_made_inside(content):
            root.read_cell(cells[name], name, content)
            note_outside(content)


@functools.lru_cache(maxsize=4096)
def _names_read(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The globals and free variables that code, and the functions made in it, read."""
    import dis

    found: dict[str, None] = {}
    waiting = [code]
    while waiting:
        at = waiting.pop()
        found |= {
            i.argval: None for i in dis.get_instructions(at) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        }
        waiting += [c for c in at.co_consts if isinstance(c, types.CodeType)]
    return tuple(found), code.co_freevars


def _plain_function(function: Any) -> types.FunctionType | None:
    """The function behind a method or a callable object."""
    if not isinstance(function, _FUNCTIONS):
        function = type(function).__call__ if callable(function) else None
    function = function.__func__ if isinstance(function, types.MethodType) else function
    return function if isinstance(function, types.FunctionType) else None
