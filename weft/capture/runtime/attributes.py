"""Attributes in converted code: reads are guarded and writes journaled by the capture.

Where the class computes an attribute by a function of the user (a property, a descriptor, ``__getattr__``,
``__setattr__`` and their kin) that function runs converted, and tells itself of what it reads and changes.
"""

from __future__ import annotations

import builtins
import functools
from types import CellType, FunctionType, MemberDescriptorType, MethodType
from typing import Any

import numpy as np

from weft.capture.program.classes import MISSING, class_attribute, has_users
from weft.capture.program.slots import AttrSlot, CellSlot
from weft.capture.runtime.joined import before_joined_read
from weft.capture.runtime.methods import find_method, is_users, may_have_methods, method_of
from weft.capture.runtime.number import Number
from weft.capture.runtime.owners import is_made_here, is_made_inside, note_outside
from weft.capture.runtime.places import check_joined_change, keeps
from weft.capture.runtime.truth import not_
from weft.capture.runtime.undefined import check_defined
from weft.capture.runtime.untold import change_watched
from weft.errors import CaptureError
from weft.ops.alias import CHOICE
from weft.tensor.accumulate import has_gradient
from weft.tensor.choices import Truth, both, either, negation
from weft.tensor.mode import call_user, thread
from weft.tensor.node import Leaf
from weft.tensor.tensor import Tensor
from weft.transform.control.ways import lead_to_leaves
from weft.transform.staging import Unstaged

# Reading


def getattr_(obj: Any, name: str) -> Any:
    """``obj.name``."""
    check_defined(obj)
    if thread.capture is None or isinstance(obj, Tensor | Number):
        if thread.capture is not None and isinstance(obj, Tensor):
            if name in ("is_leaf", "grad_fn"):
                thread.capture.root.read_leaf(obj)
            if name in ("is_view", "_is_view", "_base"):
                thread.capture.root.read_view(obj)
            if name in ("requires_grad", "is_leaf"):
                return _of_history(obj, name)
        return builtins.getattr(obj, name)
    method = method_of(obj, "__getattribute__")
    if method is None:
        return fetch(obj, name)
    try:
        return call_user(method, obj, name)
    except AttributeError:
        fallback = method_of(obj, "__getattr__")
        if fallback is None:
            raise
        return call_user(fallback, obj, name)


def _of_history(tensor: Tensor, name: str) -> Any:
    """``tensor.requires_grad`` or ``tensor.is_leaf``, which only a run tells where ways differ in it."""
    if type(tensor._node) is Leaf:
        return True
    if tensor._node is None and thread.capture.has_gradient(tensor):
        raise CaptureError(
            name,
            "whether a gradient flows to a tensor must be known where code asks for it, got one that comes "
            "into a branch or a turn of a loop",
            hint="ask for it before the branch or loop",
        )
    found = lead_to_leaves([tensor._node])[0] if name == "requires_grad" else _is_leaf(tensor)
    return found if isinstance(found, bool) else Number(bool, found)


def _is_leaf(tensor: Tensor) -> Truth:
    """Whether a tensor is a leaf, or the one of two that a run picks is."""
    if type(tensor._node) is Leaf:
        return True
    link = getattr(tensor, "_link", None)
    if link is None or link[1] is not CHOICE:
        return negation(lead_to_leaves([tensor._node])[0])
    one, other = _is_leaf(link[0]), _is_leaf(link[2].other)
    truth = link[2].truth
    return one if one is other else either(both(truth, one), both(negation(truth), other))


def holds_gradient(obj: Any) -> Any:
    """``obj.grad is not None``, which only a run tells where ways differ that have one."""
    if thread.capture is None or not isinstance(obj, Tensor):
        return getattr_(obj, "grad") is not None
    found = has_gradient(obj)
    return found if isinstance(found, bool) else Number(bool, found)


