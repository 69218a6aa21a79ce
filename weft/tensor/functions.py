"""The public functions that are ops as they stand; ``published`` makes them, the stub here lists them."""

from __future__ import annotations

from weft.tensor.published import FUNCTIONS, Function

globals().update(FUNCTIONS)


def __getattr__(name: str) -> Function:
    """The function of an op that was declared since."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
