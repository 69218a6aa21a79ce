"""What is known of the sign of a scalar from the instructions that it comes from."""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import kind
from weft.loop.ir import Const, Scalar, Value

_DEPTH = 4  # instructions to look back


def sign_of(x: Value, depth: int = _DEPTH) -> int:
    """1 if a real x is surely not negative, -1 if it is surely not positive, else 0; NaN may be in any case.

    >>> import numpy as np
    >>> from weft.loop.builder import Builder
    >>> from weft.loop.signs import sign_of
    >>> b = Builder()
    >>> x = b.load(b.buffer("x", np.dtype("f4"), 1), 0)
    >>> sign_of(x), sign_of(b.abs(x)), sign_of(b.neg(b.mul(x, x)))
    (0, 1, -1)
    """
    if isinstance(x, Const):
        return 0 if kind(x.dtype) != "f" or np.isnan(x.value) else 1 if x.value >= 0 else -1
    if not isinstance(x, Scalar) or depth == 0 or kind(x.dtype) != "f":
        return 0
    if x.instruction in ("abs", "exp"):
        return 1
    if x.instruction == "neg":
        return -sign_of(x.args[0], depth - 1)
    if x.instruction == "mul":
        (a, turned), (b, turned_too) = (_stripped(v) for v in x.args)
        size = 1 if a is b else sign_of(a, depth - 1) * sign_of(b, depth - 1)
        return -size if turned != turned_too else size
    return 0


def _stripped(x: Value) -> tuple[Value, bool]:
    """What a scalar is the opposite of, if it is, and whether it is."""
    return (x.args[0], True) if isinstance(x, Scalar) and x.instruction == "neg" else (x, False)
