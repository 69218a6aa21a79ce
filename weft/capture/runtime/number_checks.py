"""What Python's arithmetic raises a run raises of numbers that only it tells: division by zero, ``log(-1)``.

Ints of graphs have 64 bits, Python's have as many as it takes: a run that would need more is an error, too.
An int is bounded where its limit is known: literals, indices of loops, sizes, tensors of few bits. Only what
may leave 64 bits is checked, against the same operation on floats: a result that wrapped is 2**64 off. Adding
something of less than 32 bits to a number is not checked: nobody counts so far.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from weft.base.dtypes import float64
from weft.base.frames import format_location, user_location
from weft.base.size_bounds import lower_bound
from weft.capture.runtime.failing import is_settled, known_of
from weft.capture.runtime.handling import Kinds, is_handled
from weft.ops import arithmetic, compare
from weft.ops.complex import absolute
from weft.ops.effects import check, register_error
from weft.ops.select import cast

BITS = 63
COUNT = 2**31  # the limit of what counts: indices, sizes
_SMALL = 2**32
_FAR = 2.0**62
_MOST = 2.0**63
_OVERFLOW = register_error(OverflowError)
_DIVISION = register_error(ZeroDivisionError)
_VALUE = register_error(ValueError)
_OWN = ("int: ", "float: ", "math: ")  # how the texts of these checks begin


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
    _check(holds, _OVERFLOW, f"int: the result of {sign} {must} in captured code")


def check_whole(x: Any) -> None:
    """Let the run raise if a float is no int of 64 bits."""
    text = "int: a float must be finite and fit into 64 bits"
    again = lambda: math.trunc(_known(x))  # noqa: E731 - what raises, twice
    if is_handled((OverflowError, ValueError)):  # which of them it is matters
        _check(compare.logical_not(compare.isnan(x)), _VALUE, text, again, (ValueError,))
    _check(compare.less(absolute(x), _MOST), _OVERFLOW, text, again, (OverflowError,))


def check_divisor(name: str, kind: type, a: Any, divisor: Any, form: Any) -> None:
    """Let the run raise if a number is divided by zero; a divisor with a form may be known to be none.

    Args:
        name: of the function of ``operator``.
        kind: of both numbers.
        a, divisor: these as tensors.
        form: of the divisor.
    """
    lowest = None if form is None else lower_bound(form)
    if lowest is None or lowest <= 0:
        text = f"{kind.__name__}: division by zero"
        again = functools.partial(_again, getattr(operator, name), a, divisor)
        _check(compare.not_equal(divisor, 0), _DIVISION, text, again, (ZeroDivisionError,))


def check_shift(name: str, a: Any, by: Any, form: Any) -> None:
    """Let the run raise if the bits of an int are shifted by less than none."""
    lowest = None if form is None else lower_bound(form)
    if lowest is None or lowest < 0:
        again = functools.partial(_again, getattr(operator, name), a, by)
        _check(compare.greater_equal(by, 0), _VALUE, "int: negative shift count", again, (ValueError,))


def _again(function: Callable[..., Any], *operands: Any) -> Any:
    """What a function gives of the numbers that the call at hand knows, or raises."""
    return function(*map(_known, operands))


def _known(x: Any) -> Any:
    return known_of(x).item()


def check_power(x: Any, y: Any, out: Any, base: Any, exponent: Any) -> None:
    """Let the run raise where a power of floats, of x by y, is no real number, or too large for one."""
    given = compare.logical_not(compare.logical_and(compare.isfinite(base), compare.isfinite(exponent)))
    again = functools.partial(_again, operator.pow, base, exponent)
    if _may_be(x, lambda x: x == 0) and _may_be(y, lambda y: y < 0):
        zero = compare.logical_and(compare.equal(base, 0), compare.less(exponent, 0))
        _check(
            compare.logical_not(zero),
            _DIVISION,
            "float: zero must not be raised to a negative power",
            again,
            (ZeroDivisionError,),
        )
    if _may_be(x, lambda x: x < 0) and _may_be(y, lambda y: y % 1 != 0):
        real = compare.logical_or(compare.logical_not(compare.isnan(out)), given)
        _check(real, _VALUE, "float: the result of ** must not be a complex number in captured code")
    small = compare.logical_or(compare.logical_not(compare.isinf(out)), given)
    _check(small, _OVERFLOW, "float: the result of ** is too large", again, (OverflowError,))


def _may_be(x: Any, what: Callable[[Any], bool]) -> bool:
    """Whether something may hold of a number: surely of one that only a run tells."""
    return what(x) if isinstance(x, int | float) else True


def check_function(name: str, out: Any, *operands: Any) -> None:
    """Let the run raise where a function of ``math`` does: it has no value there, or too large a one."""
    again = functools.partial(_again, getattr(math, name), *operands)
    known = compare.logical_not(_any([compare.isnan(x) for x in operands]))
    holds = compare.logical_not(compare.logical_and(compare.isnan(out), known))
    infinite = _any([compare.logical_not(compare.isfinite(x)) for x in operands])
    small = compare.logical_or(compare.logical_not(compare.isinf(out)), infinite)
    if name in _LARGE:
        _check(small, _OVERFLOW, f"math: range error in {name}", again, (OverflowError,))
    elif name in _POLES:
        holds = compare.logical_and(holds, small)
    _check(holds, _VALUE, f"math: domain error in {name}", again, (ValueError,))


def _any(found: list[Any]) -> Any:
    return functools.reduce(compare.logical_or, found)


_LARGE = frozenset({"exp", "expm1", "sinh", "cosh", "hypot", "pow"})  # whose results may be too large
_POLES = frozenset({"log", "log2", "log10", "log1p", "atanh", "lgamma"})
TOTAL = frozenset({"tanh", "atan", "asinh", "atan2", "copysign", "abs", "erf", "erfc"})  # nothing to check


def _check(
    holds: Any, kind: str, text: str, again: Callable[[], Any] | None = None, kinds: Kinds = ()
) -> None:
    """Let the run raise, unless it is known that it does not.

    Args:
        holds: a truth value that nothing is wrong.
        kind: the name of the class of the error.
        text: of the error.
        again: what raises in eager code, on the numbers of the call at hand; None where nothing does.
        kinds: the classes of what it raises.
    """
    if again is not None and is_settled(text.partition(":")[0], kinds, lambda: holds, again):
        return
    found = user_location(2)
    where = "" if found is None else format_location(found)
    check.on_tensors(holds.detach(), pieces=(text,), places=(), error=(kind, where, True))


def is_number_check(node: Any) -> bool:
    """Whether a node is one of these checks."""
    return node.op is check and node.attrs.get("pieces", ("",))[0].startswith(_OWN)
