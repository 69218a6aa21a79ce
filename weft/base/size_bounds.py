"""Which sizes are larger: bounds that hold for all values of the names, maxima, minima, lengths of ranges."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from weft.base.sizes import Atom, Positive, Quotient, Size, simplest


def lower_bound(x: Any) -> int | None:
    """A number that x is never below, whatever its names are; None if none was found."""
    return _lower_bound(x) if isinstance(x, Size) else int(x)


@lru_cache(4096)
def _lower_bound(x: Size) -> int | None:
    for atom in dict.fromkeys(atom for term in x._terms for atom in term):
        if isinstance(atom, Positive):
            return _below_positive(x, atom)
        if isinstance(atom, Quotient) and (low := _below_quotient(x, atom)) is not None:
            return low
    for term, factor in x._terms.items():
        if term and (factor < 0 or not all(map(_not_negative, term))):
            return None
    return x._terms.get((), 0)


def _below_positive(x: Size, atom: Positive) -> int | None:
    """A lower bound by cases: ``max(a,0)`` is 0 or a, never below either or ``max(b,0)`` for b <= a."""
    inside = atom.parts[0]
    cases = [lower_bound(_replaced(x, atom, value)) for value in (0, inside)]
    if sum(atom in term for term in x._terms) != 1 or x._terms.get((atom,), 0) <= 0:
        return None if None in cases else min(case for case in cases if case is not None)
    for (other, *more), factor in [item for item in x._terms.items() if item[0]]:
        if factor < 0 and not more and isinstance(other, Positive):
            low = lower_bound(inside - other.parts[0])
            if low is not None and low >= 0:
                cases.append(lower_bound(_replaced(x, atom, simplest({(other,): 1}))))
    return max((case for case in cases if case is not None), default=None)


def _replaced(x: Size, atom: Atom, value: object) -> Any:
    return x._evaluate(lambda a: value if a == atom else simplest({(a,): 1}))


def _below_quotient(x: Size, atom: Quotient) -> int | None:
    """A lower bound by ``a-d+1 <= d*(a//d) <= a``, for a quotient that stands alone in one term."""
    top, bottom = atom.parts
    if not isinstance(bottom, int) or bottom < 1 or sum(atom in term for term in x._terms) != 1:
        return None
    factor = x._terms.get((atom,))
    if factor is None:
        return None
    scaled = (x - simplest({(atom,): factor})) * bottom + factor * (top if factor < 0 else top - bottom + 1)
    low = lower_bound(scaled)
    return None if low is None else -(-low // bottom)


def _not_negative(atom: Atom) -> bool:
    if not isinstance(atom, Quotient):
        return True
    lows = [lower_bound(part) for part in atom.parts]
    return all(low is not None and low >= 0 for low in lows)


def positive(x: Any) -> Any:
    """``max(x, 0)`` of an int or a size."""
    if not isinstance(x, Size):
        return max(x, 0)
    low, high = lower_bound(x), lower_bound(-x)
    if low is not None and low >= 0:
        return x
    if high is not None and high >= 0:
        return 0
    if x._text.startswith("-"):
        return x + positive(-x)  # one form: max(1-n,0) is max(n-1,0)+1-n
    constant = x._terms.get((), 0)
    inner = [term[0] for term, factor in x._terms.items() if len(term) == 1 and factor == 1]
    if constant <= 0 and len(inner) == 1 and isinstance(inner[0], Positive):
        rest = x - constant
        if rest == simplest({(inner[0],): 1}):
            return positive(inner[0].parts[0] + constant)  # max(max(a,0)-1,0) is max(a-1,0)
    return Size({(Positive(x),): 1})


def size_max(a: Any, b: Any) -> Any:
    """The larger of two ints or sizes."""
    return b + positive(a - b)


def size_min(a: Any, b: Any) -> Any:
    """The smaller of two ints or sizes."""
    return a - positive(a - b)


def surely_less(a: Any, b: Any) -> bool:
    """Whether ``a < b`` for all values of the names: what is False may turn out to hold in a run."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return bool(a < b)
    low = lower_bound(b - a)
    return low is not None and low > 0


def same_size(a: Any, b: Any) -> bool:
    """Whether two ints or sizes are surely equal; nobody is asked where that is not known."""
    difference = a - b
    return not isinstance(difference, Size) and bool(difference == 0)


def typical(size: Any) -> int:
    """A number that a size might be, where it only matters how large it is."""
    return int(size.substitute(dict.fromkeys(size.names(), 100))) if isinstance(size, Size) else size


def range_length(start: Any, stop: Any, step: int) -> Any:
    """``len(range(start, stop, step))``, of ints or sizes."""
    if type(start) is int and type(stop) is int and type(step) is int:
        return len(range(start, stop, step))
    distance, step = (stop - start, step) if step > 0 else (start - stop, -step)
    return positive((distance + step - 1) // step)
