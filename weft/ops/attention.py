"""Scaled dot-product attention, without the random part; ``weft.tensor.attention`` adds dropout to it."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bool_, kind
from weft.base.shapes import broadcast_shapes
from weft.base.size_bounds import size_max
from weft.base.sizes import Size, is_known
from weft.errors import ArgumentError, DtypeError, ShapeError
from weft.ops.contract import matrix_multiply, transpose_last
from weft.ops.exponential import rsqrt
from weft.ops.op import Sample, Tensor, composite, type_of
from weft.ops.reduce import reduce_any
from weft.ops.samples import real_array
from weft.ops.select import cast, same_dtype, select
from weft.ops.size import shared, size_value, triangle
from weft.ops.softmax import softmax_op
from weft.ops.view.primitives import broadcast_to, reshape

_OP = "scaled_dot_product_attention"


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    got = f"{type_of(query)}, {type_of(key)} and {type_of(value)}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(_OP, f"query, key and value must have at least two axes, got {got}")
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(_OP, f"query and key must have as many features, got {got}")
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(_OP, f"key and value must have the same length, got {got}")
    if kind(query.dtype) != "f":
        raise DtypeError(_OP, f"dtype must be floating, got {query.dtype.name}")


def _default_scale(query: Tensor) -> Tensor | float:
    features = size_max(1, query.shape[-1])
    return rsqrt(size_value(features, query.dtype)) if isinstance(features, Size) else 1 / sqrt(features)


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Keys or values of grouped queries: each head repeated for the queries that share it."""
    *lead, own, length, features = x.shape
    if heads == own:
        return x
    if own == 0 or heads % own != 0:
        raise ShapeError(_OP, f"query heads must be a multiple of key and value heads, got {heads} and {own}")
    x = reshape(x, shape=(*lead, own, 1, length, features))
    x = broadcast_to(x, shape=(*lead, own, heads // own, length, features))
    return reshape(x, shape=(*lead, heads, length, features))


def _causal_bias(length: int, source: int, dtype: DType) -> Tensor:
    """0 where a query may look at a key (not after it), else -inf."""
    zero, never = np.asarray(0.0, dtype), np.asarray(-np.inf, dtype)
    if not is_known((length, source)):
        return select(triangle(length, source, 0), zero, never)

    def make() -> Any:
        return np.where(triangle(length, source, 0), zero, never)

    return shared(("causal", length, source, dtype), make)  # type: ignore[return-value]


def _as_bias(mask: Tensor, dtype: DType, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """A mask as numbers to add to scores, and which rows have something to look at.

    Rows without anything get 0, so that their softmax is finite and leaks no NaN into gradients.
    """
    if broadcast_shapes(_OP, [mask.shape, shape], [type_of(mask), shape]) != shape:
        raise ShapeError(_OP, f"attn_mask must broadcast to {shape}, got {type_of(mask)}")
    zero, never = np.zeros((), dtype), np.full((), -np.inf, dtype)
    if mask.dtype == bool_:
        bias = select(mask, zero, never)
    elif kind(mask.dtype) == "f":
        bias = mask if mask.dtype == dtype else cast(mask, dtype=dtype)
    else:
        raise DtypeError(_OP, f"attn_mask must be bool or floating, got {mask.dtype.name}")
    alive = reduce_any(bias > never, axes=(bias.ndim - 1,), keepdims=True)
    return select(alive, bias, zero), alive


def _attention_samples() -> list[Sample]:
    q, k, v = real_array((2, 3, 4)), real_array((2, 5, 4), seed=1), real_array((2, 5, 3), seed=2)
    some = real_array((3, 5), seed=3) > 0
    some[1] = False  # a query that may look at nothing
    grouped = [real_array((2, h, 3, 4), seed=h) for h in (4, 2, 1)]
    return [
        Sample((q, k, v)),
        Sample((q, k, v), {"is_causal": True, "scale": 0.7}),
        Sample((q, k, v, some)),
        Sample((q, k, v, some[:1] | True)),
        Sample((q, k, v, real_array((2, 3, 5), seed=4))),
        Sample((q[0], k[0], v[0])),
        Sample((grouped[0], grouped[1], grouped[2]), {"enable_gqa": True}),
        Sample((real_array((0, 4)), k[0], v[0])),
    ]


@composite(_OP, samples=_attention_samples, whole=("query", "key", "value"), precision="low", single=True)
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    drop: Callable[[Any], Any] | None = None,
) -> Tensor:
    """``drop(softmax(query keyᵀ * scale + mask)) value``; see ``weft.scaled_dot_product_attention``."""
    query, key, value = same_dtype(_OP, query, key, value)
    _check(query, key, value)
    if is_causal and attn_mask is not None:
        raise ArgumentError(_OP, "attn_mask must be None if is_causal is set, got both")
    if enable_gqa:
        if min(query.ndim, key.ndim, value.ndim) < 3:
            raise ShapeError(
                _OP, f"grouped queries need an axis of heads, got {type_of(query)} and {type_of(key)}"
            )
        key, value = (_repeat_heads(x, query.shape[-3]) for x in (key, value))
    factor = _default_scale(query) if scale is None else scale
    scores = matrix_multiply(query * factor, transpose_last(key))
    alive = None
    if is_causal:
        scores = scores + _causal_bias(scores.shape[-2], scores.shape[-1], scores.dtype)
    elif attn_mask is not None:
        bias, alive = _as_bias(attn_mask, scores.dtype, scores.shape)
        scores = scores + bias
    weights = softmax_op(scores, axis=scores.ndim - 1)
    out = matrix_multiply(weights if drop is None else drop(weights), value)
    return out if alive is None else select(alive, out, np.zeros((), out.dtype))
