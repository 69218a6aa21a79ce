"""Attention as ops of the schedule: what ``weft.schedule.attention`` finds in a graph, as single nodes.

They stand between the passes of the schedule alone; no graph of a user has them. Between scores and softmax
there may be elementwise ops (a mask, a factor), which a node keeps as a ``Chain``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.base.shapes import broadcast_shapes
from weft.ir.graph import Node, Value
from weft.ir.types import TensorType
from weft.loop.builder import Builder
from weft.loop.ir import Value as Scalar
from weft.ops.op import Op, no_gradient
from weft.schedule.arrays import Array
from weft.schedule.pointwise.rules import Indices, Reader, as_constant

Arrays = Sequence[Any]


@dataclass(frozen=True, eq=False)
class Chain:
    """Elementwise ops from one value to another, which use others besides.

    Attributes:
        start: what it begins with.
        others: what else it uses; a node with a chain has them as inputs.
        nodes: in order.
        result: what it ends with.
        constants: numbers that it uses.
    """

    start: Value
    others: tuple[Value, ...] = ()
    nodes: tuple[Node, ...] = ()
    result: Value | None = None
    constants: Mapping[Value, Any] = field(default_factory=dict)

    def element(
        self, b: Builder, x: Scalar, others: Sequence[Array], index: Indices, mask: Any = None
    ) -> Scalar:
        """Write the code for the element at an index, where that of the start is x."""
        if self.result is None:
            return x
        numbers = {v: as_constant(array) for v, array in self.constants.items()}
        sources = {self.start: x, **dict(zip(self.others, others, strict=True)), **numbers}
        return Reader(b, sources, {n.outputs[0]: n for n in self.nodes}).read(self.result, index, mask)

    def apply(self, x: Any, others: Arrays) -> Any:
        """The result for arrays."""
        known = {self.start: x, **dict(zip(self.others, others, strict=True)), **self.constants}
        for node in self.nodes:
            known[node.outputs[0]] = node.op.eval(*[known[v] for v in node.inputs], **node.attrs)
        return x if self.result is None else known[self.result]


def _scores(query: Any, keys: Any, others: Arrays, chain: Chain, causal: bool) -> Any:
    scores = chain.apply(query @ keys, others)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, scores.dtype.type(-np.inf))
    return scores


def _attend(query: Any, keys: Any, values: Any, *others: Any, chain: Chain, causal: bool) -> Any:
    scores = _scores(query, keys, others, chain, causal)
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return (powers / total) @ values, np.log(total) + top


def _attention_type(
    query: TensorType, keys: TensorType, values: TensorType, *others: TensorType, **_: Any
) -> Any:
    types = [query, keys, values]
    batch = broadcast_shapes("attention", [t.shape[:-2] for t in types], types)
    shape = (*batch, query.shape[-2])
    return TensorType((*shape, values.shape[-1]), query.dtype), TensorType((*shape, 1), query.dtype)


attention = Op(
    "attention",
    inputs=("query", "keys", "values"),
    variadic="others",
    attrs=("chain", "causal"),
    eval=_attend,
    type_rule=_attention_type,
    vjp=no_gradient("stands in schedules alone"),
    samples=None,
    outputs=2,
)
"""``softmax(chain(query @ keys)) @ values``, and of each row of scores the logarithm of the sum of powers.

keys are of shape (..., features, keys). If ``causal`` is set, a query sees the keys up to its own place.
"""


def _gradients(
    query: Any,
    keys: Any,
    values: Any,
    g: Any,
    sums: Any,
    total: Any,
    *others: Any,
    chain: Chain,
    slope: Chain,
    causal: bool,
) -> Any:
    count = len(chain.others)
    weights = np.exp(_scores(query, keys, others[:count], chain, causal) - sums)
    scores = slope.apply(weights * (g @ values.swapaxes(-1, -2) - total), others[count:])
    turned = scores.swapaxes(-1, -2)
    return scores @ keys.swapaxes(-1, -2), turned @ query, weights.swapaxes(-1, -2) @ g


def _gradient_type(
    query: TensorType, keys: TensorType, values: TensorType, g: TensorType, *others: TensorType, **_: Any
) -> Any:
    batch, count, dtype = g.shape[:-2], keys.shape[-1], query.dtype
    shapes = (query.shape[-2:], (count, query.shape[-1]), values.shape[-2:])
    return tuple(TensorType((*batch, *shape), dtype) for shape in shapes)


attention_gradient = Op(
    "attention_gradient",
    inputs=("query", "keys", "values", "g", "sums", "total"),
    variadic="others",
    attrs=("chain", "slope", "causal"),
    eval=_gradients,
    type_rule=_gradient_type,
    vjp=no_gradient("stands in schedules alone"),
    samples=None,
    outputs=3,
)
"""The gradients of an attention by query, keys (of shape (..., keys, features)) and values.

``g`` is the gradient of its result, ``sums`` what ``attention`` gives besides, ``total`` the sum over each
row of the result times its gradient, ``slope`` leads from the gradient of softmax's input to that of scores.
"""
