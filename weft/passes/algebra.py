"""Identities of numbers and truth values, as pairs of plain expressions.

Those in ``ALGEBRA`` keep every bit of the result. What is not there is so because it is not exact: ``x + 0``
is 0 for -0, ``x - x`` is NaN for infinities. Those in ``FAST_MATH`` are true of real numbers: rounding,
overflow, signs of zeros, infinities and NaN may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bool_, kind
from weft.ir.types import TensorType
from weft.ops.arithmetic import maximum, minimum, neg, positive, pow, reciprocal, square
from weft.ops.compare import bitwise_invert, logical_and, logical_not, logical_or
from weft.ops.complex import absolute, conjugate
from weft.ops.exponential import exp, log, sqrt
from weft.ops.reduce import reduce_sum
from weft.ops.select import cast, select
from weft.ops.stop import when_chosen
from weft.passes.rules import RewriteRule, any_attr, rewrite

F = TensorType((4,), np.dtype("float32"))
B = TensorType((4,), np.dtype("bool"))
I = TensorType((4,), np.dtype("int64"))  # noqa: E741 - one letter each, as in the table below
C = TensorType((4,), np.dtype("complex64"))


def rule(
    name: str,
    sides: Callable[..., tuple[Any, Any]],
    *examples: TensorType,
    where: Callable[..., bool] | None = None,
) -> RewriteRule:
    """A rule whose replacement costs no more, so that values inside its pattern may be used elsewhere."""
    made: RewriteRule = rewrite(sides, name=name, examples=examples, where=where, shared=True)
    made.literal = True
    return made


def of_kinds(kinds: str) -> Callable[..., bool]:
    """A condition: the first value is of a dtype of some kinds."""
    return lambda x, *rest, **attributes: kind(x.dtype) in kinds


def _direct(x: TensorType, middle: DType, dtype: DType) -> bool:
    """Whether a cast by way of a dtype is the direct cast, out of range too: of integers it wraps around."""
    if not holds_all(x.dtype, middle) or (kind(x.dtype) in "fc" and kind(dtype) not in "fc"):
        return False
    return kind(middle) not in "fc" or kind(dtype) not in "iu" or holds_all(x.dtype, dtype)


# Of complex numbers 1 * x is not x where a part is infinite or zero; of unsigned ones abs(-x) is not abs(x).
ALGEBRA = [
    rule("mul_one", lambda x: (x * 1, x), F, where=of_kinds("iuf")),
    rule("div_one", lambda x: (x / 1, x), F, where=of_kinds("f")),
    rule("sub_zero", lambda x: (x - 0, x), F, where=of_kinds("iuf")),
    rule("add_minus_zero", lambda x: (x + -0.0, x), F, where=of_kinds("f")),
    rule("add_zero", lambda x: (x + 0, x), I, where=of_kinds("iu")),
    rule("mul_zero", lambda x: (x * 0, 0), I, where=of_kinds("iu")),
    rule("sub_itself", lambda x: (x - x, 0), I, where=of_kinds("iu")),
    rule("neg_neg", lambda x: (neg(neg(x)), x), F),
    rule("add_neg", lambda x, y: (x + neg(y), x - y), F, F),
    rule("sub_neg", lambda x, y: (x - neg(y), x + y), F, F),
    rule("mul_of_negs", lambda x, y: (neg(x) * neg(y), x * y), F, F),
    rule("positive", lambda x: (positive(x), x), F),
    rule("when_chosen", lambda x, truth: (when_chosen(x, truth), x), F, TensorType((), bool_)),
    rule("square_of_neg", lambda x: (square(neg(x)), square(x)), F),
    rule("abs_of_neg", lambda x: (absolute(neg(x)), absolute(x)), F, where=of_kinds("ifc")),
    rule("abs_of_abs", lambda x: (absolute(absolute(x)), absolute(x)), F, where=of_kinds("iuf")),
    rule("conj_of_conj", lambda x: (conjugate(conjugate(x)), x), C),
    rule("maximum_of_same", lambda x: (maximum(x, x), x), F),
    rule("minimum_of_same", lambda x: (minimum(x, x), x), F),
    rule("not_not", lambda x: (logical_not(logical_not(x)), x), B, where=of_kinds("b")),
    rule("invert_invert", lambda x: (bitwise_invert(bitwise_invert(x)), x), I),
    rule("and_true", lambda x: (logical_and(x, True), x), B, where=of_kinds("b")),
    rule("and_false", lambda x: (logical_and(x, False), False), B, where=of_kinds("b")),
    rule("and_itself", lambda x: (logical_and(x, x), x), B, where=of_kinds("b")),
    rule("or_true", lambda x: (logical_or(x, True), True), B, where=of_kinds("b")),
    rule("or_false", lambda x: (logical_or(x, False), x), B, where=of_kinds("b")),
    rule("or_itself", lambda x: (logical_or(x, x), x), B, where=of_kinds("b")),
    rule("where_same", lambda c, x: (select(c, x, x), x), B, F),
    rule("where_true", lambda x, y: (select(np.asarray(True), x, y), x), F, F),
    rule("where_false", lambda x, y: (select(np.asarray(False), x, y), y), F, F),
    rule(
        "where_not",
        lambda c, x, y: (select(logical_not(c), x, y), select(c, y, x)),
        *(B, F, F),
        where=of_kinds("b"),
    ),
    rule(
        "where_invert",
        lambda c, x, y: (select(bitwise_invert(c), x, y), select(c, y, x)),
        *(B, F, F),
        where=of_kinds("b"),
    ),
    rule("where_where", lambda c, x, y, z: (select(c, select(c, x, y), z), select(c, x, z)), *(B, F, F, F)),
    rule(
        "cast_to_same",
        lambda x, dtype=any_attr: (cast(x, dtype=dtype), lambda: x),
        F,
        where=lambda x, dtype: x.dtype == dtype,
    ),
    rule(
        "cast_of_cast",
        lambda x, middle=any_attr, dtype=any_attr: (
            cast(cast(x, dtype=middle), dtype=dtype),
            lambda: cast(x, dtype=dtype),
        ),
        F,
        where=_direct,
    ),
]


_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53, "complex64": 24, "complex128": 53}
_EXPONENTS = {"bfloat16": 8, "float16": 5, "float32": 8, "float64": 11, "complex64": 8, "complex128": 11}


def holds_all(narrow: DType, wide: DType) -> bool:
    """Whether every number of one dtype is one of another."""
    a, b = kind(narrow), kind(wide)
    if narrow == wide or a == "b":
        return True
    if b == "b" or (a == "c" and b != "c") or (a == "f" and b in "iu"):
        return False
    if b in "fc":
        if a in "fc":
            fits = _EXPONENTS[narrow.name] <= _EXPONENTS[wide.name]
            return fits and _DIGITS[narrow.name] <= _DIGITS[wide.name]
        return narrow.itemsize * 8 - (a == "i") <= _DIGITS[wide.name]
    if a == "i":
        return b == "i" and narrow.itemsize <= wide.itemsize
    return narrow.itemsize < wide.itemsize if b == "i" else narrow.itemsize <= wide.itemsize


def _both(first: tuple[int, ...], second: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The axes of two sums one after another."""
    kept = [a for a in range(rank) if a not in first]
    return tuple(sorted({*first, *[kept[a] for a in second]}))


