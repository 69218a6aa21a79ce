"""Tracebacks of errors in captured code: the lines of the user, without those of weft around them."""

from __future__ import annotations

from types import TracebackType

from weft.errors import PACKAGE, WeftError


def at_user(error: Exception) -> Exception:
    """An error that leaves captured code, with the lines of the user alone in its traceback.

    An error that is not weft's and comes from a line of weft is a mistake of weft: it is shown in full.
    """
    entries = _entries(error.__traceback__)
    own = [e for e in entries[1:] if not e.tb_frame.f_code.co_filename.startswith(PACKAGE)]
    if not own or (own[-1] is not entries[-1] and not isinstance(error, WeftError)):
        return error
    trace: TracebackType | None = None
    for e in reversed(own):
        trace = TracebackType(trace, e.tb_frame, e.tb_lasti, e.tb_lineno)
    return error.with_traceback(trace)


def _entries(trace: TracebackType | None) -> list[TracebackType]:
    out = []
    while trace is not None:
        out.append(trace)
        trace = trace.tb_next
    return out
