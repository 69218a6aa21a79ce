"""Ints of graphs have 64 bits, Python's have as many as it takes: a run that would need more is an error.

An int is bounded where its limit is known: literals, indices of loops, sizes, tensors of few bits. Only what
may leave 64 bits is checked, against the same operation on floats: a result that wrapped is 2**64 off. Adding
something of less than 32 bits to a number is not checked: nobody counts so far.
"""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import float64
from weft.base.frames import format_location, user_location
from weft.ops import arithmetic, compare
from weft.ops.complex import absolute
from weft.ops.effects import check, register_error
from weft.ops.select import cast

BITS = 63
COUNT = 2**31  # the limit of what counts: indices, sizes
_SMALL = 2**32
_FAR = 2.0**62
_MOST = 2.0**63
_KIND = register_error(OverflowError)


def bound_of(name: str, a: int | None, b: int | None) -> int | None:
    """The limit of a result, from those of its operands; None if it is not known, or beyond 64 bits."""
    if name == "mod":
        return b
    if name == "floordiv" or a is None or b is None:
        return a if name == "floordiv" else None
    found = a * b if name == "mul" else a + b
    return found if found < 2**BITS and name in ("add", "sub", "mul") else None


def may_overflow(name: str, a: int | None, b: int | None) -> bool:
    """Whether the result of an operation on ints may need more than 64 bits."""
    if name not in ("add", "sub", "mul") or bound_of(name, a, b) is not None:
        return False
    known = [x for x in (a, b) if x is not None]
    return not any(x <= (_SMALL if name != "mul" else 1) for x in known)


def check_result(sign: str, op: Any, result: Any, *operands: Any) -> None:
    """Let the run raise if the result of an operation on ints wrapped."""
    estimate = op(*[cast(x, dtype=float64) for x in operands])
    far = absolute(arithmetic.sub(cast(result, dtype=float64), estimate))
    holds = compare.less(far, _FAR)
    if sign == "**":
        holds = compare.logical_and(holds, compare.greater_equal(operands[1], 0))
    must = "must fit into 64 bits" if sign != "**" else "must be a whole number of 64 bits"
    _check(holds, f"int: the result of {sign} {must} in captured code")


def check_whole(x: Any) -> None:
    """Let the run raise if a float is no int of 64 bits."""
    _check(compare.less(absolute(x), _MOST), "int: a float must be finite and fit into 64 bits")


def _check(holds: Any, text: str) -> None:
    found = user_location(2)
    where = "" if found is None else format_location(found)
    check.on_tensors(holds.detach(), pieces=(text,), places=(), error=(_KIND, where, True))


def is_overflow_check(node: Any) -> bool:
    """Whether a node is one of these checks."""
    return node.op is check and node.attrs.get("error", ("",))[0] == _KIND