def lacks_gradient(obj: Any) -> Any:
    """``obj.grad is None``."""
    found = holds_gradient(obj)
    out = not_(found)
    if isinstance(found, Number):
        thread.capture.root.notes.absence[id(out.tensor)] = out.tensor, found.tensor
    return out


def fetch(obj: Any, name: str) -> Any:
    """An attribute as ``object.__getattribute__`` finds it, or as ``__getattr__`` then gives it."""
    if isinstance(obj, super):
        return _fetch_super(obj, name)
    computed = _computed(obj, name)
    if computed is not None:
        return call_user(*computed)
    found = class_attribute(type(obj), name)
    if isinstance(found, functools.cached_property) and name not in _own(obj):
        value = call_user(found.func, obj)
        store(obj, name, value)
        return value
    return _fetch_plain(obj, name)


def _fetch_plain(obj: Any, name: str) -> Any:
    """An attribute that is just there, noted as read."""
    before_joined_read(obj)
    computes = has_users(type(obj), "__getattribute__", "__getattr__")
    value = AttrSlot(obj, name).get() if computes else builtins.getattr(obj, name, MISSING)
    root = thread.capture.root
    if root.guards_reads and not is_made_inside(obj):
        root.read_attr(obj, name, value)
        note_outside(value)
    if name == "__dict__" and type(value) is dict:
        root.notes.namespaces[id(value)] = (value, obj)
    return builtins.getattr(obj, name) if value is MISSING else value


def _own(obj: Any) -> Any:
    """The attributes that an object has itself."""
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}


def _computed(obj: Any, name: str) -> tuple[Any, ...] | None:
    """The function of the user that gives an attribute, with its arguments; None if it is just there."""
    kind = type(obj)
    if not may_have_methods(obj):
        return None
    found = class_attribute(kind, name)
    given = _from_class(found, obj, kind, name)
    if given is not None:
        return given
    own = _own(obj)
    if found is not MISSING or name in own:
        return None
    method = find_method(kind, "__getattr__")
    if method is None:
        return None
    if not is_made_inside(obj):
        thread.capture.root.read_member(own, name, False)
    return method, obj, name


def _from_class(found: Any, obj: Any, kind: type, name: str) -> tuple[Any, ...] | None:
    """The function that a property or descriptor of a class gives an attribute by; else None."""
    if isinstance(found, property):
        _note_class(kind, name, found)
        return None if found.fget is None else (found.fget, obj)
    if found is MISSING or isinstance(found, FunctionType) or not may_have_methods(found):
        return None
    get = find_method(type(found), "__get__")
    if get is None:
        return None
    overrides = any(hasattr(type(found), n) for n in ("__set__", "__delete__"))
    if not overrides and name in _own(obj):
        return None
    _note_class(kind, name, found)
    return get, found, obj, kind


def _note_class(kind: type, name: str, found: Any) -> None:
    """Note that captured code relies on what a class holds under a name."""
    if thread.capture.root.guards_reads:
        owner = next(c for c in kind.__mro__ if name in c.__dict__)
        thread.capture.root.read_class(owner, name, found)


def _fetch_super(obj: Any, name: str) -> Any:
    """``super().name``: looked up behind a class, for the object that it was asked for."""
    owner, start = obj.__self__, obj.__thisclass__
    kind = obj.__self_class__
    order = kind.__mro__[kind.__mro__.index(start) + 1 :] if kind is not None else ()
    found_in = next((c for c in order if name in c.__dict__), None)
    if found_in is None:
        return builtins.getattr(obj, name)
    found = found_in.__dict__[name]
    if isinstance(found, property) and found.fget is not None and not isinstance(owner, type):
        _note_class(found_in, name, found)
        return call_user(found.fget, owner)
    if isinstance(found, FunctionType):
        if name != "__new__":
            thread.capture.root.read_attr(found_in, name, found)
        return MethodType(found, owner)
    return builtins.getattr(obj, name)


