"""State over the ranks of a batch: of what all would hold and compute alike, each has a part.

``partition`` has shared out the work on a batch; along its axis, parameters, their gradients and the state of
an optimizer are whole on every rank. Where they are placed, this pass cuts them: an optimizer's step works on
parts, parameters are gathered where something needs them whole, and a gradient that is only needed in parts
comes by ``reduce_scatter``. That is ZeRO (Rajbhandari and others, "ZeRO: memory optimizations toward training
trillion parameter models", 2020).

Values that each rank has of its own, made of its part of the batch, are left alone. With ``ordered`` no bit
depends on the number of ranks: only steps by elements are cut, and moves; a sum over all elements, as of the
norm of gradients, is computed of whole tensors. Kernels do not round between a product and a sum, so what is
needed both in parts and whole is computed twice instead of being gathered: data moves only where it is in
memory in any case, at inputs, results and collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.parts import Cut
from weft.ir.graph import Graph, Node, Value
from weft.ops import collective as ops
from weft.ops.factors import Factors, options, resized
from weft.ops.view.primitives import permute, reshape
from weft.parallel.cuts import dimension_cut, divides, factor_cut, local_type, node_factors, whole_cut
from weft.parallel.partition import LIMIT, Partition
from weft.parallel.propagate import Propagation
from weft.parallel.scatter import scatter_sums
from weft.passes.base import graph_pass

_ENDS = (ops.all_reduce, ops.all_reduce_max, ops.all_reduce_min, ops.all_gather, ops.gather_shards)
_TAKES = (ops.take_shard, ops.take_shards)


@graph_pass(once=True)
def place_state(
    graph: Graph,
    mesh: str = "",
    axis: str = "data",
    inputs: Sequence[Cut] = (),
    outputs: Sequence[Cut] = (),
    ordered: bool = True,
) -> Graph:
    """The program of a rank that holds parts along the axis of a batch.

    Args:
        graph: of a rank, to which all inputs are whole along the axis.
        mesh: of the ranks there are.
        axis: of the batch.
        inputs: for each input the cut that it has, by that axis alone.
        outputs: likewise for each result.
        ordered: whether bits must not depend on the number of ranks.
    """
    if not any(map(any, (*inputs, *outputs))):
        return graph
    own = _own_nodes(graph, axis)

    def factors_of(node: Node) -> Factors | None:
        return None if node in own else _factors(node, ordered)

    given = dict(zip(graph.inputs, inputs, strict=True))  # whole ones too: they stay so
    ends = dict(zip(graph.outputs, outputs, strict=False))  # likewise; what overwrites state may be gathered
    found = Propagation(graph, mesh, {**ends, **given}, factors_of).run()
    return scatter_sums(_StatePartition(graph, mesh, found.cuts, given, ordered, own).run(outputs))


def _own_nodes(graph: Graph, axis: str) -> set[Node]:
    """The nodes whose results each rank along an axis has of its own."""
    values: set[Value] = set()
    found: set[Node] = set()
    for node in graph.nodes:
        along = _along(node)
        crosses = axis in along
        inside = any(axis in _along(n) for region in node.regions for n in region.walk())
        if crosses and node.op in _ENDS:
            found.add(node)
        elif crosses or inside or any(v in values for v in node.inputs):
            found.add(node)
            values.update(node.outputs)
    return found


def _along(node: Node) -> list[str]:
    axis = node.attrs.get("axis")
    meets = node.op.sequence or node.op.ambient
    return axis.split(",") if meets and isinstance(axis, str) else []


def _factors(node: Node, ordered: bool) -> Factors | None:
    """The factors along which a node may be cut."""
    factors = node_factors(node)
    if factors is None or not ordered:
        return factors
    return factors if node.op.scalar is not None or node.op.moves else None


class _StatePartition(Partition):
    def __init__(
        self, graph: Graph, mesh: str, wanted: Any, given: Any, ordered: bool, own: set[Node]
    ) -> None:
        super().__init__(graph, mesh, wanted, given, LIMIT, ordered)
        self.own = own
        steps = [n for n in graph.nodes if n not in own and _factors(n, ordered) is not None]
        self.makers = {v: n for n in steps for v in n.outputs} if ordered else {}
        self.asked.update(v for node in graph.nodes for v in node.outputs)  # placement asks for what moves

    def place(self, node: Node) -> None:
        """Write what a node is on parts."""
        if node.op in _TAKES and self._takes_part(node):
            (out,) = node.outputs
            self.now[out] = self._own_part(node), whole_cut(out.type)
            return
        self.place_by(node, None if node in self.own else _factors(node, self.ordered))

    def cut_as(self, v: Value, cut: Cut, user: Node | None, asked: bool) -> Value:
        """The part of a value under a cut; for a node, what is not so yet is computed so."""
        node = self.makers.get(v) if user is not None else None
        if node is None or self.now[v][1] == cut:
            return super().cut_as(v, cut, user, asked)
        if (v, cut) not in self.made:
            self.made[v, cut] = self._again(node, v, cut)
        return self.made[v, cut]

    def _again(self, node: Node, v: Value, cut: Cut) -> Value:
        factors = _factors(node, self.ordered)
        assert factors is not None
        names = factors.outputs[node.outputs.index(v)]
        claims = [factor_cut(name, a) for name, a in zip(names, cut, strict=True) if a]
        axes = dict([claim for claim in claims if claim is not None])
        rows = (*factors.inputs, *factors.outputs)
        if None in claims or any(
            not divides(s, axes[n], self.mesh) for s, n in self._sizes(node, rows, axes)
        ):
            return super().cut_as(v, cut, node, True)
        cuts = [tuple([dimension_cut(n, axes) for n in row]) for row in rows]
        count = len(node.inputs)
        ins = [self.cut_as(x, c, node, True) for x, c in zip(node.inputs, cuts[:count], strict=True)]
        outs = [
            Value(local_type(x.type, c, self.mesh), x.name)
            for x, c in zip(node.outputs, cuts[count:], strict=True)
        ]
        types = [x.type for x in node.inputs], [x.type for x in ins], [x.type for x in outs]
        self.nodes.append(Node(node.op, ins, resized(node.op, node.attrs, *types), outs, node.location))
        return outs[node.outputs.index(v)]

    def _sizes(self, node: Node, rows: Sequence[Sequence[str]], axes: Any) -> list[tuple[Any, str]]:
        """The sizes of dimensions that are cut, with their factors."""
        values = (*node.inputs, *node.outputs)
        pairs = [
            (s, n)
            for x, row in zip(values, rows, strict=True)
            for s, n in zip(x.type.shape, row, strict=True)
        ]
        return [(s // count, base) for s, n in pairs for count, base in options(n) if base in axes]

    def _takes_part(self, node: Node) -> bool:
        """Whether a node takes the part of a batch that this rank has already."""
        cut = self.now[node.inputs[0]][1]
        if node.attrs["mesh"] != self.mesh:
            return False  # of a microbatch: its rows may be those of another rank
        return cut[node.attrs["dim"]] == node.attrs["axis"] and sum(map(bool, cut)) == 1

    def _own_part(self, node: Node) -> Value:
        part, at = self.now[node.inputs[0]][0], node.location
        if node.op is ops.take_shard:
            return part
        dim, count = node.attrs["dim"], node.attrs["count"]
        shape = part.type.shape
        split = (*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :])
        order = (dim, *[d for d in range(len(split)) if d != dim])
        return self.emit(permute, [self.emit(reshape, [part], at, shape=split)], at, axes=order)
