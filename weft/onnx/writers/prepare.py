"""Graphs as they are written: composites that have a writer sealed, all others opened, nothing twice.

A sealed call is a node of an op of its own, so that passes leave what is in it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.hooks import hooks
from weft.ir.graph import Graph, Node
from weft.ir.interpret import run_nodes
from weft.onnx.writers.fuse import fused
from weft.onnx.writers.registry import COMPOSITES
from weft.ops.op import Op, no_gradient
from weft.passes.pipeline import optimize
from weft.passes.simplify import load_rules

_PASSES = ("inline", "fold", "simplify", "cse", "share_loops", "dce")


class Sealed(Op):
    """A call of a composite as an op.

    Attributes:
        body: what the composite is made of.
    """

    __slots__ = ("body",)

    def __init__(self, body: Graph) -> None:
        types = tuple(v.type for v in body.outputs)
        super().__init__(
            "call",
            inputs=(),
            variadic="xs",
            attrs=("function", "arguments"),
            eval=lambda *xs, function, arguments: tuple(run_nodes(body, xs)),
            type_rule=lambda *xs, function, arguments: types,
            vjp=no_gradient("it stands in exported graphs alone"),
            samples=None,
            outputs=0,
        )
        self.body = body


def prepared(graph: Graph) -> Graph:
    """The graph as it is written."""
    load_rules()
    return _fused(optimize(_sealed(graph), passes=_PASSES))


def _fused(graph: Graph) -> Graph:
    """Groups of nodes as one, in regions too."""
    nodes = [_with_regions(node, [_fused(region) for region in node.regions]) for node in graph.nodes]
    return fused(graph.replace(nodes=nodes))


def _sealed(graph: Graph) -> Graph:
    return graph.replace(nodes=[_sealed_node(node) for node in graph.nodes])


def _sealed_node(node: Node) -> Node:
    if node.op.name != "call" or isinstance(node.op, Sealed):
        return _with_regions(node, [_sealed(region) for region in node.regions])
    if node.attrs["function"] in COMPOSITES and _is_whole(node):
        attrs = {name: node.attrs[name] for name in ("function", "arguments")}
        return Node(Sealed(node.attrs["body"]), node.inputs, attrs, node.outputs, node.location)
    return _with_regions(node, [_sealed(node.attrs["body"])])


def _is_whole(node: Node) -> bool:
    """Whether a call gives what its function does: no value from inside that a gradient keeps."""
    return bool(hooks.call_outputs(node) == (None, ()))


def _with_regions(node: Node, regions: Sequence[Graph]) -> Node:
    if not regions:
        return node
    left = list(regions)
    attrs: dict[str, Any] = {}
    for name, value in node.attrs.items():
        if type(value) is Graph:
            attrs[name] = left.pop(0)
        elif type(value) is tuple and value and type(value[0]) is Graph:
            attrs[name] = tuple(left.pop(0) for _ in value)
        else:
            attrs[name] = value
    return Node(node.op, node.inputs, attrs, node.outputs, node.location)
