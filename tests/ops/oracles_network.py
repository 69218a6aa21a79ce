"""Oracles of contractions, convolutions, activations, norms and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import scipy.special

from tests.ops.plain import each, enter_into

Array = Any
ORACLES: dict[str, Callable[..., Any]] = {}
oracle = enter_into(ORACLES)

# Contractions

ORACLES["matmul"] = lambda x, y: np.matmul(_wide(x), _wide(y)).astype(x.dtype)
ORACLES["matmul_bytes"] = lambda x, y: np.matmul(x.astype(np.int64), y.astype(np.int64)).astype(np.int32)
ORACLES["matmul_halves"] = lambda x, y: np.matmul(x.astype(float), y.astype(float)).astype(np.float32)
ORACLES["matmul_panels"] = lambda x, panels, *, columns: _by_panels(x, panels, columns)
ORACLES["matmul_add"] = lambda x, y, z: (np.matmul(_exact(x), _exact(y)) + _exact(z)).astype(x.dtype)
ORACLES["matmul_vectors"] = np.matmul
ORACLES["mm"] = ORACLES["bmm"] = ORACLES["mv"] = np.matmul
ORACLES["dot"] = np.dot
ORACLES["outer"] = np.outer
ORACLES["inner"] = np.inner
ORACLES["kron"] = np.kron
ORACLES["tensordot"] = lambda x, y, *, axes: np.tensordot(x, y, axes=axes)
ORACLES["vecdot"] = lambda x, y, *, axis=-1: np.sum(np.conj(x) * y, axis=axis)
ORACLES["einsum"] = lambda *xs, equation: np.einsum(equation, *xs)
ORACLES["linear"] = lambda x, w, b=0.0: np.einsum("...i,...i->...", x, w) if w.ndim == 1 else x @ w.T + b
ORACLES["bilinear"] = lambda x, y, w, b=0.0: np.einsum("...i,oij,...j->...o", x, w, y) + b


@oracle
def pack_panels(x: Array, *, width: int) -> Array:
    group = 4 if x.dtype == np.int8 else 1
    steps, columns = x.shape
    shape = -(-columns // width), -(-steps // group), width
    out = np.zeros((*shape, group), x.dtype)
    for step, column in product(range(steps), range(columns)):
        out[column // width, step // group, column % width, step % group] = x[step, column]
    return out.reshape(shape) if group == 1 else out.view("<u4").reshape(shape)


def _by_panels(x: Array, panels: Array, columns: int) -> Array:
    """The product, column by column: each lies in one lane of a panel."""
    width = panels.shape[2]
    lanes = [np.ascontiguousarray(panels[c // width, :, c % width]) for c in range(columns)]
    if x.dtype == np.int8:
        sides = np.stack([lane.view(np.int8)[: x.shape[-1]] for lane in lanes], axis=-1)
        return np.matmul(x.astype(np.int64), sides.astype(np.int64)).astype(np.int32)
    return np.matmul(x, np.stack(lanes, axis=-1))


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype == np.float16 else x


ORACLES["conv_halves"] = lambda x, w, **attrs: naive_conv(
    x.astype(np.float64), w.astype(np.float64), **attrs
).astype(np.float32)
ORACLES["conv_add"] = lambda x, w, z, **attrs: (
    naive_conv(_exact(x), _exact(w), **attrs) + _exact(z).reshape(-1, *(1,) * (x.ndim - 2))
).astype(x.dtype)


def _exact(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.itemsize == 2 else x


# Convolutions, one output element after another


def naive_conv(
    x: Array,
    w: Array,
    *,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    input_dilation: Sequence[int],
    groups: int,
) -> Array:
    """A convolution by its definition, in loops over outputs and taps."""
    positions = []
    for size, taps, s, (lo, hi), d, e in zip(
        x.shape[2:], w.shape[2:], stride, padding, dilation, input_dilation, strict=True
    ):
        length = (size - 1) * e + 1 + lo + hi if size else lo + hi
        positions.append(max(0, (length - (taps - 1) * d - 1) // s + 1))
    wide = np.result_type(x.dtype, np.float64) if x.dtype.kind in "fc" else x.dtype
    out = np.zeros((x.shape[0], w.shape[0], *positions), wide)
    per_group = w.shape[0] // groups
    for o, p, k in product(range(w.shape[0]), np.ndindex(*positions), np.ndindex(*w.shape[2:])):
        at = [
            pi * s + ki * d - lo
            for pi, s, ki, d, (lo, _) in zip(p, stride, k, dilation, padding, strict=True)
        ]
        if any(a % e for a, e in zip(at, input_dilation, strict=True)):
            continue
        at = [a // e for a, e in zip(at, input_dilation, strict=True)]
        if all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True)):
            first = o // per_group * w.shape[1]
            channels = x[(slice(None), slice(first, first + w.shape[1]), *at)]
            out[(slice(None), o, *p)] += channels.astype(wide) @ w[(o, slice(None), *k)].astype(wide)
    return out.astype(x.dtype)


ORACLES["conv"] = naive_conv


def _convolution(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    rank = w.ndim - 2
    dilation = each(dilation, rank)
    if padding == "same":
        reach = [(k - 1) * d for k, d in zip(w.shape[2:], dilation, strict=True)]
        pads = [(r // 2, r - r // 2) for r in reach]
    else:
        pads = [(p, p) for p in each(0 if padding == "valid" else padding, rank)]
    batch = x if x.ndim == rank + 2 else x[None]
    out = naive_conv(
        batch,
        w,
        stride=each(stride, rank),
        padding=pads,
        dilation=dilation,
        input_dilation=(1,) * rank,
        groups=groups,
    )
    if b is not None:
        out = out + b.reshape(-1, *(1,) * rank)
    return out if x.ndim == rank + 2 else out[0]


def _transposed_convolution(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Array:
    """Every input element adds its multiple of the window to the output."""
    rank = w.ndim - 2
    s, p, e, d = (each(v, rank) for v in (stride, padding, output_padding, dilation))
    batch = x if x.ndim == rank + 2 else x[None]
    sizes = [
        (n - 1) * a + (k - 1) * c + 1 + q
        for n, a, k, c, q in zip(batch.shape[2:], s, w.shape[2:], d, e, strict=True)
    ]
    outputs, per_group = w.shape[1], w.shape[0] // groups
    full = np.zeros((batch.shape[0], outputs * groups, *sizes))
    for c, i, k in product(range(w.shape[0]), np.ndindex(*batch.shape[2:]), np.ndindex(*w.shape[2:])):
        at = tuple(ii * a + kk * dd for ii, a, kk, dd in zip(i, s, k, d, strict=True))
        first = c // per_group * outputs
        taps = w[(c, slice(None), *k)]
        full[(slice(None), slice(first, first + outputs), *at)] += np.outer(batch[(slice(None), c, *i)], taps)
    out = full[(..., *(slice(a, n - a) for a, n in zip(p, sizes, strict=True)))]
    if b is not None:
        out = out + b.reshape(-1, *(1,) * rank)
    return out if x.ndim == rank + 2 else out[0]


for _rank in (1, 2, 3):
    ORACLES[f"conv{_rank}d"] = _convolution
    ORACLES[f"conv_transpose{_rank}d"] = _transposed_convolution


# Activations, by their textbook formulas and SciPy


ORACLES.update(
    relu=lambda x: np.where(x <= 0, 0, x),
    relu6=lambda x: np.where(x <= 0, 0, np.where(x >= 6, 6, x)),
    prelu=lambda x, y: np.where(x > 0, x, y * x),
    leaky_relu=lambda x: np.where(x > 0, x, 0.01 * x),
    prelu_channels=lambda x, w: np.where(
        x > 0, x, x * (w.reshape(-1, *(1,) * (x.ndim - 2)) if w.size > 1 else w)
    ),
    elu=lambda x, y: np.where(x > 0, x, y * np.expm1(x)),
    hardtanh=np.clip,
    softplus=lambda x: np.logaddexp(x, 0),
    softplus_scaled=lambda x, beta=1.0, threshold=20.0: np.where(
        beta * x > threshold, x, np.logaddexp(beta * x, 0) / beta
    ),
    normal_cdf=scipy.special.ndtr,
    threshold=lambda x, threshold, value: np.where(x <= threshold, value, x),
    selu=lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    celu=lambda x: np.where(x > 0, x, np.expm1(x)),
    gelu=lambda x, approximate="none": (
        0.5 * x * (1 + scipy.special.erf(x / np.sqrt(2)))
        if approximate == "none"
        else 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    silu=lambda x: x / (1 + np.exp(-x)) if x.dtype.kind == "c" else x * scipy.special.expit(x),
    logsigmoid=scipy.special.log_expit,
    mish=lambda x: x * np.tanh(np.logaddexp(x, 0)),
    softsign=lambda x: x / (1 + np.abs(x)),
    tanhshrink=lambda x: x - np.tanh(x),
    hardsigmoid=lambda x: np.clip(x / 6 + 0.5, 0, 1),
    hardswish=lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    softshrink=lambda x: np.where(x > 0.5, x - 0.5, np.where(x < -0.5, x + 0.5, 0 * x)),
    hardshrink=lambda x: np.where(np.abs(x) <= 0.5, 0, x),
    softmin=lambda x, axis=-1: scipy.special.softmax(-x, axis=axis),
)


@oracle
def softmax(x: Array, *, axis: int) -> Array:
    if x.size == 0:
        return x
    e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)


@oracle
def log_softmax(x: Array, *, axis: int) -> Array:
    if x.size == 0:
        return x
    wide = x.astype(np.float64) - x.max(axis=axis, keepdims=True)
    return (wide - np.log(np.exp(wide).sum(axis=axis, keepdims=True))).astype(x.dtype)


@oracle
def glu(x: Array, *, axis: int = -1) -> Array:
    a, b = np.split(x, 2, axis=axis)
    return a * scipy.special.expit(b)


# Norms


@oracle
def standardize(x: Array, *, axes: Any, eps: float, center: bool) -> Any:
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    statistic = np.float32 if x.dtype == np.float16 else x.dtype
    if any(x.shape[a] == 0 for a in axes):
        return x, np.zeros(shape), np.zeros(shape)
    wide = x.astype(np.float64)
    mean = wide.mean(axis=axes, keepdims=True) if center else np.zeros(shape)
    variance = ((wide - mean) ** 2).mean(axis=axes, keepdims=True)
    out = (wide - mean) / np.sqrt(variance + eps)
    return out.astype(x.dtype), mean.astype(statistic), variance.astype(statistic)


@oracle
def layer_norm(x: Array, w: Any = 1.0, b: Any = 0.0, *, normalized_shape: Any, eps: float = 1e-5) -> Array:
    axes = tuple(range(-len(np.atleast_1d(normalized_shape)), 0))
    mean = x.mean(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=axes, keepdims=True) + eps) * w + b


@oracle
def rms_norm(x: Array, w: Any = 1.0, *, normalized_shape: Any, eps: float | None = None) -> Array:
    axes = tuple(range(-len(np.atleast_1d(normalized_shape)), 0))
    eps = np.finfo(x.dtype).eps if eps is None else eps
    return x / np.sqrt((np.abs(x) ** 2).mean(axis=axes, keepdims=True) + eps) * w


@oracle
def group_norm(x: Array, w: Any = None, b: Any = None, *, num_groups: int, eps: float = 1e-5) -> Array:
    parts = [layer_norm(p, normalized_shape=p.shape[1:], eps=eps) for p in np.split(x, num_groups, axis=1)]
    out = np.concatenate(parts, axis=1)
    shape = (-1, *(1,) * (x.ndim - 2))
    return out * (1.0 if w is None else w.reshape(shape)) + (0.0 if b is None else b.reshape(shape))


@oracle
def normalize(x: Array, *, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Array:
    return x / np.maximum(np.linalg.norm(x, ord=p, axis=axis, keepdims=True), eps)


@oracle
def local_response_norm(
    x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Array:
    out = np.zeros_like(x)
    for c in range(x.shape[1]):
        near = x[:, max(0, c - size // 2) : c + (size - 1) // 2 + 1]
        out[:, c] = x[:, c] / (k + alpha / size * (near**2).sum(axis=1)) ** beta
    return out


# Attention, one query after another


@oracle
def scaled_dot_product_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Any = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    if enable_gqa:
        k, v = (np.repeat(t, q.shape[-3] // t.shape[-3], axis=-3) for t in (k, v))
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    full = None if mask is None else np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
    for at in np.ndindex(q.shape[:-1]):
        scores = k[at[:-1]] @ q[at] * scale
        if is_causal:
            scores[at[-1] + 1 :] = -np.inf
        if full is not None:
            scores = np.where(full[at], scores, -np.inf) if full.dtype == bool else scores + full[at]
        if np.isfinite(scores).any():
            e = np.exp(scores - scores.max())
            out[at] = e / e.sum() @ v[at[:-1]]
    return out
