"""Named sizes in a library: what is computed from them, and which values a graph takes.

The type rules of a graph decide for a value whether it fits; compiled code cannot ask them. So values are
tried when the library is written, and what was found is said as bounds, which the library tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from weft.backends.llvm.export.code import DOUBLE, Code, word
from weft.base.records import NamedTuple
from weft.base.shapes import Shape
from weft.base.sizes import Atom, Positive, Size
from weft.errors import ShapeError, WeftError
from weft.ir.graph import Graph
from weft.ir.interpret import check_sizes, regions_fit
from weft.loop.index import Extent

LARGEST = 2**31 - 1  # so that products of sizes stay far from what a word can hold
_TRIED = (*range(10), 15, 16, 17, 31, 32, 33, 64, 65, 100, 127, 128, 255, 256, 1000, 1024, 4096, 65536, 2**20)
_COMBINATIONS = 16


class Allowed(NamedTuple):
    """The values that a named size may have: from ``least`` to ``most``."""

    name: str
    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.name} must be in {self.least}..{self.most}"


def allowed_sizes(graph: Graph, names: Sequence[str]) -> list[Allowed]:
    """Which values the named sizes of a graph may have, each whatever the others are.

    >>> import weft
    >>> from weft.backends.llvm.export.sizes import allowed_sizes
    >>> graph = weft.make_graph(lambda x: x[2])(weft.TensorType(("n",), weft.float32))
    >>> str(allowed_sizes(graph, ["n"])[0])
    'n must be in 3..2147483647'
    """
    if not names:
        return []
    base = _some_that_fit(graph, names)
    found = [_allowed(graph, name, base) for name in names]
    _check_together(graph, found)
    return found


def _fits(graph: Graph, sizes: Mapping[str, int]) -> bool:
    try:
        check_sizes(graph, sizes)
    except (WeftError, ZeroDivisionError):
        return False
    return regions_fit(graph, sizes)


def _some_that_fit(graph: Graph, names: Sequence[str]) -> dict[str, int]:
    for value in sorted(_TRIED, key=lambda n: abs(n - 8)):
        if _fits(graph, sizes := dict.fromkeys(names, value)):
            return sizes
    raise _too_complicated(graph, names)


def _allowed(graph: Graph, name: str, base: Mapping[str, int]) -> Allowed:
    """What fits where the others have values that fit: all from a first on, up to a last one."""

    def fits(n: int) -> bool:
        return _fits(graph, {**base, name: n})

    fitting = [n for n in _TRIED if fits(n)]
    first, last = fitting[0], fitting[-1]
    if fitting != [n for n in _TRIED if first <= n <= last]:
        raise _too_complicated(graph, [name])
    before = [n for n in _TRIED if n < first]
    after = [n for n in _TRIED if n > last]
    least = _border(fits, before[-1], first) if before else 0
    return Allowed(name, least, _border(fits, after[0], last) if after else LARGEST)


def _border(fits: Callable[[int], bool], outside: int, inside: int) -> int:
    """The number next to one that does not fit, on the way to it from one that does."""
    while abs(inside - outside) > 1:
        between = (inside + outside) // 2
        if fits(between):
            inside = between
        else:
            outside = between
    return inside


def _check_together(graph: Graph, found: Sequence[Allowed]) -> None:
    """Raise if sizes that fit one by one do not fit together."""
    draw = random.Random(0)
    choices = [[n for n in _TRIED if a.least <= n <= a.most] for a in found]
    for _ in range(_COMBINATIONS if len(found) > 1 else 0):
        if not _fits(graph, {a.name: draw.choice(c) for a, c in zip(found, choices, strict=True)}):
            raise _too_complicated(graph, [a.name for a in found])


def _too_complicated(graph: Graph, names: Sequence[str]) -> ShapeError:
    message = f"the values that {', '.join(names)} may have must be a range, got others in {graph.name}"
    return ShapeError("export_library", message, hint="give the example a fixed size")


# In code


def write_size(c: Code, size: Extent, values: Mapping[str, ir.Value]) -> ir.Value:
    """The value of an int or a size, by the values of names."""
    if not isinstance(size, Size):
        return word(int(size))
    total: ir.Value = None
    for atoms, factor in size._terms.items():
        part = word(factor)
        for atom in atoms:
            part = c.b.mul(part, _write_atom(c, atom, values))
        total = part if total is None else c.b.add(total, part)
    return total


def _write_atom(c: Code, atom: Atom, values: Mapping[str, ir.Value]) -> ir.Value:
    if isinstance(atom, str):
        return values[atom]
    parts = [write_size(c, part, values) for part in atom.parts]
    if isinstance(atom, Positive):
        return c.b.select(c.compare(">", parts[0], 0), parts[0], word(0))
    x, y = parts  # a quotient, rounded down
    out, rest = c.b.sdiv(x, y), c.b.srem(x, y)
    below = c.b.and_(c.compare("!=", rest, 0), c.compare("<", c.b.xor(rest, y), 0))
    return c.b.sub(out, c.b.zext(below, word(0).type))


def write_estimate(c: Code, size: Extent, values: Mapping[str, ir.Value]) -> ir.Value:
    """About the value of an int or a size, as a number that does not overflow."""
    if not isinstance(size, Size):
        return DOUBLE(float(size))
    total = DOUBLE(0.0)
    for atoms, factor in size._terms.items():
        part = DOUBLE(float(factor))
        for atom in atoms:
            part = c.b.fmul(part, _estimate_atom(c, atom, values))
        total = c.b.fadd(total, part)
    return total


def _estimate_atom(c: Code, atom: Atom, values: Mapping[str, ir.Value]) -> ir.Value:
    if isinstance(atom, str):
        return c.b.sitofp(values[atom], DOUBLE)
    parts = [write_estimate(c, part, values) for part in atom.parts]
    if isinstance(atom, Positive):
        return c.b.select(c.b.fcmp_ordered(">", parts[0], DOUBLE(0.0)), parts[0], DOUBLE(0.0))
    return c.b.fdiv(*parts)


def write_count(c: Code, shape: Shape, values: Mapping[str, ir.Value]) -> ir.Value:
    """The number of elements of a shape."""
    total: ir.Value = word(1)
    for size in shape:
        total = c.b.mul(total, write_size(c, size, values))
    return total
