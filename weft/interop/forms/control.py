"""Loops whose bodies are graphs of lists: carried values first, then rows or what is collected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft

Body = Callable[[Sequence[Any]], Sequence[Any]]


def scanned(
    body: Body, init: Sequence[Any], xs: Sequence[Any], *, length: Any = None, reverse: bool = False
) -> list[Any]:
    """A loop along the first axis of xs: the last carried values, then what the rows gave, stacked."""
    count = len(init)

    def step(carry: Sequence[Any], row: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        out = body([*carry, *row])
        return tuple(out[:count]), tuple(out[count:])

    carry, ys = weft.scan(step, tuple(init), tuple(xs), length=length, reverse=reverse)
    return [*carry, *ys]


def repeated(test: Body, body: Body, init: Sequence[Any]) -> list[Any]:
    """A loop that goes on while a test holds: the last carried values."""
    return list(weft.while_loop(lambda state: test(state)[0], lambda state: tuple(body(state)), tuple(init)))
