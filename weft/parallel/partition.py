"""Partition: from a graph of whole tensors to the graph that every rank runs, on its parts.

Every node works on parts along its factors. Where a value is cut otherwise than a node needs it, a collective
is put in, with the line of that node: ``all_to_all`` where an axis goes to another dimension, ``all_gather``
where it goes away, ``take_shard`` where it comes (which moves nothing); after a sum over what is cut comes an
``all_reduce``. Then nothing is left to know: the graph is one of parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.parts import STRIPES, plain_axes, stripes_of
from weft.errors import ParallelError
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.location import Location
from weft.ir.rewrite import uniform
from weft.ir.types import TensorType
from weft.ops import collective as ops
from weft.ops.compare import equal
from weft.ops.factors import Factors, resized
from weft.ops.select import select
from weft.ops.view.primitives import reshape
from weft.parallel.cuts import assign_axes, dimension_cut, local_type, node_factors, ranks_along, whole_cut
from weft.parallel.layout import BATCH
from weft.parallel.mesh import Cut
from weft.parallel.picks import picked_here
from weft.parallel.propagate import Given, propagate
from weft.parallel.region_parts import place_regions
from weft.parallel.regions import inside_of
from weft.parallel.ring import place_ring
from weft.parallel.scatter import scatter_sums
from weft.passes.base import graph_pass

LIMIT = 1 << 20  # bytes that a rank may get by a reshard that nobody asked for
_FOLDS = {"add": ops.all_reduce, "max": ops.all_reduce_max, "min": ops.all_reduce_min}


@graph_pass(once=True)
def partition(
    graph: Graph,
    mesh: str = "",
    inputs: Given | Sequence[Cut] | None = None,
    outputs: Sequence[Cut] | None = None,
    limit: int = LIMIT,
    ordered: bool = True,
) -> Graph:
    """The graph that every rank of a mesh runs on its parts.

    Args:
        graph: of whole tensors.
        mesh: as text.
        inputs: cuts of inputs that ranks get a part of, by value or one for each; without, all are whole.
        outputs: cuts of results that ranks give a part of; without, all are whole.
        limit: bytes that a rank may get by a reshard that nobody asked for; more is an error.
        ordered: whether sums over ranks follow one tree.

    >>> import weft
    >>> from weft import parallel as par
    >>> _ = par.mesh(data=1)
    >>> graph = weft.make_graph(lambda x: weft.exp(par.shard(x, "data")).sum(), name="f")(weft.ones(8, 4))
    >>> print(par.partition(graph, mesh="data=4").to_text(locations=False), end="")
    graph f(%x: f32[8,4]) {
      %0: f32[2,4] = take_shard(%x, axis="data", dim=0, mesh="data=4")
      %1: f32[2,4] = exp(%0)
      %2: f32[] = sum(%1, axes=(0, 1))
      %3: f32[] = all_reduce(%2, axis="data", mesh="data=4")
      return %3
    }
    """
    given = _by_value(graph, inputs)
    found = propagate(graph, mesh, given)
    parts = Partition(found.graph, mesh, found.cuts, given, limit, ordered).run(outputs)
    return scatter_sums(parts, apart=BATCH)  # along the batch, ranks may stand for several: see fold_shards


def _by_value(graph: Graph, inputs: Given | Sequence[Cut] | None) -> Given:
    if inputs is None or isinstance(inputs, Mapping):
        return inputs or {}
    return {v: cut for v, cut in zip(graph.inputs, inputs, strict=True) if any(cut)}


class Partition:
    """A graph while it is being partitioned.

    Attributes:
        now: by value of the graph its part, and how that is cut.
        made: parts of values under other cuts.
        wanted: how values should be cut.
    """

    def __init__(
        self, graph: Graph, mesh: str, wanted: Mapping[Value, Cut], given: Given, limit: int, ordered: bool
    ) -> None:
        self.graph, self.mesh, self.wanted, self.limit, self.ordered = graph, mesh, wanted, limit, ordered
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.now: dict[Value, tuple[Value, Cut]] = {v: (v, whole_cut(v.type)) for v in graph.constants}
        self.asked: set[Value] = {*graph.inputs, *graph.constants}
        self.made: dict[tuple[Value, Cut], Value] = {}
        for v in graph.inputs:
            cut = given.get(v, whole_cut(v.type))
            part = Value(local_type(v.type, cut, mesh), v.name) if any(cut) else v
            self.now[v] = part, cut

    def run(self, outputs: Sequence[Cut] | None) -> Graph:
        """The graph of parts."""
        for node in self.graph.nodes:
            self.place(node)
        results = self.graph.results
        cuts = outputs or [whole_cut(v.type) for v in results]
        ends = [self.cut_as(v, cut, None, True) for v, cut in zip(results, cuts, strict=True)]
        count = len(self.graph.outputs)
        updates = zip([self.now[old][0] for old, _ in self.graph.updates], ends[count:], strict=True)
        return Graph(
            self.graph.name,
            [self.now[v][0] for v in self.graph.inputs],
            self.nodes,
            ends[:count],
            constants=self.constants,
            roles=self.graph.roles,
            updates=list(updates),
        )

    # Nodes

    def place(self, node: Node) -> None:
        """Write what a node is on parts."""
        if node.op is ops.shard:
            (x,), (out,) = node.inputs, node.outputs
            cut = self._planned(out)
            self.now[out] = self.cut_as(x, cut, node, True), cut
            self.asked.add(out)
            return
        if node.op.sequence or node.op.ambient:
            message = f"a program for a mesh must have no collective of its own, got {node.op.name}"
            hint = "say how tensors are cut by par.shard, and leave collectives to the partition"
            raise ParallelError("partition", message, hint=hint, location=_line(node.location))
        if not place_ring(self, node):
            self.place_by(node, node_factors(node))

    def place_by(self, node: Node, factors: Factors | None) -> None:
        """Write a node on parts along its factors, or on whole values."""
        inside = inside_of(node, node_factors) if factors is not None and node.regions else None
        if inside is not None:
            place_regions(self, node, inside)
        elif factors is None:
            ins = [self.cut_as(v, whole_cut(v.type), node, False) for v in node.inputs]
            self.append(node, ins, node.attrs, [whole_cut(v.type) for v in node.outputs])
        else:
            self._place_parts(node, factors)

    def axes_of(self, node: Node, factors: Factors) -> dict[str, str]:
        """The axes that each factor of a node is cut over."""
        now = {**{v: self.now[v][1] for v in node.inputs}, **{v: self._planned(v) for v in node.outputs}}
        return assign_axes(factors, node, now, self.mesh)

    def cut_inputs(
        self, node: Node, factors: Factors, axes: Mapping[str, str]
    ) -> tuple[list[Value], list[Cut]]:
        """The inputs of a node, cut by the axes of its factors; and how its outputs are cut by them."""
        ins, outs = (
            [tuple([dimension_cut(n, axes) for n in names]) for names in rows]
            for rows in (factors.inputs, factors.outputs)
        )
        return [self.cut_as(v, c, node, False) for v, c in zip(node.inputs, ins, strict=True)], outs

    def _place_parts(self, node: Node, factors: Factors) -> None:
        """A node on parts along its factors, then what makes one of the parts of folded ones."""
        axes = self.axes_of(node, factors)
        ins, cuts = self.cut_inputs(node, factors, axes)
        outs = [local_type(v.type, c, self.mesh) for v, c in zip(node.outputs, cuts, strict=True)]
        folded = {name: plain_axes(axes[name]) for name in factors.folds if name in axes}
        if folded:
            along = ",".join(folded.values())
            ins = [self._first(v, along, node) if i in factors.once else v for i, v in enumerate(ins)]
        attrs = resized(node.op, node.attrs, [v.type for v in node.inputs], [v.type for v in ins], outs)
        picked = picked_here(self, node, factors, axes, ins, attrs)
        self.append(node, ins, attrs, cuts)
        if picked is not None:
            (v,) = node.outputs
            self.now[v] = picked(self.now[v][0]), self.now[v][1]
        for name, along in folded.items():
            for v in node.outputs:
                self.add_up(v, along, node, factors.folds[name])

    def add_up(self, v: Value, along: str, node: Node, fold: str = "add") -> None:
        """Make one of the parts of a sum, or of what else is folded, that ranks have along axes."""
        part, cut = self.now[v]
        made = self.emit(_FOLDS[fold], [part], node.location, axis=along, ordered=self.ordered)
        self.now[v] = made, cut

    def first_of(self, v: Value, part: Value, along: str, node: Node) -> Value:
        """What ranks along axes add to a sum together, that a value is to be counted in once."""
        number = self._filled(v)
        return part if number is not None and not number else self._first(part, along, node)

    def _planned(self, v: Value) -> Cut:
        return self.wanted.get(v, whole_cut(v.type))

    def append(self, node: Node, ins: Sequence[Value], attrs: Any, cuts: Sequence[Cut]) -> None:
        """Write a node whose outputs are cut."""
        types = [local_type(v.type, c, self.mesh) for v, c in zip(node.outputs, cuts, strict=True)]
        outs = [Value(t, v.name) for t, v in zip(types, node.outputs, strict=True)]
        self.nodes.append(Node(node.op, ins, attrs, outs, node.location))
        for v, part, cut in zip(node.outputs, outs, cuts, strict=True):
            self.now[v] = part, cut

    def emit(self, op: Any, inputs: Sequence[Value], location: Location | None, **attrs: Any) -> Value:
        """Write a node of one output."""
        if "axis" in attrs:
            attrs["mesh"] = self.mesh
        out = Value(op.type_rule(*[v.type for v in inputs], **attrs))
        self.nodes.append(Node(op, inputs, attrs, [out], location))
        return out

    def constant(self, number: Any, type: TensorType) -> Value:
        """A constant that is filled with a number."""
        value = Value(type)
        self.constants[value] = np.full(type.shape, number, type.dtype)
        return value

    def _first(self, v: Value, along: str, node: Node) -> Value:
        """A value on the first rank along axes, zeros on the others: it is added once."""
        index = self.emit(ops.axis_index, [], node.location, axis=along)
        zero, none = (self.constant(0, TensorType((), dtype)) for dtype in (int64, v.type.dtype))
        first = self.emit(equal, [index, zero], node.location)
        return self.emit(select, [first, v, none], node.location)

    def _filled(self, v: Value) -> Any | None:
        """The one number that fills a constant, or None."""
        return uniform(self.graph.constants[v]) if v in self.graph.constants else None

    # Resharding

    def cut_as(self, v: Value, cut: Cut, user: Node | None, asked: bool) -> Value:
        """The part of a value under a cut; where it is cut otherwise, collectives make it."""
        part, now = self.now[v]
        if now == cut:
            return part
        if (v, cut) not in self.made:
            if (number := self._filled(v)) is not None:
                self.made[v, cut] = self.constant(number, local_type(v.type, cut, self.mesh))
                return self.made[v, cut]
            if not asked and v not in self.asked:
                self._check_bytes(v, now, cut, user)
            self.made[v, cut] = self._reshard(part, now, cut, user.location if user else None)
        return self.made[v, cut]

    def _check_bytes(self, v: Value, now: Cut, cut: Cut, user: Node | None) -> None:
        """Raise if much would move that nobody asked for."""
        if all(_common(a, b)[1] == "" for a, b in zip(now, cut, strict=True)):
            return  # it only becomes finer, which moves nothing
        size = prod(local_type(v.type, cut, self.mesh).shape) * v.type.dtype.itemsize
        if size <= self.limit:
            return
        name = f"%{v.name} of {v.type}" if v.name else f"a {v.type}"
        message = (
            f"{user.op.name if user else 'the graph'} needs {name} cut as {_shown(cut)}, and it is cut as "
            f"{_shown(now)}: {size / 1e6:.1f} MB would move to each rank, which nobody asked for"
        )
        asking = f"par.shard(x, {_shown(cut)[1:-1]})"
        hint = f"ask for it where it is made: {asking}; or allow more: reshard_limit={size}"
        if user is not None and user.op is reshape:
            hint = f"ranks must divide the dimension that one is split into, such as heads; or {hint}"
        raise ParallelError("partition", message, hint=hint, location=_line(user.location if user else None))

    def _reshard(self, x: Value, now: Cut, cut: Cut, location: Location | None) -> Value:
        steps = list(now)
        for dim, axes in enumerate(cut):  # an axis that goes from one dimension to another
            moves = axes and STRIPES not in axes and not steps[dim] and axes in steps
            if moves and not cut[steps.index(axes)]:
                other = steps.index(axes)
                if x.type.shape[dim] % ranks_along(self.mesh, axes) == 0:
                    x = self.emit(ops.all_to_all, [x], location, axis=axes, split=dim, join=other)
                    steps[dim], steps[other] = axes, ""
        for dim, axes in enumerate(steps):
            kept, gone = _common(axes, cut[dim])
            if gone:
                for axis in reversed(gone.split(",")) if STRIPES in gone else (gone,):
                    x = self._by_pieces(ops.all_gather, x, axis, dim, location)
                steps[dim] = kept
        for dim, axes in enumerate(cut):
            if steps[dim] != axes:
                new = axes[len(steps[dim]) :].lstrip(",")
                for axis in new.split(",") if STRIPES in new else (new,):
                    x = self._by_pieces(ops.take_shard, x, axis, dim, location)
        return x

    def _by_pieces(self, op: Any, x: Value, axis: str, dim: int, location: Location | None) -> Value:
        """A collective along a dimension, or along each of the pieces that it has by its stripes."""
        count, name = stripes_of(axis)
        if count == 1:
            return self.emit(op, [x], location, axis=axis, dim=dim)
        shape = x.type.shape
        split = (*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :])
        pieces = self.emit(reshape, [x], location, shape=split)
        made = self.emit(op, [pieces], location, axis=name, dim=dim + 1)
        joined = (*shape[:dim], count * made.type.shape[dim + 1], *shape[dim + 1 :])
        return self.emit(reshape, [made], location, shape=joined)


def _common(axes: str, wanted: str) -> tuple[str, str]:
    """The first axes of a dimension that stay, and the others, which are gathered."""
    have, want = (a.split(",") if a else [] for a in (axes, wanted))
    count = 0
    while count < min(len(have), len(want)) and have[count] == want[count]:
        count += 1
    return ",".join(have[:count]), ",".join(have[count:])


def _shown(cut: Cut) -> str:
    return f"({', '.join(repr(axes) if axes else 'None' for axes in cut)})"


def _line(location: Location | None) -> tuple[str, int] | None:
    return None if location is None else (location.file, location.line)
