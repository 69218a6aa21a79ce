"""Named sizes: a size of a shape that is not known yet, such as ``batch``, and arithmetic on them.

A ``Size`` is a polynomial with whole coefficients over *atoms*: names, quotients rounded down, and
``max(x,0)``. Two sizes are equal if their polynomials are; a size that has no name left is a plain ``int``,
so shapes mix both freely. A named size stands for any number from 0 on: what cannot be decided for all of
them is an error that says so. ``size_bounds`` tells what is larger, ``size_text`` reads the text of a size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd
from typing import Any

import numpy as np

from weft.base.hooks import hooks
from weft.errors import ShapeError

Terms = dict[tuple["Atom", ...], int]


class Compound:
    """An expression that is no polynomial, and has no simpler form: an atom of a size."""

    __slots__ = ("parts", "text")

    def __init__(self, text: str, *parts: Any) -> None:
        self.parts = parts
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compound) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def rebuilt(self, *parts: object) -> Any:
        """The same expression of other parts."""
        raise NotImplementedError  # each kind of expression says it


class Quotient(Compound):
    """``numerator // denominator``."""

    __slots__ = ()

    def __init__(self, numerator: Any, denominator: Any) -> None:
        super().__init__(f"{_operand(numerator)}//{_operand(denominator)}", numerator, denominator)

    def rebuilt(self, *parts: Any) -> Any:
        """The quotient of other parts."""
        return parts[0] // parts[1]


class Positive(Compound):
    """``max(x,0)``."""

    __slots__ = ()

    def __init__(self, x: Any) -> None:
        super().__init__(f"max({x},0)", x)

    def rebuilt(self, *parts: object) -> Any:
        """The larger of 0 and another part."""
        from weft.base.size_bounds import positive  # which builds on this module

        return positive(parts[0])


Atom = str | Compound


def _operand(x: object) -> str:
    """An operand of a quotient as text, in brackets where it needs them."""
    text = str(x)
    simple = text.isidentifier() or text.isdecimal()
    return text if simple else f"({text})"


def _rank(atom: Atom) -> tuple[bool, str]:
    """The place of an atom in a product: names come first."""
    return not isinstance(atom, str), str(atom)


def _factor(atom: Atom, alone: bool) -> str:
    """An atom as text, in brackets where it stands in a product."""
    return f"({atom})" if type(atom) is Quotient and not alone else str(atom)


def _term(atoms: tuple[Atom, ...], factor: int) -> str:
    if not atoms:
        return str(factor)
    text = "*".join([_factor(a, alone=len(atoms) == 1 and factor == 1) for a in atoms])
    return text if factor == 1 else f"-{text}" if factor == -1 else f"{factor}*{text}"


