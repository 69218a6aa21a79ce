"""Attention in half precision as single nodes that a library of a device computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bfloat16, float16, float32
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, Rules, sweep, uniform
from weft.ops.arithmetic import mul
from weft.ops.fused_attention import attention, attention_gradient
from weft.ops.library_attention import (
    library_attention,
    library_attention_gradient,
    library_attention_packed,
)
from weft.ops.select import cast
from weft.ops.view.primitives import join, permute, reshape
from weft.passes.base import graph_pass
from weft.passes.dce import dce
from weft.passes.lowering.fuse_attention import LONG, SHORT, fuse_attention

_HALVES = (float16, bfloat16)
_MOST_FEATURES = 128  # of a head, a multiple of 8: what the library has kernels for, both ways
_BOTH = (library_attention_gradient, library_attention_packed)
_TURN = (0, 2, 1, 3)  # from (batch, heads, places, features) to what the op takes, and back


@graph_pass(regions=True, once=True)
def attention_by_library(graph: Graph, *, long: int = LONG, short: int = SHORT) -> Graph:
    """Make single nodes of attention whose query, keys and values are of half precision.

    >>> import weft
    >>> from weft.passes.lowering.attention_by_library import attention_by_library
    >>> x = weft.zeros((1, 4, 1024, 64), dtype=weft.bfloat16)
    >>> graph = weft.make_graph(weft.scaled_dot_product_attention)(x, x, x)
    >>> made = graph.optimize(passes=["inline", attention_by_library])
    >>> [node.op.name for node in made.nodes if node.op.name != "permute"]
    ['library_attention']
    """
    fused = fuse_attention(graph, long=long, short=short)
    if fused is graph:
        return graph
    found = dce(sweep(fused, _Rules(pack=True).by_op(), again=False))
    if _is_done_twice(found):
        found = dce(sweep(fused, _Rules(pack=False).by_op(), again=False))
    left = any(node.op in (attention, attention_gradient) for node in found.nodes)
    return graph if left else found


def _is_done_twice(graph: Graph) -> bool:
    """Whether gradients are computed side by side, and apart from each other besides."""
    made = {op: [tuple(n.inputs) for n in graph.nodes if n.op is op] for op in _BOTH}
    return any(inputs in made[library_attention_gradient] for inputs in made[library_attention_packed])


class _Sides(NamedTuple):
    """What attention is computed of, as the library takes it, and the factor of its scores."""

    query: Value
    keys: Value
    values: Value
    scale: float
    causal: bool


class _Rules:
    """Rewrites the nodes that ``fuse_attention`` made, and the casts around them.

    Attributes:
        pack: whether gradients that are put together are computed side by side.
        unscaled: by value, what it is times a factor: the gradient of the query as the library gives it.
    """

    def __init__(self, *, pack: bool) -> None:
        self.pack = pack
        self.unscaled: dict[Value, tuple[Value, float]] = {}

    def by_op(self) -> Rules:
        """The rules."""
        return {
            attention: [self.forward],
            attention_gradient: [self.backward],
            mul: [self.scaled],
            cast: [self.rounded],
            permute: [_composed],
            join: [self.packed] if self.pack else [],
        }

    def forward(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """Attention by the library, its result as it was."""
        sides = _sides(draft, node)
        if sides is None:
            return None
        given = [sides.query, sides.keys, sides.values]
        out, sums = draft.emit(library_attention, given, scale=sides.scale, causal=sides.causal)
        return [_single(draft, out), sums]

    def backward(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """Its gradients by the library, as they were."""
        sides = _sides(draft, node)
        made = draft.producer(node.inputs[4], library_attention)
        if sides is None or made is None or len(node.inputs) != 6:
            return None
        g = _as_half(draft, node.inputs[3], sides.query.type.dtype)
        given = [sides.query, sides.keys, sides.values, made.outputs[0], g, made.outputs[1]]
        attrs = {"scale": sides.scale, "causal": sides.causal}
        query, keys, values = (
            _single(draft, v) for v in draft.emit(library_attention_gradient, given, **attrs)
        )
        whole = query
        if sides.scale != 1.0:
            factor = draft.constant(np.asarray(1.0 / sides.scale, np.float32))
            (whole,) = draft.emit(mul, [query, factor])
            self.unscaled[whole] = query, sides.scale
        return [whole, keys, values]

    def scaled(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """What was divided by a factor and is multiplied with it again."""
        for x, factor in (node.inputs, node.inputs[::-1]):
            known, number = self.unscaled.get(x), _number(draft, factor)
            if known is not None and number == known[1]:
                return [known[0]]
        return None

    def rounded(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """Half precision that was made single, moved, and is made half again."""
        half = node.attrs["dtype"]
        found = _half_of(draft, node.inputs[0], half) if half in _HALVES else None
        return None if found is None else [found]

    def packed(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """Gradients by query, keys and values side by side, as they were in one projection."""
        parts = [draft.producer(v, reshape) for v in node.inputs]
        sources = [part.inputs[0] for part in parts if part is not None]
        made = draft.producer(sources[0], library_attention_gradient) if len(sources) == 3 else None
        if made is None or tuple(sources) != tuple(made.outputs) or len({v.type for v in sources}) != 1:
            return None
        batch, places, heads, features = sources[0].type.shape
        whole = (batch, places, 3 * heads * features)
        if node.attrs["axis"] != 2 or node.outputs[0].type.shape != whole or len(node.inputs) != 3:
            return None
        out = draft.emit(library_attention_packed, made.inputs, **made.attrs)
        return draft.emit(reshape, out, shape=whole)


def _composed(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Axes that are turned twice."""
    inner = draft.producer(node.inputs[0], permute)
    if inner is None:
        return None
    axes = tuple(inner.attrs["axes"][a] for a in node.attrs["axes"])
    return inner.inputs if axes == tuple(range(len(axes))) else draft.emit(permute, inner.inputs, axes=axes)