FAST_MATH = [
    rule("add_zero", lambda x: (x + 0, x), F),
    rule("mul_zero", lambda x: (x * 0, 0), F),
    rule("sub_itself", lambda x: (x - x, 0), F),
    rule("div_itself", lambda x: (x / x, 1), F),
    rule("neg_of_sub", lambda x, y: (neg(x - y), y - x), F, F),
    rule("div_by_reciprocal", lambda x, y: (x / reciprocal(y), x * y), F, F),
    rule("common_factor", lambda x, y, z: (x * y + x * z, x * (y + z)), F, F, F),
    rule("log_of_exp", lambda x: (log(exp(x)), x), F),
    rule("exp_of_log", lambda x: (exp(log(x)), x), F),
    rule("sqrt_of_square", lambda x: (sqrt(square(x)), absolute(x)), F, where=of_kinds("f")),
    rule("square_of_sqrt", lambda x: (square(sqrt(x)), x), F),
    rule("pow_one", lambda x: (pow(x, 1.0), x), F),
    rule("pow_two", lambda x: (pow(x, 2.0), square(x)), F),
    rule("pow_half", lambda x: (pow(x, 0.5), sqrt(x)), F),
    rule("pow_minus_one", lambda x: (pow(x, -1.0), reciprocal(x)), F),
    rule(
        "sum_of_sum",
        lambda x, first=any_attr, second=any_attr: (
            reduce_sum(reduce_sum(x, axes=first, keepdims=False), axes=second, keepdims=False),
            lambda: reduce_sum(x, axes=_both(first, second, x.ndim), keepdims=False),
        ),
        F,
    ),
]
