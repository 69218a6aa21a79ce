"""The edge between users and functions: a call that does not fit the signature is an ArgumentError."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from weft.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])

_VARARGS = 0x04  # inspect.CO_VARARGS, without the cost of importing inspect
_RENAMED = {
    "dim": "axis",
    "keepdim": "keepdims",
    "input": "x",
    "dims": "axis",
    "size": "shape",
    "in_dims": "in_axes",
    "out_dims": "out_axes",
}


def parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Names of a function's positional parameters, its keyword-only ones, and its ``*rest`` or ""."""
    code = function.__code__
    count, keywords = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    takes_rest = bool(code.co_flags & _VARARGS)
    return names[:count], names[count : count + keywords], names[count + keywords] if takes_rest else ""


def public(function: F) -> F:
    """Mark a function as public: unknown keywords and missing arguments are reported in weft's form."""
    plain = getattr(function, "__wrapped__", function)
    frames = 1 if plain is function else 2  # of a call that does not fit: this one, and that of a wrapper

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if _depth(error) != frames:
                raise  # from inside the function, not from calling it
            raise _misfit(plain, str(error), kwargs) from None
        except AttributeError as error:
            if any(error.obj is x for x in args) and type(error.obj).__module__ == "builtins":
                raise _not_a_tensor(function.__name__, error.obj) from None
            raise  # of something else, which a function of the user may have raised

    return call  # type: ignore[return-value]


def _depth(error: TypeError) -> int:
    """The number of frames an error came through."""
    trace, count = error.__traceback__, 0
    while trace is not None:
        trace, count = trace.tb_next, count + 1
    return count


def _not_a_tensor(name: str, x: object) -> ArgumentError:
    return ArgumentError(
        name, f"takes tensors, got {type(x).__name__}", hint="make it one with weft.tensor(...)"
    )


def _misfit(function: Callable[..., Any], message: str, kwargs: dict[str, Any]) -> ArgumentError:
    from difflib import get_close_matches

    positional, keywords, rest = parameters(function)
    known = tuple(name for name in (*positional, *keywords) if name != "self")
    name = function.__name__
    for key in kwargs:
        if key not in known:
            meant = _RENAMED.get(key, key)
            close = [meant] if meant in known else get_close_matches(key, known, 1)
            takes = ", ".join((*known, f"*{rest}") if rest else known)
            hint = f"did you mean {close[0]}=?" if close else f"it takes {takes}"
            return ArgumentError(name, f"unknown keyword {key!r}", hint=hint)
    return ArgumentError(name, message.partition("() ")[2] or message)
