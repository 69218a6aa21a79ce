"""Statements that Python runs, by the values that it asks for, as they cannot be a part of the graph.

Outside of branches and loops of the graph a compiled function may look at the truth value of an ``if``, which
leaves a guard: each way is a version of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.capture.runtime.handling import is_handled
from weft.errors import CaptureError
from weft.tensor.mode import thread
from weft.transform.staging import Decide, Unstaged


def may_decide(error: Exception) -> bool:
    """Whether Python may not meet an exception of captured code: it goes one way, and turn by turn.

    One that the code itself raises is such: a run may not come to where it does.
    """
    return isinstance(error, Unstaged) or not isinstance(error, CaptureError)


def by_value(predicate: Any, error: Exception) -> bool:
    """What a truth value is in the call that is captured; the error where nobody can ask for it."""
    if thread.capture.region:
        raise _undecided(error)
    try:
        return bool(predicate)
    except Exception:
        raise _undecided(error) from None


def count_by_value(length: Any, error: Exception) -> int:
    """How many turns a loop has in the call that is captured; likewise."""
    if thread.capture.region:
        raise _undecided(error)
    try:
        return int(length)
    except Exception:
        raise _undecided(error) from None


def _undecided(error: Exception) -> Exception:
    """An error where nobody can ask whether a run comes to it: no handler of the code may take it."""
    if isinstance(error, CaptureError) or not is_handled((type(error),)):
        return error
    told = f"{type(error).__name__}: {error}"
    what = f"must not fail where only the run tells whether it comes there, got {told}"
    found = Unstaged("try", what, hint="handle the error where the function is called, or choose by `if`")
    found.__cause__ = error
    return found


def can_begin_again() -> bool:
    """Whether the running capture can begin again to let Python decide a statement."""
    capture = thread.capture
    return capture is not None and capture.root.decided is not None and capture.root.examples is not None


def decide(location: tuple[str, int] | None, error: Unstaged) -> Exception | Decide:
    """What is raised where Python must decide a statement that is a part of the graph."""
    if location is None or not can_begin_again() or location in thread.capture.root.decided:
        return error
    return Decide([location], error)


@contextmanager
def nested(location: tuple[str, int] | None) -> Iterator[None]:
    """While the branches of a statement are captured; raises if Python must decide it, or those around it.

    Very many, one in another, as those of a long chain of ``elif``, would be too deep for Python's stack.
    """
    check_decided(location)
    nesting = thread.capture.root.notes.nesting
    if len(nesting) >= _MOST_NESTED and can_begin_again() and _depth() == len(nesting):
        message = f"branches must be at most {_MOST_NESTED} deep in each other in captured code, got more"
        error = Unstaged("if", message, hint="take what differs from a tensor or a list, by an index")
        raise Decide({x for x in nesting if x is not None}, error)
    nesting.append(location)
    try:
        yield
    finally:
        nesting.pop()


_MOST_NESTED = 40


def _depth() -> int:
    """How many regions are around: more than statements that Python could decide, if loops are among them."""
    capture, depth = thread.capture, 0
    while capture.parent is not None:
        capture, depth = capture.parent, depth + 1
    return depth


def check_decided(location: tuple[str, int] | None) -> None:
    """Raise if Python must decide a statement."""
    decided = thread.capture.root.decided
    if decided and location in decided:
        raise decided[location]
