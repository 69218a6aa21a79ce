"""Loops whose bodies are graphs of lists, and recurrent layers: one loop along time for each direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.tensor.tensor import Tensor

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


# Recurrent layers

State = tuple[Tensor, ...]
Step = Callable[
    [Tensor, State], State
]  # from what x adds and the state to the next, whose first is the output


def steps_along(
    step: Step, state: State, xs: Tensor, *, backwards: bool = False, mask: Tensor | None = None
) -> tuple[State, Tensor]:
    """The last state, and the outputs of all steps.

    Sequences that a mask says have ended keep their state, and give zeros.
    """

    def plain(state: State, x: Tensor) -> tuple[State, Tensor]:
        new = step(x, state)
        return new, new[0]

    def masked(state: State, row: tuple[Tensor, Tensor]) -> tuple[State, Tensor]:
        x, inside = row
        new = tuple(weft.where(inside, n, o) for n, o in zip(step(x, state), state, strict=True))
        return new, weft.where(inside, new[0], 0.0)

    if mask is None:
        return weft.scan(plain, state, xs, reverse=backwards)
    return weft.scan(masked, state, (xs, mask), reverse=backwards)


def product(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Any]:
    """The product with a weight, and a bias if there is one."""
    return lambda x: weft.linear(x, weight, bias)
