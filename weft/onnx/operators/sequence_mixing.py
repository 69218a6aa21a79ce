"""What language models use around attention: rotary embedding, linear attention, caches."""

from __future__ import annotations

from math import sqrt
from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.attention import join_heads, split_heads
from weft.onnx.operators.registry import Call, operator


@operator("RotaryEmbedding")
def rotary_embedding(call: Call, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None) -> Any:
    """Pairs of features turned by angles that depend on the position."""
    packed = x.ndim == 3
    whole = split_heads(x, call.attribute("num_heads")) if packed else x
    if positions is not None:
        cos, sin = weft.take(cos, positions, axis=0), weft.take(sin, positions, axis=0)
    cos, sin = cos[:, None], sin[:, None]  # batch, heads, time, half of the features
    turned = call.attribute("rotary_embedding_dim", 0) or whole.shape[3]
    part, rest = whole[..., :turned], whole[..., turned:]
    if call.attribute("interleaved", 0):
        a, b = part[..., 0::2], part[..., 1::2]
        out = weft.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(part.shape)
    else:
        a, b = part[..., : turned // 2], part[..., turned // 2 :]
        out = weft.concat([a * cos - b * sin, a * sin + b * cos], axis=-1)
    if turned != whole.shape[3]:
        out = weft.concat([out, rest], axis=-1)
    return join_heads(out) if packed else out


@operator("LinearAttention")
def linear_attention(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention without a softmax, as a recurrence of a matrix for each head; also its last state."""
    heads, own = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
    batch, dtype = q.shape[0], q.dtype
    work = weft.float64 if dtype == weft.float64 else weft.float32
    rows = {"q": _over_time(q, heads, work), "k": _over_time(k, own, work), "v": _over_time(v, own, work)}
    rule = call.attribute("update_rule", "gated_delta")
    if rule in ("gated", "gated_delta") and decay is not None:
        rows["decay"] = weft.exp(_over_time(decay, own, work))
    if rule in ("delta", "gated_delta") and beta is not None:
        rows["beta"] = _over_time(beta, own if beta.shape[2] != 1 else 1, work)
    keys, values = rows["k"].shape[-1], rows["v"].shape[-1]
    scale = call.attribute("scale", 0.0) or 1 / sqrt(keys)
    start = weft.zeros((batch, own, keys, values), dtype=work) if past is None else past.astype(work)

    def step(state: Tensor, row: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        state = _updated(state, row)
        asked = row["q"].reshape((batch, own, heads // own, keys))
        return state, (asked @ state * scale).reshape((batch, heads * values))

    state, outs = weft.scan(step, start, rows)  # outs: time, batch, all features
    return weft.swapaxes(outs, 0, 1).astype(dtype), state.astype(dtype if past is None else past.dtype)


def _over_time(x: Tensor, heads: int, dtype: Any) -> Any:
    """(N, T, heads * E) as (T, N, heads, E)."""
    parts = x.astype(dtype).reshape((*x.shape[:2], heads, x.shape[2] // heads))
    return weft.moveaxis(parts, 1, 0)


def _updated(state: Tensor, row: dict[str, Tensor]) -> Tensor:
    """The matrices (N, H, K, V) after one more key and value."""
    k, v = row["k"], row["v"]
    if "decay" in row:
        state = state * row["decay"][..., None]
    if "beta" in row:
        v = (v - (k[..., None, :] @ state)[..., 0, :]) * row["beta"]
    return state + k[..., :, None] * v[..., None, :]


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
