"""Scaled dot-product attention with dropout of its weights."""

from __future__ import annotations

from typing import Any

from weft.base.public import public
from weft.ops.attention import attend
from weft.ops.op import Tensor
from weft.tensor.dropout import dropout


@public
def scaled_dot_product_attention(
    query: Tensor,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Average values, weighted by how well their keys match each query.

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, V).
        attn_mask: broadcasts to (..., L, S): bool, True where a query may look at a key, or floating, added
            to the scores. A query that may look at nothing gets zeros.
        dropout_p: probability with which a weight is dropped.
        is_causal: let query i look at keys 0..i only.
        scale: of the scores, 1 / sqrt(E) by default.
        enable_gqa: let several query heads (axis -3) share a head of keys and values.

    >>> import weft
    >>> q = k = v = weft.ones((2, 8, 10, 64))
    >>> weft.scaled_dot_product_attention(q, k, v, is_causal=True).shape
    (2, 8, 10, 64)
    """
    drop = (lambda weights: dropout(weights, dropout_p)) if dropout_p else None
    return attend(query, key, value, attn_mask, is_causal, scale, enable_gqa, drop)
