"""Levels keep nested transforms apart.

Each running ``jvp`` or ``vmap`` has a level, a number higher than that of every transform around it. Data
that stands for an array inside it carries that level, and an op is handled by the highest level among its
inputs; the rest are constants to it. This is what keeps the derivative of an inner transform from being
mistaken for that of an outer one. A number is never used twice, so data that got out is noticed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from weft.errors import GradientError, WeftError
from weft.tensor.mode import running_levels

_numbers = itertools.count(1)


@contextmanager
def new_level() -> Iterator[int]:
    """A level above all that are running."""
    level = next(_numbers)
    running_levels.add(level)
    try:
        yield level
    finally:
        running_levels.discard(level)


class Traced:
    """Data that stands for an array inside a transform. NumPy must not touch it: its ufuncs refuse it."""

    __slots__ = ("level",)

    __array_ufunc__ = None
    place = "a transform"
    level: int

    def has_ended(self) -> bool:
        """Whether the transform this belongs to is not running any more."""
        return self.level not in running_levels

    def escaped(self, op: str) -> WeftError:
        """The error to raise where the transform this belongs to is not running any more."""
        message = f"tensors of a {self.place} must not be used after it ended, got one that escaped"
        hint = f"return it from the function that {self.place} runs, instead of storing it outside"
        return GradientError(op, message, hint=hint)
