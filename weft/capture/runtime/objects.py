"""Objects of the user's classes in converted code: made, copied, and entered by ``with``.

Constructors, ``__enter__`` and ``__exit__`` run converted, as calls do.
"""

from __future__ import annotations

import dataclasses
import dis
import inspect
from contextlib import _GeneratorContextManager, nullcontext
from types import FunctionType, ModuleType
from typing import Any

from weft.capture.convert.functions import is_converted
from weft.capture.convert.source import is_library
from weft.capture.program.classes import base_method, class_attribute
from weft.capture.runtime.attributes import setattr_, store
from weft.capture.runtime.failing import finishing, started
from weft.capture.runtime.methods import find_method, is_users, method_of
from weft.capture.runtime.mixed import note_mixed_copies
from weft.capture.runtime.opaque import is_opaque
from weft.capture.runtime.owners import note_fresh, note_made
from weft.capture.runtime.raising import may_handle, trying, unfinished
from weft.capture.runtime.truth import is_staged
from weft.capture.runtime.whole import truth
from weft.errors import CaptureError
from weft.ops.op import TensorLike
from weft.tensor.mode import call_user, thread

# Making them


def is_users_class(kind: Any) -> bool:
    """Whether a class has a constructor of the user, which is converted and tells of what it reads."""
    if not isinstance(kind, type) or hasattr(kind, "_weft_version"):
        return False  # modules are made as Python makes them: their constructors set up layers
    if getattr(kind, "_weft_made_outside", None) is not None:
        return True
    if type(kind).__call__ is not type.__call__:
        return find_method(type(kind), "__call__") is not None
    return find_method(kind, "__init__") is not None or _new_of(kind) is not None


def _new_of(kind: type) -> FunctionType | None:
    """The user's ``__new__`` of a class."""
    found = class_attribute(kind, "__new__")
    function = found.__func__ if isinstance(found, staticmethod) else found
    if not isinstance(function, FunctionType) or function.__code__.co_filename == "<string>":
        return None  # as that of a named tuple
    return function


def base(kind: Any) -> Any:
    """A base or metaclass of a class that captured code defines."""
    if thread.capture is None or not isinstance(kind, type):
        return kind
    metaclass = kind if issubclass(kind, type) else type(kind)
    asked = [("__init_subclass__", kind), *[(name, metaclass) for name in _MAKING]]
    for name, owner in asked:
        method = class_attribute(owner, name)
        function = getattr(method, "__func__", method)
        if is_users(function) and not is_converted(function) and not _only_sets_attributes(function):
            message = f"captured code must not define a class that {owner.__name__}.{name} is told of"
            raise CaptureError("class", message, hint="define the class outside")
    return kind


def _only_sets_attributes(function: Any) -> bool:
    """Whether a method that a class is told by does no more than to set attributes of the class."""
    code = function.__code__
    if set(code.co_freevars) - {"__class__"} or not code.co_varnames:
        return False
    last: Any = None  # what the instruction before has put on the stack, from Python 3.13 on maybe two
    for step in dis.get_instructions(code):
        if step.opname in _STORES or (step.opname.startswith(("LOAD_", "DELETE_")) and _is_other(step)):
            return False
        if step.opname == "STORE_ATTR" and last != code.co_varnames[0]:
            return False
        last = step.argval[-1] if isinstance(step.argval, tuple) and step.argval else step.argval
    return True


def _is_other(step: dis.Instruction) -> bool:
    """Whether an instruction takes a variable from outside or an attribute, but for those of ``super``."""
    kind = step.opname
    takes = kind.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD")) or "DELETE" in kind
    return takes and step.argval not in ("super", "__init_subclass__")


_STORES = ("STORE_GLOBAL", "STORE_DEREF", "STORE_NAME", "STORE_SUBSCR")
_MAKING = ("__new__", "__init__", "__call__", "__prepare__")


