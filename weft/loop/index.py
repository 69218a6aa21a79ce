"""Indices: sums of integer values times strides, so that a backend sees how an access walks through memory.

An ``Index`` is an int64 scalar like any other. Sums and multiples of indices stay indices; where one is
divided, ``Builder.quotient`` and ``Builder.remainder`` take out what divides, knowing how far each variable
goes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from weft.base.dtypes import DType, int64
from weft.base.sizes import Size

if TYPE_CHECKING:
    from weft.loop.ir import Value

Extent = int | Size  # a number of elements


class Variable:
    """The variable of a loop, or an int64 scalar, as a term of indices.

    Attributes:
        name: as printed.
        stop: the variable is at least 0 and below this (an int or a Size), or None where that is not known.
        value: the scalar it stands for, or None for the variable of a loop.
        part: for a remainder, (index, divisor, quotient), so that both can be put together again.
    """

    __slots__ = ("name", "part", "stop", "value")

    def __init__(
        self,
        name: str,
        stop: Extent | None = None,
        value: Value | None = None,
        part: tuple[Index, Extent, Index] | None = None,
    ) -> None:
        self.name = name
        self.stop = stop
        self.value = value
        self.part = part

    def __repr__(self) -> str:
        return self.name


class Index:
    """``offset + sum(variable * stride)``.

    >>> from weft.loop.index import Index, Variable
    >>> i, j = Index.of(Variable("i", 4)), Index.of(Variable("j", 3))
    >>> i * 3 + j + 1
    3*i + j + 1
    """

    __slots__ = ("offset", "terms")

    dtype: DType = int64

    def __init__(self, terms: Mapping[Variable, Extent], offset: Extent = 0) -> None:
        self.terms = {v: s for v, s in terms.items() if isinstance(s, Size) or s != 0}
        self.offset = offset

    @staticmethod
    def of(x: Index | Variable | Extent) -> Index:
        """An index of an index, a variable, an int or a Size."""
        if isinstance(x, Index):
            return x
        if isinstance(x, Variable):
            return _index({x: 1}, 0)
        return _index({}, x)

    @property
    def is_fixed(self) -> bool:
        """Whether no variable is in it."""
        return not self.terms

    @property
    def key(self) -> Hashable:
        """The same for two indices that are always equal, as far as their terms show."""
        return (frozenset(self.terms.items()), self.offset) if self.terms else self.offset

    def stride(self, variable: Variable) -> Extent:
        """How far it goes when a variable grows by one; other variables may hide it in their value."""
        return self.terms.get(variable, 0)

    def without(self, variable: Variable) -> Index:
        """The index where a variable is 0."""
        return Index({v: s for v, s in self.terms.items() if v is not variable}, self.offset)

    def __add__(self, other: Index | Extent) -> Index:
        if not isinstance(other, Index):
            other = Index.of(other)
        if not other.terms:
            return _index(self.terms, self.offset + other.offset)
        if not self.terms:
            return _index(other.terms, self.offset + other.offset)
        terms = dict(self.terms)
        for v, s in other.terms.items():
            terms[v] = terms[v] + s if v in terms else s
        return Index(terms, self.offset + other.offset)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index | Extent) -> Index:
        return self + -Index.of(other)

    def __rsub__(self, other: Index | Extent) -> Index:
        return Index.of(other) - self

    def __mul__(self, factor: Index | Extent) -> Index:
        if isinstance(factor, Index):
            if not factor.is_fixed:
                if not self.is_fixed:
                    raise TypeError("a product of two indices is no index; compute it with Builder.mul")
                return factor * self.offset
            factor = factor.offset
        if type(factor) is int and factor == 1:
            return self
        return Index({v: s * factor for v, s in self.terms.items()}, self.offset * factor)

    __rmul__ = __mul__

    def folded(self) -> Index:
        """The same index where a quotient and its remainder are put together again.

        ``n * (i // n) * s + (i % n) * s`` is ``i * s``.
        """
        for v, stride in self.terms.items():
            if v.part is None:
                continue
            index, by, quotient = v.part
            if not quotient.terms:
                continue
            ((q, scale),) = quotient.terms.items()
            if _is_one(scale) and q in self.terms and self.terms[q] == stride * by:
                rest = Index({w: s for w, s in self.terms.items() if w is not v and w is not q}, self.offset)
                whole: Index = rest + index * stride
                return whole.folded()
        return self

    def bounds(self) -> tuple[int, int] | None:
        """The least and the largest value that it can have; None where that is not known in numbers."""
        if not isinstance(self.offset, int):
            return None
        low = high = self.offset
        for v, s in self.terms.items():
            if not isinstance(v.stop, int) or not isinstance(s, int):
                return None
            most = max(v.stop - 1, 0) * s  # a loop of no iterations has no value: 0 does no harm
            low, high = low + min(most, 0), high + max(most, 0)
        return low, high

    def below(self) -> Extent | None:
        """A bound that it stays below, or None; it is at least its offset where all strides are positive."""
        total: Extent = self.offset + 1
        for v, s in self.terms.items():
            if v.stop is None or not (isinstance(s, Size) or s > 0):
                return None
            total = total + (v.stop - 1) * s
        return total

    def __repr__(self) -> str:
        parts = [f"{v}" if _is_one(s) else f"{_factor(s)}*{v}" for v, s in self.terms.items()]
        if not parts or isinstance(self.offset, Size) or self.offset != 0:
            parts.append(str(self.offset))
        return " + ".join(parts)


def _index(terms: dict[Variable, Extent], offset: Extent) -> Index:
    """An index of terms that are none of them 0, which nobody changes."""
    made = Index.__new__(Index)
    made.terms, made.offset = terms, offset
    return made


def _is_one(s: Extent) -> bool:
    return not isinstance(s, Size) and s == 1


def _factor(s: Extent) -> str:
    return f"({s})" if isinstance(s, Size) else str(s)


def divided(index: Index, by: Extent) -> tuple[Index, Index] | None:
    """The quotient and the remainder of an index by a number, where they are indices; else None.

    >>> from weft.loop.index import Index, Variable, divided
    >>> i, j = Index.of(Variable("i", 4)), Index.of(Variable("j", 3))
    >>> divided(i * 3 + j, 3)
    (i, j)
    """
    if not isinstance(by, Size) and by == 0:  # an axis without elements: nothing is ever reached
        return Index({}), Index({})
    whole: dict[Variable, Extent] = {}
    rest: dict[Variable, Extent] = {}
    for v, s in index.terms.items():
        quotient = _exact(s, by)
        if quotient is None:
            rest[v] = s
        else:
            whole[v] = quotient
    over = index.offset
    quotient = _exact(over, by)
    # Of all terms only the offset is split in two: of others, which grow, a part would outgrow the divisor.
    if quotient is None and isinstance(over, int) and isinstance(by, int):
        quotient, over = divmod(over, by)
    elif quotient is not None:
        over = 0
    remainder = Index(rest, over)
    if not _lies_below(remainder, by):
        return None
    return Index(whole, 0 if quotient is None else quotient), remainder


def _exact(s: Extent, by: Extent) -> Extent | None:
    """s / by where it is whole, else None."""
    if isinstance(s, int) and s == 0:
        return 0
    if not isinstance(s, Size) and not isinstance(by, Size):
        return s // by if s % by == 0 else None
    quotient = s // by  # of named sizes: rounded down, so it is multiplied again to see
    return quotient if quotient * by == s else None


def _lies_below(index: Index, by: Extent) -> bool:
    """Whether an index is surely in [0, by)."""
    if isinstance(index.offset, int) and index.offset < 0:
        return False
    below = index.below()
    if below is None:
        return False
    if isinstance(below, int) and isinstance(by, int):
        return below <= by
    return below == by or (isinstance(below, int) and below <= 1)
