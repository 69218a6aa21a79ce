"""Oracles of contractions, convolutions, pools, norms, losses and attention: NumPy, SciPy and plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import scipy.special

Array = Any
ORACLES: dict[str, Callable[..., Any]] = {}


def oracle(function: Callable[..., Any]) -> Callable[..., Any]:
    """Enter a function as the oracle of the op of its name."""
    ORACLES[function.__name__] = function
    return function


# Contractions

ORACLES["matmul"] = lambda x, y: np.matmul(_wide(x), _wide(y)).astype(x.dtype)
ORACLES["matmul_vectors"] = np.matmul
ORACLES["mm"] = ORACLES["bmm"] = ORACLES["mv"] = np.matmul
ORACLES["dot"] = lambda x, y: sum(a * b for a, b in zip(x, y, strict=True)) if x.size else 0.0
ORACLES["outer"] = np.outer
ORACLES["inner"] = np.inner
ORACLES["kron"] = np.kron
ORACLES["tensordot"] = lambda x, y, *, axes: np.tensordot(x, y, axes=axes)
ORACLES["vecdot"] = lambda x, y, *, axis=-1: np.sum(np.conj(x) * y, axis=axis)
ORACLES["einsum"] = lambda *xs, equation: np.einsum(equation, *xs)
ORACLES["linear"] = lambda x, w, b=0.0: np.einsum("...i,...i->...", x, w) if w.ndim == 1 else x @ w.T + b
ORACLES["bilinear"] = lambda x, y, w, b=0.0: np.einsum("...i,oij,...j->...o", x, w, y) + b


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype == np.float16 else x


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
    each = w.shape[0] // groups
    for o, p, k in product(range(w.shape[0]), np.ndindex(*positions), np.ndindex(*w.shape[2:])):
        at = [
            pi * s + ki * d - lo
            for pi, s, ki, d, (lo, _) in zip(p, stride, k, dilation, padding, strict=True)
        ]
        if any(a % e for a, e in zip(at, input_dilation, strict=True)):
            continue
        at = [a // e for a, e in zip(at, input_dilation, strict=True)]
        if all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True)):
            first = o // each * w.shape[1]
            channels = x[(slice(None), slice(first, first + w.shape[1]), *at)]
            out[(slice(None), o, *p)] += channels.astype(wide) @ w[(o, slice(None), *k)].astype(wide)
    return out.astype(x.dtype)


ORACLES["conv"] = naive_conv


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * rank


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
    dilation = _each(dilation, rank)
    if padding == "same":
        reach = [(k - 1) * d for k, d in zip(w.shape[2:], dilation, strict=True)]
        pads = [(r // 2, r - r // 2) for r in reach]
    else:
        pads = [(p, p) for p in _each(0 if padding == "valid" else padding, rank)]
    batch = x if x.ndim == rank + 2 else x[None]
    out = naive_conv(
        batch,
        w,
        stride=_each(stride, rank),
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
    s, p, e, d = (_each(v, rank) for v in (stride, padding, output_padding, dilation))
    batch = x if x.ndim == rank + 2 else x[None]
    sizes = [
        (n - 1) * a + (k - 1) * c + 1 + q
        for n, a, k, c, q in zip(batch.shape[2:], s, w.shape[2:], d, e, strict=True)
    ]
    each, per_group = w.shape[1], w.shape[0] // groups
    full = np.zeros((batch.shape[0], each * groups, *sizes))
    for c, i, k in product(range(w.shape[0]), np.ndindex(*batch.shape[2:]), np.ndindex(*w.shape[2:])):
        at = tuple(ii * a + kk * dd for ii, a, kk, dd in zip(i, s, k, d, strict=True))
        first = c // per_group * each
        taps = w[(c, slice(None), *k)]
        full[(slice(None), slice(first, first + each), *at)] += np.outer(batch[(slice(None), c, *i)], taps)
    out = full[(..., *(slice(a, n - a) for a, n in zip(p, sizes, strict=True)))]
    if b is not None:
        out = out + b.reshape(-1, *(1,) * rank)
    return out if x.ndim == rank + 2 else out[0]


for _rank in (1, 2, 3):
    ORACLES[f"conv{_rank}d"] = _convolution
    ORACLES[f"conv_transpose{_rank}d"] = _transposed_convolution


# Windows, one after another


def _places(size: int, k: int, s: int, pad: tuple[int, int], d: int) -> list[list[int]]:
    """The positions that each window over one axis meets, those in the padding included."""
    count = max(0, (size + sum(pad) - (k - 1) * d - 1) // s + 1)
    return [[i * s + t * d - pad[0] for t in range(k)] for i in range(count)]


def _window_places(
    sizes: Sequence[int], kernel: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], list[Any]]]]:
    """How many windows there are, and for each its index and taps: (tap, position or None if padding)."""
    axes = [_places(*a) for a in zip(sizes, kernel, stride, padding, dilation, strict=True)]
    counts = tuple(map(len, axes))
    out = []
    for p in np.ndindex(*counts):
        taps = []
        for k in np.ndindex(*kernel):
            at = tuple(axes[a][p[a]][k[a]] for a in range(len(sizes)))
            inside = all(0 <= v < n for v, n in zip(at, sizes, strict=True))
            taps.append((k, at if inside else None))
        out.append((p, taps))
    return counts, out


@oracle
def windows(x: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Array:
    lead = x.shape[: x.ndim - len(kernel)]
    counts, all_windows = _window_places(x.shape[len(lead) :], kernel, stride, padding, dilation)
    out = np.zeros((*lead, *counts, *kernel), x.dtype)
    for p, taps in all_windows:
        for k, at in taps:
            if at is not None:
                out[(..., *p, *k)] = x[(..., *at)]
    return out


@oracle
def overlap_add(x: Array, *, sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Array:
    _, all_windows = _window_places(sizes, kernel, stride, padding, dilation)
    out = np.zeros((*x.shape[: x.ndim - 2 * len(sizes)], *sizes), x.dtype)
    for p, taps in all_windows:
        for k, at in taps:
            if at is not None:
                out[(..., *at)] += x[(..., *p, *k)]
    return out


@oracle
def window_sum(x: Array, *, kernel: Any, **attrs: Any) -> Array:
    return windows(x, kernel=kernel, **attrs).sum(axis=tuple(range(-len(kernel), 0)))


@oracle
def window_spread(x: Array, *, kernel: Any, **attrs: Any) -> Array:
    taps = np.broadcast_to(x.reshape(*x.shape, *(1,) * len(kernel)), (*x.shape, *kernel))
    return overlap_add(taps, kernel=kernel, **attrs)


def _max_pool_with_indices(
    x: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Array, Array]:
    lead = x.shape[: x.ndim - len(kernel)]
    sizes = x.shape[len(lead) :]
    counts, all_windows = _window_places(sizes, kernel, stride, padding, dilation)
    out, index = np.zeros((*lead, *counts), x.dtype), np.zeros((*lead, *counts), np.int64)
    for (p, taps), row in product(all_windows, np.ndindex(*lead)):
        inside = [at for _, at in taps if at is not None]
        best = max(inside, key=lambda at: x[(*row, *at)])
        out[(*row, *p)], index[(*row, *p)] = x[(*row, *best)], np.ravel_multi_index(best, sizes)
    return out, index


ORACLES["max_pool"] = lambda x, **attrs: _max_pool_with_indices(x, **attrs)[0]
ORACLES["max_pool_indices"] = lambda x, **attrs: _max_pool_with_indices(x, **attrs)[1]


def _pool_windows(
    x: Array, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> dict[str, Any]:
    """Attributes of the windows of a pool; with ceil_mode the padding grows so that they cover the input."""
    kernel = _each(kernel_size, rank)
    s = kernel if stride is None else _each(stride, rank)
    p, d = _each(padding, rank), _each(dilation, rank)
    pads = []
    for size, k, a, b, c in zip(x.shape[x.ndim - rank :], kernel, s, p, d, strict=True):
        extra = 0
        reach = (k - 1) * c + 1
        # one more window is allowed if it starts before the end of the input
        while (
            ceil_mode
            and (size + 2 * b + extra - reach) % a
            and (size + 2 * b - reach) // a * a + a < size + b
        ):
            extra += 1
        pads.append((b, b + extra))
    return {"kernel": kernel, "stride": s, "padding": tuple(pads), "dilation": d}


def _max_pool_nd(rank: int) -> Callable[..., Any]:
    def function(
        x: Array,
        *,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        attrs = _pool_windows(x, rank, kernel_size, stride, padding, dilation, ceil_mode)
        both = _max_pool_with_indices(x, **attrs)
        return both if return_indices else both[0]

    return function


def _avg_pool_nd(rank: int) -> Callable[..., Any]:
    def function(
        x: Array,
        *,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        attrs = _pool_windows(x, rank, kernel_size, stride, padding, 1, ceil_mode)
        sizes = x.shape[x.ndim - rank :]
        ones = np.ones(sizes)
        if count_include_pad:
            p = _each(padding, rank)
            inner = tuple((lo - a, hi - a) for (lo, hi), a in zip(attrs["padding"], p, strict=True))
            counts = window_sum(
                np.ones([n + 2 * a for n, a in zip(sizes, p, strict=True)]), **{**attrs, "padding": inner}
            )
        else:
            counts = window_sum(ones, **attrs)
        return window_sum(x, **attrs) / (counts if divisor_override is None else divisor_override)

    return function


def _lp_pool_nd(rank: int) -> Callable[..., Any]:
    def function(x: Array, *, norm_type: float, kernel_size: Any, stride: Any = None) -> Array:
        attrs = _pool_windows(x, rank, kernel_size, stride, 0, 1, False)
        return window_sum(np.abs(x) ** norm_type, **attrs) ** (1 / norm_type)

    return function


def _adaptive_nd(rank: int, reduce: str) -> Callable[..., Any]:
    def function(x: Array, *, output_size: Any, return_indices: bool = False) -> Any:
        counts, sizes = _each(output_size, rank), x.shape[x.ndim - rank :]
        lead = x.shape[: x.ndim - rank]
        out, index = np.zeros((*lead, *counts)), np.zeros((*lead, *counts), np.int64)
        flat = np.arange(int(np.prod(sizes))).reshape(sizes)
        for p in np.ndindex(*counts):
            cut = tuple(
                slice(i * n // c, -(-(i + 1) * n // c)) for i, n, c in zip(p, sizes, counts, strict=True)
            )
            part = x[(..., *cut)].reshape(*lead, -1)
            out[(..., *p)] = part.mean(-1) if reduce == "mean" else part.max(-1)
            index[(..., *p)] = flat[cut].ravel()[part.argmax(-1)]
        return (out, index) if return_indices else out

    return function


for _rank in (1, 2, 3):
    ORACLES[f"max_pool{_rank}d"] = _max_pool_nd(_rank)
    ORACLES[f"avg_pool{_rank}d"] = _avg_pool_nd(_rank)
    ORACLES[f"adaptive_avg_pool{_rank}d"] = _adaptive_nd(_rank, "mean")
    ORACLES[f"adaptive_max_pool{_rank}d"] = _adaptive_nd(_rank, "max")
    ORACLES[f"lp_pool{_rank}d"] = _lp_pool_nd(_rank)


def _columns(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> dict[str, Any]:
    kernel, s, d = (_each(v, 2) for v in (kernel_size, stride, dilation))
    return {"kernel": kernel, "stride": s, "padding": tuple((p, p) for p in _each(padding, 2)), "dilation": d}


@oracle
def unfold(x: Array, *, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Array:
    attrs = _columns(kernel_size, dilation, padding, stride)
    view = np.moveaxis(windows(x, **attrs), (-2, -1), (-4, -3))
    return view.reshape(*x.shape[:-3], x.shape[-3] * int(np.prod(attrs["kernel"])), -1)


@oracle
def fold(
    x: Array, *, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Array:
    attrs, sizes = _columns(kernel_size, dilation, padding, stride), _each(output_size, 2)
    counts, _ = _window_places(sizes, attrs["kernel"], attrs["stride"], attrs["padding"], attrs["dilation"])
    view = x.reshape(*x.shape[:-2], -1, *attrs["kernel"], *counts)
    return overlap_add(np.moveaxis(view, (-2, -1), (-4, -3)), sizes=sizes, **attrs)


# Activations, by their textbook formulas and SciPy


def _enter(**functions: Callable[..., Any]) -> None:
    ORACLES.update(functions)


_enter(
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
    threshold=lambda x, threshold, value: np.where(x > threshold, x, value),
    selu=lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    celu=lambda x: np.where(x > 0, x, np.expm1(x)),
    gelu=lambda x, approximate="none": (
        0.5 * x * (1 + scipy.special.erf(x / np.sqrt(2)))
        if approximate == "none"
        else 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    silu=lambda x: x * scipy.special.expit(x),
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
    return x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + eps) * w


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


# Losses


@oracle
def take_class(x: Array, target: Array, *, axis: int, ignore: int) -> Array:
    out = np.zeros(target.shape, x.dtype)
    for at in np.ndindex(target.shape):
        if target[at] != ignore:
            out[at] = x[(*at[:axis], target[at], *at[axis:])]
    return out


@oracle
def put_class(x: Array, target: Array, *, classes: int, axis: int, ignore: int) -> Array:
    out = np.zeros((*x.shape[:axis], classes, *x.shape[axis:]), x.dtype)
    for at in np.ndindex(target.shape):
        if target[at] != ignore:
            out[(*at[:axis], target[at], *at[axis:])] = x[at]
    return out


def _reduce(losses: Array, reduction: str) -> Array:
    return {"none": losses, "mean": losses.sum() / max(1, losses.size), "sum": losses.sum()}[reduction]


def _elementwise_loss(formula: Callable[..., Array]) -> Callable[..., Array]:
    def function(x: Array, t: Array, *more: Array, reduction: str = "mean", **attrs: Any) -> Array:
        return _reduce(formula(x, t, *more, **attrs), reduction)

    return function


def _smooth_l1(x: Array, t: Array, beta: float = 1.0) -> Array:
    gap = np.abs(x - t)
    return np.where(gap < beta, 0.5 * gap**2 / (beta or 1.0), gap - 0.5 * beta)


def _bce(x: Array, t: Array, w: Any = 1.0) -> Array:
    return -w * (t * np.maximum(np.log(x), -100) + (1 - t) * np.maximum(np.log(1 - x), -100))


def _bce_logits(x: Array, t: Array, w: Any = 1.0, p: Any = 1.0) -> Array:
    return -w * (p * t * scipy.special.log_expit(x) + (1 - t) * scipy.special.log_expit(-x))


def _poisson(x: Array, t: Array, log_input: bool = True, full: bool = False) -> Array:
    out = np.exp(x) - t * x if log_input else x - t * np.log(x + 1e-8)
    stirling = t * np.log(t) - t + 0.5 * np.log(2 * np.pi * t) if full else 0.0
    return out + np.where(t > 1, stirling, 0.0) if full else out


def _gaussian(x: Array, t: Array, v: Array, full: bool = False) -> Array:
    v = v if v.ndim == x.ndim else v[..., None]
    return 0.5 * (np.log(v) + (x - t) ** 2 / v) + (0.5 * np.log(2 * np.pi) if full else 0.0)


def _cosine(x: Array, y: Array, axis: int = 1) -> Array:
    lengths = [np.maximum(np.linalg.norm(v, axis=axis if v.ndim > 1 else -1), 1e-8) for v in (x, y)]
    return (x * y).sum(axis=axis) / (lengths[0] * lengths[1])


def _distance(x: Array, y: Array, p: float = 2.0, keepdims: bool = False) -> Array:
    return np.linalg.norm(x - y + 1e-6, ord=p, axis=-1, keepdims=keepdims)


def _triplet(
    anchor: Array, near: Array, far: Array, /, margin: float = 1.0, p: float = 2.0, swap: bool = False
) -> Array:
    distance = _distance(anchor, far, p)
    if swap:
        distance = np.minimum(distance, _distance(near, far, p))
    return np.maximum(_distance(anchor, near, p) - distance + margin, 0)


_enter(
    mse_loss=_elementwise_loss(lambda x, t: (x - t) ** 2),
    l1_loss=_elementwise_loss(lambda x, t: np.abs(x - t)),
    huber_loss=_elementwise_loss(lambda x, t, delta=1.0: scipy.special.huber(delta, x - t)),
    smooth_l1_loss=_elementwise_loss(_smooth_l1),
    binary_cross_entropy=_bce,
    binary_cross_entropy_weighted=_elementwise_loss(_bce),
    binary_cross_entropy_with_logits=_elementwise_loss(_bce_logits),
    poisson_nll_loss=_elementwise_loss(_poisson),
    gaussian_nll_loss=_elementwise_loss(_gaussian),
    cosine_similarity=_cosine,
    pairwise_distance=_distance,
    cdist=lambda x, y, p=2.0: np.linalg.norm(x[..., :, None, :] - y[..., None, :, :], ord=p, axis=-1),
    cosine_embedding_loss=_elementwise_loss(
        lambda x, y, t, margin=0.0: np.where(t == 1, 1 - _cosine(x, y), np.maximum(_cosine(x, y) - margin, 0))
    ),
    margin_ranking_loss=_elementwise_loss(lambda x, y, t, margin=0.0: np.maximum(-t * (x - y) + margin, 0)),
    triplet_margin_loss=_elementwise_loss(_triplet),
    hinge_embedding_loss=_elementwise_loss(
        lambda x, t, margin=1.0: np.where(t == 1, x, np.maximum(margin - x, 0))
    ),
    soft_margin_loss=_elementwise_loss(lambda x, t: np.logaddexp(0, -t * x)),
    multilabel_soft_margin_loss=_elementwise_loss(lambda x, t, w=1.0: _bce_logits(x, t, w).mean(axis=-1)),
)


@oracle
def kl_div(x: Array, t: Array, *, reduction: str = "mean", log_target: bool = False) -> Array:
    losses = np.exp(t) * (t - x) if log_target else scipy.special.xlogy(t, t) - t * x
    return losses.sum() / x.shape[0] if reduction == "batchmean" else _reduce(losses, reduction)


@oracle
def multi_margin_loss(x: Array, t: Array, w: Any = None, *, p: int = 1, margin: float = 1.0) -> Array:
    out = 0.0
    for row, c in zip(x, t, strict=True):
        terms = [max(0.0, margin - row[c] + v) ** p for i, v in enumerate(row) if i != c]
        out += sum(terms) / x.shape[1] * (1.0 if w is None else w[c])
    return np.asarray(out / len(x))


def _by_example(
    x: Array, target: Array, loss: Callable[[Array, Any], tuple[float, float]], reduction: str
) -> Array:
    """A loss of scores along the class axis and a target, for each example; mean by the sum of weights."""
    axis = 0 if x.ndim == 1 else 1
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    soft = target.dtype.kind == "f"
    losses, weights = np.zeros(shape), np.zeros(shape)
    for at in np.ndindex(shape):
        key = (*at[:axis], slice(None), *at[axis:])
        losses[at], weights[at] = loss(x[key], target[key] if soft else target[at])
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / (weights.sum() or 1.0)}[reduction]


@oracle
def nll_loss(
    x: Array, target: Array, w: Any = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    def loss(row: Array, c: int) -> tuple[float, float]:
        factor = 0.0 if c == ignore_index else 1.0 if w is None else w[c]
        return -row[c] * factor, factor

    return _by_example(x, target, loss, reduction)


@oracle
def cross_entropy(
    x: Array,
    target: Array,
    w: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Both kinds of target as probabilities; weights multiply the terms of their classes."""

    def loss(row: Array, t: Any) -> tuple[float, float]:
        weight = np.ones(len(row)) if w is None else w
        soft = target.dtype.kind == "f"
        if not soft and t == ignore_index:
            return 0.0, 0.0
        share = t if soft else np.eye(len(row))[t]
        share = share * (1 - label_smoothing) + label_smoothing / len(row)
        scores = scipy.special.log_softmax(row)
        return -(share * scores * weight).sum(), 1.0 if soft else weight[t]

    return _by_example(x, target, loss, reduction)


