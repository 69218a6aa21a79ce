"""Lax primitives of linear algebra."""

from __future__ import annotations

from typing import Any

import weft
from weft.base.dtypes import kind
from weft.interop.forms.elements import astype
from weft.interop.jax.calls import Call, lax


def _adjoint(x: Any) -> Any:
    flipped = weft.matrix_transpose(x)
    return weft.conj(flipped) if kind(x.dtype) == "c" else flipped


@lax("triangular_solve")
def triangular_solve(
    call: Call, a: Any, b: Any, *, lower: bool, transpose_a: bool, conjugate_a: bool, **settings: bool
) -> Any:
    """The solution of equations with a triangular matrix."""
    a = weft.conj(a) if conjugate_a and kind(a.dtype) == "c" else a
    a, upper = (weft.matrix_transpose(a), lower) if transpose_a else (a, not lower)
    left, unit = settings["left_side"], settings["unit_diagonal"]
    return weft.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit)


@lax("eigh")
def eigh(call: Call, x: Any, *, lower: bool = True, **parameters: Any) -> Any:
    """Eigenvectors and eigenvalues of a symmetric matrix, of which one half is given."""
    half, rest = (weft.tril(x), weft.tril(x, -1)) if lower else (weft.triu(x), weft.triu(x, 1))
    values, vectors = weft.linalg.eigh(half + _adjoint(rest))
    return vectors, values


@lax("svd")
def svd(call: Call, x: Any, *, full_matrices: bool, compute_uv: bool, **parameters: Any) -> Any:
    """Singular values, and vectors if they are asked for."""
    if not compute_uv:
        return [weft.linalg.svdvals(x)]
    u, s, vh = weft.linalg.svd(x, full_matrices=full_matrices)
    return [s, u, vh]


@lax("qr")
def qr(call: Call, x: Any, *, full_matrices: bool, pivoting: bool = False, **parameters: Any) -> Any:
    """An orthogonal and a triangular factor."""
    if pivoting:
        raise call.error("must not pivot", "use jnp.linalg.qr without pivoting")
    return weft.linalg.qr(x, mode="complete" if full_matrices else "reduced")


@lax("lu")
def lu(call: Call, x: Any, **parameters: Any) -> Any:
    """Lower and upper triangular factors in one matrix, and how rows were exchanged, by partial pivoting."""
    rows, columns = x.shape[-2:]
    order = weft.broadcast_to(weft.arange(rows), x.shape[:-1])
    steps = min(rows, columns)
    pivots0 = weft.zeros((*x.shape[:-2], steps), dtype=weft.int64)
    places, across = weft.arange(rows), weft.arange(columns)

    def step(k: Any, state: Any) -> Any:
        a, order, pivots = state
        column = weft.take(a, weft.reshape(k, (1,)), axis=a.ndim - 1)[..., 0]
        size = weft.where(places >= k, weft.abs(column), weft.full((), -1.0, dtype=weft.abs(column).dtype))
        best = weft.argmax(size, axis=-1)
        chosen = weft.expand_dims(best, axis=-1)
        pivots = weft.where(weft.arange(steps) == k, chosen, pivots)
        swap = _exchanged(places, k, chosen)
        order = weft.take_along_axis(order, swap, axis=-1)
        a = weft.take_along_axis(
            a, weft.broadcast_to(weft.expand_dims(swap, axis=-1), a.shape), axis=a.ndim - 2
        )
        return _eliminated(a, k, places, across), order, pivots

    a, order, pivots = weft.fori_loop(0, steps, step, (x, order, pivots0))
    return a, pivots, order


def _exchanged(places: Any, one: Any, other: Any) -> Any:
    return weft.where(places == one, other, weft.where(places == other, one, places))


def _eliminated(a: Any, k: Any, places: Any, across: Any) -> Any:
    """A matrix with multiples of row k taken from the rows below, and the factors in column k."""
    row = weft.take(a, weft.reshape(k, (1,)), axis=a.ndim - 2)
    column = weft.take(a, weft.reshape(k, (1,)), axis=a.ndim - 1)
    pivot = weft.take(row, weft.reshape(k, (1,)), axis=a.ndim - 1)
    below = weft.expand_dims(places > k, axis=-1)
    zero = weft.zeros((), dtype=a.dtype)
    factors = weft.where(below, column / weft.where(pivot == 0, weft.ones((), dtype=a.dtype), pivot), zero)
    right = weft.where(across > k, row, zero)
    reduced = a - factors * right
    return weft.where(weft.logical_and(below, across == k), factors, reduced)


@lax("lu_pivots_to_permutation")
def pivots_to_permutation(call: Call, pivots: Any, *, permutation_size: int) -> Any:
    """The order of rows after exchanges, one after the other."""
    order = weft.broadcast_to(weft.arange(permutation_size), (*pivots.shape[:-1], permutation_size))
    places = weft.arange(permutation_size)

    def step(k: Any, order: Any) -> Any:
        chosen = astype(weft.take(pivots, weft.reshape(k, (1,)), axis=pivots.ndim - 1), weft.int64)
        return weft.take_along_axis(order, _exchanged(places, k, chosen), axis=-1)

    return weft.fori_loop(0, pivots.shape[-1], step, order)


@lax("eig")
def eig(call: Call, x: Any, **asked: Any) -> Any:
    """Eigenvalues of any square matrix, and eigenvectors from the right."""
    if asked["compute_left_eigenvectors"]:
        raise call.error("must not ask for eigenvectors from the left")
    return list(weft.linalg.eig(x))[: 2 if asked["compute_right_eigenvectors"] else 1]


@lax("tridiagonal_solve")
def tridiagonal_solve(call: Call, lower: Any, diagonal: Any, upper: Any, b: Any, **parameters: Any) -> Any:
    """The solution of equations with three diagonals, by elimination downwards and substitution upwards."""
    rows = [weft.moveaxis(x, -1, 0) for x in (lower, diagonal, upper)]
    rows = [weft.expand_dims(x, axis=-1) for x in rows]
    right = weft.moveaxis(b, -2, 0)

    def down(state: Any, row: Any) -> Any:
        below, middle, above, given = row
        scale = 1.0 / (middle - below * state[0])
        new = (above * scale, (given - below * state[1]) * scale)
        return new, new

    zeros = (weft.zeros(rows[0].shape[1:], dtype=b.dtype), weft.zeros(right.shape[1:], dtype=b.dtype))
    _, (factors, values) = weft.scan(down, zeros, (*rows, right))

    def up(after: Any, row: Any) -> Any:
        value = row[1] - row[0] * after
        return value, value

    _, out = weft.scan(up, weft.zeros(right.shape[1:], dtype=b.dtype), (factors, values), reverse=True)
    return weft.moveaxis(out, 0, -2)


lax.enter(
    {
        "cholesky": lambda call, x, *, symmetrize_input=True, **rest: weft.linalg.cholesky(
            (x + _adjoint(x)) / 2.0 if symmetrize_input else x
        )
    }
)
