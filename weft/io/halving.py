"""A saved graph with its products in half precision, and the weights that only these read."""

from __future__ import annotations

from collections import defaultdict

from weft.base.aligned import aligned
from weft.base.dtypes import DType, float32
from weft.io.calls import marks_in
from weft.io.saved import Saved
from weft.ir.graph import Node, Value
from weft.ir.rewrite import giving, reading
from weft.ir.types import TensorType
from weft.ops.select import cast
from weft.passes.half_products import half_products
from weft.passes.inline import inline


def in_half(saved: Saved, dtype: DType) -> Saved:
    """The same with products and convolutions in half precision; weights that are only cast are held so."""
    graph = inline(half_products(saved.graph, dtype=dtype))
    users: dict[Value, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in node.inputs:
            users[value].append(node)
    held = {*graph.results, *[old for old, _ in graph.updates]}
    shown = {mark.value for mark in marks_in(saved.returned) if mark.word == "weight"}
    halved: dict[str, bool] = {}
    for mark, value in zip(saved.sources, graph.inputs, strict=True):
        if mark.word == "weight":
            casts = all(n.op is cast and n.attrs["dtype"] == dtype for n in users[value])
            fits = casts and value.type.dtype == float32 and value not in held and mark.value not in shown
            halved[mark.value] = halved.get(mark.value, True) and bool(users[value]) and fits
    now: dict[Value, Value] = {}
    inputs = []
    for mark, value in zip(saved.sources, graph.inputs, strict=True):
        if mark.word == "weight" and halved[mark.value]:
            half = Value(TensorType(value.type.shape, dtype), value.name)
            now |= {v: half for node in users[value] for v in node.outputs}
            value = half
        inputs.append(value)
    nodes = [reading(node, now) for node in graph.nodes if now.keys().isdisjoint(node.outputs)]
    weights = {name: aligned(a.astype(dtype)) if halved.get(name) else a for name, a in saved.weights.items()}
    return saved._replace(graph=giving(graph, now, inputs=tuple(inputs), nodes=nodes), weights=weights)