def construct(kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``kind(*args, **kwargs)`` of a class of the user."""
    made_outside = getattr(kind, "_weft_made_outside", None)
    if made_outside is not None:
        what, why, hint = made_outside
        message = f"captured code must not make {what}: each call would make another one, {why}"
        raise CaptureError(kind.__name__, message, hint=hint)
    call = find_method(type(kind), "__call__")
    if call is not None:
        return call_user(call, kind, *args, **kwargs)
    new = _new_of(kind)
    if new is not None:
        made = call_user(new, kind, *args, **kwargs)
    elif kind.__new__ is object.__new__:
        made = kind.__new__(kind)
    else:
        made = kind.__new__(kind, *args, **kwargs)
    if kind in type(made).__mro__:  # as Python asks, whatever the class says of its instances
        if not thread.capture.root.is_named(made):  # else it is one that was there
            note_made(made)
        _initialise(made, args, kwargs)
    return made


def _initialise(made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run the constructor of a new object."""
    init = find_method(type(made), "__init__")
    if init is None:
        type(made).__init__(made, *args, **kwargs)
    elif _is_generated(init) and dataclasses.is_dataclass(made):
        _fill_fields(made, init, args, kwargs)
    else:
        call_user(init, made, *args, **kwargs)


def _is_generated(init: FunctionType) -> bool:
    """Whether ``dataclasses`` wrote a constructor."""
    return init.__code__.co_filename == "<string>"


def _fill_fields(made: Any, init: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What the constructor of a dataclass does: set the fields, then run ``__post_init__``."""
    bound = inspect.signature(init).bind(made, *args, **kwargs)
    bound.apply_defaults()
    kind, late = type(made), []
    put = store if kind.__dataclass_params__.frozen else setattr_
    for field in kind.__dataclass_fields__.values():
        if field._field_type is dataclasses._FIELD_CLASSVAR:  # type: ignore[attr-defined]
            continue
        given = bound.arguments.get(field.name, dataclasses.MISSING) if field.init else dataclasses.MISSING
        if field._field_type is dataclasses._FIELD_INITVAR:  # type: ignore[attr-defined]
            late.append(given)
            continue
        if given is dataclasses.MISSING or type(given).__name__ == "_HAS_DEFAULT_FACTORY_CLASS":
            given = field.default
            if field.default_factory is not dataclasses.MISSING:
                given = note_fresh(call_user(field.default_factory))
        if given is not dataclasses.MISSING:
            put(made, field.name, given)
    if hasattr(kind, "__post_init__"):
        call_user(made.__post_init__, *late)


# Copying them


def note_copied(made: Any, given: Any) -> Any:
    """Note that a function of Python made an object of another, with what else is new in it. Returns it."""
    note_mixed_copies(made, given)
    known = {id(x) for x in _reached((given,))}
    for x in _reached((made,)):
        if id(x) not in known and not isinstance(x, tuple):
            note_made(x)
    return made


def _reached(start: tuple[Any, ...]) -> list[Any]:
    """The containers and objects that can be reached from some, without tensors, modules, functions."""
    found: dict[int, Any] = {}
    waiting = [*start]
    while waiting and len(found) < _MOST:
        at = waiting.pop()
        if id(at) in found or isinstance(at, _NO_COPIES) or hasattr(type(at), "_weft_version"):
            continue
        if isinstance(at, list | tuple | set | dict):
            waiting += dict.values(at) if isinstance(at, dict) else base_method(type(at), "__iter__")(at)
        elif not (hasattr(at, "__dict__") or is_opaque(at)):
            continue
        found[id(at)] = at
        waiting += getattr(at, "__dict__", {}).values()
    return [*found.values()]


_MOST = 10_000  # objects that are looked at
_NO_COPIES = (TensorLike, FunctionType, ModuleType, type)


# with


class _Managed:
    """A context manager of the user, whose methods run converted."""

    def __init__(self, manager: Any, enter: Any, exit: Any) -> None:
        self.manager = manager
        self.enter = enter
        self.exit = exit
        self.handling: Any = trying(lambda: Exception) if may_handle(exit) else nullcontext()
        self.started: int | None = None

    def __enter__(self) -> Any:
        self.started = started()
        out = call_user(self.enter, self.manager)
        self.handling.__enter__()
        return out

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.handling.__exit__(None, None, None)
        is_ours = isinstance(error, unfinished())
        with finishing(None if is_ours else self.started):
            out = call_user(self.exit, self.manager, kind, error, trace)
        if is_ours:
            return False  # which is no error of the program, and nobody's to handle
        if error is not None and is_staged(out):
            raise CaptureError("with", "__exit__ must say by a Python bool whether it handles an exception")
        return error is not None and truth(out)


class _Watched:
    """A context manager of a library that may handle exceptions."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        kinds = getattr(manager, "_exceptions", Exception)
        self.handling: Any = trying(lambda: kinds)

    def __enter__(self) -> Any:
        out = type(self.manager).__enter__(self.manager)
        self.handling.__enter__()
        return out

    def __exit__(self, *given: Any) -> Any:
        self.handling.__exit__(None, None, None)
        out = type(self.manager).__exit__(self.manager, *given)
        return out and not isinstance(given[1], unfinished())


def _may_handle(manager: Any) -> bool:
    """Whether a context manager that is no user's may handle exceptions; weft's own do not.

    What a generator of the user handles is known while it waits.
    """
    if isinstance(manager, _GeneratorContextManager):
        generator: Any = manager.gen
        return is_library(generator.gi_code.co_filename)
    exit = getattr(type(manager), "__exit__", None)
    is_plain = isinstance(exit, FunctionType) and type(manager).__module__.partition(".")[0] != "weft"
    return is_plain and may_handle(exit)


def managed(x: Any) -> Any:
    """What ``with x`` enters."""
    enter, exit = method_of(x, "__enter__"), method_of(x, "__exit__")
    if enter is None and exit is None:
        return _Watched(x) if thread.capture is not None and _may_handle(x) else x
    return _Managed(x, enter or type(x).__enter__, exit or type(x).__exit__)