# Resampling, each output by its definition


def _hat(d: float) -> float:
    return max(0.0, 1 - abs(d))


def _keys(d: float, a: float) -> float:
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0


def _resize_row(row: Array, count: int, scale: float, mode: str, corners: bool, antialias: bool) -> Array:
    """One axis: the kernel's weights at all elements, the border repeated (or cut off and normalised)."""
    size = len(row)
    out = np.zeros(count)
    for i in range(count):
        if mode.startswith("nearest"):
            at = (i + (0.5 if mode == "nearest-exact" else 0.0)) * scale
            out[i] = row[min(int(at), size - 1)]
            continue
        center = (i * (size - 1) / (count - 1) if count > 1 else 0.0) if corners else (i + 0.5) * scale - 0.5
        if antialias:
            wide = max(scale, 1.0)
            kernel = (lambda d: _keys(d, -0.5)) if mode == "bicubic" else _hat
            weights = np.array([kernel((j - center) / wide) for j in range(size)])
            out[i] = weights @ row / weights.sum()
        elif mode == "bicubic":
            places = range(int(np.floor(center)) - 1, int(np.floor(center)) + 3)
            out[i] = sum(_keys(center - j, -0.75) * row[min(max(j, 0), size - 1)] for j in places)
        else:
            out[i] = np.interp(center, np.arange(size), row)
    return out