def _number(draft: Draft, value: Value) -> float | None:
    array = draft.array(value)
    found = None if array is None else uniform(array)
    return None if found is None else float(found)


def _half_of(draft: Draft, value: Value, half: DType) -> Value | None:
    """The value of half precision that one is made of by a cast and by turning axes, turned alike."""
    if value.type.dtype == half:
        return value
    made = draft.producer(value, cast)
    if made is not None:
        (x,) = made.inputs
        return x if x.type.dtype == half else None
    made = draft.producer(value, permute)
    inner = None if made is None else _half_of(draft, made.inputs[0], half)
    if made is None or inner is None:
        return None
    return draft.emit(permute, [inner], axes=made.attrs["axes"])[0]


def _as_half(draft: Draft, value: Value, half: DType) -> Value:
    """A gradient in half precision, as the library takes it."""
    found = _half_of(draft, value, half)
    if found is None:
        (found,) = draft.emit(cast, [value], dtype=half)
    return draft.emit(permute, [found], axes=_TURN)[0]


def _single(draft: Draft, value: Value) -> Value:
    """A result of the library in single precision, (batch, heads, places, features)."""
    turned = draft.emit(permute, [value], axes=_TURN)
    return draft.emit(cast, turned, dtype=float32)[0]


def _sides(draft: Draft, node: Node) -> _Sides | None:
    """What a node is computed of, if the library takes it: no mask but the causal one."""
    query, keys, values = node.inputs[:3]
    plain = all(not region.nodes for region in node.regions)
    if not plain or query.type.ndim != 4 or query.type.dtype != float32:
        return None
    scale, made = 1.0, draft.producer(query, mul)
    if made is not None:
        numbers = [_number(draft, v) for v in made.inputs]
        at = next((i for i, x in enumerate(numbers) if x is not None), None)
        if at is not None and made.inputs[1 - at].type == query.type:
            scale, query = float(numbers[at] or 0.0), made.inputs[1 - at]
    half = _source_dtype(draft, query)
    halves = [_half_of(draft, v, half) if half in _HALVES else None for v in (query, keys, values)]
    q, k, v = halves
    if q is None or k is None or v is None or not _fits(q, v) or not 0.0 < scale < 1e4:
        return None
    (q,), (v,) = (draft.emit(permute, [x], axes=_TURN) for x in (q, v))
    (k,) = draft.emit(permute, [k], axes=(0, 3, 1, 2))
    if q.type.shape[2] != k.type.shape[2] or k.type.shape[:3] != v.type.shape[:3]:
        return None
    return _Sides(q, k, v, scale, node.attrs["causal"])


def _source_dtype(draft: Draft, value: Value) -> Any:
    """The dtype of what a value was cast from."""
    while (made := draft.producer(value, permute)) is not None:
        (value,) = made.inputs
    made = draft.producer(value, cast)
    return None if made is None else made.inputs[0].type.dtype


def _fits(query: Value, values: Value) -> bool:
    """Whether the library has kernels for such heads."""
    sizes = [*query.type.shape, *values.type.shape]
    if any(isinstance(s, Size) or s == 0 for s in sizes):
        return False
    widths = (query.type.shape[-1], values.type.shape[-1])
    return all(w % 8 == 0 and w <= _MOST_FEATURES for w in widths)
