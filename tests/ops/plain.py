"""What the oracles of several areas share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Oracle = Callable[..., Any]


def enter_into(table: dict[str, Oracle]) -> Callable[[Oracle], Oracle]:
    """A decorator that enters a function under its own name."""

    def enter(function: Oracle) -> Oracle:
        table[function.__name__] = function
        return function

    return enter


def each(value: Any, rank: int) -> tuple[Any, ...]:
    """One value for each axis, from one value or a sequence of them."""
    return tuple(value) if isinstance(value, tuple | list) else (value,) * rank