@oracle
def interpolate(
    x: Array,
    *,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    recompute_scale_factor: bool = False,
    antialias: bool = False,
) -> Array:
    rank = x.ndim - 2
    factors = None if scale_factor is None else _each(scale_factor, rank)
    counts = (
        _each(size, rank)
        if factors is None
        else tuple(int(n * f) for n, f in zip(x.shape[2:], factors, strict=True))
    )
    if mode == "area":
        return ORACLES[f"adaptive_avg_pool{rank}d"](x, output_size=counts)
    for axis in range(rank):
        n, c = x.shape[axis + 2], counts[axis]
        scale = n / c if factors is None or recompute_scale_factor else 1 / factors[axis]
        x = np.apply_along_axis(_resize_row, axis + 2, x, c, scale, mode, align_corners, antialias)
    return x


@oracle
def pixel_shuffle(x: Array, *, upscale_factor: int) -> Array:
    r = upscale_factor
    *lead, c, h, w = x.shape
    out = np.zeros((*lead, c // r**2, h * r, w * r))
    for k, i, j in product(range(c), range(h), range(w)):
        out[..., k // r**2, i * r + k % r**2 // r, j * r + k % r] = x[..., k, i, j]
    return out


@oracle
def pixel_unshuffle(x: Array, *, downscale_factor: int) -> Array:
    r = downscale_factor
    *lead, c, h, w = x.shape
    out = np.zeros((*lead, c * r**2, h // r, w // r))
    for k, i, j in product(range(c), range(h), range(w)):
        out[..., k * r**2 + i % r * r + j % r, i // r, j // r] = x[..., k, i, j]
    return out


@oracle
def channel_shuffle(x: Array, *, groups: int) -> Array:
    each = x.shape[1] // groups
    return np.stack([x[:, g * each + k] for k in range(each) for g in range(groups)], axis=1)


def _fold_back(c: float, low: float, high: float) -> float:
    while low < high and not low <= c <= high:
        c = 2 * low - c if c < low else 2 * high - c
    return c


def _grid_place(c: float, size: int, padding: str, corners: bool) -> float:
    if padding == "reflection":
        c = _fold_back(c, *((0.0, size - 1.0) if corners else (-0.5, size - 0.5)))
    return c if padding == "zeros" else min(max(c, 0.0), size - 1.0)


@oracle
def grid_sample(
    x: Array,
    grid: Array,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Array:
    """Each place by the weights that the kernel gives to the elements around it."""
    sizes = x.shape[2:]
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for n, *o in np.ndindex(grid.shape[:-1]):
        taps: list[list[tuple[int, float]]] = []
        for c, size in zip(grid[(n, *o)][::-1], sizes, strict=True):
            at = (c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2
            if mode != "bicubic":
                at = _grid_place(at, size, padding_mode, align_corners)
            near = range(int(np.floor(at)) - 1, int(np.floor(at)) + 3)
            kernel = (lambda d: _keys(d, -0.75)) if mode == "bicubic" else _hat
            weights = [(j, float(j == round(at)) if mode == "nearest" else kernel(at - j)) for j in near]
            if mode == "bicubic":
                weights = [(int(_grid_place(j, size, padding_mode, align_corners)), w) for j, w in weights]
            taps.append(weights)
        for combination in product(*taps):
            place = tuple(j for j, _ in combination)
            if all(0 <= j < size for j, size in zip(place, sizes, strict=True)):
                out[(n, slice(None), *o)] += (
                    np.prod([w for _, w in combination]) * x[(n, slice(None), *place)]
                )
    return out


@oracle
def affine_grid(theta: Array, *, size: Sequence[int], align_corners: bool = False) -> Array:
    out = np.zeros((size[0], *size[2:], len(size) - 2))
    for n, *o in np.ndindex(out.shape[:-1]):
        place = []
        for i, count in zip(o, size[2:], strict=True):
            ends = -1 + 2 * i / (count - 1) if count > 1 else 0.0
            place.append(ends if align_corners else (2 * i + 1) / count - 1)
        out[(n, *o)] = theta[n] @ np.array([*place[::-1], 1.0])
    return out
