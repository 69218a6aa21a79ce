"""Virtual shards: a program for S ranks along an axis, run by fewer, each of which stands for several.

So that results do not depend on the number of ranks, the batch is always cut into S shards, and a program is
partitioned for S ranks. A rank then runs its k = S / n shards one after another, by a loop whose body is the
same for every n; sums over the axis add up the k parts by the tree over shards, and what ranks have by the
rest of that tree. What all shards have in common, such as an optimizer's step, runs once, outside of loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.ranks import axis_size
from weft.errors import ParallelError
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.ops import collective as ops
from weft.ops.arithmetic import add, maximum, minimum, mul
from weft.ops.control import scan
from weft.ops.view.primitives import broadcast_to, join, reshape
from weft.ops.view.slices import slice_axes
from weft.passes.base import graph_pass

FOLDS: Mapping[Any, Any] = {ops.all_reduce: add, ops.all_reduce_max: maximum, ops.all_reduce_min: minimum}
STARTS = (ops.take_shard, ops.axis_index)  # what makes a value of each shard of one of all
_WIDTH = 8  # rows that are folded at a time
ENDS = (*FOLDS, ops.all_gather)  # what makes a value of all of those of the shards


@graph_pass(once=True)
def fold_shards(graph: Graph, mesh: str = "", axis: str = "data") -> Graph:
    """The program of a rank of a mesh, of one for a mesh with more ranks along an axis.

    Args:
        graph: of a rank of the larger mesh.
        mesh: of the ranks there are.
        axis: along which each of them stands for several.
    """
    meshes = {n.attrs["mesh"] for n in graph.nodes if "mesh" in n.attrs and n.op.name != "shard"}
    if not meshes:
        return graph
    (virtual,) = meshes - {mesh} or meshes  # beside it, collectives may be of the ranks already
    return _Folding(graph, virtual, mesh, axis).run()


def what_varies(graph: Graph, axis: str, apart: str = "") -> tuple[set[Value], set[Node]]:
    """The values that each shard has its own of, and the nodes that make one of those of all shards.

    Args:
        graph: of a rank of the larger mesh.
        axis: along which there are shards.
        apart: the mesh of ranks, whose collectives are none of shards.
    """
    varying: set[Value] = set()
    ends: set[Node] = set()
    for node in graph.nodes:
        along = node.attrs.get("axis") if node.op.sequence or node.op.ambient else None
        crosses = isinstance(along, str) and axis in along.split(",") and node.attrs["mesh"] != apart
        varies = any(v in varying for v in node.inputs)
        if crosses and (along != axis or node.op not in (*STARTS, *ENDS)):
            raise _refused(node, axis)
        if crosses and node.op in ENDS:
            ends.add(node)
        elif varies or (crosses and node.op in STARTS):
            varying.update(node.outputs)
    return varying, ends


class _Folding:
    """A program while it is being folded.

    Attributes:
        count: how many shards a rank stands for.
        varying: values that each shard has its own of.
        ends: nodes that make a value of all of those of the shards.
        turn: of a node that shards run, the number of the loop that does.
        now: of a varying value, those of all shards of this rank, stacked.
    """

    def __init__(self, graph: Graph, virtual: str, mesh: str, axis: str) -> None:
        self.graph, self.mesh, self.axis = graph, mesh, axis
        self.count = axis_size("fold_shards", virtual, axis) // axis_size("fold_shards", mesh, axis)
        self.varying, self.ends = what_varies(graph, axis, "" if virtual == mesh else mesh)
        self.turn = self._turns()
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.now: dict[Value, Value] = {}

    # What runs where

    def _turns(self) -> dict[Node, int]:
        """For each node of shards the loop that runs it: as late as what uses it allows, so that loops hand
        on as little as possible; a value of all is there before a loop with its number.
        """
        early: dict[Value, int] = {}
        for node in self.graph.nodes:
            level = max([early.get(v, 0) for v in node.inputs], default=0) + (node in self.ends)
            early.update(dict.fromkeys(node.outputs, level))
        last = max(early.values(), default=0)
        late: dict[Value, int] = {}
        turns: dict[Node, int] = {}
        for node in reversed(self.graph.nodes):
            level = min([late.get(v, last) for v in node.outputs], default=last)
            if node in self.ends:
                level -= 1
            elif any(v in self.varying for v in node.outputs):
                level = turns[node] = min(level, max(last - 1, 0))
            for v in node.inputs:
                late[v] = min(late.get(v, last), level)
        return turns

    # Writing

    def run(self) -> Graph:
        """The graph of a rank."""
        pending = list(self.graph.nodes)
        made = {*self.graph.inputs, *self.graph.constants}
        for turn in range(max(self.turn.values(), default=-1) + 1):
            pending = self._place_common(pending, made)
            body = [n for n in pending if self.turn.get(n) == turn]
            self._place_loop(body, turn)
            made.update(v for n in body for v in n.outputs)
            pending = [n for n in pending if self.turn.get(n) != turn]
        rest = self._place_common(pending, made)
        assert not rest, f"nobody runs {rest}"
        return self.graph.replace(nodes=self.nodes, constants=self.constants)

    def _place_common(self, nodes: Sequence[Node], made: set[Value]) -> list[Node]:
        """Write what runs once and whose inputs are there; gives the other nodes."""
        left = []
        for node in nodes:
            if node in self.turn or not made.issuperset(node.inputs):
                left.append(node)
                continue
            made.update(node.outputs)
            if node in self.ends:
                self._place_end(node)
            else:
                self.nodes.append(self._in_mesh(node))
        return left

    def _in_mesh(self, node: Node) -> Node:
        if "mesh" not in node.attrs:
            return node
        return Node(node.op, node.inputs, {**node.attrs, "mesh": self.mesh}, node.outputs, node.location)

    def _place_end(self, node: Node) -> None:
        """A sum or a gathering: of the shards of this rank first, then of the ranks."""
        (x,), (out,), attrs = node.inputs, node.outputs, {**node.attrs, "mesh": self.mesh}
        stacked = self.now.get(x)
        if stacked is None:  # the same for all shards, each of which counts
            stacked = self._emit(broadcast_to, [x], node.location, shape=(self.count, *x.type.shape))
        if node.op is ops.all_gather:
            self.nodes.append(Node(ops.gather_shards, [stacked], attrs, [out], node.location))
            return
        mine = self._folded(stacked, FOLDS[node.op], node.location)
        self.nodes.append(Node(node.op, [mine], attrs, [out], node.location))

    def _folded(self, x: Value, fold: Any, at: Location | None) -> Value:
        """The rows of a stack folded by the tree over shards: neighbours first, one without goes up.

        Several levels of the tree are by elements of the same stack, so that a kernel reads it once.
        """
        while (count := x.type.shape[0]) > 1:
            width = next(n for n in (_WIDTH, 4, 2) if count % n == 0 or n == 2)
            rows = [self._every(x, width, first, at) for first in range(width)]
            while len(rows) > 1:
                rows = [self._emit(fold, rows[i : i + 2], at) for i in range(0, len(rows), 2)]
            even = count % width == 0
            x = rows[0] if even else self._emit(join, [rows[0], self._last(x, at)], at, axis=0)
        return self._emit(reshape, [x], at, shape=x.type.shape[1:])

    def _every(self, x: Value, width: int, first: int, at: Location | None) -> Value:
        """Of each so many rows one."""
        shape = x.type.shape
        starts, steps = (first, *[0] * (len(shape) - 1)), (width, *[1] * (len(shape) - 1))
        stops = (shape[0] // width * width, *shape[1:])
        return self._emit(slice_axes, [x], at, starts=starts, stops=stops, steps=steps)

    def _last(self, x: Value, at: Location | None) -> Value:
        shape = x.type.shape
        starts = (shape[0] - 1, *[0] * (len(shape) - 1))
        return self._emit(slice_axes, [x], at, starts=starts, stops=shape, steps=(1,) * len(shape))

    def _place_loop(self, body: list[Node], turn: int) -> None:
        """One loop over the shards of this rank; what others need of it comes out stacked."""
        for node in body:
            if node.op in STARTS and node.attrs["axis"] == self.axis:
                self._place_start(node)
        inner = [n for n in body if not any(v in self.now for v in n.outputs)]
        if not inner:
            return
        own = {v for n in inner for v in n.outputs}
        used = dict.fromkeys(v for n in inner for v in n.inputs if v not in own and v not in self.constants)
        rows = [v for v in used if v in self.now]
        fixed = [v for v in used if v not in self.now]
        wanted = self._wanted(own, turn)
        inputs = [Value(v.type, v.name) for v in (*rows, *fixed)]
        region = self._region(inner, dict(zip((*rows, *fixed), inputs, strict=True)), inputs, wanted)
        number = self._emit(ops.shards_here, [], None, count=self.count, mesh=self.mesh)
        operands = [number, *[self.now[v] for v in rows], *fixed]
        outs = [Value(TensorType((self.count, *v.type.shape), v.type.dtype)) for v in wanted]
        loop: dict[str, Any] = {"body": region, "carries": 0, "mapped": len(rows), "length": self.count}
        loop |= {"reverse": False, "counted": True, "checkpoint_every": None}
        self.nodes.append(Node(scan, operands, loop, outs, None))
        self.now.update(zip(wanted, outs, strict=True))

    def _wanted(self, own: set[Value], turn: int) -> list[Value]:
        """Values of a loop that a later one, or a sum, needs."""
        later = [n for n in self.graph.nodes if n in self.ends or self.turn.get(n, turn) != turn]
        return list(dict.fromkeys(v for n in later for v in n.inputs if v in own))

    def _region(
        self, nodes: list[Node], now: dict[Value, Value], inputs: list[Value], wanted: list[Value]
    ) -> Graph:
        constants: dict[Value, Array] = {}
        for node in nodes:
            for v in node.inputs:
                if v in self.constants and v not in now:
                    now[v] = Value(v.type, v.name)
                    constants[now[v]] = self.constants[v]
        body = []
        for node in nodes:
            now.update({v: Value(v.type, v.name) for v in node.outputs})
            ins, outs = ([now[v] for v in values] for values in (node.inputs, node.outputs))
            body.append(self._in_mesh(Node(node.op, ins, node.attrs, outs, node.location)))
        return Graph("shard", inputs, body, [now[v] for v in wanted], constants=constants)

    def _place_start(self, node: Node) -> None:
        at, (out,) = node.location, node.outputs
        if node.op is ops.take_shard:
            attrs = {**node.attrs, "count": self.count, "mesh": self.mesh}
            self.now[out] = self._emit(ops.take_shards, list(node.inputs), at, **attrs)
            return
        place = self._emit(ops.axis_index, [], at, axis=self.axis, mesh=self.mesh)
        width, numbers = Value(TensorType((), int64)), Value(TensorType((self.count,), int64))
        self.constants |= {width: np.array(self.count), numbers: np.arange(self.count)}
        self.now[out] = self._emit(add, [numbers, self._emit(mul, [place, width], at)], at)

    def _emit(self, op: Any, inputs: list[Value], at: Location | None, **attrs: Any) -> Value:
        out = Value(op.type_rule(*[v.type for v in inputs], **attrs))
        self.nodes.append(Node(op, inputs, attrs, [out], at))
        return out


def _refused(node: Node, axis: str) -> ParallelError:
    message = f"a program on virtual shards must only sum, gather and cut along {axis!r}"
    got = f"{node.op.name} along {node.attrs['axis']!r}"
    where = None if node.location is None else (node.location.file, node.location.line)
    hint = "compile it with reproducible=False"
    return ParallelError("compile", f"{message}, got {got}", hint=hint, location=where)
