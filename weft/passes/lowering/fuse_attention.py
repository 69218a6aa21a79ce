"""Attention on long sequences as one node each way, so that scores never lie in memory as a whole.

``softmax(chain(query @ keys)) @ values`` becomes an ``attention`` node, where nobody else needs the weights,
and the products of its gradient an ``attention_gradient`` node, which computes the weights again,
from the sums of powers that the forward pass kept. Scores that a constant triangle hides are not computed, so
a NaN among the keys of later places goes unseen there.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dtypes import float32, float64
from weft.base.records import dataclass, field
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.arithmetic import mul, sub
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.fused_attention import attention, attention_gradient
from weft.ops.reduce import reduce_sum
from weft.ops.softmax import softmax_op
from weft.ops.view.primitives import permute
from weft.passes.base import graph_pass
from weft.passes.lowering.attention_match import Chain, Use, Uses, swap_last

LONG = 1 << 14  # scores of one head from which on they are not kept
SHORT = 32  # queries or keys below which kernels cannot fill a block


@graph_pass(regions=True, once=True)
def fuse_attention(graph: Graph, *, long: int = LONG, short: int = SHORT) -> Graph:
    """Make single nodes of attention on sequences with at least ``long`` scores a head.

    Attention over fewer than ``short`` queries or keys stays as it is.

    >>> import weft
    >>> x = weft.zeros((1, 1024, 8))
    >>> graph = weft.make_graph(weft.scaled_dot_product_attention)(x, x, x)
    >>> fused = graph.optimize(passes=["inline", "fuse_attention"])
    >>> [node.op.name for node in fused.nodes if node.op.name != "permute"]
    ['mul', 'attention']
    """
    for softmax in [node for node in graph.nodes if node.op is softmax_op]:
        if _is_long(softmax, long, short):
            graph = _Attention(Uses(graph), softmax).fused()
    return graph


def _is_long(softmax: Node, long: int, short: int) -> bool:
    x = softmax.inputs[0].type
    if len(x.shape) < 2 or softmax.attrs["axis"] != len(x.shape) - 1 or x.dtype not in (float32, float64):
        return False
    sizes = [s for s in x.shape[-2:] if not isinstance(s, Size)]
    if any(s < short for s in sizes):
        return False
    return len(sizes) < 2 or bool(sizes[0] * sizes[1] >= long)


@dataclass
class _Gradient:
    """What the gradient of an attention is made of.

    Attributes:
        weighted: the product that gives the gradient of weights, of the results' gradient and values.
        slope: from the gradient of what softmax saw to that of scores.
        products: by which of query, keys and values they are the gradient of.
        removed: nodes that the new one stands for.
    """

    weighted: Node
    slope: Chain
    products: dict[str, Use] = field(default_factory=dict)
    removed: set[Node] = field(default_factory=set)


class _Attention:
    """One softmax of scores, and the products around it."""

    def __init__(self, uses: Uses, softmax: Node) -> None:
        self.uses = uses
        self.softmax = softmax
        (self.weights,) = softmax.outputs
        self.shape = self.weights.type.shape
        self.causal = False

    def fused(self) -> Graph:
        """The graph with new nodes for those around the softmax; as it is where they do not fit."""
        uses = self.uses
        path = uses.path(self.softmax.inputs[0], self.shape)
        if not path or self.weights in uses.results:
            return uses.graph
        self.scores, *ops = path
        self.query, self.keys = self.scores.inputs
        if ops and uses.is_causal(ops[-1], _previous(ops[-1], path[-2])):
            self.causal = True
            ops = ops[:-1]
        self.chain = uses.chain("scores", self.scores.outputs[0], ops)
        found = self._classify()
        return uses.graph if found is None else self._replaced(path, *found)

    def _classify(self) -> tuple[Use | None, _Gradient | None] | None:
        """The product with values, and the gradient; None where weights are used otherwise."""
        forward: Use | None = None
        columns: Use | None = None
        found = list(self.uses.products(self.weights))
        for use in found:
            if use is None:
                continue
            if use.node.outputs[0].type.shape[:-2] != self.shape[:-2]:
                return None
            if use.sums_rows and columns is None:
                columns = use
            elif not use.sums_rows and not use.turned and forward is None:
                forward = use
            else:
                return None
        if found.count(None) == 0 and columns is None:
            return None if forward is None else (forward, None)
        gradient = self._gradient(forward, columns) if found.count(None) == 2 else None
        return None if gradient is None else (forward, gradient)

    def _gradient(self, forward: Use | None, columns: Use | None) -> _Gradient | None:
        """The gradient, from ``(g - sum(g * weights)) * weights`` on."""
        uses, weights = self.uses, self.weights
        factors = [n for n in uses.of(weights) if n.op is mul]
        inner = next((n for n in factors if _is_row_sum(uses.only(n.outputs[0]))), None)
        outer = next((n for n in factors if n is not inner), None)
        if inner is None or outer is None:
            return None
        total = uses.only(inner.outputs[0])
        shifted = uses.maker(_other(outer, weights), sub)
        weighted = uses.maker(_other(inner, weights), matmul)
        if total is None or shifted is None or weighted is None or uses.only(shifted.outputs[0]) is None:
            return None
        (g,) = weighted.outputs
        if tuple(shifted.inputs) != (g, total.outputs[0]) or uses.only(total.outputs[0]) is not shifted:
            return None
        if set(uses.of(g)) != {inner, shifted} or g in uses.results or g.type.shape != self.shape:
            return None
        if forward is not None and not uses.is_same(weighted.inputs[1], forward.other[0], turned=True):
            return None
        return self._products(weighted, outer, columns, {inner, outer, total, shifted, weighted})

    def _products(
        self, weighted: Node, outer: Node, columns: Use | None, removed: set[Node]
    ) -> _Gradient | None:
        """The products of the gradients of weights and of scores."""
        uses, (start,) = self.uses, outer.outputs
        ops = uses.elementwise_after(start)
        x = ops[-1].outputs[0] if ops else start
        removed.update(ops)
        if self.causal and ops and uses.hides_gradient(ops[-1], start):
            ops = []
        if x in uses.results or x.type.shape != self.shape:
            return None
        found = _Gradient(weighted, uses.chain("slope", start, ops), {}, removed)
        if columns is not None:
            found.products["values"] = columns
        for use in uses.products(x):
            name = "keys" if use is not None and use.sums_rows else "query"
            if use is None or name in found.products:
                return None
            found.products[name] = use
        return found if self._fit(found) else None

    def _fit(self, found: _Gradient) -> bool:
        """Whether the other sides of the products are what they must be."""
        expected = {"query": (self.keys, True), "keys": (self.query, False),
                    "values": (found.weighted.inputs[0], False)}  # fmt: skip
        for name, use in found.products.items():
            value, turned = expected[name]
            if not self.uses.is_same(value, use.other[0], turned=turned != use.other[1]):
                return False
            if use.node.outputs[0].type.shape[:-2] != self.shape[:-2]:
                return False
            found.removed.update((use.node, *use.views))
        out = found.weighted.inputs[0].type.shape
        return bool(found.products) and out == (*self.shape[:-1], found.weighted.inputs[1].type.shape[-2])

    # New nodes

    def _replaced(self, path: Sequence[Node], forward: Use | None, gradient: _Gradient | None) -> Graph:
        """The graph with new nodes; as it is if something needs a gradient before it can be computed."""
        uses, added = self.uses, list[tuple[int, Node]]()
        removed = {*path, self.softmax}
        if forward is not None:
            removed.add(forward.node)
            added.append((uses.place[forward.node], self._forward_node(forward.other[0], forward.node)))
        if gradient is not None:
            removed |= gradient.removed
            place = self._gradient_place(forward, gradient)
            if place is None:
                return uses.graph
            if forward is None:
                values = _turned(gradient.weighted.inputs[1], gradient.weighted)
                added += [(place, values), (place, self._forward_node(values.outputs[0], None))]
            added += [(place, node) for node in self._gradient_nodes(added[-1][1], gradient)]
        return _with_nodes(uses.graph, removed, added)

    def _gradient_place(self, forward: Use | None, gradient: _Gradient) -> int | None:
        """The first place where all that the gradient uses is there; None if it is needed before that."""
        uses = self.uses
        g, values = gradient.weighted.inputs
        used = [self.query, self.keys, g, *self.chain.others, *gradient.slope.others]
        used.append(values if forward is None else forward.node.outputs[0])
        place = 1 + max(uses.made_at(v) for v in used)
        products = [use.node for use in gradient.products.values()]
        users = [uses.place[user] for node in products for user in uses.of(node.outputs[0])]
        return place if place <= min(users, default=place) else None

    def _forward_node(self, values: Value, product: Node | None) -> Node:
        """The node for the product of weights and values; None where only the gradient needs it."""
        inputs = [self.query, self.keys, values, *self.chain.others]
        attrs = {"scores": self.chain.region, "causal": self.causal}
        out, sums = attention.type_rule(*[v.type for v in inputs], **attrs)
        result = Value(out) if product is None else product.outputs[0]
        return Node(attention, inputs, attrs, [result, Value(sums)], (product or self.softmax).location)

    def _gradient_nodes(self, forward: Node, gradient: _Gradient) -> list[Node]:
        """The gradient, and what it needs: for each row the sum of results times their gradients."""
        out, sums = forward.outputs
        g, location = gradient.weighted.inputs[0], gradient.weighted.location
        product, total = Value(out.type), Value(sums.type)
        attrs = {"axes": (len(out.type.shape) - 1,), "keepdims": True}
        nodes = [
            Node(mul, [g, out], {}, [product], location),
            Node(reduce_sum, [product], attrs, [total], location),
        ]
        others = (*self.chain.others, *gradient.slope.others)
        inputs = [*forward.inputs[:3], g, sums, total, *others]
        attrs = {"scores": self.chain.region, "slope": gradient.slope.region, "causal": self.causal}
        outs = [Value(t) for t in attention_gradient.type_rule(*[v.type for v in inputs], **attrs)]
        turned = []
        for i, name in enumerate(("query", "keys", "values")):
            use = gradient.products.get(name)
            if use is not None and not use.turned:
                outs[i] = use.node.outputs[0]
            elif use is not None:
                turned.append(_turned(outs[i], use.node, use.node.outputs[0]))
        return [*nodes, Node(attention_gradient, inputs, attrs, outs, location), *turned]


def _previous(node: Node, before: Node) -> Value:
    """The input of a node that comes from the one before it."""
    return next(v for v in node.inputs if v in before.outputs)


def _other(node: Node, value: Value) -> Value:
    """The input of a node of two that is not a value."""
    return next((v for v in node.inputs if v is not value), value)


def _is_row_sum(node: Node | None) -> bool:
    if node is None or node.op is not reduce_sum:
        return False
    return bool(node.attrs["keepdims"] and node.attrs["axes"] == (len(node.inputs[0].type.shape) - 1,))


def _turned(value: Value, like: Node, out: Value | None = None) -> Node:
    """A node that transposes a matrix."""
    axes = swap_last(tuple(range(len(value.type.shape))))
    shape = tuple(value.type.shape[a] for a in axes)
    out = out or Value(TensorType(shape, value.type.dtype))
    return Node(permute, [value], {"axes": axes}, [out], like.location)


def _with_nodes(graph: Graph, removed: set[Node], added: Sequence[tuple[int, Node]]) -> Graph:
    """The graph with nodes added before places, and without some; constants that nobody uses go, too."""
    kept = [(i, 1, node) for i, node in enumerate(graph.nodes) if node not in removed]
    entries = sorted([(i, 0, node) for i, node in added] + kept, key=lambda entry: entry[:2])
    nodes = [node for _, _, node in entries]
    used = {v for node in nodes for v in node.inputs}.union(graph.results)
    return graph.replace(nodes=nodes, constants={v: a for v, a in graph.constants.items() if v in used})
