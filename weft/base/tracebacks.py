"""Tracebacks without weft's own lines: what a user sees are the lines of the user's program.

A call that leaves weft takes weft's lines off the errors that pass through it. ``set_full_tracebacks`` keeps
them, for those who work on weft.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from weft.base.frames import PACKAGE
from weft.config import settings
from weft.errors import WeftError

F = TypeVar("F", bound=Callable[..., Any])

_RUNTIME = os.path.join(PACKAGE, "capture", "runtime")
_GENERATED = "<weft "  # how the names of files begin that weft generates


def set_full_tracebacks(enabled: bool) -> bool:
    """Show weft's own lines in tracebacks, or hide them; gives what the setting was before.

    The environment variable ``WEFT_FULL_TRACEBACKS=1`` does the same from the start.

    >>> import weft
    >>> before = weft.set_full_tracebacks(True)
    >>> weft.set_full_tracebacks(before)
    True
    """
    before = settings.full_tracebacks
    settings.full_tracebacks = bool(enabled)
    return before


def edge(function: F) -> F:
    """Mark a function that users call: errors that leave it have no lines of weft in their tracebacks.

    >>> import weft
    >>> from weft.base.tracebacks import edge
    >>> edge(weft.ones)(2)
    tensor([1., 1.])
    """

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            hide_weft(error)
            raise

    return call  # type: ignore[return-value]


def hide_weft(error: BaseException) -> None:
    """Take weft's lines off the traceback of an error; a bare ``raise`` then passes it on without its own.

    An error that comes from a line of weft is a mistake of weft, and is shown in full, unless it is one of
    weft's errors or of the system's (a file that is not there), or weft ran a statement of the user.

    >>> import weft
    >>> from weft.base.tracebacks import hide_weft
    >>> try:
    ...     weft.nn.Linear(2, 3)(weft.ones(4))
    ... except weft.errors.ShapeError as error:
    ...     hide_weft(error)
    ...     error.__traceback__.tb_next is None
    True
    """
    if settings.full_tracebacks:
        return
    for each in _chain(error):
        _strip(each)
    _keep_users_context(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that are given as its causes."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _strip(error: BaseException) -> None:
    entries = list(_entries(error.__traceback__))
    own = [entry for entry in entries if not _is_weft(entry)]
    expected = isinstance(error, WeftError | OSError) or not entries or not _is_weft(entries[-1])
    if not (expected or _runs_statements(entries[-1])):
        return
    trace: TracebackType | None = None
    for entry in reversed(own):
        trace = TracebackType(trace, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = trace


def _keep_users_context(error: BaseException) -> None:
    """Show, as what an error came from, not errors that weft met on the way but one that the user handled."""
    context = error.__context__
    while context is not None and _is_met_by_weft(context):
        context = context.__context__
    if error.__cause__ is None and context is not error.__context__:
        suppressed = context is None
        error.__context__, error.__suppress_context__ = context, suppressed


def _is_met_by_weft(error: BaseException) -> bool:
    """Whether it was weft that handled an error: the frame that does is the first in its traceback."""
    return error.__traceback__ is not None and _is_weft(error.__traceback__)


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _runs_statements(entry: TracebackType) -> bool:
    """Whether a line of weft does what a statement of the user says, such as ``items[key]``."""
    return entry.tb_frame.f_code.co_filename.startswith(_RUNTIME)


def _is_weft(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith((PACKAGE, _GENERATED))
