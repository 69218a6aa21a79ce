"""Steps of a program with one weight, run eagerly, with the forward compiled, or compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft

T = weft.tensor
Step = Callable[[Any, Any, Any], Any]
CALLS = [(1.0, 2.0), (-1.0, 2.0), (1.0, 0.5), (-2.0, 3.0)]


def run_steps(step: Step, compiled: str) -> list[Any]:
    """The results, the weight and its gradient after each of several calls."""
    w = T(2.0, requires_grad=True)

    def whole(c: Any, x: Any) -> Any:
        y = step(w, c, x)
        (y + w).backward()
        return y.detach()

    inner = weft.compile(step) if compiled == "forward" else step

    def outside(c: Any, x: Any) -> Any:
        y = inner(w, c, x)
        (y + w).backward()
        return y.detach()

    run = weft.compile(whole) if compiled == "step" else outside
    found = []
    for c, x in CALLS:
        y = run(T(c), T(x))
        found += [y.item(), w.item(), None if w.grad is None else w.grad.item()]
    return found
