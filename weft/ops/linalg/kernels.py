"""Reference kernels of linear algebra that NumPy does not have, on batches of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.shapes import broadcast_shapes
from weft.ops.op import Array

_BLOCK = 64

# Of degree 13 in double precision: N. J. Higham, The scaling and squaring method for the matrix exponential
# revisited, SIAM J. Matrix Anal. Appl. 26 (2005). The coefficients are those of the numerator.
_PADE = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)
_PADE_RADIUS = 5.371920351148152


def substitute(a: Array, b: Array) -> Array:
    """The solution of ``a @ x = b`` for an upper triangular a, from the last block of rows to the first.

    On a block LU decomposition has nothing to do: no row is exchanged, and what is left is substitution.
    """
    n = a.shape[-1]
    if n <= _BLOCK:
        return np.linalg.solve(a, b)
    lead = broadcast_shapes("solve_triangular", [a.shape[:-2], b.shape[:-2]])
    x = np.empty((*lead, *b.shape[-2:]), b.dtype)
    for stop in range(n, 0, -_BLOCK):
        rows = slice(max(0, stop - _BLOCK), stop)
        rest = b[..., rows, :] - a[..., rows, stop:] @ x[..., stop:, :]
        x[..., rows, :] = np.linalg.solve(a[..., rows, rows], rest)
    return x


def exponential(x: Array) -> Array:
    """The matrix exponential by scaling and squaring, computed in double precision."""
    wide = np.complex128 if kind(x.dtype) == "c" else np.float64
    a = x.astype(wide)
    with np.errstate(all="ignore"):
        norm = _column_norm(a)
        steps = np.ceil(np.log2(np.clip(norm / _PADE_RADIUS, 1.0, 2.0**1000)))
        steps = np.where(np.isfinite(norm), steps, 0.0)[..., None, None]
        out = _pade(a * np.exp2(-steps))
        for step in range(int(steps.max(initial=0.0))):
            out = np.where(step < steps, out @ out, out)
        return out.astype(x.dtype)


def _pade(a: Array) -> Array:
    """The Padé approximant of the exponential, good for matrices of norm up to ``_PADE_RADIUS``."""
    c = _PADE
    eye = np.eye(a.shape[-1], dtype=a.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2

    def polynomial(first: int) -> Any:
        low = c[first] * eye + c[first + 2] * a2 + c[first + 4] * a4 + c[first + 6] * a6
        return low + a6 @ (c[first + 8] * a2 + c[first + 10] * a4 + c[first + 12] * a6)

    even, odd = polynomial(0), a @ polynomial(1)
    out: Array = np.linalg.solve(even - odd, even + odd)
    return out


def cofactor_matrix(x: Array) -> Array:
    """``det(x) x^-T``: by the inverse where that is accurate, else by the singular value decomposition."""
    finite = np.isfinite(x).all(axis=(-2, -1), keepdims=True)
    if not finite.all():
        return np.where(finite, cofactor_matrix(np.where(finite, x, 0)), np.asarray(np.nan, x.dtype))
    try:
        inverse = np.linalg.inv(x)
    except np.linalg.LinAlgError:
        return _cofactors_by_svd(x)
    det = np.linalg.det(x)[..., None, None]
    condition = _column_norm(x) * _column_norm(inverse)
    accurate = (
        (condition < np.finfo(x.dtype).eps ** -0.5) & np.isfinite(det[..., 0, 0]) & (det[..., 0, 0] != 0)
    )
    return det * inverse.swapaxes(-1, -2) if accurate.all() else _cofactors_by_svd(x)


def _cofactors_by_svd(x: Array) -> Array:
    u, s, vh = np.linalg.svd(x)
    phase = np.linalg.det(u @ vh)[..., None, None]
    out: Array = phase * ((u * _products_without_one(s)[..., None, :]) @ vh).conj()
    return out


def _column_norm(x: Array) -> Array:
    out: Array = np.abs(x).sum(axis=-2).max(axis=-1, initial=0.0)
    return out


def _products_without_one(s: Array) -> Array:
    """For each element of the last axis the product of all others, without dividing."""
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return before * after
