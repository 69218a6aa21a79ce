"""Statements that Python runs, by the values that it asks for, as they cannot be a part of the graph.

Outside of branches and loops of the graph a compiled function may look at the truth value of an ``if``, which
leaves a guard: each way is a version of its own.
"""

from __future__ import annotations

from typing import Any

from weft.errors import GradientError, WeftError
from weft.tensor.mode import thread
from weft.transform.staging import Decide, Unstaged

REFUSED = (Unstaged, GradientError)  # what Python may not meet: it goes one way, and turn by turn


def by_value(predicate: Any, error: WeftError) -> bool:
    """What a truth value is in the call that is captured; the error where nobody can ask for it."""
    if thread.capture.region:
        raise error
    try:
        return bool(predicate)
    except Exception:
        raise error from None


def count_by_value(length: Any, error: WeftError) -> int:
    """How many turns a loop has in the call that is captured; likewise."""
    if thread.capture.region:
        raise error
    try:
        return int(length)
    except Exception:
        raise error from None


def can_begin_again() -> bool:
    """Whether the running capture can begin again to let Python decide a statement."""
    capture = thread.capture
    return capture is not None and capture.root.decided is not None and capture.root.examples is not None


def decide(location: tuple[str, int] | None, error: Unstaged) -> Exception | Decide:
    """What is raised where Python must decide a statement that is a part of the graph."""
    if location is None or not can_begin_again() or location in thread.capture.root.decided:
        return error
    return Decide(location, error)


def check_decided(location: tuple[str, int] | None) -> None:
    """Raise if Python must decide a statement."""
    decided = thread.capture.root.decided
    if decided and location in decided:
        raise decided[location]
