"""Propagation: from what a program says of a few values, how all others are cut.

Annotations (``par.shard``) and the cuts of inputs stand fast. Every node hands cuts on along its factors,
from inputs to outputs and back, until nothing changes; a dimension that is cut stays cut, so this ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.base.ranks import mesh_axes
from weft.errors import DomainError
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep, uniform
from weft.ops.collective import OPEN, shard
from weft.ops.control import scan
from weft.ops.factors import Factors
from weft.parallel.cuts import (
    Shardings,
    assign_axes,
    dimension_cut,
    divides,
    names_in,
    node_factors,
    whole_cut,
)
from weft.parallel.layout import BATCH
from weft.parallel.mesh import Cut
from weft.parallel.write_out import fits, written_out
from weft.passes.loops import as_loop
from weft.passes.lowering.decompose import decomposed

Given = Mapping[Value, Cut]
FactorsOf = Callable[[Node], Factors | None]


def propagate(graph: Graph, mesh: str, inputs: Given | None = None) -> Shardings:
    """How all values of a graph are cut.

    Args:
        graph: of whole tensors.
        mesh: as text.
        inputs: cuts of inputs that ranks get a part of; the others are whole on every rank.

    >>> import weft
    >>> from weft import parallel as par
    >>> from weft.parallel.propagate import propagate
    >>> def f(x, w):
    ...     return weft.tanh(par.shard(x, "data", None) @ w).sum(axis=1)
    >>> _ = par.mesh(data=1)
    >>> print(propagate(weft.make_graph(f, name="f")(weft.ones(8, 4), weft.ones(4, 6)), "data=1"))
    graph f(%x: f32[8@data,4], %w: f32[4,6]) {
      %0: f32[8@data,4] = shard(%x, cut=("data", ""), mesh="data=1")
      %1: f32[8@data,6] = matmul(%0, %w)
      %2: f32[8@data,6] = tanh(%1)
      %3: f32[8@data] = sum(%2, axes=(1,))
      return %3
    }
    """
    while True:
        found = Propagation(graph, mesh, inputs or {}).run()
        opened = _open_where_cut(graph, found)
        if opened is graph:
            return found
        graph = opened


def _open_where_cut(graph: Graph, found: Shardings) -> Graph:
    """The graph with ops of several loops written out that would need whole what is cut; and loops likewise,
    where that is the batch.
    """
    loops = [n for n in graph.nodes if n.op is scan and fits(n) and _needs_batch(n, found)]
    if loops:
        return written_out(graph, loops)
    stuck = {node for node in graph.nodes if node.op.decomposition is not None and _is_stuck(node, found)}
    if not stuck:
        return graph
    outs = {node.outputs for node in stuck}

    def rule(draft: Draft, node: Node) -> list[Value] | None:
        return list(decomposed(draft, node)) if node.outputs in outs else None

    return sweep(graph, {node.op: [rule] for node in stuck}, again=False)


def _needs_batch(node: Node, found: Shardings) -> bool:
    """Whether a loop needs a batch whole that is cut; not if it goes along that."""
    factors, loop = node_factors(node), as_loop(node)
    assert loop is not None
    for i, v in enumerate(node.inputs):
        names = factors.inputs[i] if factors else ("",) * v.type.ndim
        lead = 1 if v in loop.rows else 0
        pairs = zip(found.cuts.get(v, ())[lead:], names[lead:], strict=False)
        if any(BATCH in axes.split(",") and not name for axes, name in pairs):
            return True
    return False


def _is_stuck(node: Node, found: Shardings) -> bool:
    factors = node_factors(node)
    names = factors.inputs if factors else [("",) * v.type.ndim for v in node.inputs]
    rows = zip(node.inputs, names, strict=True)
    return any(axes and not n for v, row in rows for axes, n in zip(found.cuts.get(v, ()), row, strict=False))


class Propagation:
    """A graph through which cuts are handed on.

    Attributes:
        cuts: by value, so far.
        fixed: values whose cut stands.
        rules: nodes with their factors.
        replicated: nodes without, which get everything whole.
    """

    def __init__(self, graph: Graph, mesh: str, given: Given, factors_of: FactorsOf = node_factors) -> None:
        self.graph, self.mesh = graph, mesh
        self.cuts: dict[Value, Cut] = dict(given)
        # what is filled with a number may be any part of itself, another one for each who uses it
        self.fixed = {*given, *[v for v, array in graph.constants.items() if uniform(array) is not None]}
        self.rules: list[tuple[Node, Factors]] = []
        self.replicated: list[Node] = []
        for node in graph.nodes:
            factors = factors_of(node)
            if node.op is shard:
                self._annotate(node)
            elif factors is None:
                self.replicated.append(node)
            else:
                self.rules.append((node, factors))

    def _annotate(self, node: Node) -> None:
        cut, (out,) = tuple([a.replace(OPEN, "") for a in node.attrs["cut"]]), node.outputs
        known = dict(mesh_axes(self.mesh))
        for axes in filter(None, cut):
            if missing := sorted(names_in([axes]) - known.keys()):
                message = f"axes must be of the mesh ({', '.join(known)}), got {missing[0]!r}"
                raise DomainError("shard", message, location=_line(node))
        self.cuts[out] = cut
        if OPEN not in node.attrs["cut"]:
            self.fixed.add(out)

    def run(self) -> Shardings:
        """Hand cuts on until nothing changes: first where a node has no choice, then everywhere.

        Where two inputs are cut over one axis along different factors, what uses the result may say which of
        them is to be moved. At last, where a batch is joined to a dimension before it, as to the steps of a
        sequence in the products of a recurrent layer, each piece of what comes of it is cut.
        """
        for decided, in_pieces in ((True, ""), (False, ""), (False, BATCH)):
            while self._sweep(decided, in_pieces):
                pass
        named = [_named(n) for n in self.replicated if any(any(self.cuts.get(v, ())) for v in n.inputs)]
        return Shardings(self.graph, self.mesh, self.cuts, tuple(dict.fromkeys(named)))

    def _sweep(self, decided: bool, in_pieces: str) -> bool:
        """Hand cuts on once, forth and back; whether something changed."""
        changed = False
        for node, factors in (*self.rules, *reversed(self.rules)):
            changed = self._hand_on(node, factors, decided, in_pieces) or changed
        for node in self.graph.nodes:
            if node.op is shard:  # what is cut next may as well be made cut
                changed = self._set(node.inputs[0], self.cuts[node.outputs[0]]) or changed
                if OPEN in node.attrs["cut"]:
                    before = self.cuts.get(node.inputs[0], whole_cut(node.inputs[0].type))
                    changed = self._set(node.outputs[0], before) or changed
        return changed

    def _hand_on(self, node: Node, factors: Factors, decided: bool, in_pieces: str) -> bool:
        axes = assign_axes(factors, node, self.cuts, self.mesh, decided=decided, in_pieces=in_pieces)
        if not axes:
            return False
        values, rows = (*node.inputs, *node.outputs), (*factors.inputs, *factors.outputs)
        changed = False
        for v, names in zip(values, rows, strict=True):
            changed = self._set(v, tuple([dimension_cut(n, axes) for n in names])) or changed
        return changed

    def _set(self, value: Value, cut: Cut) -> bool:
        """Cut dimensions of a value that are whole yet, where nothing speaks against it."""
        if value in self.fixed:
            return False
        now = list(self.cuts.get(value, whole_cut(value.type)))
        for dim, axes in enumerate(cut):
            free = axes and not now[dim] and names_in(now).isdisjoint(names_in([axes]))
            if free and divides(value.type.shape[dim], axes, self.mesh):
                now[dim] = axes
        changed = tuple(now) != self.cuts.get(value, whole_cut(value.type))
        self.cuts[value] = tuple(now)
        return changed


def _line(node: Node) -> tuple[str, int] | None:
    return None if node.location is None else (node.location.file, node.location.line)


def _named(node: Node) -> str:
    return f"{node.op.name} at {node.location}" if node.location is not None else str(node.op.name)
