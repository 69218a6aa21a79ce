"""The edge between users and functions: a call that does not fit the signature is an ArgumentError."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from weft.errors import ArgumentError, WeftError

F = TypeVar("F", bound=Callable[..., Any])

_VARARGS = 0x04  # inspect.CO_VARARGS, without the cost of importing inspect
_RENAMED = {
    "dim": "axis",
    "keepdim": "keepdims",
    "input": "x",
    "dims": "axis",
    "dim0": "axis1",
    "dim1": "axis1",
    "dim2": "axis2",
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

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            wrong = _wrong_call(plain, error, args, kwargs)
            if wrong is None:  # from inside the function, or of a function of the user that it called
                _hide_weft(error)
                raise
        try:
            raise wrong
        except WeftError:
            _hide_weft(wrong)
            raise

    return call  # type: ignore[return-value]


def _hide_weft(error: BaseException) -> None:
    from weft.base.tracebacks import hide_weft

    hide_weft(error)


def _wrong_call(
    plain: Callable[..., Any], error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ArgumentError | None:
    """The error of a call that does not fit a function; None if the error is about something else."""
    if isinstance(error, WeftError) or not isinstance(error, TypeError | AttributeError):
        return None
    if isinstance(error, TypeError):
        return None if _entered(plain, error) else _misfit(plain, str(error), kwargs)
    if any(error.obj is x for x in args) and type(error.obj).__module__ == "builtins":
        return _not_a_tensor(plain.__name__, error.obj)
    return None


def _entered(plain: Callable[..., Any], error: TypeError) -> bool:
    """Whether an error is from inside a function: Python names it in an error of the call itself."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is plain.__code__:
            return True
        trace = trace.tb_next
    return not str(error).startswith(f"{plain.__qualname__}() ")


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
