"""One program in eager code and compiled, call by call: what each gives, raises, prints and changes."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import weft


def told(x: Any) -> Any:
    """All that can be seen of a value: of tensors also their place in the graph, and their gradients."""
    if isinstance(x, weft.Tensor):
        seen = "tensor", x.dtype.name, x.tolist(), x.requires_grad, x.is_leaf
        return seen if x.is_leaf and x.grad is None else (*seen, told(x.grad) if x.is_leaf else None)
    if isinstance(x, dict):
        return {k: told(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return type(x)(told(v) for v in x)
    return (type(x).__name__, x) if x is None or isinstance(x, int | float | str) else type(x).__name__


def what_happens(call: Callable[[], Any], outside: Any = None) -> Any:
    """What a call gives or raises, by the builtin class, what it prints, and what is outside after it."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            out = told(call())
        except Exception as error:
            out = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    return out, said.getvalue(), told(outside)


def check(
    make: Callable[[], Any], *calls: Sequence[Any], backends: Sequence[str] = ("interpret", "llvm")
) -> None:
    """Compare a program compiled with itself, in worlds of their own, over several calls.

    Args:
        make: gives the program, or it and what it may change outside.
        calls: the arguments of each call; the program is compiled once beginning with each of them.
        backends: that it is compiled for.
    """
    for backend in backends:
        for first in range(len(calls)):
            order = [*calls[first:], *calls]
            eager, ours = make(), make()
            f, state = eager if isinstance(eager, tuple) else (eager, None)
            g, other = ours if isinstance(ours, tuple) else (ours, None)
            g = weft.compile(g, backend=backend)
            for k, given in enumerate(order):
                expected = what_happens(lambda: f(*map(weft.tensor, given)), state)  # noqa: B023
                found = what_happens(lambda: g(*map(weft.tensor, given)), other)  # noqa: B023
                assert found == expected, f"call {k}, of {given}, {backend}"