class Size:
    """A size with a name, or an expression in such sizes; made by ``named_size`` and by arithmetic.

    >>> from weft.base.sizes import named_size
    >>> batch = named_size("batch")
    >>> print(2 * batch + 1, (batch + 3) // 2, sep=", ")
    2*batch+1, (batch+1)//2+1
    >>> batch - batch
    0
    """

    __slots__ = ("_terms", "_text")

    __array_ufunc__ = None  # an array leaves arithmetic with a size to the size

    def __init__(self, terms: Terms) -> None:
        ordered = sorted(terms.items(), key=lambda item: (-len(item[0]), item[1] < 0, [*map(_rank, item[0])]))
        self._terms = dict(ordered)  # in one order, so that what is decided on them does not depend on it
        text = ""
        for atoms, factor in ordered:
            part = _term(atoms, factor)
            text += part if not text or part.startswith("-") else f"+{part}"
        self._text = text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size) and self._text == other._text:
            return True
        return hooks.compare_size is not None and _terms_of(other) is not None and self._equals(other)

    def _equals(self, other: object) -> Any:
        """Whether another size is always equal: it is not, unless a run decides in captured code."""
        difference = self - other
        if _exceeds(difference) or _exceeds(-difference):
            return False
        told = None if hooks.compare_size is None else hooks.compare_size("eq", self, other)
        return False if told is None else told

    def __ne__(self, other: object) -> Any:
        equal = self == other
        if isinstance(equal, bool) or hooks.compare_size is None:
            return not equal
        return hooks.compare_size("ne", self, other)

    def factor(self) -> int:
        """What it is a multiple of, whatever the names stand for.

        >>> from weft.base.sizes import named_size
        >>> (8 * named_size("batch") + 12).factor()
        4
        """
        return gcd(*self._terms.values())

    def names(self) -> set[str]:
        """The names it is made of."""
        out: set[str] = set()
        for atoms in self._terms:
            for atom in atoms:
                out |= {atom} if isinstance(atom, str) else size_names(atom.parts)
        return out

    def substitute(self, values: Mapping[str, Any]) -> Any:
        """The size with values, ints or sizes, for names; names without one stay."""

        def value(atom: Atom) -> Any:
            if isinstance(atom, str):
                return values[atom] if atom in values else named_size(atom)
            return atom.rebuilt(*[bind(part, values) for part in atom.parts])

        return self._evaluate(value)

    def _evaluate(self, value: Callable[[Atom], Any]) -> Any:
        """The polynomial at values of its atoms."""
        total: Any = 0
        for atoms, factor in self._terms.items():
            product: Any = factor
            for atom in atoms:
                product = product * value(atom)
            total = total + product
        return total

    # Arithmetic

    def __add__(self, other: object) -> Any:
        terms = _terms_of(other)
        if terms is None:
            return self._as_number("add", other, swap=False)
        out = dict(self._terms)
        for atoms, factor in terms.items():
            out[atoms] = out.get(atoms, 0) + factor
        return simplest(out)

    def __radd__(self, other: object) -> Any:
        return self + other if _terms_of(other) is not None else self._as_number("add", other, swap=True)

    def __mul__(self, other: object) -> Any:
        if isinstance(other, tuple | list):
            return NotImplemented
        terms = _terms_of(other)
        if terms is None:
            return self._as_number("mul", other, swap=False)
        out: Terms = {}
        for left, a in self._terms.items():
            for right, b in terms.items():
                atoms = tuple(sorted(left + right, key=_rank))
                out[atoms] = out.get(atoms, 0) + a * b
        return simplest(out)

    def __rmul__(self, other: object) -> Any:
        return self * other if _terms_of(other) is not None else self._as_number("mul", other, swap=True)

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        return self + -other if _terms_of(other) is not None else self._as_number("sub", other, swap=False)

    def __rsub__(self, other: object) -> Any:
        return -self + other if _terms_of(other) is not None else self._as_number("sub", other, swap=True)

    def __floordiv__(self, other: object) -> Any:
        if _terms_of(other) is None:
            return self._as_number("floor_divide", other, swap=False)
        return _quotient(self, other)

    def __rfloordiv__(self, other: object) -> Any:
        if _terms_of(other) is None:
            return self._as_number("floor_divide", other, swap=True)
        return _quotient(other, self)

    def __mod__(self, other: object) -> Any:
        if _terms_of(other) is None:
            return self._as_number("remainder", other, swap=False)
        return self - (self // other) * other

    def __rmod__(self, other: object) -> Any:
        if _terms_of(other) is None:
            return self._as_number("remainder", other, swap=True)
        return other - (other // self) * self

    def __divmod__(self, other: object) -> Any:
        quotient = self // other
        return quotient, self - quotient * other

    def __rdivmod__(self, other: object) -> Any:
        quotient = other // self
        return quotient, other - quotient * self

    def __pow__(self, power: object) -> Any:
        if not isinstance(power, int) or power < 0:
            return self._as_number("pow", power, swap=False)
        out: Any = 1
        for _ in range(power):
            out = out * self
        return out

    def __rpow__(self, base: object) -> Any:
        return self._as_number("pow", base, swap=True)

    def __truediv__(self, other: object) -> Any:
        return self._as_number("div", other, swap=False)

    def __rtruediv__(self, other: object) -> Any:
        return self._as_number("div", other, swap=True)

    def __float__(self) -> float:
        raise self._unknown("float()")

    def __int__(self) -> int:
        raise self._unknown("int()")

    def __index__(self) -> int:
        raise self._unknown("a place that takes a number only")

    def _as_number(self, operator: str, other: object, *, swap: bool) -> Any:
        """The result with a number or tensor, by the layer that can compute with a size."""
        compute = hooks.compute_with_size
        return NotImplemented if compute is None else compute(operator, self, other, swap)

    def _unknown(self, what: str) -> ShapeError:
        return ShapeError(
            "size",
            f"must be known here, got {self} in {what}",
            hint="a named size stands for any size; give the tensor a fixed one to decide on it",
        )

    # Order: decided where it holds for all values of the names

    def __lt__(self, other: object) -> Any:
        return self._ordered("lt", other, "<", less=True, holds=True)

    def __gt__(self, other: object) -> Any:
        return self._ordered("gt", other, ">", less=False, holds=True)

    def __ge__(self, other: object) -> Any:
        return self._ordered("ge", other, ">=", less=True, holds=False)

    def __le__(self, other: object) -> Any:
        return self._ordered("le", other, "<=", less=False, holds=False)

    def __bool__(self) -> bool:
        for difference in (self, -self):
            if _exceeds(difference):
                return True
        if _exceeds(self) is None or _exceeds(-self) is None:
            raise self._unknown("a condition")
        return False

    def _ordered(self, operator: str, other: object, sign: str, *, less: bool, holds: bool) -> Any:
        """Whether self is less, or greater, than another; or, unless it ``holds``, whether it is not.

        What bounds do not tell, a run decides in captured code.
        """
        known = _terms_of(other) is not None
        if not known and not isinstance(other, float):
            return NotImplemented
        found = None if not known else _exceeds(other - self if less else self - other)
        if found is not None:
            return found is holds
        told = None if hooks.compare_size is None else hooks.compare_size(operator, self, other)
        if told is None:
            raise self._unknown(f"{self} {sign} {other}")
        return told


def _exceeds(difference: Any) -> bool | None:
    """Whether a difference is above 0, where bounds tell; else None."""
    from weft.base.size_bounds import lower_bound  # which builds on this module

    low, high = lower_bound(difference), lower_bound(-difference)
    if low is not None and low > 0:
        return True
    return False if high is not None and high >= 0 else None


def _terms_of(x: object) -> Terms | None:
    if isinstance(x, Size):
        return x._terms
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        return {(): int(x)}
    return None


def simplest(terms: Terms) -> Any:
    """The int or size that a polynomial is."""
    kept = {atoms: factor for atoms, factor in terms.items() if factor}
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    return Size(kept)


# Division


def _quotient(numerator: Any, denominator: Any) -> Any:
    """``numerator // denominator`` in its simplest form: what divides without rest is taken out."""
    if numerator == denominator:
        return 1
    top, bottom = _terms_of(numerator), _terms_of(denominator)
    assert top is not None
    assert bottom is not None
    if not bottom or bottom == {(): 0}:
        raise ZeroDivisionError(f"{numerator} // 0")
    if len(bottom) > 1:
        return simplest({(Quotient(numerator, denominator),): 1})
    ((divisor, factor),) = bottom.items()
    exact, rest = _divided(top, divisor, factor)
    whole, remaining = simplest(exact), simplest(rest)
    if remaining == 0:
        return whole
    if isinstance(denominator, int):
        return whole + _fraction(remaining, denominator)
    return whole + simplest({(Quotient(remaining, denominator),): 1})


def _divided(top: Terms, divisor: tuple[Atom, ...], factor: int) -> tuple[Terms, Terms]:
    """The terms that a one-term divisor divides, divided, and those that are left."""
    exact: Terms = {}
    rest: Terms = {}
    for atoms, value in top.items():
        left = list(atoms)
        fits = True
        for atom in divisor:
            if atom in left:
                left.remove(atom)
            else:
                fits = False
        count, over = divmod(value, factor) if fits else (0, value)
        if count:
            exact[tuple(left)] = exact.get(tuple(left), 0) + count
        if over:
            rest[atoms] = over
    return exact, rest


def _fraction(top: Any, bottom: int) -> Any:
    """``top // bottom`` where no term of top divides as a whole; common factors are taken out."""
    if not isinstance(top, Size):
        return top // bottom
    if bottom < 0:
        return _quotient(-top, -bottom)
    constant = top._terms.get((), 0)
    common = gcd(bottom, *[f for atoms, f in top._terms.items() if atoms])
    if common > 1:
        reduced = {atoms: f // common for atoms, f in top._terms.items()}  # of the constant, rounded down
        return _quotient(simplest(reduced), bottom // common)
    if len(top._terms) == 1 + (constant != 0):
        ((atoms, factor),) = [item for item in top._terms.items() if item[0]]
        if factor == 1 and len(atoms) == 1 and isinstance(atoms[0], Quotient):
            inner, by = atoms[0].parts
            if isinstance(by, int) and by > 0:
                return _quotient(inner + constant * by, by * bottom)
    return simplest({(Quotient(top, bottom),): 1})


# Names and numbers


def term_count(x: object) -> int:
    """The number of terms of an int or a size."""
    return len(x._terms) if isinstance(x, Size) else 1


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


def solve(size: Size, actual: int, sizes: dict[str, int]) -> None:
    """Enter the value of the one name in ``size == actual``; where the size does not tell it, others must.

    That is so where it has several names, or is not linear in the one it has.
    """
    named = [item for item in size._terms.items() if item[0]]
    if len(named) != 1 or len(named[0][0]) != 1:
        return
    ((name,), factor) = named[0]
    if not isinstance(name, str):
        return
    value, rest = divmod(actual - size._terms.get((), 0), factor)
    if rest or value < 0:
        raise ShapeError("size", f"{size} must be the size of an axis, got {actual}, which no {name} gives")
    sizes[name] = value


def is_known(shape: Iterable[Any]) -> bool:
    """Whether all sizes of a shape are numbers."""
    for size in shape:  # noqa: SIM110 - a third of the time of any()
        if isinstance(size, Size):
            return False
    return True


def bind(value: object, values: Mapping[str, Any]) -> Any:
    """A literal with values for names in every size it holds, in tuples too."""
    if isinstance(value, Size):
        return value.substitute(values)
    if type(value) is tuple:
        return tuple([bind(v, values) for v in value])
    return value
