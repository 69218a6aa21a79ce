"""Loops and branches on parts: their regions for what a rank has, and the sums over ranks after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.parts import plain_axes
from weft.ir.graph import Array, Graph, Node, Value
from weft.ops.factors import Names, resized
from weft.parallel.cuts import local_type
from weft.parallel.mesh import Cut
from weft.parallel.regions import Inside, filled_with

if TYPE_CHECKING:
    from weft.parallel.partition import Partition


def place_regions(partition: Partition, node: Node, inside: Inside) -> None:
    """Write a loop or branches on parts, then the sums over ranks of what only was added up."""
    axes = partition.axes_of(node, inside.factors)
    ins, cuts = partition.cut_inputs(node, inside.factors, axes)
    for name, places in inside.once.items():
        for i in places if name in axes else ():
            ins[i] = partition.first_of(node.inputs[i], ins[i], plain_axes(axes[name]), node)
    partition.append(node, ins, _attributes(node, inside, axes, partition.mesh), cuts)
    for name, places in inside.sums.items():
        for i in places if name in axes else ():
            partition.add_up(node.outputs[i], plain_axes(axes[name]), node)


def _attributes(node: Node, inside: Inside, axes: Mapping[str, str], mesh: str) -> dict[str, Any]:
    """The attributes of a node with its regions on parts."""

    def of_part(x: Any) -> Any:
        if type(x) is Graph:
            lead = 1 if x is node.attrs.get("body") and "mapped" in node.attrs else 0
            outs = [names if i < node.attrs.get("carries", 0) else names[lead:] for i, names in made]
            return _OnParts(x, inside, axes, mesh).run(outs)
        return tuple(map(of_part, x)) if type(x) is tuple and x and type(x[0]) is Graph else x

    made = list(enumerate(inside.factors.outputs))
    return {name: of_part(x) for name, x in node.attrs.items()}


class _OnParts:
    """A region while it is written on parts."""

    def __init__(self, graph: Graph, inside: Inside, axes: Mapping[str, str], mesh: str) -> None:
        self.graph, self.inside, self.axes, self.mesh = graph, inside, axes, mesh
        self.now: dict[Value, Value] = {}
        self.constants: dict[Value, Array] = dict(graph.constants)

    def run(self, outputs: list[Names]) -> Graph:
        """The region; what it gives has dimensions of some factors, unless it is a truth value."""
        graph = self.graph
        inputs = [self._part_of(v) for v in graph.inputs]
        nodes = [self._node(node) for node in graph.nodes]
        rows = [outputs[i] if len(outputs) >= len(graph.outputs) else () for i in range(len(graph.outputs))]
        ends = [self._under(v, names) for v, names in zip(graph.outputs, rows, strict=True)]
        return graph.replace(inputs=inputs, nodes=nodes, outputs=ends, constants=self.constants)

    def _cut(self, names: Names) -> Cut:
        return tuple([self.axes.get(name, "") for name in names])

    def _part_of(self, v: Value) -> Value:
        cut = self._cut(self.inside.names[v])
        self.now[v] = Value(local_type(v.type, cut, self.mesh), v.name)
        return self.now[v]

    def _under(self, v: Value, names: Names) -> Value:
        """A value as it is; of a constant that is filled with a number the part of some factors."""
        if v in self.now or not any(self._cut(names)) or filled_with(self.graph, v) is None:
            return self.now.get(v, v)
        part = Value(local_type(v.type, self._cut(names), self.mesh))
        self.constants[part] = np.full(part.type.shape, filled_with(self.graph, v), part.type.dtype)
        return part

    def _node(self, node: Node) -> Node:
        whole = [("",) * v.type.ndim for v in node.inputs]
        rows = self.inside.rows[node][0] if node in self.inside.rows else whole
        ins = [self._under(v, names) for v, names in zip(node.inputs, rows, strict=True)]
        outs = [self._part_of(v) for v in node.outputs]
        if node in self.inside.inner:
            inner, names = self.inside.inner[node]
            axes = {mine: self.axes[name] for mine, name in names.items() if name in self.axes}
            attrs = _attributes(node, inner, axes, self.mesh)
        else:
            types = [v.type for v in node.inputs], [v.type for v in ins], [v.type for v in outs]
            attrs = resized(node.op, node.attrs, *types)
        return Node(node.op, ins, attrs, outs, node.location)
