"""Methods as they stand in classes: which are the user's, and what a class has without those."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from weft.capture.convert.source import is_library


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()  # what a slot holds that is not there


def class_attribute(kind: type, name: str) -> Any:
    """What a class or its bases hold under a name, as it stands there."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def is_plain_users(found: Any) -> bool:
    """Whether something is a function that a user wrote."""
    return isinstance(found, FunctionType) and not is_library(found.__code__.co_filename)


def has_users(kind: type, *names: str) -> bool:
    """Whether one of the methods of a class is a function that a user wrote."""
    for name in names:  # noqa: SIM110 - it is asked for each attribute, and a generator costs
        if is_plain_users(class_attribute(kind, name)):
            return True
    return False


def base_method(kind: type, name: str) -> Callable[..., Any]:
    """A method of a class as its first base has it that is no user's."""
    for base in kind.__mro__:
        if name in base.__dict__ and not is_plain_users(base.__dict__[name]):
            return base.__dict__[name]  # type: ignore[no-any-return]
    return getattr(object, name)  # type: ignore[no-any-return]
