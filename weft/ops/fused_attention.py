"""Attention as single ops, forward and backward: scores need never lie in memory as a whole.

The pass ``fuse_attention`` finds them in graphs. Elementwise ops between scores and softmax (a mask, a
factor) are a region of the node: it takes the scores and what else it uses, and gives what softmax sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.shapes import broadcast_shapes
from weft.errors import GraphError, ShapeError
from weft.ir.graph import Graph
from weft.ir.interpret import run_nodes
from weft.ir.types import TensorType
from weft.ops.families import lowered

Arrays = Sequence[Any]


def _check_region(op: str, name: str, region: Graph, wanted: Sequence[TensorType]) -> None:
    types = [v.type for v in region.inputs]
    if types != list(wanted) or [v.type for v in region.outputs] != types[:1]:
        shown = ", ".join(map(str, wanted))
        raise GraphError(op, f"{name} must take {shown} and give the first's type, got {region.name}")


def _scores_type(op: str, query: TensorType, keys: TensorType, values: TensorType) -> TensorType:
    """The type of scores; the three must fit."""
    types = [query, keys, values]
    flat = min(t.ndim for t in types) < 2
    if flat or query.shape[-1] != keys.shape[-2] or keys.shape[-1] != values.shape[-2]:
        got = ", ".join(map(str, types))
        raise ShapeError(op, f"must be (..., n, features), (..., features, m) and (..., m, width), got {got}")
    batch = broadcast_shapes(op, [t.shape[:-2] for t in types], types)
    return TensorType((*batch, query.shape[-2], keys.shape[-1]), query.dtype)


def _apply(region: Graph, x: Any, others: Arrays) -> Any:
    return run_nodes(region, [x, *others])[0]


def _scores(query: Any, keys: Any, others: Arrays, scores: Graph, causal: bool) -> Any:
    found = _apply(scores, query @ keys, others)
    if causal:
        found = np.where(np.tri(*found.shape[-2:]) > 0, found, found.dtype.type(-np.inf))
    return found


def _attend(query: Any, keys: Any, values: Any, *others: Any, scores: Graph, causal: bool) -> Any:
    seen = _scores(query, keys, others, scores, causal)
    top = seen.max(-1, keepdims=True)
    powers = np.exp(seen - np.where(np.isneginf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return (powers / total) @ values, np.log(total) + top


def _attention_type(
    query: TensorType, keys: TensorType, values: TensorType, *others: TensorType, scores: Graph, causal: bool
) -> tuple[TensorType, TensorType]:
    seen = _scores_type("attention", query, keys, values)
    _check_region("attention", "scores", scores, [seen, *others])
    rows = seen.shape[:-1]
    return TensorType((*rows, values.shape[-1]), query.dtype), TensorType((*rows, 1), query.dtype)


attention = lowered(
    "attention",
    type_rule=_attention_type,
    eval=_attend,
    outputs=2,
    defaults={"causal": False},
)
"""``softmax(scores(query @ keys)) @ values``, and of each row the logarithm of the sum of powers.

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
    scores: Graph,
    slope: Graph,
    causal: bool,
) -> Any:
    count = len(scores.inputs) - 1
    weights = np.exp(_scores(query, keys, others[:count], scores, causal) - sums)
    slopes = _apply(slope, weights * (g @ values.swapaxes(-1, -2) - total), others[count:])
    turned = slopes.swapaxes(-1, -2)
    return slopes @ keys.swapaxes(-1, -2), turned @ query, weights.swapaxes(-1, -2) @ g


def _gradient_type(
    query: TensorType,
    keys: TensorType,
    values: TensorType,
    g: TensorType,
    sums: TensorType,
    total: TensorType,
    *others: TensorType,
    scores: Graph,
    slope: Graph,
    causal: bool,
) -> tuple[TensorType, TensorType, TensorType]:
    op, count = "attention_gradient", len(scores.inputs) - 1
    seen = _scores_type(op, query, keys, values)
    _check_region(op, "scores", scores, [seen, *others[:count]])
    _check_region(op, "slope", slope, [seen, *others[count:]])
    batch = g.shape[:-2]
    shapes = query.shape[-2:], (keys.shape[-1], query.shape[-1]), values.shape[-2:]
    by_query, by_keys, by_values = (TensorType((*batch, *shape), query.dtype) for shape in shapes)
    return by_query, by_keys, by_values


attention_gradient = lowered(
    "attention_gradient",
    type_rule=_gradient_type,
    eval=_gradients,
    outputs=3,
    defaults={"causal": False},
)
"""The gradients of an attention by query, keys (of shape (..., keys, features)) and values.

``g`` is the gradient of its result, ``sums`` what ``attention`` gives besides, ``total`` the sum over each
row of the result times its gradient, ``slope`` leads from the gradient of softmax's input to that of scores.
"""
