"""Oracles of functions by the names that model code calls: in NumPy and SciPy, or plain loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import integrate, linalg
from scipy import special as sp

Array = np.ndarray[Any, Any]


def _divided(x: Array, y: Array, rounding_mode: str) -> Array:
    exact = np.true_divide(x, y)
    out = np.trunc(exact) if rounding_mode == "trunc" else np.floor(exact)
    return out.astype(x.dtype)


def _rounded(x: Array, decimals: int = 0) -> Array:
    found = np.round(x, decimals)
    return np.where(np.isfinite(found), found, x)


def _folded(x: Array, v: Array, *indices: Array, fold: str) -> Array:
    """One element after the other."""
    combine = {"mul": lambda a, b: a * b, "max": max, "min": min}[fold]
    out = x.copy()
    for place in np.ndindex(indices[0].shape):
        at = tuple(int(i[place]) for i in indices)
        for rest in np.ndindex(out[at].shape):
            out[at + rest] = combine(out[at + rest], v[place + rest])
    return out


def _scatter_reduced(
    x: Array, index: Array, src: Array, axis: int, reduce: str, include_self: bool = True
) -> Array:
    """The list of what comes to each place, reduced."""
    comes: dict[tuple[int, ...], list[float]] = {}
    for place in np.ndindex(index.shape):
        at = (*place[:axis], int(index[place]), *place[axis + 1 :])
        comes.setdefault(at, [x[at]] if include_self else []).append(src[place])
    how: dict[str, Callable[..., Any]] = {
        "sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min,
    }  # fmt: skip
    out = x.copy()
    for at, values in comes.items():
        out[at] = how[reduce](values)
    return out


def _index_copied(x: Array, index: Array, source: Array, axis: int) -> Array:
    out = np.moveaxis(x.copy(), axis, 0)
    out[index] = np.moveaxis(source, axis, 0)
    return np.moveaxis(out, 0, axis)


def _masked_scattered(x: Array, mask: Array, source: Array) -> Array:
    out, mask = x.copy(), np.broadcast_to(mask, x.shape)
    out[mask] = source.ravel()[: mask.sum()]
    return out


def _histc(x: Array, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    x = x[~np.isnan(x)]
    ends = (x.min(), x.max()) if min == max else (min, max)
    return np.histogram(x, bins, ends)[0]


def _histogram(
    x: Array,
    edges: Any = None,
    weight: Any = None,
    bins: Any = None,
    range: Any = None,
    density: bool = False,
) -> Any:
    return np.histogram(x, bins if edges is None else edges, range, density, weight)


def _kth(x: Array, k: int, axis: int = -1, keepdims: bool = False) -> Any:
    order = np.argsort(x, axis=axis, kind="stable")
    index = np.take(order, [k - 1], axis=axis)
    values = np.take_along_axis(x, index, axis)
    return [values, index] if keepdims else [np.squeeze(values, axis), np.squeeze(index, axis)]


def _mode(x: Array, axis: int = -1, keepdims: bool = False) -> Any:
    def one(row: Array) -> tuple[Any, int]:
        values, counts = np.unique(row, return_counts=True)
        best = values[np.argmax(counts)]
        return best, int(np.flatnonzero(row == best)[-1])

    rows = np.moveaxis(x, axis, -1)
    found = [one(r) for r in rows.reshape(-1, rows.shape[-1])]
    outs = [np.array([f[i] for f in found]).reshape(rows.shape[:-1]) for i in (0, 1)]
    return [np.expand_dims(o, axis) for o in outs] if keepdims else outs


def _logcumsumexp(x: Array, axis: int) -> Array:
    parts = [sp.logsumexp(np.take(x, range(i + 1), axis=axis), axis=axis) for i in range(x.shape[axis])]
    return np.stack(parts, axis=axis)


def _centred(window: Array, n_fft: int) -> Array:
    out = np.zeros(n_fft)
    left = (n_fft - len(window)) // 2
    out[left : left + len(window)] = window
    return out


def _stft(
    x: Array, window: Array, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None,
) -> Array:  # fmt: skip
    """Piece after piece."""
    hop, taper = hop_length or n_fft // 4, _centred(window, n_fft)
    if center:
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)], mode="reflect")
    half = onesided if onesided is not None else x.dtype.kind == "f"
    starts = range(0, x.shape[-1] - n_fft + 1, hop)
    pieces = [
        np.fft.fft(x[..., s : s + n_fft] * taper) / (np.sqrt(n_fft) if normalized else 1) for s in starts
    ]
    return np.stack([p[..., : n_fft // 2 + 1] if half else p for p in pieces], axis=-1)


def _istft(
    x: Array, window: Array, n_fft: int, hop_length: int | None = None, normalized: bool = False,
    onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Array:  # fmt: skip
    hop, taper = hop_length or n_fft // 4, _centred(window, n_fft)
    frames = x.shape[-1]
    total = n_fft + hop * (frames - 1)
    out, weights = np.zeros((*x.shape[:-2], total), complex), np.zeros(total)
    for t in range(frames):
        spectrum = x[..., t] * (np.sqrt(n_fft) if normalized else 1)
        half = spectrum.shape[-1] != n_fft
        piece = np.fft.irfft(spectrum, n_fft) if half else np.fft.ifft(spectrum)
        out[..., t * hop : t * hop + n_fft] += piece * taper
        weights[t * hop : t * hop + n_fft] += taper**2
    out = (out / np.where(weights > 1e-11, weights, 1))[..., n_fft // 2 : total - n_fft // 2]
    if length is not None:
        whole = np.zeros((*x.shape[:-2], length), complex)
        kept = min(length, total - n_fft // 2)
        back = (out_all(x, taper, n_fft, hop, normalized))[..., n_fft // 2 : n_fft // 2 + kept]
        whole[..., :kept] = back
        out = whole
    return out if return_complex else out.real


def out_all(x: Array, taper: Array, n_fft: int, hop: int, normalized: bool) -> Array:
    """The overlapped pieces with both ends."""
    total = n_fft + hop * (x.shape[-1] - 1)
    out, weights = np.zeros((*x.shape[:-2], total)), np.zeros(total)
    for t in range(x.shape[-1]):
        piece = np.fft.irfft(x[..., t] * (np.sqrt(n_fft) if normalized else 1), n_fft)
        out[..., t * hop : t * hop + n_fft] += piece * taper
        weights[t * hop : t * hop + n_fft] += taper**2
    return out / np.where(weights > 1e-11, weights, 1)


def _lu(x: Array) -> tuple[Array, ...]:
    if x.size == 0:
        return np.eye(x.shape[0]), np.zeros((x.shape[0], 0)), np.zeros((0, x.shape[1]))
    if x.ndim == 2:
        return tuple(linalg.lu(x))
    found = [linalg.lu(a) for a in x]
    return tuple(np.stack([f[i] for f in found]) for i in range(3))


def _ldl_factor(x: Array, hermitian: bool) -> list[Array]:
    """By LAPACK, a matrix at a time."""
    name = "hetrf" if hermitian and np.iscomplexobj(x) else "sytrf"
    (function,) = linalg.get_lapack_funcs((name,), (x,))
    factors, pivots = np.zeros_like(x), np.zeros(x.shape[:-1], np.int32)
    for at in np.ndindex(x.shape[:-2]) if x.size else ():
        found, pivots[at], _ = function(x[at], lower=1)
        factors[at] = np.tril(found)
    return [factors, pivots]


def _full(factors: Array, pivots: Array, hermitian: bool) -> tuple[Array, ...]:
    """The outer factor, the blocks and the order, as products of step after step: P1 L1 P2 L2 ... D."""
    n = len(pivots)
    outer, blocks, order = np.eye(n, dtype=factors.dtype), np.diag(np.diag(factors)), np.arange(n)
    k = 0
    while k < n:
        two = pivots[k] < 0
        last, p = k + two, abs(pivots[k]) - 1
        exchange, step = np.eye(n), np.eye(n, dtype=factors.dtype)
        exchange[[last, p]] = exchange[[p, last]]
        order = order @ exchange.astype(int)
        step[last + 1 :, k : last + 1] = factors[last + 1 :, k : last + 1]
        if two:
            blocks[last, k] = factors[last, k]
            blocks[k, last] = factors[last, k].conj() if hermitian else factors[last, k]
        outer = outer @ exchange @ step
        k = last + 1
    return outer, blocks, order


def _ldl_unpack(factors: Array, pivots: Array, hermitian: bool) -> list[Array]:
    found = [_full(factors[at], pivots[at], hermitian) for at in np.ndindex(factors.shape[:-2])]
    return [np.reshape([f[i] for f in found], s.shape) for i, s in enumerate((factors, factors, pivots))]


def _ldl_solve(factors: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    outer, blocks, _ = _ldl_unpack(factors, pivots, hermitian)
    turned = outer.swapaxes(-1, -2).conj() if hermitian else outer.swapaxes(-1, -2)
    return np.linalg.solve(outer @ blocks @ turned, b)


def _affine(product: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, a, b, beta=1, alpha=1: beta * x + alpha * product(a, b)


def _strided(x: Array, size: Any, stride: Any, storage_offset: int = 0) -> Array:
    flat = np.ascontiguousarray(x).ravel()
    steps = [s * flat.itemsize for s in stride]
    return np.lib.stride_tricks.as_strided(flat[storage_offset:], size, steps)


ORACLES: dict[str, Callable[..., Any]] = {
    "addbmm": _affine(lambda a, b: np.einsum("bij,bjk->ik", a, b)),
    "addcdiv": lambda x, a, b, value=1: x + value * a / b,
    "addcmul": lambda x, a, b, value=1: x + value * a * b,
    "addmm": _affine(np.matmul),
    "addmv": _affine(np.matmul),
    "addr": _affine(np.outer),
    "as_strided": _strided,
    "baddbmm": _affine(np.matmul),
    "corrcoef": np.corrcoef,
    "cov": lambda x, correction=1: np.cov(x, ddof=correction),
    "divide_rounded": _divided,
    "dstack": lambda *xs: np.dstack(xs),
    "histc": _histc,
    "histogram": _histogram,
    "hstack": lambda *xs: np.hstack(xs),
    "index_copy": _index_copied,
    "istft": _istft,
    "kthvalue": _kth,
    "ldl_factor": _ldl_factor,
    "ldl_solve": _ldl_solve,
    "ldl_underived": lambda x, y: np.broadcast_arrays(x, y)[0],
    "ldl_unpack": _ldl_unpack,
    "logcumsumexp": _logcumsumexp,
    "logsumexp_complex": lambda x, axis, keepdims: sp.logsumexp(x, axis=axis, keepdims=keepdims),
    "lu": lambda x: list(_lu(x)),
    "masked_scatter": _masked_scattered,
    "mode": _mode,
    "round_decimals": _rounded,
    "scatter_fold": _folded,
    "scatter_reduce_axis": _scatter_reduced,
    "stft": _stft,
    "trapezoid": lambda y, x=None, dx=1.0, axis=-1: integrate.trapezoid(y, x, dx, axis),
    "vstack": lambda *xs: np.vstack(xs),
}
