"""What is known of scalars while code is written: sums of indices, comparisons that bounds decide, signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, int64, kind
from weft.loop.index import Index
from weft.loop.ir import Const, Scalar, Value
from weft.ops.scalar import Number

Operand = Value | Number
NUMBERS = (int, float, complex, np.generic)  # not yet scalars of the IR


def index_of(operation: Callable[[Any, Any], Index], x: Operand, y: Operand) -> Index | None:
    """A sum or a difference as an index, if it is one of indices and whole numbers."""
    if not (isinstance(x, Index) or isinstance(y, Index)):
        return None
    parts = [int(v.value) if isinstance(v, Const) else v for v in (x, y)]
    return operation(*parts) if all(isinstance(v, Index | int) for v in parts) else None


def ordered(x: Operand, y: Operand) -> tuple[Index, Index] | None:
    """The smaller and the larger one of indices, where their bounds tell."""
    for smaller, larger in ((x, y), (y, x)):
        known = compared(smaller, larger, strict=False)
        if known is not None and known.value:
            return _as_index(smaller), _as_index(larger)
    return None


def _as_index(x: Operand) -> Index:
    """An index, or a whole number as one."""
    return x if isinstance(x, Index) else Index.of(int(x.value if isinstance(x, Const) else x))  # type: ignore[arg-type]


def compared(x: Operand, y: Operand, *, strict: bool) -> Const | None:
    """Whether one is below another (or equal, unless strict), where their bounds tell."""
    left, right = bounds_of(x), bounds_of(y)
    if left is None or right is None or not any(isinstance(v, Index | Const) for v in (x, y)):
        return None
    if left[1] < right[0] or (not strict and left[1] == right[0]):
        return Const(np.bool_(True), bool_)
    if right[1] < left[0] or (strict and right[1] == left[0]):
        return Const(np.bool_(False), bool_)
    return None


def with_known(x: Operand, y: Operand, decides: bool) -> Value | None:
    """What two truths make where one is known: it decides, or leaves it to the other."""
    for known, other in ((x, y), (y, x)):
        if isinstance(known, Const) and known.dtype == bool_ and not isinstance(other, NUMBERS):
            return known if bool(known.value) == decides else other
    return None


def bounds_of(x: Operand) -> tuple[int, int] | None:
    """The least and the largest value of an index or a whole number, where they are known."""
    if isinstance(x, Index):
        return x.bounds()
    number = x.value if isinstance(x, Const) and x.dtype == int64 else x
    return (int(number), int(number)) if isinstance(number, int | np.integer) else None


_DEPTH = 4  # instructions to look back


def sign_of(x: Value, depth: int = _DEPTH) -> int:
    """1 if a real x is surely not negative, -1 if it is surely not positive, else 0; NaN may be in any case.

    >>> import numpy as np
    >>> from weft.loop.builder import Builder
    >>> from weft.loop.known import sign_of
    >>> b = Builder()
    >>> x = b.load(b.buffer("x", np.dtype("f4"), 1), 0)
    >>> sign_of(x), sign_of(b.abs(x)), sign_of(b.neg(b.mul(x, x))), sign_of(b.min(x, 0.0))
    (0, 1, -1, -1)
    """
    if isinstance(x, Const):
        return 0 if kind(x.dtype) != "f" or np.isnan(x.value) else 1 if x.value >= 0 else -1
    if not isinstance(x, Scalar) or depth == 0 or kind(x.dtype) != "f":
        return 0
    if x.instruction in ("abs", "exp"):
        return 1
    if x.instruction == "neg":
        return -sign_of(x.args[0], depth - 1)
    if x.instruction in ("min", "max"):
        wanted = -1 if x.instruction == "min" else 1
        signs = [wanted if _is_zero(v) else sign_of(v, depth - 1) for v in x.args]
        return wanted if wanted in signs else -wanted if signs == [-wanted, -wanted] else 0
    if x.instruction == "mul":
        (a, turned), (b, turned_too) = (_stripped(v) for v in x.args)
        size = 1 if a is b else sign_of(a, depth - 1) * sign_of(b, depth - 1)
        return -size if turned != turned_too else size
    return 0


def _is_zero(x: Value) -> bool:
    return isinstance(x, Const) and bool(x.value == 0)


def _stripped(x: Value) -> tuple[Value, bool]:
    """What a scalar is the opposite of, if it is, and whether it is."""
    return (x.args[0], True) if isinstance(x, Scalar) and x.instruction == "neg" else (x, False)
