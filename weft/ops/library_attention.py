"""Attention in half precision as a library of a device computes it: one op each way.

The pass ``attention_by_library`` puts them into graphs. Arrays are of shape (batch, places, heads, features).
"""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import float32
from weft.errors import ShapeError
from weft.ir.types import TensorType
from weft.ops.families import lowered
from weft.ops.op import Array


def _by_heads(x: Array) -> Array:
    """(batch, heads, places, features), in the precision that is computed in."""
    return np.asarray(x).astype(np.float32).swapaxes(1, 2)


def _back(x: Array, like: Array) -> Array:
    return np.ascontiguousarray(x.swapaxes(1, 2)).astype(np.asarray(like).dtype)


def _scores(query: Array, keys: Array, scale: float, causal: bool) -> Array:
    found = _by_heads(query) @ _by_heads(keys).swapaxes(-1, -2) * np.float32(scale)
    return np.where(np.tri(*found.shape[-2:]) > 0, found, np.float32(-np.inf)) if causal else found


def _attend(query: Array, keys: Array, values: Array, *, scale: float, causal: bool) -> tuple[Array, Array]:
    seen = _scores(query, keys, scale, causal)
    top = seen.max(-1, keepdims=True)
    powers = np.exp(seen - top)
    total = powers.sum(-1, keepdims=True)
    return _back(powers / total @ _by_heads(values), query), np.log(total) + top


def _sums(query: TensorType) -> TensorType:
    batch, places, heads, _ = query.shape
    return TensorType((batch, heads, places, 1), float32)


def _check(query: TensorType, keys: TensorType, values: TensorType) -> None:
    fits = {t.ndim for t in (query, keys, values)} == {4} and keys.shape[:3] == values.shape[:3]
    if not fits or (query.shape[0], *query.shape[2:]) != (keys.shape[0], *keys.shape[2:]):
        got = f"{query}, {keys} and {values}"
        raise ShapeError("library_attention", f"must be (batch, places, heads, features), got {got}")


def _attention_type(
    query: TensorType, keys: TensorType, values: TensorType, *, scale: float, causal: bool
) -> tuple[TensorType, TensorType]:
    _check(query, keys, values)
    return TensorType((*query.shape[:3], values.shape[3]), query.dtype), _sums(query)


library_attention = lowered(
    "library_attention",
    type_rule=_attention_type,
    eval=_attend,
    outputs=2,
)
"""``softmax(query keysᵀ * scale) values``, and of each row the logarithm of the sum of powers."""


def _gradients(
    query: Array, keys: Array, values: Array, out: Array, g: Array, sums: Array, *, scale: float, causal: bool
) -> tuple[Array, Array, Array]:
    weights = np.exp(_scores(query, keys, scale, causal) - sums)
    given = _by_heads(g)
    total = (given * _by_heads(out)).sum(-1, keepdims=True)
    slopes = weights * (given @ _by_heads(values).swapaxes(-1, -2) - total) * np.float32(scale)
    by_keys = slopes.swapaxes(-1, -2) @ _by_heads(query)
    by_values = weights.swapaxes(-1, -2) @ given
    return _back(slopes @ _by_heads(keys), query), _back(by_keys, keys), _back(by_values, values)


def _gradient_type(
    query: TensorType,
    keys: TensorType,
    values: TensorType,
    out: TensorType,
    g: TensorType,
    sums: TensorType,
    *,
    scale: float,
    causal: bool,
) -> tuple[TensorType, TensorType, TensorType]:
    _check(query, keys, values)
    if (out, g, sums) != (g, out, _sums(query)):
        raise ShapeError("library_attention_gradient", f"out and g must be alike, got {out} and {g}")
    return query, keys, values


def _packed_type(*types: TensorType, scale: float, causal: bool) -> TensorType:
    query, keys, values = _gradient_type(*types, scale=scale, causal=causal)
    if not query == keys == values:
        raise ShapeError("library_attention_packed", f"must be alike, got {query}, {keys} and {values}")
    return TensorType((*query.shape[:2], 3, *query.shape[2:]), query.dtype)


def _packed(
    query: Array, keys: Array, values: Array, out: Array, g: Array, sums: Array, *, scale: float, causal: bool
) -> Array:
    return np.stack(_gradients(query, keys, values, out, g, sums, scale=scale, causal=causal), 2)


library_attention_gradient = lowered(
    "library_attention_gradient",
    type_rule=_gradient_type,
    eval=_gradients,
    outputs=3,
)
"""The gradients of ``library_attention`` by query, keys and values; ``out`` and ``sums`` are what it gave."""


library_attention_packed = lowered(
    "library_attention_packed",
    type_rule=_packed_type,
    eval=_packed,
)
"""The same gradients side by side: (batch, places, 3, heads, features)."""
