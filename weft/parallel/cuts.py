"""How values are cut over the axes of a mesh: a table beside a graph, that prints as its text with the cuts.

A cut names for each dimension the axes it is cut over, with commas between, or "" for a whole one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from weft.base.parts import STRIPES, plain_axes, stripes_of
from weft.base.ranks import mesh_axes
from weft.base.records import NamedTuple
from weft.ir.graph import Graph, Node, Value
from weft.ir.text import format_graph
from weft.ir.types import TensorType
from weft.ops.factors import Factors, Names, factors_of, options
from weft.parallel.mesh import Cut
from weft.parallel.regions import inside_of


class CutSize(int):
    """A size that prints with the axes it is cut over: ``1024@data``."""

    axes: str

    def __new__(cls, size: int, axes: str) -> CutSize:  # noqa: D102
        made = super().__new__(cls, size)
        made.axes = axes
        return made

    def __str__(self) -> str:
        return f"{int(self)}@{self.axes.replace(',', '@')}"


class Shardings(NamedTuple):
    """A graph with a cut for each of its values; prints as the graph with types such as ``f32[8@data,4]``.

    Attributes:
        graph: of whole tensors.
        mesh: as text.
        cuts: by value; what is not in it is whole.
        replicated: ops without a rule that get whole what could have been cut, with their lines.
    """

    graph: Graph
    mesh: str
    cuts: Mapping[Value, Cut]
    replicated: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [format_graph(_with_cuts(self.graph, self.cuts), locations=False)]
        return "\n".join([*lines, *[f"replicated, without a rule: {line}" for line in self.replicated]])


def _with_cuts(graph: Graph, cuts: Mapping[Value, Cut]) -> Graph:
    now = {v: Value(_cut_type(v.type, cut), v.name) for v, cut in cuts.items() if any(cut)}

    def node(n: Node) -> Node:
        ins, outs = ([now.get(v, v) for v in values] for values in (n.inputs, n.outputs))
        return Node(n.op, ins, n.attrs, outs, n.location)

    return graph.replace(
        inputs=[now.get(v, v) for v in graph.inputs],
        constants={now.get(v, v): a for v, a in graph.constants.items()},
        nodes=[node(n) for n in graph.nodes],
        outputs=[now.get(v, v) for v in graph.outputs],
        updates=[(now.get(a, a), now.get(b, b)) for a, b in graph.updates],
    )


def _cut_type(t: TensorType, cut: Cut) -> TensorType:
    return TensorType(tuple([CutSize(s, a) if a else s for s, a in zip(t.shape, cut, strict=True)]), t.dtype)


def whole_cut(t: TensorType) -> Cut:
    """Nothing is cut."""
    return ("",) * t.ndim


def names_in(cut: Sequence[str]) -> set[str]:
    """The axes that a cut uses."""
    return {name for part in cut if part for name in plain_axes(part).split(",")}


def ranks_along(mesh: str, axes: str) -> int:
    """How many parts a dimension has that is cut over axes."""
    sizes = dict(mesh_axes(mesh))
    return prod(sizes[name] for name in plain_axes(axes).split(",")) if axes else 1


def local_type(t: TensorType, cut: Cut, mesh: str) -> TensorType:
    """The type of a rank's part."""
    parts = [s // ranks_along(mesh, a) if a else s for s, a in zip(t.shape, cut, strict=True)]
    return TensorType(tuple(parts), t.dtype)


def node_factors(node: Node) -> Factors | None:
    """The factors of a node; None where everything must be whole."""
    if node.regions:
        inside = inside_of(node, node_factors)
        return None if inside is None else inside.factors
    types = [v.type for v in node.inputs], [v.type for v in node.outputs]
    return None if node.op.effect else factors_of(node.op, *types, node.attrs)


def assign_axes(
    factors: Factors,
    node: Node,
    cuts: Mapping[Value, Cut],
    mesh: str,
    *,
    decided: bool = False,
    in_pieces: str = "",
) -> dict[str, str]:
    """The axes that each factor of a node is cut over: those of an output first, then of the inputs.

    First of all come sums over what all inputs are cut along already: to cut them otherwise would move them,
    where each rank can as well get its part of the sum. An axis cuts one factor, and only where it divides
    the sizes of all its dimensions.

    Args:
        factors: of the node.
        node: the node.
        cuts: of its values, as far as they are known.
        mesh: as text.
        decided: whether to leave an axis out that two factors are cut over, of which one must be chosen.
        in_pieces: an axis: what may be in pieces is, where what it is made of is cut over that.
    """
    rows = [*zip(node.outputs, factors.outputs, strict=True), *zip(node.inputs, factors.inputs, strict=True)]
    sizes: dict[str, list[Any]] = {}
    for v, names in rows:
        for size, name in zip(v.type.shape, names, strict=True):
            for count, base in options(name):
                sizes.setdefault(base, []).append(size if count == 1 else size // count)
    found: dict[str, str] = {}
    for name, axes in _agreed(factors, node, cuts).items():
        if names_in(list(found.values())).isdisjoint(names_in([axes])):
            found[name] = axes
    claims = _claims(rows, cuts, in_pieces)
    open_yet = _claimed_twice(claims) if decided else set()
    for name, axes in claims:
        used = names_in(list(found.values())) | open_yet
        free = name not in found and used.isdisjoint(names_in([axes]))
        if factors.picks is not None and name == factors.picks[0] and STRIPES in axes:
            continue  # numbers tell elements that lie one behind the other
        if free and all(divides(size, axes, mesh) for size in sizes[name]):
            found[name] = axes
    return found


def _claims(
    rows: Sequence[tuple[Value, Names]], cuts: Mapping[Value, Cut], in_pieces: str
) -> list[tuple[str, str]]:
    """What the cuts of values say of factors; of one that may be in pieces, where it is cut so."""
    named = [pair for v, names in rows for pair in zip(names, cuts.get(v, ()), strict=False)]
    claims = [(name, factor_cut(name, axes)) for name, axes in named]
    maybe = {base for _, names in rows for name in names for _, base in options(name)[1:]}
    found = [(name, claim) for name, claim in claims if claim is not None]
    maybe -= {claim[0] for name, claim in found if len(options(name)) > 1 or claim[1] == in_pieces}
    return [claim for _, claim in found if claim[0] not in maybe]


def factor_cut(name: str, axes: str) -> tuple[str, str] | None:
    """What the cut of a dimension says of its factor; None if nothing.

    >>> from weft.parallel.cuts import factor_cut
    >>> factor_cut("n", "model"), factor_cut("3*n", "3*model"), factor_cut("3*n", "model")
    (('n', 'model'), ('n', 'model'), None)
    """
    if not name or not axes:
        return None
    for count, base in sorted(options(name), reverse=True):  # pieces first
        stripes = [stripes_of(axis) for axis in axes.split(",")]
        if all(n % count == 0 for n, _ in stripes):
            return base, ",".join([_striped(n // count, axis) for n, axis in stripes])
    return None


def dimension_cut(name: str, axes: Mapping[str, str]) -> str:
    """How a dimension is cut, by the axes of factors.

    >>> from weft.parallel.cuts import dimension_cut
    >>> dimension_cut("3*n", {"n": "model"})
    '3*model'
    """
    for count, base in options(name):
        if base in axes:
            stripes = [stripes_of(axis) for axis in axes[base].split(",")]
            return ",".join([_striped(n * count, axis) for n, axis in stripes])
    return ""


def _striped(count: int, axis: str) -> str:
    return axis if count == 1 else f"{count}{STRIPES}{axis}"


def _claimed_twice(claims: Sequence[tuple[str, str]]) -> set[str]:
    """The axes that two factors of a node are cut over."""
    found: dict[str, set[str]] = {}
    for name, axes in claims:
        for axis in names_in([axes]):
            found.setdefault(axis, set()).add(name)
    return {axis for axis, names in found.items() if len(names) > 1}


def _agreed(factors: Factors, node: Node, cuts: Mapping[Value, Cut]) -> dict[str, str]:
    """The factors that are summed over and along which two inputs or more are cut, all of them alike."""
    held: dict[str, list[str]] = {}
    for v, names in zip(node.inputs, factors.inputs, strict=True):
        for name, axes in zip(names, cuts.get(v, whole_cut(v.type)), strict=True):
            if factors.folds.get(name) == "add":
                held.setdefault(name, []).append(axes)
    return {name: axes[0] for name, axes in held.items() if len(axes) > 1 and axes[0] and len({*axes}) == 1}


def divides(size: Any, axes: str, mesh: str) -> bool:
    """Whether a size can be cut over axes."""
    if not isinstance(size, int) or size < 1:
        return False
    for axis in axes.split(",") if STRIPES in axes else (axes,):
        stripes, count = stripes_of(axis)[0], ranks_along(mesh, axis)
        if size % (stripes * count):
            return False
        size //= count
    return True
