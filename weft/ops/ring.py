"""Attention over a sequence that ranks may hold parts of: keys and values go round them in a ring.

On whole tensors it is attention; ``weft.parallel.ring`` writes it for parts. A row of scores is never whole
on a rank, so besides the result there is the logarithm of each row's sum of exponentials, of which the
gradient computes the scores again, block by block (Liu, Zaharia and Abbeel, "Ring attention with blockwise
transformers for near-infinite context", 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading
from weft.ops.contract import matrix_multiply, transpose_last
from weft.ops.exponential import exp
from weft.ops.factors import Factors, Types
from weft.ops.families import primitive
from weft.ops.norm import statistics_dtype
from weft.ops.op import Op, Sample, Tensor
from weft.ops.reduce import reduce_sum
from weft.ops.samples import real_array
from weft.ops.select import in_dtype, select
from weft.ops.size import triangle
from weft.ops.statistics import log_sum_exp

SEQUENCE = "s"  # the factor of positions; all others but features are those of examples


def _type(
    q: TensorType, k: TensorType, v: TensorType, *, axis: str, causal: bool, scale: float
) -> tuple[TensorType, TensorType]:
    got = f"{q}, {k} and {v}"
    if q.ndim < 2 or q.shape != k.shape or v.shape[:-1] != q.shape[:-1]:
        message = "queries and keys must have one shape, and values as many examples and positions"
        raise ShapeError("ring_attention", f"{message}, got {got}")
    if kind(q.dtype) != "f" or not q.dtype == k.dtype == v.dtype:
        raise DtypeError(
            "ring_attention", f"queries, keys and values must have one floating dtype, got {got}"
        )
    return TensorType(v.shape, q.dtype), TensorType((*q.shape[:-1], 1), statistics_dtype(q.dtype))


def scores(q: Tensor, k: Tensor, *, scale: float) -> Tensor:
    """How much each query of a block looks at each key of another, in single precision at least."""
    wide = statistics_dtype(q.dtype)
    return matrix_multiply(in_dtype(q, wide) * scale, transpose_last(in_dtype(k, wide)))


def hidden_after(x: Tensor) -> Tensor:
    """Scores of a block with itself, where no query looks at a later key."""
    length = x.shape[-1]
    seen = triangle(length, length, 0)
    return select(seen, x, np.asarray(-np.inf, x.dtype))


def _attend(
    q: Tensor, k: Tensor, v: Tensor, *, axis: str, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    found = scores(q, k, scale=scale)
    found = hidden_after(found) if causal else found
    total = log_sum_exp(found, axes=(found.ndim - 1,), keepdims=True)
    out = matrix_multiply(exp(found - total), in_dtype(v, total.dtype))
    return in_dtype(out, q.dtype), total


def block_gradients(
    q: Tensor, k: Tensor, v: Tensor, p: Tensor, g: Tensor, delta: Tensor, *, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What one block of probabilities adds to the gradients of queries, keys and values."""
    q, k, v = (in_dtype(x, p.dtype) for x in (q, k, v))
    of_scores = p * (matrix_multiply(g, transpose_last(v)) - delta) * scale
    of_keys = matrix_multiply(transpose_last(of_scores), q)
    return matrix_multiply(of_scores, k), of_keys, matrix_multiply(transpose_last(p), g)


def _probabilities(q: Tensor, k: Tensor, total: Tensor, causal: bool, scale: float) -> Tensor:
    """All of them at once, given the logarithms of the rows' sums."""
    found = scores(q, k, scale=scale)
    return exp((hidden_after(found) if causal else found) - in_dtype(total, found.dtype))


def _differentiate(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    total: Tensor,
    of_out: Tensor,
    delta: Tensor,
    *,
    axis: str,
    causal: bool,
    scale: float,
) -> tuple[Tensor, ...]:
    p = _probabilities(q, k, total, causal, scale)
    made = block_gradients(q, k, v, p, in_dtype(of_out, p.dtype), in_dtype(delta, p.dtype), scale=scale)
    return tuple([in_dtype(x, q.dtype) for x in made])


def _vjp_type(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    total: TensorType,
    g: TensorType,
    delta: TensorType,
    **attrs: Any,
) -> tuple[TensorType, TensorType, TensorType]:
    out, _ = _type(q, k, v, **attrs)
    if g != out or total.shape != (*q.shape[:-1], 1) or total != delta or kind(total.dtype) != "f":
        message = f"gradients must be {out}, and what is known of rows one number each"
        raise ShapeError("ring_attention_vjp", f"{message}, got {g}, {total} and {delta}")
    return q, k, v


