"""Oracles of linear algebra and Fourier transforms: SciPy where it has them, NumPy, or the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
import scipy.linalg


def each(
    function: Callable[..., Any], *stacks: Any, cores: tuple[int, ...] | None = None, **options: Any
) -> Any:
    """A function of single matrices over a broadcast batch; ``cores`` are the ranks of single inputs."""
    ranks = cores or (2,) * len(stacks)
    leads = [np.shape(s)[: np.ndim(s) - r] for s, r in zip(stacks, ranks, strict=True)]
    lead = np.broadcast_shapes(*leads)
    full = [
        np.broadcast_to(s, (*lead, *np.shape(s)[np.ndim(s) - r :]))
        for s, r in zip(stacks, ranks, strict=True)
    ]
    if 0 in lead:
        shape = [np.shape(o) for o in _parts(function(*[_identity(f) for f in full], **options))]
        empty = [np.empty((*lead, *s)) for s in shape]
        return empty[0] if len(empty) == 1 else tuple(empty)
    runs = [_parts(function(*[f[i] for f in full], **options)) for i in np.ndindex(lead)]
    outs = [
        np.stack([r[k] for r in runs]).reshape((*lead, *np.shape(runs[0][k]))) for k in range(len(runs[0]))
    ]
    return outs[0] if len(outs) == 1 else tuple(outs)


def _parts(out: Any) -> tuple[Any, ...]:
    return tuple(out) if isinstance(out, tuple) else (out,)


def _identity(stack: Any) -> Any:
    return np.eye(*stack.shape[-2:])


def _hermitian(x: Any) -> Any:
    return (x + x.swapaxes(-1, -2).conj()) / 2


def _cholesky(x: Any, upper: bool = False) -> Any:
    return each(lambda a: scipy.linalg.cholesky(a, lower=not upper), _hermitian(x))


def _solve_triangular(a: Any, b: Any, *, upper: bool, unit: bool) -> Any:
    solve = scipy.linalg.solve_triangular
    return each(lambda m, r: solve(m, r, lower=not upper, unit_diagonal=unit), a, b)


def _cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    return each(lambda r, f: scipy.linalg.cho_solve((f, not upper), r), b, factor)


def _cofactors(x: Any) -> Any:
    """By the definition: signed determinants of what is left without a row and a column."""
    n = x.shape[-1]
    out = np.empty(x.shape, x.dtype)
    for i in range(n):
        for j in range(n):
            minor = np.delete(np.delete(x, i, axis=-2), j, axis=-1)
            out[..., i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return out


def _slogdet(x: Any) -> Any:
    det = np.linalg.det(x)
    return det / np.abs(det), np.log(np.abs(det))


def _eigvals(x: Any) -> Any:
    return np.linalg.eig(x)[0]


def _vector_norm(x: Any, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    wide = np.abs(x).astype(np.float64)
    if np.size(x) == 0:
        return np.zeros_like(np.sum(wide, axis=axis, keepdims=keepdims))
    if ord == 0:
        return np.sum(wide != 0, axis=axis, keepdims=keepdims)
    if abs(ord) == np.inf:
        return (np.max if ord > 0 else np.min)(wide, axis=axis, keepdims=keepdims)
    return np.sum(wide**ord, axis=axis, keepdims=keepdims) ** (1 / ord)


def _matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    if np.size(x) == 0:
        return np.zeros(x.shape[:-2])
    return np.linalg.norm(x, ord=ord, axis=(-2, -1), keepdims=keepdims)


def _lstsq(a: Any, b: Any) -> Any:
    def one(m: Any, r: Any) -> Any:
        solution, _, rank, values = scipy.linalg.lstsq(m, r)
        return solution, np.sum(np.abs(m @ solution - r) ** 2, axis=0), np.asarray(rank), values

    return each(one, a, b)


def _cross(x: Any, y: Any, *, axis: int) -> Any:
    a, b = np.moveaxis(x, axis, 0), np.moveaxis(y, axis, 0)
    out = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    return np.stack(out, axis=axis)


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    """A transform of SciPy, which takes no empty batch."""

    def run(x: Any, **options: Any) -> Any:
        if np.size(x):
            return function(x, **options)
        filled = function(np.ones([max(s, 1) for s in x.shape]), **options)
        return np.empty([0 if s == 0 else f for s, f in zip(x.shape, filled.shape, strict=True)])

    return run


ORACLES: dict[str, Callable[..., Any]] = {
    "cholesky": _cholesky,
    "cholesky_upper": _cholesky,
    "cholesky_solve": _cholesky_solve,
    "solve": lambda a, b: each(scipy.linalg.solve, a, b),
    "solve_triangular": _solve_triangular,
    "inv": lambda x: each(scipy.linalg.inv, x),
    "qr": lambda x, complete: np.linalg.qr(x, "complete" if complete else "reduced"),
    "eigh": lambda x: np.linalg.eigh(_hermitian(x)),
    "eigvalsh": lambda x: each(scipy.linalg.eigvalsh, _hermitian(x)),
    "eig": np.linalg.eig,
    "eigvals": _eigvals,
    "svd": np.linalg.svd,
    "svdvals": lambda x: each(scipy.linalg.svdvals, x),
    "det": lambda x: each(scipy.linalg.det, x),
    "cofactors": _cofactors,
    "slogdet": _slogdet,
    "pinv": lambda x, rtol: each(lambda a, r: scipy.linalg.pinv(a, rtol=float(r)), x, rtol, cores=(2, 0)),
    "matrix_rank": lambda x, rtol=None, atol=None, hermitian=False: np.linalg.matrix_rank(
        x, tol=atol, rtol=rtol, hermitian=hermitian
    ),
    "lstsq": _lstsq,
    "matrix_power": np.linalg.matrix_power,
    "matrix_exp": lambda x: each(scipy.linalg.expm, x),
    "cross": _cross,
    "trace": lambda x, offset=0: np.trace(x, offset, -2, -1),
    "multi_dot": lambda *xs: np.linalg.multi_dot(xs) if len(xs) > 1 else xs[0],
    "tensorinv": np.linalg.tensorinv,
    "tensorsolve": np.linalg.tensorsolve,
    "vector_norm": _vector_norm,
    "matrix_norm": _matrix_norm,
    "linalg_norm": np.linalg.norm,
    "linalg_cond": np.linalg.cond,
    "fft": _along(lambda x, axes, norm: scipy.fft.fftn(x, axes=axes, norm=norm)),
    "ifft": _along(lambda x, axes, norm: scipy.fft.ifftn(x, axes=axes, norm=norm)),
    "rfft": _along(scipy.fft.rfft),
    "irfft": _along(scipy.fft.irfft),
    "rfftn": scipy.fft.rfftn,
    "irfftn": scipy.fft.irfftn,
}
