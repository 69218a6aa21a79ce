"""Attention with several heads, with masks and with a cache for decoding."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.nn import init
from weft.nn.cache import KeyValueCache
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.parameter import new_parameter


class MultiheadAttention(Module):
    """Attention in several heads, each on its part of the features.

    Args:
        embed_dim: features of queries and results.
        num_heads: must divide embed_dim.
        dropout: probability with which a weight is dropped in training.
        bias: whether the projections have one.
        add_bias_kv: whether a learned key and value come after all others.
        add_zero_attn: whether a key and a value of zeros come after all others.
        kdim: features of keys; embed_dim by default.
        vdim: features of values; embed_dim by default.
        batch_first: whether tensors are (N, L, E) rather than (L, N, E).
        device: of the parameters.
        dtype: of the parameters.

    >>> import weft
    >>> attention = weft.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = weft.randn(3, 5, 8)
    >>> out, weights = attention(x, x, x)
    >>> out.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    in_proj_weight: Any
    in_proj_bias: Any
    bias_k: Any
    bias_v: Any

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            got = f"{embed_dim} and {num_heads}"
            raise DomainError("MultiheadAttention", f"embed_dim must be divisible by num_heads, got {got}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.add_zero_attn = add_zero_attn
        self.batch_first = batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        alike = self.kdim == embed_dim and self.vdim == embed_dim
        for name, width in {"q": embed_dim, "k": self.kdim, "v": self.vdim}.items():
            weight = new_parameter((embed_dim, width), device, dtype, not alike)
            self.register_parameter(f"{name}_proj_weight", weight)
        self.register_parameter(
            "in_proj_weight", new_parameter((3 * embed_dim, embed_dim), device, dtype, alike)
        )
        self.register_parameter("in_proj_bias", new_parameter(3 * embed_dim, device, dtype, bias))
        self.register_parameter("bias_k", new_parameter((1, 1, embed_dim), device, dtype, add_bias_kv))
        self.register_parameter("bias_v", new_parameter((1, 1, embed_dim), device, dtype, add_bias_kv))
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: weights by Glorot and Bengio, biases 0."""
        for name, p in self.named_parameters(recurse=False):
            if name.endswith("proj_weight"):
                init.xavier_uniform_(p)
            elif name != "in_proj_bias":
                init.xavier_normal_(p)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def make_cache(self, batch_size: int, max_length: int) -> KeyValueCache:
        """Room for the keys and values of tokens, to be passed to each step of decoding.

        >>> import weft
        >>> attention = weft.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x, cache = weft.randn(1, 5, 8), attention.make_cache(1, 5)
        >>> whole, _ = attention(x, x, x, is_causal=True)
        >>> steps = [attention(t, t, t, cache=cache)[0] for t in weft.split(x, 1, axis=1)]
        >>> weft.allclose(weft.concat(steps, axis=1), whole, atol=1e-5)
        tensor(True)
        """
        dtype = self.out_proj.weight.dtype
        return KeyValueCache(batch_size, self.num_heads, max_length, self.head_dim, dtype=dtype)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, and the weights (or None).

        Args:
            query: (L, N, E), or (N, L, E) with ``batch_first``, or (L, E) without a batch.
            key: likewise, with S instead of L.
            value: likewise.
            key_padding_mask: (N, S), True for keys to leave out, or floating, added to the scores.
            need_weights: whether the weights (N, L, S) are wanted.
            attn_mask: (L, S) or (N * heads, L, S), True where a query must not look, or floating.
            average_attn_weights: give the mean over heads rather than (N, heads, L, S).
            is_causal: let query i look at keys 0..i only; with ``attn_mask``, that alone counts.
            cache: the keys and values of earlier tokens, to which these are added; then attention is causal,
                S is the room of the cache, and there is no ``attn_mask``.
        """
        self._check(query, key, value)
        if query.ndim == 2:
            query, key, value = _each(lambda t: t.unsqueeze(0), query, key, value)
            padding = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
            settings = (padding, attn_mask, need_weights, average_attn_weights, is_causal, cache)
            out, weights = self._of_batch(query, key, value, *settings)
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        settings = (key_padding_mask, attn_mask, need_weights, average_attn_weights, is_causal, cache)
        if self.batch_first:
            return self._of_batch(query, key, value, *settings)
        query, key, value = _each(lambda t: t.swapaxes(0, 1), query, key, value)
        out, weights = self._of_batch(query, key, value, *settings)
        return out.swapaxes(0, 1), weights

    def _of_batch(
        self,
        query: Tensor,
        key: Tensor,
        value: Any,
        padding: Tensor | None,
        attn_mask: Tensor | None,
        need_weights: bool,
        average: bool,
        is_causal: bool,
        cache: KeyValueCache | None,
    ) -> tuple[Tensor, Tensor | None]:
        """``forward`` of (N, L, E)."""
        q, k, v = self._projected(query, key, value)
        if cache is not None:
            k, v, attn_mask = self._cached(cache, k, v, attn_mask)
        k, v, attn_mask, padding = self._with_more_keys(k, v, attn_mask, padding)
        is_causal = is_causal and attn_mask is None
        if is_causal and (padding is not None or need_weights):
            attn_mask, is_causal = ~weft.ones((q.shape[2], k.shape[2]), dtype=weft.bool).tril(), False
        mask = self._mask(attn_mask, padding, q, k)
        rate = self.dropout if self.training else 0.0
        if need_weights:
            out, weights = _attend(q, k, v, mask, rate)
            weights = weights.mean(axis=1) if average else weights
        else:
            out, weights = weft.scaled_dot_product_attention(q, k, v, mask, rate, is_causal), None
        return self.out_proj(out.swapaxes(1, 2).reshape(query.shape)), weights

    def _cached(
        self, cache: KeyValueCache, k: Tensor, v: Tensor, attn_mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values of all tokens so far, and the mask that hides the room that is left."""
        if attn_mask is not None or self.bias_k is not None or self.add_zero_attn:
            raise ArgumentError("MultiheadAttention", "a cache allows neither attn_mask nor added keys")
        k, v, allowed = cache.extended(k, v)
        return k, v, ~allowed

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
            got = f"{query.ndim}, {key.ndim} and {value.ndim}"
            raise ShapeError("MultiheadAttention", f"query, key and value must have 2 or 3 axes, got {got}")
        wanted = (self.embed_dim, self.kdim, self.vdim)
        given = (query.shape[-1], key.shape[-1], value.shape[-1])
        if given != wanted:
            raise ShapeError("MultiheadAttention", f"features must be {wanted}, got {given}")

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as (N, heads, L, E / heads)."""
        size, bias = self.embed_dim, self.in_proj_bias
        if self.in_proj_weight is not None and query is key and key is value:
            parts = weft.split(weft.linear(query, self.in_proj_weight, bias), size, axis=-1)
        else:
            biases = (None,) * 3 if bias is None else weft.split(bias, size, axis=0)
            given = zip((query, key, value), self._weights(), biases, strict=True)
            parts = tuple(weft.linear(x, w, b) for x, w, b in given)
        q, k, v = (self._by_head(p) for p in parts)
        return q, k, v

    def _weights(self) -> tuple[Tensor, ...]:
        if self.in_proj_weight is not None:
            return tuple(weft.split(self.in_proj_weight, self.embed_dim, axis=0))
        return tuple(getattr(self, f"{name}_proj_weight") for name in "qkv")

    def _by_head(self, x: Tensor) -> Tensor:
        return x.reshape((*x.shape[:2], self.num_heads, self.head_dim)).swapaxes(1, 2)

    def _with_more_keys(self, k: Tensor, v: Tensor, *masks: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Keys and values with those that are always there; masks let every query look at these."""
        added = 0
        if self.bias_k is not None:
            own = [self._by_head(b) for b in (self.bias_k, self.bias_v)]
            k, v = (_longer(x, weft.broadcast_to(b, (x.shape[0], *b.shape[1:])))
                    for x, b in zip((k, v), own, strict=True))  # fmt: skip
            added += 1
        if self.add_zero_attn:
            zeros = weft.zeros((*k.shape[:2], 1, self.head_dim), dtype=k.dtype, device=k.device)
            k, v = _longer(k, zeros), _longer(v, zeros)
            added += 1
        attn_mask, padding = (_open(m, added) for m in masks)
        return k, v, attn_mask, padding

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor) -> Any:
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

    def extra_repr(self) -> str:
        """Its sizes, and settings that are not the default."""
        parts = [f"{self.embed_dim}, {self.num_heads}"]
        defaults = {"kdim": self.embed_dim, "vdim": self.embed_dim, "dropout": 0.0, "batch_first": False}
        parts += [f"{n}={getattr(self, n)}" for n, d in defaults.items() if getattr(self, n) != d]
        return ", ".join(parts)


def _each(
    change: Callable[[Any], Any], query: Tensor, key: Tensor, value: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """All three changed; tensors that are one stay one, so that one product serves them."""
    q = change(query)
    k = q if key is query else change(key)
    return q, k, k if value is key else change(value)


def _longer(x: Tensor, more: Any) -> Tensor:
    return weft.concat([x, more], axis=2)


def _open(mask: Tensor | None, added: int) -> Any:
    """A mask for some more keys, at which every query may look."""
    if mask is None or not added:
        return mask
    return weft.concat(
        [mask, weft.zeros((*mask.shape[:-1], added), dtype=mask.dtype, device=mask.device)], axis=-1
    )


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float) -> tuple[Tensor, Tensor]:
    """The result and the weights, some of them dropped; a query that may look at nothing gets zeros."""
    scores = (q * (1.0 / sqrt(q.shape[-1]))) @ k.swapaxes(-1, -2)
    if mask is None:
        weights = weft.softmax(scores, axis=-1)
    else:
        bias = weft.where(mask, 0.0, -weft.inf) if mask.dtype == weft.bool else mask
        alive = (bias > -weft.inf).any(axis=-1, keepdims=True)
        weights = weft.softmax(scores + weft.where(alive, bias, 0.0).astype(scores.dtype), axis=-1)
        weights = weft.where(alive, weights, 0.0)
    weights = weft.dropout(weights, rate) if rate else weights
    return weights @ v, weights
