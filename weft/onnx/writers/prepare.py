"""Graphs as they are written: composites that have a writer sealed, groups that are one operator fused.

A sealed call is a node of an op of its own, so that passes leave what is in it as it is; all other composites
are opened. Fused are batch normalisation by running statistics, normalisation over the last axes whose mean
and variance nobody asks for, and loops of recurrent layers (``recurrent``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import weft
from weft.base.dtypes import float32
from weft.base.hooks import hooks
from weft.base.sizes import is_known
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import run_nodes
from weft.ir.pattern import Pattern
from weft.ir.rewrite import Draft
from weft.ir.types import TensorType
from weft.onnx.writers.recurrent import recurrent_node
from weft.onnx.writers.registry import COMPOSITES, stand_in, writer
from weft.onnx.writers.writer import Ref, Writer
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
    return _all_fused(optimize(_sealed(graph), passes=_PASSES))


def _all_fused(graph: Graph) -> Graph:
    """Groups of nodes as one, in regions too."""
    nodes = [_with_regions(node, [_all_fused(region) for region in node.regions]) for node in graph.nodes]
    return fused(graph.replace(nodes=nodes))


def _sealed(graph: Graph) -> Graph:
    return graph.replace(nodes=[_sealed_node(node) for node in graph.nodes])


def _sealed_node(node: Node) -> Node:
    if node.op.name != "call" or isinstance(node.op, Sealed):
        return _with_regions(node, [_sealed(region) for region in node.regions])
    if node.attrs["function"] in COMPOSITES and hooks.call_outputs(node) == (None, ()):  # all that it gives
        attrs = {name: node.attrs[name] for name in ("function", "arguments")}
        return Node(Sealed(node.attrs["body"]), node.inputs, attrs, node.outputs, node.location)
    return _with_regions(node, [_sealed(node.attrs["body"])])


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


# Nodes and groups of them that are one operator in ONNX

NAME, PLAIN_NORM = "onnx::batch_norm", "onnx::plain_norm"


_NORM = stand_in(NAME, "given", "eps")
_PLAIN = stand_in(PLAIN_NORM, "axes", "eps", "center")


@writer(NAME)
def write_batch_norm(w: Writer, x: Ref, *statistics: Ref, given: tuple[str, ...], eps: float) -> Any:
    """x by its running mean and variance, channel by channel."""
    found = dict(zip(given, statistics, strict=True))
    channels = (x.shape[1],)
    weight = found.get("weight") or w.full(channels, 1, x.dtype)
    bias = found.get("bias") or w.full(channels, 0, x.dtype)
    return w.emit("BatchNormalization", x, weight, bias, found["mean"], found["variance"], epsilon=eps)


def fused(graph: Graph) -> Graph:
    """The graph with a node for each of them."""
    draft = Draft(graph, {})
    draft.made.update({out: node for node in graph.nodes for out in node.outputs})
    used = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
    nodes = []
    for node in graph.nodes:
        found = recurrent_node(graph, draft.made, node) or _batch_norm(draft, node)
        if (
            found is None
            and node.op.name == "standardize"
            and used.isdisjoint(node.outputs[1:])
            and _is_last(node)
        ):
            found = Node(_PLAIN, node.inputs, node.attrs, node.outputs[:1], node.location)
        nodes.append(found or node)
    return graph.replace(nodes=nodes)


def _is_last(node: Node) -> bool:
    """Whether a node works on the last axes."""
    rank, axes = node.inputs[0].type.ndim, node.attrs["axes"]
    return bool(axes) and axes == tuple(range(rank - len(axes), rank))


@cache
def _norm_patterns() -> list[tuple[tuple[str, ...], Pattern]]:
    """What ``batch_norm`` is by given statistics, with those that it takes; of a matrix without new axes."""
    found = []
    for rank, more in product((3, 2), (("weight", "bias"), ("weight",), ("bias",), ())):
        names = ("mean", "variance", *more)
        types = [TensorType((4,) * rank, float32), *[TensorType((4,), float32)] * len(names)]

        def norm(x: Any, mean: Any, variance: Any, *rest: Any, more: tuple[str, ...] = more) -> Any:
            return weft.batch_norm(x, mean, variance, **dict(zip(more, rest, strict=True)))

        graph = optimize(weft.make_graph(norm)(*types), passes=_PASSES)
        found.append((names, Pattern(graph, loose=True)))
    return found


def _batch_norm(draft: Draft, node: Node) -> Node | None:
    """The node of a batch normalisation that ends with a node, or None."""
    if node.op.name != "add" or node.outputs[0].type.ndim < 2:
        return None
    for names, pattern in _norm_patterns():
        for bound in pattern.matches(draft, [(pattern.graph.outputs[0], node.outputs[0])], {}):
            x, *statistics = [bound[v] for v in pattern.graph.inputs]
            reshaped = [bound[n.outputs[0]] for n in pattern.graph.nodes if n.op.name == "reshape"]
            eps = [draft.constants[bound[v]] for v in pattern.graph.constants]
            if (
                x.type == node.outputs[0].type
                and _are_of_channels(x, statistics, reshaped)
                and eps[0].shape == ()
            ):
                attrs = {"given": names, "eps": float(eps[0])}
                return Node(_NORM, (x, *statistics), attrs, node.outputs, node.location)
    return None


def _are_of_channels(x: Value, vectors: Sequence[Value], reshaped: Sequence[Value]) -> bool:
    """Whether vectors have an element for each channel of x, and stand there as these do."""
    channels, dtype = x.type.shape[1], x.type.dtype
    wanted, spread = TensorType((channels,), dtype), (channels, *(1,) * (x.type.ndim - 2))
    known = all(v.type == wanted for v in vectors) and (not reshaped or is_known((channels,)))
    return known and all(v.type.shape == spread for v in reshaped)
