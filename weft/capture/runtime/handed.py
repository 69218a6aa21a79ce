"""What functions get that are called as they are: functions of the user converted, text that is looked at."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

from weft.base.hooks import hooks
from weft.capture.convert.functions import convert, is_converted
from weft.capture.convert.source import is_library
from weft.capture.runtime.entering import enter
from weft.capture.runtime.text import looked_at

FUNCTIONS = (types.FunctionType, types.MethodType)


def with_text(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of a function that looks at the letters of text."""
    if function is type and len(args) == 1 and isinstance(args[0], str):
        return (looked_at(args[0]),), kwargs
    is_error = isinstance(function, type) and issubclass(function, BaseException)
    if (
        is_error
        or any(function is f for f in _PUTS_TOGETHER)
        or getattr(function, "__name__", "") in ("join", "format")
    ):
        return args, kwargs
    return tuple(map(looked_at, args)), {k: looked_at(x) for k, x in kwargs.items()}


_PUTS_TOGETHER = (print, warnings.warn, str, repr, isinstance, id, callable)


def callback(x: Any) -> Any:
    """An argument; a function of the user that a builtin is to call is converted."""
    call = hooks.call_converted
    if call is not None and any(x is f for f in _TELLS):
        return lambda *args, **kwargs: call(x, *args, **kwargs)
    if not isinstance(x, FUNCTIONS) or is_weft_function(x) or call is None or converted_of(x) is None:
        return x
    return lambda *args, **kwargs: call(x, *args, **kwargs)


_TELLS = (print, warnings.warn)


def handed_over(function: Any) -> Any:
    """A function that code of weft is to call, converted if it is one of the user; what it reads is noted."""
    converted = converted_of(function)
    if converted is None:
        return function
    if not is_converted(function):
        enter(function, converted)
    return converted


def is_weft_function(function: Any) -> bool:
    """Whether a function is one of weft's own, and no user's that calls itself so."""
    module = getattr(function, "__module__", None)
    if not isinstance(module, str) or not (module == "weft" or module.startswith("weft.")):
        return False
    code = getattr(function, "__code__", None)
    return code is None or is_library(code.co_filename)


def converted_of(function: Any) -> Callable[..., Any] | None:
    """A function of the user as captured code runs it; None of one that is called as it is."""
    found: Callable[..., Any] | None = convert(function)
    return found
