"""The guard: stops a run whose values go another way than those that the graph was traced with.

A trace asked for a value (``if x.sum() > 0``, ``int(n)``, ``x.tolist()``), so its graph holds only where that
answer is the same. What is compared is what Python asked for: the truth, the whole number, or the elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import TraceGuardError
from weft.ir.types import TensorType
from weft.ops.families import primitive
from weft.ops.op import Array, Number, no_gradient

_SHOWN = 64  # characters of a value in a message


def _type(x: TensorType, expected: TensorType, *, asked: str) -> tuple[TensorType, ...]:
    return ()


def _guard(x: Array, expected: Array, *, asked: str) -> tuple[Array, ...]:
    was, now = _answer(expected, asked), _answer(x, asked)
    if not (_same_array(was, now) if asked == "value" else was == now):
        error = TraceGuardError(
            "trace",
            f"a call must go the way that was traced, where {_WORDS[asked]} was {_text(was)}, "
            f"got {_text(now)}",
            hint="use weft.jit.script or weft.compile, which take both ways",
        )
        if asked == "value":
            error.answers = was.copy(), now.copy()
        raise error
    return ()


_WORDS = {"bool": "a truth", "int": "an int", "index": "an int", "value": "a value"}


def _answer(array: Array, asked: str) -> Any:
    """What Python got when it asked a value for its truth, its whole number, or its elements."""
    if asked == "value":
        return array
    number = array.reshape(()).item()
    if asked == "bool":
        return bool(number)
    try:
        return int(number)
    except (ValueError, OverflowError):  # no number, or an infinite one
        return number


def _same_array(was: Array, now: Array) -> bool:
    return was.shape == now.shape and was.tobytes() == now.tobytes()


def _text(answer: Array | Number) -> str:
    text = " ".join(str(answer.tolist() if isinstance(answer, np.ndarray) else answer).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


guard = primitive(
    "guard",
    type_rule=_type,
    eval=_guard,
    vjp=no_gradient("a guard has no outputs"),
    batch=None,
    samples=None,
    outputs=0,
    effect=True,
)


def expected_array(array: Array, asked: str) -> Array:
    """The least that a guard must keep of the array it was made with."""
    if asked == "bool":
        return np.asarray(array.reshape(()) != 0)
    return array.copy()
