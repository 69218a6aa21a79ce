"""What cannot be a part of a branch or loop of the graph, though Python could do it.

Where a capture can ask for the truth that decides, Python then runs the statement, which leaves a guard.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from weft.errors import CaptureError
from weft.transform.frozen import Again

E = TypeVar("E", bound=type[CaptureError])


def shown_as_capture_error(kind: E) -> E:
    """A class of errors that users see as the one that they know: it matters inside of a capture alone."""
    kind.__name__ = kind.__qualname__ = CaptureError.__name__
    kind.__module__ = CaptureError.__module__
    return kind


@shown_as_capture_error
class Unstaged(CaptureError):  # noqa: N818 - says that another way must be taken
    """The error where nobody can ask."""

    def __reduce__(self) -> Any:
        return CaptureError, *super().__reduce__()[1:]  # as users know it, elsewhere too


@shown_as_capture_error
class Unsettled(Unstaged):
    """The error of a variable that is no value on one way: a later turn of a loop may leave one on both."""


def gives_leaf() -> Unstaged:
    """The error of a branch or loop that gives a leaf which it makes: after it that would be none."""
    return Unstaged(
        "requires_grad_",
        "a branch or loop of a graph must not give a leaf that it makes, or what hangs on one",
        hint="make the leaf before it, or detach() what leaves it",
    )


class Decide(Again):
    """The capture must begin again, and let Python decide statements, by their lines.

    Attributes:
        locations: of the statements.
        error: what is wrong where nobody can ask.
    """

    def __init__(self, locations: Collection[tuple[str, int]], error: Unstaged) -> None:
        super().__init__(locations)
        self.locations = locations
        self.error = error
