"""The edge between users and functions: a call that does not fit the signature is an ArgumentError."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from weft.base.spelling import DIALECT, KEY_FIRST, NAMES, in_dialect, is_spoken, respelled
from weft.errors import ArgumentError, WeftError

F = TypeVar("F", bound=Callable[..., Any])

_apart = DIALECT.isdisjoint
_NUMBERS = (int, float, complex)
_VARARGS = 0x04  # inspect.CO_VARARGS, without the cost of importing inspect


def parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Names of a function's positional parameters, its keyword-only ones, and its ``*rest`` or ""."""
    if isinstance(function, type):
        positional, only, rest = parameters(function.__init__)  # type: ignore[misc]
        return positional[1:], only, rest
    code = function.__code__
    count, keywords = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    takes_rest = bool(code.co_flags & _VARARGS)
    return names[:count], names[count : count + keywords], names[count + keywords] if takes_rest else ""


def public(function: F) -> F:
    """Mark a function as public: unknown keywords and missing arguments are reported in weft's form."""
    plain = getattr(function, "__wrapped__", function)
    has_dialects = is_spoken(plain, parameters(plain))

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        if kwargs and has_dialects and not _apart(kwargs):
            told, args, kwargs = _respelled(plain, function, args, kwargs)
            if told is not function:
                return told(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            other = _fitted(plain, error, args, kwargs)
            wrong = None if other else _wrong_call(plain, error, args, kwargs)
            if other is None and wrong is None:  # from inside the function, or of one of the user it called
                _hide_weft(error)
                raise
        if wrong is None:
            return call(*other[0], **other[1])  # type: ignore[index]
        try:
            raise wrong
        except WeftError:
            _hide_weft(wrong)
            raise

    return call  # type: ignore[return-value]


def _respelled(
    plain: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A call in another dialect: the function that it means, and its arguments by the names it takes."""
    other = in_dialect(plain, kwargs)
    if other is not None:
        return other, args, kwargs
    told = respelled(plain.__name__, parameters(plain), args, kwargs)
    return function, *(told or (args, kwargs))


def _fitted(
    plain: Callable[..., Any], error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """A call that did not fit, as it fits in the words of this function; None if it does not so either."""
    if not kwargs or type(error) is not TypeError or _entered(plain, error):
        return None
    return respelled(plain.__name__, parameters(plain), args, kwargs)


def _hide_weft(error: BaseException) -> None:
    from weft.base.tracebacks import hide_weft

    hide_weft(error)


def _wrong_call(
    plain: Callable[..., Any], error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ArgumentError | None:
    """The error of a call that does not fit a function; None if the error is about something else."""
    if isinstance(error, WeftError) or not isinstance(error, TypeError | AttributeError | KeyError):
        return None
    if isinstance(error, TypeError) and not _entered(plain, error):
        return _misfit(plain, str(error), kwargs)
    at_fault = getattr(error, "obj", None)  # of an AttributeError
    if at_fault is not None and type(at_fault).__module__ == "builtins" and any(at_fault is x for x in args):
        return _not_a_tensor(plain.__name__, at_fault)
    return _not_tensors(plain, args)


def _not_tensors(plain: Callable[..., Any], args: tuple[Any, ...]) -> ArgumentError | None:
    """The error of an argument that is no tensor, array or number where a tensor is taken, if one is."""
    positional, _, rest = parameters(plain)
    declared = plain.__annotations__
    for i, x in enumerate(args):
        what = declared.get(positional[i] if i < len(positional) else rest)
        if what in ("Tensor", "Operand") and not (hasattr(x, "dtype") or isinstance(x, _NUMBERS)):
            return _not_a_tensor(plain.__name__, x)
        if what == "Sequence[Tensor]" and not hasattr(x, "__iter__"):
            return ArgumentError(plain.__name__, f"takes a sequence of tensors, got {type(x).__name__}")
    return None


def _entered(plain: Callable[..., Any], error: TypeError) -> bool:
    """Whether an error is from inside a function: Python names it in an error of the call itself."""
    called: Any = getattr(plain, "__init__") if isinstance(plain, type) else plain  # noqa: B009
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is called.__code__:
            return True
        trace = trace.tb_next
    return not str(error).startswith(f"{called.__qualname__}() ")


def _not_a_tensor(name: str, x: object) -> ArgumentError:
    return ArgumentError(
        name, f"takes tensors, got {type(x).__name__}", hint="make it one with weft.tensor(...)"
    )


def misfit(
    function: Callable[..., Any], error: Exception, kwargs: dict[str, Any], name: str
) -> ArgumentError | None:
    """The error of a call of a method that does not fit it; None if the error came from inside."""
    if type(error) is not TypeError or not hasattr(function, "__code__") or _entered(function, error):
        return None
    return _misfit(function, str(error), kwargs, name)


def needs_arguments(method: Callable[..., Any]) -> bool:
    """Whether a method cannot be called with nothing."""
    function: Any = getattr(method, "__func__", None)
    if not hasattr(function, "__code__"):
        return False
    needed = len(parameters(function)[0]) - len(function.__defaults__ or ())
    return needed > 1  # one is the object itself


def name_constructor(cls: type) -> None:
    """Let errors of calls of a class that do not fit name the class, and say what it takes.

    >>> from weft.base.public import name_constructor
    >>> class _Base:
    ...     def __init__(self, size, bias=True): ...
    >>> class Layer(_Base): ...
    >>> name_constructor(Layer)
    >>> try:
    ...     Layer(3, biass=False)
    ... except TypeError as error:
    ...     print(error.message, "|", error.hint)
    unknown keyword 'biass' | did you mean bias=? It takes size, bias
    """
    own: Any = cls.__init__  # type: ignore[misc]
    plain = getattr(own, "__wrapped__", own)
    if not hasattr(plain, "__code__"):
        return

    @functools.wraps(own)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            own(self, *args, **kwargs)
            return
        except Exception as error:
            wrong = misfit(plain, error, kwargs, cls.__name__)
            if wrong is None:
                _hide_weft(error)
                raise
        try:
            raise wrong
        except WeftError:
            _hide_weft(wrong)
            raise

    cls.__init__ = construct  # type: ignore[misc]


def name_methods(cls: type, hints: Mapping[str, str] = {}) -> None:
    """Let errors of calls of methods that do not fit be weft's, with hints by keywords of other libraries.

    >>> from weft.base.public import name_methods
    >>> class Rows:
    ...     def batch(self, size, last="keep"): ...
    >>> name_methods(Rows, {"drop": 'use last="drop"'})
    >>> try:
    ...     Rows().batch(3, drop=True)
    ... except TypeError as error:
    ...     print(error.message, "|", error.hint)
    unknown keyword 'drop' | use last="drop"
    """
    for name, own in list(vars(cls).items()):
        if not name.startswith("_") and hasattr(own, "__code__"):
            setattr(cls, name, _named_method(own, hints))


def _named_method(own: F, hints: Mapping[str, str]) -> F:
    @functools.wraps(own)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return own(self, *args, **kwargs)
        except Exception as error:
            wrong = misfit(own, error, kwargs, own.__name__)
            if wrong is None:
                _hide_weft(error)
                raise
            known = parameters(own)
            told = [hints[key] for key in kwargs if key in hints and key not in (*known[0], *known[1])]
        try:
            raise ArgumentError(wrong.op, wrong.message, hint=told[0]) if told else wrong
        except WeftError as error:
            _hide_weft(error)
            raise

    return call  # type: ignore[return-value]


def _instead(name: str, told: str, positional: tuple[str, ...], keywords: tuple[str, ...]) -> str | None:
    """What a call with too few or too many arguments by position may have meant."""
    if positional[:1] == ("key",):
        return KEY_FIRST
    if not _TOO_MANY.match(told):
        return None
    if positional[:1] == ("arrays",):
        return f"tensors are given as one list: {name}([x, y])"
    return f"by name it takes {', '.join(keywords)}" if keywords else None


_TOO_MANY = re.compile(r"takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) w")


def _misfit(
    function: Callable[..., Any], message: str, kwargs: dict[str, Any], cls: str = ""
) -> ArgumentError:
    """The error of a call that does not fit a function, or the constructor of a class."""
    from difflib import get_close_matches

    from weft.base.elsewhere import KEYWORDS

    positional, keywords, rest = parameters(function)
    known = tuple(name for name in (*positional, *keywords) if name != "self")
    name = cls or function.__name__
    for key in kwargs:
        if key not in known:
            close = [n for n in NAMES.get(key, ()) if n in known] or get_close_matches(key, known, 1)
            takes = ", ".join((*known, f"*{rest}") if rest else known)
            hint = f"did you mean {close[0]}=?" if close else f"it takes {takes or 'nothing'}"
            hint = KEYWORDS.get(f"{name}.{key}") or KEYWORDS.get(key, hint)
            if close and cls and key not in KEYWORDS:
                hint += f" It takes {takes}"
            return ArgumentError(name, f"unknown keyword {key!r}", hint=hint)
    told = message.partition("() ")[2] or message
    if not cls:
        return ArgumentError(name, told, hint=_instead(name, told, positional, keywords))
    if many := _TOO_MANY.match(told):  # Python counts the object itself
        told = f"takes at most {int(many[1]) - 1} arguments by position, got {int(many[2]) - 1}"
    return ArgumentError(name, told, hint=f"it takes {', '.join(known) or 'nothing'}")
