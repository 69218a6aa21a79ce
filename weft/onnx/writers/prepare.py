"""Graphs as they are written: composites that have a writer sealed, groups that are one operator fused.

A sealed call is a node of an op of its own, so that passes leave what is in it as it is; all other composites
are opened. Fused are batch normalisation by running statistics, normalisation over the last axes whose mean
and variance nobody asks for, and loops of recurrent layers (``recurrent``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from weft.base.hooks import hooks
from weft.base.sizes import is_known
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import run_nodes
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


# Finding it: x * scale + shift, with scale = rsqrt(variance + eps) * weight and shift = bias - mean * scale


class _Norm(NamedTuple):
    x: Value
    statistics: Mapping[str, Value]
    eps: float


def fused(graph: Graph) -> Graph:
    """The graph with a node for each of them."""
    finder = _Finder(graph)
    used = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
    nodes = []
    for node in graph.nodes:
        norm, layer = finder.norm(node), recurrent_node(graph, finder.made, node)
        if layer is not None:
            node = layer
        elif norm is not None:
            attrs = {"given": tuple(norm.statistics), "eps": norm.eps}
            node = Node(_NORM, (norm.x, *norm.statistics.values()), attrs, node.outputs, node.location)
        elif node.op.name == "standardize" and used.isdisjoint(node.outputs[1:]) and _is_last(node):
            node = Node(_PLAIN, node.inputs, node.attrs, node.outputs[:1], node.location)
        nodes.append(node)
    return graph.replace(nodes=nodes)


def _is_last(node: Node) -> bool:
    """Whether a node works on the last axes."""
    rank, axes = node.inputs[0].type.ndim, node.attrs["axes"]
    return bool(axes) and axes == tuple(range(rank - len(axes), rank))


class _Finder:
    """Looks at the nodes that made a value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = {out: node for node in graph.nodes for out in node.outputs}

    def norm(self, node: Node) -> _Norm | None:
        """What a node computes, if it ends a batch normalisation."""
        if node.op.name != "add" or node.outputs[0].type.ndim < 2:
            return None
        for scaled, shift in self._operands(node.outputs[0], "add"):
            for x, scale in self._operands(scaled, "mul"):
                found = self._statistics(x, scale, shift)
                if found is not None and x.type == node.outputs[0].type:
                    return found
        return None

    def _statistics(self, x: Value, scale: Value, shift: Value) -> _Norm | None:
        found: dict[str, Value | None] = {}
        for root, weight in [*self._operands(scale, "mul"), (scale, None)]:
            eps = self._variance(root, found)
            if eps is None or (weight is not None and not self._channel(weight, "weight", x, found)):
                continue
            for centre, bias in [*self._operands(shift, "add"), (shift, None)]:
                if not self._mean(centre, scale, x, found):
                    continue
                if bias is not None and not self._channel(bias, "bias", x, found):
                    continue
                statistics = {k: v for k, v in found.items() if v is not None}
                wanted = TensorType((x.type.shape[1],), x.type.dtype)
                same = all(v.type == wanted for v in statistics.values())
                return _Norm(x, statistics, eps) if same and "variance" in statistics else None
        return None

    def _variance(self, root: Value, found: dict[str, Value | None]) -> float | None:
        """The eps of rsqrt(variance + eps)."""
        for (inside,) in self._inputs(root, "rsqrt"):
            for variance, eps in self._operands(inside, "add"):
                array = self.graph.constants.get(eps)
                source = self._reshaped(variance)
                if array is not None and array.shape == () and source is not None:
                    found["variance"] = source
                    return float(array)
        return None

    def _mean(self, centre: Value, scale: Value, x: Value, found: dict[str, Value | None]) -> bool:
        """Whether a value is -mean * scale."""
        for negative, factor in self._operands(centre, "mul"):
            if factor is scale:
                for (mean,) in self._inputs(negative, "neg"):
                    return self._channel(mean, "mean", x, found)
        return False

    def _channel(self, value: Value, name: str, x: Value, found: dict[str, Value | None]) -> bool:
        source = self._reshaped(value)
        fits = source is not None and value.type.shape == (x.type.shape[1], *(1,) * (x.type.ndim - 2))
        if fits:
            found[name] = source
        return fits

    def _reshaped(self, value: Value) -> Value | None:
        """The vector that a value is, with axes of size 1 after it."""
        if value.type.ndim == 1:
            return value
        for (source,) in self._inputs(value, "reshape"):
            if source.type.ndim == 1 and is_known(source.type.shape):
                return source
        return None

    def _inputs(self, value: Value, op: str) -> list[tuple[Value, ...]]:
        node = self.made.get(value)
        return [node.inputs] if node is not None and node.op.name == op else []

    def _operands(self, value: Value, op: str) -> list[tuple[Value, Value]]:
        """Both orders of the operands of the op that made a value."""
        return [pair for a, b in self._inputs(value, op) for pair in ((a, b), (b, a))]
