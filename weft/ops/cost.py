"""What scalar code costs: each instruction, and all those that the code of an op takes for one element.

The estimates are rough on purpose: they tell what is worth keeping, moving or sharing among threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.records import NamedTuple

if TYPE_CHECKING:
    from weft.ops.op import Op

_DTYPES = (("f", np.float32), ("i", np.int64), ("c", np.complex64), ("b", np.bool_))


class Cost(NamedTuple):
    """What one scalar instruction takes.

    Attributes:
        flops: floating-point operations that it counts as.
        time: how many additions take as long.
    """

    flops: int = 1
    time: int = 1


_SIMPLE, _FREE = Cost(), Cost(0, 1)
LONG = 8  # additions: from here on an instruction is a function, a long chain of others

# The functions are inlined polynomials; divisions and roots are one operation, but a slow one.
COSTS: dict[str, Cost] = {
    "exp": Cost(12, 8),
    "log": Cost(14, 10),
    "sin": Cost(16, 15),
    "cos": Cost(16, 15),
    "tanh": Cost(16, 10),
    "sigmoid": Cost(18, 20),
    "pow": Cost(30, 25),
    "atan2": Cost(25, 25),
    "div": Cost(1, 4),
    "sqrt": Cost(1, 4),
    **dict.fromkeys(("dot_i8", "dot_u8i8"), Cost(8, 1)),
    "dot_bf16": Cost(4, 1),
    **dict.fromkeys(("select", "cast", "bitcast", "and_", "or_", "not_", "real", "imag", "complex"), _FREE),
}


def cost_of(instruction: str) -> Cost:
    """What a scalar instruction takes.

    >>> from weft.ops.cost import cost_of
    >>> cost_of("exp").flops, cost_of("add").time
    (12, 1)
    """
    return COSTS.get(instruction, _SIMPLE)


def is_function(instruction: str) -> bool:
    """Whether an instruction is a long chain of others, such as exp."""
    return cost_of(instruction).time >= LONG


def count_instructions(op: Op) -> int:
    """How long one element of an op takes, in additions: as its scalar code says, else 1.

    >>> from weft.ops.cost import count_instructions
    >>> from weft.ops.op import OPS
    >>> count_instructions(OPS["add"]), count_instructions(OPS["exp"]), count_instructions(OPS["reshape"])
    (1, 8, 1)
    """
    if op.scalar is None or not op.accepts:
        return 1
    dtype = next(dtype for letter, dtype in _DTYPES if letter in op.accepts or letter == "b")
    counter = _Counter()
    with np.errstate(all="ignore"):
        op.scalar(counter, *[np.ones(1, dtype)] * len(op.inputs))
    return max(counter.time, 1)


class _Counter:
    """An emitter that adds up the time of the instructions it is asked for."""

    def __init__(self) -> None:
        from weft.ops.scalar import NUMPY

        self.time = 0
        self._emitter = NUMPY

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ("dtype", "constant"):
            self.time += cost_of(name).time
        emit: Callable[..., Any] = getattr(self._emitter, name)
        return emit
