"""Positions of a loop that are told apart, and what they may refer to: see ``references``."""

from __future__ import annotations

from typing import Any

from weft.base.records import NamedTuple
from weft.capture.runtime.refs import Outer


class Cell(NamedTuple):
    """A candidate: the tensor that a position got in an earlier turn."""

    position: int


class Taken(NamedTuple):
    """A candidate: the view of a position by its steps of this number."""

    position: int
    number: int


Candidate = Outer | Cell | Taken


class Steps(NamedTuple):
    """How a position may be a view: steps with holes, types of the numbers in these, the hidden position."""

    steps: Any
    types: tuple[Any, ...]
    base: int


class Position:
    """A position that is told apart.

    Attributes:
        candidates: what it may refer to; the first is what it refers to before the loop.
        views: how it may be a view.
        type: of a hidden one, that of its tensor.
    """

    def __init__(self, candidates: list[Candidate], type: Any = None) -> None:
        self.candidates = candidates
        self.views: list[Steps] = []
        self.type = type

    def has_code(self) -> bool:
        """Whether it carries a number."""
        return len(self.candidates) > 1
