"""The public functions that are ops as they stand; ``published`` makes them, the stub here lists them."""

from __future__ import annotations

from typing import Any

from weft.tensor.published import FUNCTIONS

globals().update(FUNCTIONS)


def __getattr__(name: str) -> Any:
    """The function of an op that was declared since."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
