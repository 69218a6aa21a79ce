"""Programs on one thread and on two."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import weft

T = TypeVar("T")


def on_threads(run: Callable[[], T]) -> tuple[T, T]:
    """What a function gives on one thread, and on two."""
    before = weft.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            weft.set_num_threads(count)
            found.append(run())
    finally:
        weft.set_num_threads(before)
    return found[0], found[1]
