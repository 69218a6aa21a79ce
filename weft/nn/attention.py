"""Attention with several heads, and the layer of a transformer's encoder."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import weft
from weft.errors import DomainError, ShapeError
from weft.nn import init
from weft.nn.activation import Dropout
from weft.nn.containers import ModuleList
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.norm import LayerNorm
from weft.nn.parameter import Parameter


class MultiheadAttention(Module):
    """Attention in several heads, each on its part of the features.

    Args:
        embed_dim: features of queries, keys, values and results.
        num_heads: must divide embed_dim.
        dropout: probability with which a weight is dropped in training.
        bias: whether the projections have one.
        batch_first: whether tensors are (N, L, E) rather than (L, N, E).
        dtype: of the parameters.

    >>> import weft
    >>> attention = weft.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = weft.randn(3, 5, 8)
    >>> out, weights = attention(x, x, x)
    >>> out.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    in_proj_bias: Any

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            got = f"{embed_dim} and {num_heads}"
            raise DomainError("MultiheadAttention", f"embed_dim must be divisible by num_heads, got {got}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.in_proj_weight = Parameter(weft.empty((3 * embed_dim, embed_dim), dtype=dtype))
        self.register_parameter(
            "in_proj_bias", Parameter(weft.empty(3 * embed_dim, dtype=dtype)) if bias else None
        )
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: weights by Glorot and Bengio, biases 0."""
        init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """The result, and the weights (or None).

        Args:
            query: (L, N, E), or (N, L, E) with ``batch_first``, or (L, E) without a batch.
            key: likewise, with S instead of L.
            value: likewise.
            key_padding_mask: (N, S), True for keys to leave out, or floating, added to the scores.
            need_weights: whether the weights (N, L, S) are wanted.
            attn_mask: (L, S) or (N * heads, L, S), True where a query must not look, or floating.
            average_attn_weights: give the mean over heads rather than (N, heads, L, S).
            is_causal: let query i look at keys 0..i only, without a mask.
        """
        batched = query.ndim == 3
        if not batched:
            query, key, value = (t.unsqueeze(0) for t in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (t.swapaxes(0, 1) for t in (query, key, value))
        q, k, v = self._projected(query, key, value)
        mask = self._mask(attn_mask, key_padding_mask, q, k)
        rate = self.dropout if self.training else 0.0
        if need_weights:
            out, weights = _attend(q, k, v, mask, is_causal, rate)
            weights = weights.mean(axis=1) if average_attn_weights else weights
        else:
            out, weights = weft.scaled_dot_product_attention(q, k, v, mask, rate, is_causal), None
        out = self.out_proj(out.swapaxes(1, 2).reshape(query.shape))
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.swapaxes(0, 1), weights

    def _projected(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """Queries, keys and values as (N, heads, L, E / heads)."""
        size, bias = self.embed_dim, self.in_proj_bias
        if query is key and key is value:
            parts = weft.split(weft.linear(query, self.in_proj_weight, bias), size, axis=-1)
        else:
            weights = weft.split(self.in_proj_weight, size, axis=0)
            biases = (None,) * 3 if bias is None else weft.split(bias, size, axis=0)
            given = zip((query, key, value), weights, biases, strict=True)
            parts = tuple(weft.linear(x, w, b) for x, w, b in given)
        heads, width = self.num_heads, size // self.num_heads
        q, k, v = (p.reshape((*p.shape[:2], heads, width)).swapaxes(1, 2) for p in parts)
        return q, k, v

    def _mask(self, attn_mask: Any, padding: Any, q: Any, k: Any) -> Any:
        """One mask for scores (N, heads, L, S): True where a query may look, or floating; None for none."""
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.reshape((q.shape[0], q.shape[1], q.shape[2], k.shape[2]))
        elif attn_mask is not None and attn_mask.ndim != 2:
            raise ShapeError("MultiheadAttention", f"attn_mask must have 2 or 3 axes, got {attn_mask.ndim}")
        if padding is not None:
            padding = padding.reshape((padding.shape[0], 1, 1, padding.shape[1]))
        given = [m for m in (attn_mask, padding) if m is not None]
        if all(m.dtype == weft.bool for m in given):
            allowed = [~m for m in given]
            return None if not allowed else allowed[0] if len(allowed) == 1 else allowed[0] & allowed[1]
        added = [weft.where(m, -weft.inf, 0.0).astype(q.dtype) if m.dtype == weft.bool else m for m in given]
        return added[0] if len(added) == 1 else added[0] + added[1]


def _attend(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, rate: float) -> tuple[Any, Any]:
    """The result and the weights, which are not dropped."""
    scores = (q * (1.0 / sqrt(q.shape[-1]))) @ k.swapaxes(-1, -2)
    if is_causal and mask is None:
        mask = weft.ones((q.shape[-2], k.shape[-2]), dtype=weft.bool).tril()
    if mask is not None:
        scores = weft.where(mask, scores, -weft.inf) if mask.dtype == weft.bool else scores + mask
    weights = weft.softmax(scores, axis=-1)
    dropped = weft.dropout(weights, rate) if rate else weights
    return dropped @ v, dropped


class TransformerEncoderLayer(Module):
    """Attention to oneself, then a network on each position, both with a way around them and normalised.

    Args:
        d_model: features.
        nhead: heads of attention.
        dim_feedforward: features inside the network.
        dropout: probability in training.
        activation: of the network, "relu", "gelu" or a function.
        layer_norm_eps: added to variances.
        batch_first: whether tensors are (N, L, E) rather than (L, N, E).
        norm_first: normalise before each part rather than after.
        bias: whether linear maps and norms have one.
        dtype: of the parameters.

    >>> import weft
    >>> layer = weft.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> layer(weft.randn(3, 5, 8), is_causal=True).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first, dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Any:
        """src, transformed; masks as those of ``MultiheadAttention``."""
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = src + self._attend(self.norm1(src), *masks)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(src + self._attend(src, *masks))
        return self.norm2(x + self._feed_forward(x))

    def _attend(self, x: Any, mask: Any, padding: Any, is_causal: bool) -> Any:
        causal = is_causal and mask is None
        found, _ = self.self_attn(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=causal
        )
        return self.dropout1(found)

    def _feed_forward(self, x: Any) -> Any:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


def _activation(choice: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    if callable(choice):
        return choice
    if choice not in ("relu", "gelu"):
        raise DomainError("TransformerEncoderLayer", f"activation must be 'relu' or 'gelu', got {choice!r}")
    found: Callable[[Any], Any] = weft.relu if choice == "relu" else weft.gelu
    return found


class TransformerEncoder(Module):
    """Layers one after another, each a copy of the one given, and perhaps a norm at the end."""

    norm: Any

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        from copy import deepcopy

        self.layers = ModuleList(deepcopy(encoder_layer) for _ in range(num_layers))
        self.register_module("norm", norm)

    def forward(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Any:
        """src, transformed by each layer in turn."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)
