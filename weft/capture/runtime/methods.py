"""Special methods of the user's classes: what Python calls by itself is run converted, as a call is.

Python looks a special method up on the class, so that is done here; ``operators``,
``attributes`` and the handlers of builtins ask. Methods of weft and of libraries stay as they are.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from weft.base.sizes import Size
from weft.capture.program.classes import class_attribute, is_plain_users
from weft.capture.runtime.number import Number
from weft.capture.runtime.wrappers import unwrapped
from weft.ops.op import TensorLike
from weft.tensor.mode import call_user, thread

_HEAP = 1 << 9  # of Py_TPFLAGS: classes that Python code can define
Method = Any  # a function of the user, or None


def may_have_methods(x: Any) -> bool:
    """Whether the class of something could be one of the user."""
    return bool(type(x).__flags__ & _HEAP) and not isinstance(x, TensorLike | Number | Size)


def is_users(function: Any) -> bool:
    """Whether something is a function of the user, or a wrapper of a library around one."""
    if not isinstance(function, FunctionType):
        return False
    return is_plain_users(function) or unwrapped(function) is not function


def find_method(kind: type, name: str) -> Method:
    """The user's function that is a special method of a class, noted as read; else None."""
    if not kind.__flags__ & _HEAP:
        return None
    found = class_attribute(kind, name)
    if not is_users(found):
        return None
    thread.capture.root.read_attr(kind, name, found)
    return found


def method_of(x: Any, name: str) -> Method:
    """The user's function that is a special method of an object; None if there is none."""
    return find_method(type(x), name) if thread.capture is not None and may_have_methods(x) else None


def plain_key(key: Any) -> Any:
    """A key of a sequence, with ints for objects of the user that say by ``__index__`` which one they are."""
    if type(key) is tuple:
        parts = tuple(map(plain_key, key))
        return key if all(x is y for x, y in zip(parts, key, strict=True)) else parts
    if type(key) is slice:
        return slice(plain_key(key.start), plain_key(key.stop), plain_key(key.step))
    method = method_of(key, "__index__")
    return key if method is None else call_user(method, key)


def call_method_of(x: Any, name: str, *args: Any) -> Any:
    """What a special method of the user gives; NotImplemented if the class has none."""
    method = method_of(x, name)
    return NotImplemented if method is None else call_user(method, x, *args)
