"""Attention of queries to keys, with masks, windows and caches, also as user graphs modify it.

What plain attention can say becomes one ``scaled_dot_product_attention``; soft caps, scores as an output
and a softmax of another precision are written out.
"""

from __future__ import annotations

from functools import reduce
from math import sqrt
from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, all_inputs, operator


def _split_heads(x: Tensor, heads: int) -> Any:
    """(N, L, heads * E) as (N, heads, L, E)."""
    parts = x.reshape((*x.shape[:2], heads, x.shape[2] // heads))
    return weft.permute_dims(parts, (0, 2, 1, 3))


def _share_heads(x: Tensor, heads: Any) -> Any:
    """Keys or values (N, H, S, E), each head repeated for the queries that share it."""
    n, own, length, features = x.shape
    if own == heads:
        return x
    wide = weft.broadcast_to(x[:, :, None], (n, own, heads // own, length, features))
    return wide.reshape((n, heads, length, features))


@operator("Attention")
def attention(call: Call, *given: Any) -> tuple[Tensor, ...]:
    """Attention; also the keys and values with those of a cache before them, and the scores."""
    q, k, v, mask, past_key, past_value, counts = all_inputs(given, 7)
    packed = q.ndim == 3
    if packed:
        q = _split_heads(q, call.attribute("q_num_heads"))
        k, v = (_split_heads(x, call.attribute("kv_num_heads")) for x in (k, v))
    offset: Any = None  # how many keys come before the first query
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        k, v = weft.concat([past_key, k], axis=2), weft.concat([past_value, v], axis=2)
    elif counts is not None:
        offset = (counts - q.shape[2]).reshape((-1, 1, 1, 1))
    mask = _whole_mask(mask, k.shape[2])
    out, scores = _attend(call, q, k, v, mask, offset, counts)
    if packed:
        n, heads, length, features = out.shape
        out = weft.permute_dims(out, (0, 2, 1, 3)).reshape((n, length, heads * features))
    return (out, k, v) if scores is None else (out, k, v, scores)


def _whole_mask(mask: Tensor | None, length: Any) -> Any:
    """A mask over all keys: those that it does not tell of are not looked at."""
    if mask is None or mask.shape[-1] == length:
        return mask
    never: Any = False if mask.dtype == weft.bool else -weft.inf
    rest = weft.full((*mask.shape[:-1], length - mask.shape[-1]), never, dtype=mask.dtype)
    return weft.concat([mask, rest], axis=-1)


def _attend(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, offset: Any, counts: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The output, and the scores if they are asked for."""
    scored = len(call.outputs) > 3 and call.outputs[3]
    scale = call.attribute("scale") or 1 / sqrt(q.shape[3])
    precision = call.attribute("softmax_precision")
    dtype = q.dtype if not precision else call.dtype(precision)
    if scored or call.attribute("softcap", 0.0) or dtype != q.dtype:
        bias = _bias(_allowed(call, q.shape[2], k.shape[2], offset, counts), mask, q.dtype)
        return _written_out(call, q, k, v, bias, scale, dtype)
    windowed = call.attribute("left_window_size", -1) >= 0
    if call.attribute("is_causal", 0) and mask is None and offset is None and not windowed:
        out = weft.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
        return out, None
    allowed = _allowed(call, q.shape[2], k.shape[2], offset, counts)
    both = mask if allowed is None else allowed if mask is None else _bias(allowed, mask, q.dtype)
    return weft.scaled_dot_product_attention(q, k, v, both, scale=scale, enable_gqa=True), None


def _allowed(call: Call, queries: Any, keys: Any, offset: Any, counts: Tensor | None) -> Any:
    """Which keys each query may look at, to broadcast against the scores; None for all."""
    left, right = call.attribute("left_window_size", -1), call.attribute("right_window_size", -1)
    at, places = weft.arange(queries)[:, None], weft.arange(keys)
    at = at if offset is None else at + offset
    rules = [places <= at] if call.attribute("is_causal", 0) else []
    rules += [places >= at - left] if left >= 0 else []
    rules += [places <= at + right] if right >= 0 else []
    rules += [] if counts is None else [places < counts.reshape((-1, 1, 1, 1))]
    return reduce(weft.logical_and, rules) if rules else None


def _bias(allowed: Any, mask: Tensor | None, dtype: Any) -> Any:
    """What is added to scores: a mask, and -inf where a query may not look."""
    if mask is not None and mask.dtype == weft.bool:
        allowed, mask = mask if allowed is None else mask & allowed, None
    if allowed is None:
        return mask
    own = weft.zeros((), dtype=dtype) if mask is None else mask.astype(dtype)
    return weft.where(allowed, own, weft.full((), -weft.inf, dtype=dtype))


def _written_out(
    call: Call, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, dtype: Any
) -> tuple[Tensor, Tensor]:
    k, v = _share_heads(k, q.shape[1]), _share_heads(v, q.shape[1])
    mode, cap = call.attribute("qk_matmul_output_mode", 0), call.attribute("softcap", 0.0)
    scores = (q * sqrt(scale)) @ weft.matrix_transpose(k * sqrt(scale))
    shown = scores
    if cap:
        scores = cap * weft.tanh(scores / cap)
        shown = scores  # the definition's own function shows capped scores in mode 0 too
    if bias is not None:
        scores = scores + bias
    shown = scores if mode == 2 else shown
    weights = _guarded_softmax(scores.astype(dtype), bias).astype(q.dtype)
    return weights @ v, weights if mode == 3 else shown


def _guarded_softmax(scores: Tensor, bias: Tensor | None) -> Any:
    """The softmax of scores; zeros for a query that may look at nothing."""
    if bias is None:
        return weft.softmax(scores, axis=-1)
    alive = weft.any(bias > -weft.inf, axis=-1, keepdims=True)
    weights = weft.softmax(weft.where(alive, scores, 0.0), axis=-1)
    return weft.where(alive, weights, 0.0)


@operator("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    call: Call, q: Tensor, k: Tensor, v: Tensor, *, softmax_precision: int = 0, scale: float = 0.0
) -> Any:
    """Attention whose scores and weights are changed by graphs."""
    wide = weft.float64 if q.dtype == weft.float64 else weft.float32
    dtype = call.dtype(softmax_precision) if softmax_precision else wide
    k, v = _share_heads(k, q.shape[1]), _share_heads(v, q.shape[1])
    scores = (q.astype(dtype) @ weft.matrix_transpose(k.astype(dtype))) * (scale or 1 / sqrt(q.shape[3]))
    if call.has("score_mod"):
        (scores,) = call.attribute("score_mod")(scores)
    weights = weft.softmax(scores, axis=-1)
    if call.has("prob_mod"):
        (weights,) = call.attribute("prob_mod")(weights)
    return (weights @ v.astype(dtype)).astype(q.dtype)


@operator("TensorScatter")
def tensor_scatter(call: Call, cache: Tensor, update: Tensor, starts: Tensor | None = None) -> Any:
    """A cache with an update written along an axis, for each example from a place of its own on."""
    axis = call.attribute("axis", -2) % cache.ndim
    places: Any = weft.arange(update.shape[axis])
    if starts is not None:
        places = places + starts[:, None]
    if call.attribute("mode", "linear") == "circular":
        places = places % cache.shape[axis]
    shape = [1] * cache.ndim
    shape[0], shape[axis] = (1 if starts is None else cache.shape[0]), update.shape[axis]
    index = weft.broadcast_to(places.reshape(tuple(shape)), update.shape)
    return weft.put_along_axis(cache, index, update, axis=axis)
