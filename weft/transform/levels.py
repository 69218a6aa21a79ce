"""Levels keep nested transforms apart.

Each running ``jvp`` or ``vmap`` has a level. Data that stands for an array inside it carries that level,
and an op is handled by the highest level among its inputs; the rest are constants to it. This is what
keeps the derivative of an inner transform from being mistaken for that of an outer one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.tensor.tensor import Tensor


class _Thread(threading.local):
    depth = 0


_thread = _Thread()


@contextmanager
def new_level() -> Iterator[int]:
    """A level above all that are running in this thread."""
    _thread.depth += 1
    try:
        yield _thread.depth
    finally:
        _thread.depth -= 1


class Traced:
    """Data that stands for an array inside a transform. NumPy must not touch it: its ufuncs refuse it."""

    __slots__ = ("level",)

    __array_ufunc__ = None
    place = "a transform"
    level: int

    def part_at(self, tensor: Tensor) -> Any:
        """The data of tensor if it belongs to the same transform as self, else None."""
        data = tensor._data
        return data if type(data) is type(self) and data.level == self.level else None
