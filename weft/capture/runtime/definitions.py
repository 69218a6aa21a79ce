"""Functions and classes that captured code defines: their decorators are called, their bases looked at.

Python runs the body of a class, and what a base or metaclass wants to know of a new class, by itself.
"""

from __future__ import annotations

import functools
from typing import Any

from weft.capture.program.classes import class_attribute
from weft.capture.runtime.calls import call
from weft.capture.runtime.handed import FUNCTIONS, converted_of, is_weft_function
from weft.capture.runtime.methods import is_users
from weft.errors import CaptureError
from weft.tensor.mode import thread


def decorator(function: Any) -> Any:
    """What Python is to call in place of a decorator: one of the user is called as captured code calls it."""
    if thread.capture is None or not _is_followed(function):
        return function
    return lambda decorated: call(function, decorated)


def _is_followed(function: Any) -> bool:
    if isinstance(function, functools.partial):
        return _is_followed(function.func)
    if isinstance(function, FUNCTIONS):
        return not is_weft_function(function) and converted_of(function) is not None
    return is_users(class_attribute(type(function), "__call__"))


def statements() -> None:
    """Raise, as the body of a class in captured code does more than to give names to values."""
    if thread.capture is not None:
        raise CaptureError(
            "class",
            "the body of a class in captured code must only define methods and give names to values that no "
            "other name of the body is needed for",
            hint="define the class outside, or assign its attributes after it",
        )
