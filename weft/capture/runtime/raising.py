"""Exceptions in captured code: one that a tensor decides about is raised by the run, as an ``assert`` is.

In a branch or loop that is being put into a graph nobody knows yet whether a ``raise`` is reached. What the
user's code does with the exception inside the branch happens as in Python. If it leaves the branch, this ends
there: the graph gets a node that raises, and what follows the ``if`` follows the other way.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any

from weft.base.frames import format_location, user_location
from weft.base.sizes import is_known
from weft.capture.runtime.failing import Handled
from weft.capture.runtime.handling import is_handled
from weft.capture.runtime.number import number_of
from weft.capture.runtime.text import looked_at, text_attributes
from weft.errors import CaptureError, GradientError, WeftError
from weft.ops.effects import check, register_error
from weft.tensor.mode import thread
from weft.transform.frozen import Again
from weft.transform.staging import Unstaged

Kinds = tuple[type[BaseException], ...]


def raised(error: Any) -> Any:
    """What ``raise error`` raises.

    >>> from weft.capture.runtime.raising import raised
    >>> raised(KeyError)
    <class 'KeyError'>
    """
    capture = thread.capture
    if capture is None or isinstance(error, CaptureError):
        return error
    if not capture.region:
        if isinstance(error, BaseException):
            error.args = tuple(looked_at(x) for x in error.args)
        return error
    if isinstance(error, type) and issubclass(error, BaseException):
        error = error()
    capture.root.notes.raised.append((error, user_location(2)))
    return error


def ends_way(error: Exception) -> bool:
    """Whether an exception was raised by code in the running region, which then ends: the run raises it."""
    found = [where for known, where in thread.capture.root.notes.raised if known is error]
    if not found or isinstance(error, CaptureError):
        return False
    if is_handled((type(error),)):
        raise Handled("raise", (type(error),), found[-1])
    text = error.args[0] if len(error.args) == 1 and isinstance(error.args[0], str) else str(error)
    operands, attrs = text_attributes(text)
    where = "" if found[-1] is None else format_location(found[-1])
    given = (register_error(type(error)), where, bool(error.args))
    check.on_tensors(number_of(False).tensor, *[t.detach() for t in operands], error=given, **attrs)
    return True


_SIZES = "sizes must be known where errors are handled, which may hang on them, got open ones"


@contextmanager
def trying(kinds: Callable[[], Any]) -> Iterator[None]:
    """While code runs whose exceptions of some classes are handled."""
    capture = thread.capture
    if capture is None:
        yield
        return
    if capture.root.opens_sizes:
        raise CaptureError("try", _SIZES, hint="handle errors where the function is called")
    known = capture.root.notes.handlers
    known.append(kinds)
    try:
        yield
    except WeftError as error:
        if isinstance(error, CaptureError):
            raise
        if capture.region:  # one turn or way stands for all, whose sizes may be others
            raise Unstaged("try", f"{_SIZES}, and {error}") from error
        if not all(map(_is_known, (*capture.root.inputs, *[v for n in capture.nodes for v in n.outputs]))):
            raise CaptureError("try", f"{_SIZES}, and {error}") from error
        raise
    finally:
        known.pop()


def _is_known(value: Any) -> bool:
    return is_known(value.type.shape)


def may_handle(exit: Any) -> bool:
    """Whether a method ``__exit__`` may say that an exception is handled: it returns more than None."""
    code = getattr(exit, "__code__", None)
    return code is None or _returns_something(code)


@lru_cache(maxsize=256)
def _returns_something(code: CodeType) -> bool:
    before: Any = None
    for step in dis.get_instructions(code):
        if step.opname == "RETURN_VALUE" and not _is_nothing(before):
            return True
        if step.opname == "RETURN_CONST" and step.argval:
            return True
        before = step
    return False


def _is_nothing(step: Any) -> bool:
    return step is not None and step.opname == "LOAD_CONST" and not step.argval


def unfinished() -> tuple[type[BaseException], ...]:
    """The exceptions that pass the handlers of captured code: what says that a capture must go another way.

    A handler for ``Exception`` in the user's code would take them for errors of the program. In a branch or
    loop of the graph that a gradient is not there may be because of the other way.

    >>> from weft.capture.runtime.raising import unfinished
    >>> unfinished()
    ()
    """
    capture = thread.capture
    if capture is None:
        return ()
    return (CaptureError, Again, GradientError) if capture.region else (CaptureError, Again)
