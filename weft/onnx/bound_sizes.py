"""Open sizes that a model itself fixes: the channels of a weight, the features of a product, a second batch.

An input float[N,C,H,W] that is convolved with a weight of 3 channels has C = 3. The node where that shows is
met when arguments have their types already, so the import begins again with what it was told.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from weft.base.sizes import Atom, Size, simplest, size_names


class ToldSizeError(Exception):
    """A node tells what an open size of an input is; raised through all that imports, which then begins anew.

    Attributes:
        name: of the size.
        value: a number, or another size.
    """

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        self.name = name
        self.value = value


def solved_name(a: Any, b: Any, names: Collection[str]) -> tuple[str, Any] | None:
    """The name of a size, and what it must be for two sizes or shapes to be equal; None if none solves it.

    >>> from weft.base.size_text import parse_size
    >>> from weft.onnx.bound_sizes import solved_name
    >>> solved_name(parse_size("2*c"), 6, {"c"})
    ('c', 3)
    >>> solved_name(parse_size("n*c"), parse_size("6*n"), {"n", "c"})
    ('c', 6)
    >>> solved_name((parse_size("n"), 4), (parse_size("m"), 4), {"n", "m"})
    ('m', n)
    """
    pairs = zip(a, b, strict=False) if isinstance(a, tuple) else [(a, b)]
    for one, other in pairs:
        difference = one - other
        if isinstance(difference, Size):
            return _root(_without_common_names(difference), names)
        if difference:
            return None
    return None


def _without_common_names(size: Size) -> Size:
    """A size whose terms share no name: n*c-6*n is 0 where c-6 is."""
    terms = list(size._terms)
    common: list[Atom] = []
    for atom in terms[0]:
        if all(term.count(atom) > common.count(atom) for term in terms):
            common.append(atom)
    divided = {_less(term, common): factor for term, factor in size._terms.items()}
    return Size(divided) if common else size


def _less(term: tuple[Atom, ...], common: list[Atom]) -> tuple[Atom, ...]:
    left = list(term)
    for atom in common:
        left.remove(atom)
    return tuple(left)


def _root(size: Any, names: Collection[str]) -> tuple[str, Any] | None:
    """The name, and its value, that makes a size 0: the last one that stands alone in one term."""
    single = [(t[0], f) for t, f in size._terms.items() if len(t) == 1 and isinstance(t[0], str)]
    for name, factor in reversed(single):
        rest = simplest({t: f for t, f in size._terms.items() if t != (name,)})
        value = -rest * factor if abs(factor) == 1 else _quotient(-rest, factor)
        if value is None or name not in names or not size_names([value]) <= set(names) - {name}:
            continue
        if isinstance(value, Size) or value >= 1:  # n = 2*n is no reason to have nothing at all
            return name, value
    return None


def _quotient(x: Any, by: int) -> Any:
    """x divided by a number; None where it does not divide a known one without rest."""
    return x // by if not isinstance(x, Size) and x % by == 0 else None
