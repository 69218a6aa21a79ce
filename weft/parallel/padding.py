"""Uneven sizes: inputs that ranks do not divide evenly come padded, and what overwrites them goes padded.

Inside the graph the padding is cut off where the input comes in and put on where it goes out, so that no op
ever reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.parts import Cut, padded_shape
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import giving, reading
from weft.ir.types import TensorType
from weft.ops.view.slices import pad_axes, slice_axes


def with_padding(graph: Graph, inputs: Sequence[Cut], results: Sequence[Cut], mesh: str) -> Graph:
    """A graph whose inputs and results that are cut have sizes that divide; the same object if all do.

    Args:
        graph: of whole tensors.
        inputs: the cut of each input.
        results: the cut of each result.
        mesh: as text.
    """
    now: dict[Value, Value] = {}
    first: list[Node] = []
    given: list[Value] = []
    for v, cut in zip(graph.inputs, inputs, strict=True):
        shape = padded_shape(v.type.shape, cut, mesh)
        if shape == v.type.shape:
            given.append(v)
            continue
        padded = Value(TensorType(shape, v.type.dtype), v.name)
        given.append(padded)
        zeros, ones = (0,) * len(shape), (1,) * len(shape)
        now[v] = _emit(first, slice_axes, padded, starts=zeros, stops=v.type.shape, steps=ones)
    last: list[Node] = []
    ends = [_padded(last, now.get(v, v), cut, mesh) for v, cut in zip(graph.results, results, strict=True)]
    if not now and not last:
        return graph
    count = len(graph.outputs)
    by_input = dict(zip(graph.inputs, given, strict=True))
    return giving(graph, {}).replace(
        inputs=given,
        nodes=[*first, *[reading(n, now) for n in graph.nodes], *last],
        outputs=ends[:count],
        updates=[(by_input[old], new) for (old, _), new in zip(graph.updates, ends[count:], strict=True)],
    )


def _padded(nodes: list[Node], v: Value, cut: Cut, mesh: str) -> Value:
    shape = padded_shape(v.type.shape, cut, mesh)
    if shape == v.type.shape:
        return v
    more = tuple([b - a for a, b in zip(v.type.shape, shape, strict=True)])
    none = (0,) * len(shape)
    return _emit(nodes, pad_axes, v, low=none, high=more, interior=none, value=v.type.dtype.type(0).item())


def _emit(nodes: list[Node], op: Any, x: Value, **attrs: Any) -> Value:
    out = Value(op.type_rule(x.type, **attrs))
    nodes.append(Node(op, [x], attrs, [out], None))
    return out