def _jvp(
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor],
    outs: Sequence[Tensor],
    *,
    axis: str,
    causal: bool,
    scale: float,
) -> list[Tensor]:
    (q, k, v), (tq, tk, tv) = primals, tangents
    p = _probabilities(q, k, outs[1], causal, scale)
    of_scores = p * (scores(tq, k, scale=scale) + scores(q, tk, scale=scale))
    of_total = reduce_sum(of_scores, axes=(p.ndim - 1,), keepdims=True)
    v, tv = in_dtype(v, p.dtype), in_dtype(tv, p.dtype)
    out = matrix_multiply(of_scores - p * of_total, v) + matrix_multiply(p, tv)
    return [in_dtype(out, q.dtype), of_total]


def _vjp_of_vjp(
    g: Sequence[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    total: Tensor,
    of_out: Tensor,
    delta: Tensor,
    causal: bool,
    scale: float,
) -> list[Tensor]:
    """Second derivatives, of whole rows of scores; named after what is differentiated here."""
    p = _probabilities(q, k, total, causal, scale)
    given = (q, k, v, of_out, delta, *g)
    q, k, v, of_out, delta, gq, gk, gv = (in_dtype(x, p.dtype) for x in given)
    rest = matrix_multiply(of_out, transpose_last(v)) - delta
    of_scores = p * rest * scale
    g_scores = matrix_multiply(gq, transpose_last(k)) + matrix_multiply(q, transpose_last(gk))
    g_rest = g_scores * scale * p
    g_found = g_rest * rest + matrix_multiply(of_out, transpose_last(gv)) * p  # of the scores themselves
    made = [
        matrix_multiply(g_found, k) * scale + matrix_multiply(of_scores, gk),
        matrix_multiply(transpose_last(g_found), q) * scale + matrix_multiply(transpose_last(of_scores), gq),
        matrix_multiply(transpose_last(g_rest), of_out),
        -reduce_sum(g_found, axes=(p.ndim - 1,), keepdims=True),
        matrix_multiply(g_rest, v) + matrix_multiply(p, gv),
        -reduce_sum(g_rest, axes=(p.ndim - 1,), keepdims=True),
    ]
    wanted = [x.dtype for x in (*given[:3], total, given[3], given[4])]
    return [in_dtype(x, dtype) for x, dtype in zip(made, wanted, strict=True)]


def _vjp(
    g: Sequence[Tensor],
    outs: Sequence[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    axis: str,
    causal: bool,
    scale: float,
) -> list[Tensor]:
    out, total = outs
    product = in_dtype(g[0], total.dtype) * in_dtype(out, total.dtype)
    delta = reduce_sum(product, axes=(out.ndim - 1,), keepdims=True) - g[1]
    return list(ring_attention_vjp(q, k, v, total, g[0], delta, axis=axis, causal=causal, scale=scale))


def _factors(inputs: Types, outputs: Types, **attrs: object) -> Factors:
    names = (*[f"b{i}" for i in range(inputs[0].ndim - 2)], SEQUENCE, "")
    return Factors((names,) * len(inputs), (names,) * len(outputs))


def _samples() -> list[Sample]:
    q, k, v = real_array((2, 5, 4)), real_array((2, 5, 4), seed=1), real_array((2, 5, 3), seed=2)
    return [
        Sample((q, k, v), {"axis": "model", "causal": False, "scale": 0.5}),
        Sample((q, k, v), {"axis": "model", "causal": True, "scale": 0.7}),
        Sample((q[0], k[0], v[0]), {"axis": "model", "causal": True, "scale": 1.0}),
        Sample((q[:0], k[:0], v[:0]), {"axis": "model", "causal": True, "scale": 1.0}),
    ]


def _vjp_samples() -> list[Sample]:
    g, total, delta = (
        real_array((2, 5, 3), seed=3),
        real_array((2, 5, 1), 5.0, 6.0),
        real_array((2, 5, 1), seed=4),
    )
    return [Sample((*s.inputs, total, g, delta), s.attrs) for s in _samples()[:2]]


ring_attention: Op = primitive(
    "ring_attention",
    type_rule=_type,
    decomposition=_attend,
    vjp=_vjp,
    jvp=_jvp,
    batch=batch_leading(),
    samples=_samples,
    outputs=2,
    factors=_factors,
)
"""``ring_attention(q, k, v, axis, causal, scale)``: attention, and the logarithms of its rows' sums."""

ring_attention_vjp: Op = primitive(
    "ring_attention_vjp",
    type_rule=_vjp_type,
    decomposition=_differentiate,
    vjp=_vjp_of_vjp,
    batch=batch_leading(),
    samples=_vjp_samples,
    outputs=3,
    factors=_factors,
)
"""``ring_attention_vjp(q, k, v, total, g, delta, axis, causal, scale)``: its gradients."""
