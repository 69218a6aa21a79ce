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
        at = [pi * s + ki * d - lo for pi, s, ki, d, (lo, _) in zip(p, stride, k, dilation, padding, strict=True)]
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
    """How many windows there are, and for each its index and its taps: (tap, position or None in the padding)."""
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
        while ceil_mode and (size + 2 * b + extra - reach) % a and (size + 2 * b - reach) // a * a + a < size + b:
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
            counts = window_sum(np.ones([n + 2 * a for n, a in zip(sizes, p, strict=True)]), **{**attrs, "padding": inner})
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
            cut = tuple(slice(i * n // c, -(-(i + 1) * n // c)) for i, n, c in zip(p, sizes, counts, strict=True))
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
    prelu_channels=lambda x, w: np.where(x > 0, x, x * (w.reshape(-1, *(1,) * (x.ndim - 2)) if w.size > 1 else w)),
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
    gelu=lambda x, approximate="none": 0.5 * x * (1 + scipy.special.erf(x / np.sqrt(2)))
    if approximate == "none"
    else 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
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
