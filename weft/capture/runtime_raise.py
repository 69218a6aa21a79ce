"""Exceptions in captured code: one that a tensor decides about cannot be raised during the capture."""

from __future__ import annotations

from typing import Any

from weft.capture.runtime_text import resolve_text
from weft.errors import CaptureError
from weft.tensor.mode import thread


def raised(error: Any) -> Any:
    """What ``raise error`` raises.

    In a branch or loop that is being put into a graph nobody knows yet whether the line is reached. Raising
    there would end the capture, or run a handler of the user, for runs that never get to it.

    >>> from weft.capture.runtime_raise import raised
    >>> raised(KeyError)
    <class 'KeyError'>
    """
    capture = thread.capture
    if capture is None or isinstance(error, CaptureError):
        return error
    if not capture.region:
        if isinstance(error, BaseException):
            error.args = tuple(resolve_text(x) if type(x) is str else x for x in error.args)
        return error
    what = error.__name__ if isinstance(error, type) else f"{type(error).__name__}({error})"
    return CaptureError(
        "raise",
        f"must not depend on a tensor in captured code, got {what} in a branch or loop that one decides",
        hint="write `assert condition, message`, which each run checks",
    )


def unfinished() -> tuple[type[BaseException], ...]:
    """The exceptions that pass the handlers of captured code: what says that a capture must go another way.

    A handler for ``Exception`` in the user's code would take them for errors of the program.

    >>> from weft.capture.runtime_raise import unfinished
    >>> unfinished()
    ()
    """
    return () if thread.capture is None else (CaptureError,)