# Writing


def setattr_(obj: Any, name: str, value: Any) -> None:
    """``obj.name = value``."""
    check_defined(obj)
    if thread.capture is None or isinstance(obj, Tensor):
        builtins.setattr(obj, name, value)
        return
    method = method_of(obj, "__setattr__")
    if method is None:
        store(obj, name, value)
    else:
        call_user(method, obj, name, value)


def store(obj: Any, name: str, value: Any) -> None:
    """Set an attribute as ``object.__setattr__`` does: by the descriptor of the class, or on the object."""
    setter = _setter(obj, name, "fset", "__set__")
    if setter is not None:
        call_user(*setter, value)
        return
    if isinstance(obj, np.ndarray):
        change_watched(builtins.setattr, obj, name, value)
        return
    if name == "__dict__" and not is_made_inside(value):
        raise CaptureError(
            "setattr",
            "captured code must not give an object the attributes of one from outside: changes of one would "
            "be changes of both",
            hint="let it hold that object, or a dict, in an attribute",
        )
    check_joined_change(obj)
    if thread.capture.region and isinstance(obj, type) and name not in vars(obj) and hasattr(obj, name):
        raise CaptureError(
            "setattr",
            f"a branch or loop of the graph must not give a class an attribute that it inherits, got "
            f"{name!r} of {obj.__name__}, which only one way would have",
            hint=f"give it one before, such as {obj.__name__}.{name} = {obj.__name__}.{name}",
        )
    slot = CellSlot(obj) if isinstance(obj, CellType) else AttrSlot(obj, name)
    if not _is_told_elsewhere(obj, name) and not keeps(slot, value):
        (thread.capture.remember if is_made_here(obj) else thread.capture.before_write)(slot)
    slot.write(value)


def delattr_(obj: Any, name: str) -> None:
    """``del obj.name``."""
    check_defined(obj)
    if thread.capture is None or isinstance(obj, Tensor):
        builtins.delattr(obj, name)
        return
    method = method_of(obj, "__delattr__")
    if method is None:
        remove(obj, name)
    else:
        call_user(method, obj, name)


def remove(obj: Any, name: str) -> None:
    """Delete an attribute as ``object.__delattr__`` does."""
    deleter = _setter(obj, name, "fdel", "__delete__")
    if deleter is not None:
        call_user(*deleter)
        return
    check_joined_change(obj)
    if thread.capture.region and hasattr(type(obj), name):
        raise Unstaged(
            "delattr",
            f"a branch or loop of the graph must not delete an attribute that the class has, too, got "
            f"{name!r} of a {type(obj).__name__}, which would then have that one on one way",
            hint="set it to what it is to be",
        )
    slot, capture = AttrSlot(obj, name), thread.capture
    if not _is_told_elsewhere(obj, name):
        if not is_made_inside(obj):
            capture.root.read_member(_own(obj), name, name in _own(obj))
        (capture.remember if is_made_here(obj) else capture.before_write)(slot)
    slot.remove()


def _setter(obj: Any, name: str, of_property: str, special: str) -> tuple[Any, ...] | None:
    """The function of the user that sets or deletes an attribute, with its first arguments."""
    if not may_have_methods(obj):
        return None
    found = class_attribute(type(obj), name)
    if isinstance(found, property):
        function = builtins.getattr(found, of_property)
        if not is_users(function):
            return None
        _note_class(type(obj), name, found)
        return function, obj
    method = None if found is MISSING or not may_have_methods(found) else find_method(type(found), special)
    return None if method is None else (method, found, obj)


def _is_told_elsewhere(obj: Any, name: str) -> bool:
    """Whether setting an attribute runs a function of a library, which tells of what it changes itself."""
    found = class_attribute(type(obj), name)
    if found is MISSING or isinstance(found, MemberDescriptorType) or isinstance(obj, CellType):
        return False
    return hasattr(found, "__set__")
