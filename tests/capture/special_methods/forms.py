"""The table of forms in which Python calls methods by itself, and what the classes of all of them count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft

Form = Callable[[Any, Any], Any]
FORMS: dict[str, tuple[type, Form]] = {}


def form(kind: type) -> Callable[[Form], Form]:
    def enter(function: Form) -> Form:
        FORMS[function.__name__] = (kind, function)
        return function

    return enter


class Counts:
    """Counts the calls of its methods in a tensor; after the second call it decides by that."""

    n: Any

    def __init__(self) -> None:
        object.__setattr__(self, "n", weft.tensor(0.0))

    def note(self, amount: Any = 1.0) -> None:
        n = self.n + amount
        if n > 2.5:
            n = n * 2.0
        object.__setattr__(self, "n", n)
