"""Named sizes: a size of a shape that is not known yet, such as ``batch``, and arithmetic on them.

A ``Size`` is a polynomial with whole coefficients over *atoms*: names, and quotients rounded down. Two sizes are
equal if their polynomials are; a size that has no name left is a plain ``int``, so shapes mix both freely.
A named size stands for any number from 0 on: what cannot be decided for all of them is an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weft.errors import ShapeError

Terms = dict[tuple["Atom", ...], int]


class Quotient:
    """``numerator // denominator``, where it has no simpler form."""

    __slots__ = ("denominator", "numerator")

    def __init__(self, numerator: Any, denominator: Any) -> None:
        self.numerator = numerator
        self.denominator = denominator

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quotient) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"({self.numerator})//({self.denominator})"


Atom = str | Quotient


class Size:
    """A size with a name, or an expression in such sizes; made by ``named_size`` and by arithmetic.

    >>> from weft.base.sizes import named_size
    >>> batch = named_size("batch")
    >>> print(2 * batch + 1)
    2*batch+1
    >>> batch - batch
    0
    """

    __slots__ = ("_terms", "_text")

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        ordered = sorted(terms.items(), key=lambda item: (-len(item[0]), [str(a) for a in item[0]]))
        text = ""
        for atoms, factor in ordered:
            names = "*".join(map(str, atoms))
            part = names if factor == 1 and names else f"{factor}*{names}" if names else str(factor)
            part = f"-{names}" if factor == -1 and names else part
            text += part if not text or part.startswith("-") else f"+{part}"
        self._text = text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self._text == other._text

    def names(self) -> set[str]:
        """The names it is made of."""
        out: set[str] = set()
        for atoms in self._terms:
            for atom in atoms:
                if isinstance(atom, str):
                    out.add(atom)
                else:
                    out |= size_names((atom.numerator, atom.denominator))
        return out

    def substitute(self, values: Mapping[str, Any]) -> Any:
        """The size with values, ints or sizes, for names; names without one stay."""
        total: Any = 0
        for atoms, factor in self._terms.items():
            product: Any = factor
            for atom in atoms:
                if isinstance(atom, str):
                    product = product * values.get(atom, named_size(atom))
                else:
                    parts = [bind(x, values) for x in (atom.numerator, atom.denominator)]
                    product = product * (parts[0] // parts[1])
            total = total + product
        return total

    # Arithmetic

    def __add__(self, other: Any) -> Any:
        terms = _terms_of(other)
        if terms is None:
            return self._as_number("add", other, swap=False)
        out = dict(self._terms)
        for atoms, factor in terms.items():
            out[atoms] = out.get(atoms, 0) + factor
        return _simplest(out)

    def __radd__(self, other: Any) -> Any:
        return self + other if _terms_of(other) is not None else self._as_number("add", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        terms = _terms_of(other)
        if terms is None:
            return self._as_number("mul", other, swap=False)
        out: Terms = {}
        for left, a in self._terms.items():
            for right, b in terms.items():
                atoms = tuple(sorted(left + right, key=str))
                out[atoms] = out.get(atoms, 0) + a * b
        return _simplest(out)

    def __rmul__(self, other: Any) -> Any:
        return self * other if _terms_of(other) is not None else self._as_number("mul", other, swap=True)

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other if _terms_of(other) is not None else self._as_number("sub", other, swap=False)

    def __rsub__(self, other: Any) -> Any:
        return -self + other if _terms_of(other) is not None else self._as_number("sub", other, swap=True)

    def __floordiv__(self, other: Any) -> Any:
        if _terms_of(other) is None:
            return self._as_number("floordiv", other, swap=False)
        return _quotient(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        if _terms_of(other) is None:
            return self._as_number("floordiv", other, swap=True)
        return _quotient(other, self)

    def __mod__(self, other: Any) -> Any:
        return self - (self // other) * other

    def __rmod__(self, other: Any) -> Any:
        return other - (other // self) * self

    def __divmod__(self, other: Any) -> Any:
        quotient = self // other
        return quotient, self - quotient * other

    def __pow__(self, power: int) -> Any:
        out: Any = 1
        for _ in range(power):
            out = out * self
        return out

    def __truediv__(self, other: Any) -> Any:
        return self._as_number("truediv", other, swap=False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._as_number("truediv", other, swap=True)

    def __float__(self) -> float:
        raise self._unknown("float")

    def __index__(self) -> int:
        raise TypeError(f"the size {self} is not known yet")

    def _as_number(self, operator: str, other: Any, *, swap: bool) -> Any:
        """The result with a number or tensor, by the layer that can compute with a size."""
        if not _number_rules:
            return NotImplemented
        return _number_rules[0](operator, self, other, swap)

    def _unknown(self, what: str) -> ShapeError:
        return ShapeError(
            "size",
            f"must be known here, got {self} in {what}",
            hint="a named size stands for any size; give the tensor a fixed one to decide on it",
        )

    # Order: decided where it holds for all values of the names

    def _bounds(self) -> tuple[int | None, int | None]:
        """The least and the greatest value, None where there is none; names are 0 or more."""
        low: int | None = 0
        high: int | None = 0
        for atoms, factor in self._terms.items():
            if not atoms:
                low = None if low is None else low + factor
                high = None if high is None else high + factor
            elif factor > 0:
                high = None
            else:
                low = None
        return low, high

    def __lt__(self, other: Any) -> bool:
        if _terms_of(other) is None:
            return NotImplemented
        low, high = _bounds_of(self - other)
        if high is not None and high < 0:
            return True
        if low is not None and low >= 0:
            return False
        raise self._unknown(f"{self} < {other}")

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __gt__(self, other: Any) -> bool:
        if _terms_of(other) is None:
            return NotImplemented
        low, high = _bounds_of(self - other)
        if low is not None and low > 0:
            return True
        if high is not None and high <= 0:
            return False
        raise self._unknown(f"{self} > {other}")

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return True  # as in ``if size``, which asks whether an axis is not empty


def _bounds_of(difference: Any) -> tuple[int | None, int | None]:
    return (difference, difference) if isinstance(difference, int) else difference._bounds()


def _terms_of(x: Any) -> Terms | None:
    if isinstance(x, Size):
        return x._terms
    if isinstance(x, int) and not isinstance(x, bool):
        return {(): x}
    return None


def _simplest(terms: Terms) -> Any:
    kept = {atoms: factor for atoms, factor in terms.items() if factor}
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    return Size(kept)


def _quotient(numerator: Any, denominator: Any) -> Any:
    """``numerator // denominator``, simplified where the division has no rest for any value of the names."""
    if numerator == denominator:
        return 1
    top, bottom = _terms_of(numerator), _terms_of(denominator)
    assert top is not None and bottom is not None
    if len(bottom) == 1:
        ((divisor, factor),) = bottom.items()
        exact: Terms = {}
        rest: Terms = {}
        for atoms, value in top.items():
            left = list(atoms)
            fits = value % factor == 0
            for atom in divisor:
                if atom in left:
                    left.remove(atom)
                else:
                    fits = False
            if fits:
                exact[tuple(left)] = exact.get(tuple(left), 0) + value // factor
            else:
                rest[atoms] = value
        remaining = _simplest(rest)
        if isinstance(remaining, int) and isinstance(denominator, int):
            return _simplest(exact) + remaining // denominator
        if exact:
            return _simplest(exact) + _simplest({(Quotient(remaining, denominator),): 1})
    return _simplest({(Quotient(numerator, denominator),): 1})


_number_rules: list[Callable[[str, Size, Any, bool], Any]] = []


def set_number_rule(rule: Callable[[str, Size, Any, bool], Any]) -> None:
    """Called by the layer that can compute with a size: ``rule(operator, size, other, swap)``."""
    _number_rules[:] = [rule]


def named_size(name: str) -> Size:
    """The size with a name."""
    return Size({(name,): 1})


def size_names(values: Iterable[Any]) -> set[str]:
    """All names in an iterable of ints and sizes."""
    out: set[str] = set()
    for value in values:
        if isinstance(value, Size):
            out |= value.names()
    return out


def bind(value: Any, values: Mapping[str, Any]) -> Any:
    """A literal with values for names in every size it holds, in tuples too."""
    if isinstance(value, Size):
        return value.substitute(values)
    if type(value) is tuple:
        return tuple([bind(v, values) for v in value])
    return value
