"""Identities that are true of real numbers, and not of all floating-point ones, for where ``fast_math`` is
asked for.

Rounding, overflow, signs of zeros, infinities and NaN may differ.
"""

from __future__ import annotations

from weft.ops.arithmetic import neg, pow, reciprocal, square
from weft.ops.complex import absolute
from weft.ops.exponential import exp, log, sqrt
from weft.ops.reduce import reduce_sum
from weft.passes.algebra import F, of_kinds, rule
from weft.passes.rules import any_attr


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
