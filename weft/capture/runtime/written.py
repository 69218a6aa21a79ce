"""Objects as text in converted code: ``str``, ``repr``, f-strings, ``text % values``, ``text.format(...)``.

Methods of the user that say how something is written run converted, as calls do.
"""

from __future__ import annotations

import operator
from typing import Any

from weft.capture.program.classes import class_attribute, has_users
from weft.capture.runtime.attributes import getattr_
from weft.capture.runtime.methods import may_have_methods, method_of
from weft.capture.runtime.text import Marked, looked_at, marked
from weft.capture.runtime.whole import whole
from weft.tensor.mode import call_user


def formatted(x: Any, conversion: int, spec: str) -> str:
    """``{x!r:spec}`` in an f-string; the conversion is a letter, or -1 for none."""
    spec = looked_at(spec)
    if conversion != -1:
        return format(_converted(x, chr(conversion)), spec)
    method = method_of(x, "__format__")
    if method is not None:
        out: str = call_user(method, x, spec)
        return out
    if class_attribute(type(x), "__format__") is object.__format__ and not spec:
        return as_text(x)
    return format(whole(x), spec)


def _converted(x: Any, letter: str) -> str:
    if letter == "s":
        return as_text(x)
    text = as_repr(x)
    return text if letter == "r" else ascii(_Text(text))


class _Text:
    """Something whose repr is a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def joined(text: str) -> str:
    """An f-string, whose parts are ``formatted``."""
    out: str = marked(text)
    return out


class _Asked:
    """Something in a text that Python puts together: its methods run converted when they are asked."""

    __slots__ = ("asked",)

    def __init__(self, asked: Any) -> None:
        self.asked = asked

    def __str__(self) -> str:
        return as_text(self.asked)

    def __repr__(self) -> str:
        return as_repr(self.asked)

    def __format__(self, spec: str) -> str:
        return formatted(self.asked, -1, spec)

    def __getattr__(self, name: str) -> Any:
        return asked_for(getattr_(self.asked, name))

    def __getitem__(self, key: Any) -> Any:
        method = method_of(self.asked, "__getitem__")
        return asked_for(whole(self.asked)[key] if method is None else call_user(method, self.asked, key))


class _AskedNumber(_Asked):
    """Likewise, of something that can be a number."""

    __slots__ = ()

    def __int__(self) -> int:
        return int(self._number("__int__", int))

    def __float__(self) -> float:
        return float(self._number("__float__", float))

    def __index__(self) -> int:
        return operator.index(self._number("__index__", operator.index))

    def _number(self, name: str, plain: Any) -> Any:
        method = method_of(self.asked, name)
        return plain(self.asked) if method is None else call_user(method, self.asked)


_OF_NUMBERS = ("__int__", "__float__", "__index__")


def asked_for(x: Any) -> Any:
    """A value that Python puts into a text, so that methods of the user run converted."""
    if _kind(x):
        return _Asked(x) if _holds_users(x) else x
    if type(x) is Marked or not may_have_methods(x):
        return x
    return _AskedNumber(x) if any(hasattr(type(x), name) for name in _OF_NUMBERS) else _Asked(x)


def values_asked_for(values: Any) -> Any:
    """The values of ``text % values``."""
    if type(values) is tuple:
        return tuple(map(asked_for, values))
    if type(values) is dict:
        return {key: asked_for(x) for key, x in whole(values).items()}
    found = asked_for(values)
    return whole(values) if found is values else found


def _holds_users(x: Any, depth: int = 0) -> bool:
    """Whether the text of a container is put together by methods of the user."""
    if depth > _DEEPEST:
        return False
    inner = [*x, *x.values()] if isinstance(x, dict) else [*x]
    return any(_holds_users(y, depth + 1) if _kind(y) else has_users(type(y), "__repr__") for y in inner)


def _kind(x: Any) -> type | None:
    """Which container of Python something is written as; None of anything else."""
    kind = list if getattr(x, "is_grown", None) is False else type(x)
    return kind if kind in _BRACKETS else None


_DEEPEST = 8  # containers in each other that are looked into
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


def _text_of_parts(x: Any) -> str:
    """The text of a container, of which parts say themselves how they are written."""
    whole(x)
    if isinstance(x, dict):
        parts = [f"{as_repr(k)}: {as_repr(v)}" for k, v in x.items()]
    else:
        parts = [as_repr(y) for y in x]
    start, end = _BRACKETS[_kind(x) or list]
    comma = "," if isinstance(x, tuple) and len(x) == 1 else ""
    out: str = marked(start + ", ".join(parts) + comma + end)
    return out


def as_text(x: Any) -> str:
    """``str(x)``."""
    method = method_of(x, "__str__")
    if method is None and class_attribute(type(x), "__str__") is object.__str__:
        method = method_of(x, "__repr__")
    if _kind(x) and _holds_users(x):
        return _text_of_parts(x)
    return marked(str(whole(x))) if method is None else _text_of(method, x)


def as_repr(x: Any) -> str:
    """``repr(x)``."""
    method = method_of(x, "__repr__")
    if _kind(x) and _holds_users(x):
        return _text_of_parts(x)
    return marked(repr(whole(x))) if method is None else _text_of(method, x)


def _text_of(method: Any, x: Any) -> str:
    out = call_user(method, x)
    if not isinstance(out, str):
        raise TypeError(f"{method.__name__} returned non-string (type {type(out).__name__})")
    return out
