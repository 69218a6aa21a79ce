"""The LDL factorisation of symmetric and Hermitian matrices that need not be definite, and its solutions.

Pivots are blocks of one or two rows after J. Bunch and L. Kaufman, Some stable methods for calculating
inertia and solving symmetric linear systems, Math. Comp. 31 (1977). The compact form is LAPACK's (xSYTRF and
xHETRF of the lower triangle), which PyTorch and SciPy have too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.base.dtypes import int32, kind
from weft.base.public import public
from weft.errors import DomainError, DtypeError, GradientError, ShapeError
from weft.ir.types import TensorType
from weft.ops.broadcast import unbroadcast
from weft.ops.complex import conj
from weft.ops.families import elementwise, primitive
from weft.ops.linalg.common import check_square, floating, singular_error
from weft.ops.linalg.kernels import substitute
from weft.ops.linalg.systems import check_system
from weft.ops.op import Array, Sample, Tensor, no_gradient, type_of
from weft.ops.samples import complex_array, real_array
from weft.ops.view.primitives import reshape
from weft.ops.view.slices import slice_axis

_ALPHA = (1 + 17**0.5) / 8  # bounds how much elements grow in a step


class LDLResult(NamedTuple):
    """What ``ldl`` returns."""

    L: Tensor
    D: Tensor
    perm: Tensor


class LDLFactorResult(NamedTuple):
    """The compact form that ``ldl_factor`` returns."""

    LD: Tensor
    pivots: Tensor


# Factors


def _refused(y: Tensor) -> Tensor:
    raise GradientError(
        "ldl_factor",
        f"the factors have no derivative, got one asked for by {type_of(y)}",
        hint="linalg.solve, cholesky and lu have; a matrix.detach() is a constant",
    )


# x, made of y in a way that has no derivative: without it the gradient by y would be lost without a word
underived = elementwise(
    "ldl_underived",
    eval=lambda x, y: np.positive(np.broadcast_arrays(x, y)[0]),
    partials=(1, _refused),
    samples=lambda: [
        Sample((np.arange(6).reshape(2, 3), np.arange(3))),
        Sample((np.arange(3), np.arange(3))),
    ],
    scalar=lambda e, x, y: x,
)


def _compact_type(x: TensorType, *, hermitian: bool) -> tuple[TensorType, TensorType]:
    check_square("ldl_factor", x)
    return x, TensorType(x.shape[:-1], int32)


def _turned(x: Array, hermitian: bool) -> Array:
    """The transpose, or the adjoint."""
    return x.swapaxes(-1, -2).conj() if hermitian else x.swapaxes(-1, -2)


def _compact(x: Array, *, hermitian: bool) -> tuple[Array, Array]:
    check_square("ldl_factor", type_of(x))
    lower = np.tril(x)
    pivots = np.zeros(x.shape[:-1], np.int32)
    with np.errstate(all="ignore"):
        for at in np.ndindex(x.shape[:-2]):
            _eliminate(lower[at], pivots[at], hermitian)
    return np.tril(lower), pivots


def _eliminate(a: Array, pivots: Array, hermitian: bool) -> None:
    """Factor one matrix in place, of which the lower triangle is given."""
    a += _turned(np.tril(a, -1), hermitian)
    k = 0
    while k < len(a):
        if hermitian:
            np.fill_diagonal(a[k:, k:], a.diagonal()[k:].real)
        row, size = _pivot(_sizes(a[k:, k:]))
        p, last = k + row, k + size - 1
        a[[last, p], k:] = a[[p, last], k:]
        a[k:, [last, p]] = a[k:, [p, last]]
        pivots[k : k + size] = p + 1 if size == 1 else -(p + 1)
        head, below = a[k : k + size, k : k + size], a[k + size :, k : k + size]
        multipliers = _divided(below, head)
        a[k + size :, k + size :] -= multipliers @ _turned(below, hermitian)
        below[:] = multipliers
        k += size


def _sizes(a: Array) -> Array:
    """How LAPACK compares elements: complex numbers by the sum of the sizes of their parts."""
    return np.abs(a.real) + np.abs(a.imag) if kind(a.dtype) == "c" else np.abs(a)


def _pivot(sizes: Array) -> tuple[int, int]:
    """The row that is exchanged with the last one of the next block, and the number of rows of that block."""
    first, column = sizes[0, 0], sizes[1:, 0]
    most = column.max(initial=0)
    if first >= _ALPHA * most or max(first, most) == 0 or np.isnan(first):
        return 0, 1
    row = 1 + int(column.argmax())
    beside = np.delete(sizes[row], row).max()
    if first >= _ALPHA * most * (most / beside):
        return 0, 1
    return row, 1 if sizes[row, row] >= _ALPHA * beside else 2


def _divided(below: Array, head: Array) -> Array:
    """``below @ head^-1`` for a block of one or two rows; below a zero all are zero."""
    if len(head) == 1:
        return below / np.where(head == 0, 1, head)
    (a, b), (c, d) = head  # the elements beside the diagonal are the larger ones
    ratio = (a / b) * (d / c) - 1
    x, y = below[:, 0], below[:, 1]
    return np.stack([(x * (d / c) - y) / (ratio * b), (y * (a / b) - x) / (ratio * c)], axis=-1)


_SYMMETRIC = ((1.0, 2.0, -1.0), (2.0, 0.1, 3.0), (-1.0, 3.0, 0.2))  # whose pivots are a block of two and one


def _factor_samples() -> list[Sample]:
    x = np.array(_SYMMETRIC)
    return [
        Sample((x,), {"hermitian": False}),
        Sample((np.stack([x, np.eye(3), -x]),), {"hermitian": True}),
        Sample((complex_array((4, 4)),), {"hermitian": False}),
        Sample((complex_array((4, 4)),), {"hermitian": True}),
        Sample((real_array((0, 0)),), {"hermitian": True}),
    ]


ldl_compact = primitive(
    "ldl_factor",
    type_rule=_compact_type,
    eval=_compact,
    vjp=no_gradient("its pivots are chosen by comparing; differentiate linalg.solve, cholesky or lu"),
    outputs=2,
    samples=_factor_samples,
    host=True,
)


# The compact form unpacked


def _unpacked(factors: Array, pivots: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    """L with a diagonal of 1, D, and the order of rows in which ``x[order][:, order] = L D L^H``."""
    lower = np.tril(factors, -1) + np.eye(factors.shape[-1], dtype=factors.dtype)
    blocks = np.zeros_like(factors)
    order = np.zeros(pivots.shape, np.int64)
    for at in np.ndindex(pivots.shape[:-1]):
        order[at] = np.arange(pivots.shape[-1])
        _unpack(factors[at], pivots[at], lower[at], blocks[at], order[at])
    off = np.tril(blocks, -1)
    return lower, blocks + _turned(off, hermitian), order


def _unpack(factors: Array, pivots: Array, lower: Array, blocks: Array, order: Array) -> None:
    k, n = 0, len(pivots)
    while k < n:
        size = 1 if pivots[k] > 0 else 2
        p, last = abs(int(pivots[k])) - 1, k + size - 1
        if not (last <= p < n and pivots[k] == pivots[min(last, n - 1)]):
            raise _no_pivots(pivots)
        order[[last, p]] = order[[p, last]]
        lower[[last, p], :k] = lower[[p, last], :k]  # the compact form keeps columns as they were
        for i in range(k, k + size):
            blocks[i, k : i + 1] = factors[i, k : i + 1]
            lower[i, k:i] = 0
        k += size


def _no_pivots(pivots: Array) -> DomainError:
    return DomainError(
        "ldl_solve",
        f"pivots must be those of weft.linalg.ldl_factor, got {pivots.tolist()}",
        hint="blocks of two rows have the same negative number twice",
    )


def _unpacked_type(
    factors: TensorType, pivots: TensorType, *, hermitian: bool
) -> tuple[TensorType, TensorType, TensorType]:
    check_square("ldl", factors)
    _check_pivots("ldl", factors, pivots)
    return factors, factors, TensorType(pivots.shape, np.dtype(np.int64))


def _check_pivots(op: str, factors: TensorType, pivots: TensorType) -> None:
    if kind(pivots.dtype) not in "iu":
        raise DtypeError(op, f"pivots must be integers, got {pivots}")
    if pivots.shape != factors.shape[:-1]:
        raise ShapeError(op, f"there must be one pivot for each row, got {pivots} for {factors}")


def _outer(factors: Array, pivots: Array, *, hermitian: bool) -> tuple[Array, Array, Array]:
    _check_pivots("ldl", type_of(factors), type_of(pivots))
    lower, blocks, order = _unpacked(factors, pivots, hermitian)
    outer = np.empty_like(lower)
    np.put_along_axis(outer, order[..., None], lower, axis=-2)
    return outer, blocks, order


ldl_unpacked = primitive(
    "ldl_unpack",
    type_rule=_unpacked_type,
    eval=_outer,
    vjp=no_gradient("the factors of ldl_factor have none"),
    outputs=3,
    samples=lambda: [Sample(_compact(*s.inputs, **s.attrs), s.attrs) for s in _factor_samples()],
    host=True,
    raises=DomainError,
)


@public
def ldl_factor(x: Tensor, /, *, hermitian: bool = False) -> LDLFactorResult:
    """The factors of a symmetric (or Hermitian) matrix, which need not be definite, in LAPACK's compact form.

    Only the lower triangle of x is read. Below the diagonal of ``LD`` are the multipliers, on it (and next to
    it, where a pivot is a block of two rows) is D; ``pivots`` counts from 1, and is negative for blocks.
    ``ldl_solve`` takes both, ``ldl`` gives plain factors. There are no gradients, as in PyTorch.

    >>> import weft
    >>> factors, pivots = weft.linalg.ldl_factor(weft.tensor([[0.0, 2.0], [2.0, 0.0]]))
    >>> factors, pivots
    (tensor([[0., 0.],
            [2., 0.]]), tensor([-2, -2], dtype=weft.int32))
    """
    (x,) = floating("ldl_factor", x)
    factors, pivots = ldl_compact(x, hermitian=bool(hermitian))
    return LDLFactorResult(underived(factors, x), pivots)


@public
def ldl(x: Tensor, /, *, hermitian: bool = True) -> LDLResult:
    """The factors ``x = L @ D @ L^H`` of a Hermitian matrix (``L @ D @ L^T``, if not ``hermitian``).

    D has blocks of one or two rows along its diagonal; ``L[perm]`` is lower triangular with a diagonal of
    1. Only the lower triangle of x is read. There are no gradients.

    >>> import weft
    >>> outer, blocks, perm = weft.linalg.ldl(weft.tensor([[4.0, 2.0], [2.0, -3.0]]))
    >>> outer, blocks, perm
    (tensor([[1.0000, 0.0000],
            [0.5000, 1.0000]]), tensor([[ 4.,  0.],
            [ 0., -4.]]), tensor([0, 1]))
    """
    (x,) = floating("ldl", x)
    hermitian = bool(hermitian)
    outer, blocks, perm = ldl_unpacked(*ldl_compact(x, hermitian=hermitian), hermitian=hermitian)
    return LDLResult(underived(outer, x), underived(blocks, x), perm)


# Solutions


def _solution_type(factors: TensorType, pivots: TensorType, b: TensorType, *, hermitian: bool) -> TensorType:
    out = check_system("ldl_solve", factors, b)  # public code gives both the same number of axes
    _check_pivots("ldl_solve", factors, pivots)
    return out


def _solution(factors: Array, pivots: Array, b: Array, *, hermitian: bool) -> Array:
    out = _solution_type(type_of(factors), type_of(pivots), type_of(b), hermitian=hermitian)
    lower, blocks, order = _unpacked(factors, pivots, hermitian)
    places = np.broadcast_to(order[..., None], out.shape)
    rows = np.take_along_axis(np.broadcast_to(b, out.shape), places, axis=-2)
    half = substitute(lower[..., ::-1, ::-1], rows[..., ::-1, :])[..., ::-1, :]
    try:
        middle = np.linalg.solve(blocks, half)
    except np.linalg.LinAlgError:
        raise singular_error("ldl_solve", str(type_of(factors))) from None
    found = np.empty(out.shape, b.dtype)
    np.put_along_axis(found, places, substitute(_turned(lower, hermitian), middle), axis=-2)
    return found


def _solution_vjp(g: Any, factors: Any, pivots: Any, b_type: TensorType, hermitian: bool) -> Any:
    """The transposed system; the adjoint of a symmetric matrix is its conjugate."""
    out = ldl_solution(factors, pivots, g if hermitian else conj(g), hermitian=hermitian)
    return unbroadcast(out if hermitian else conj(out), b_type.shape)


def _solution_samples() -> list[Sample]:
    given = [(s, _compact(*s.inputs, **s.attrs)) for s in _factor_samples()]
    samples = []
    for s, (factors, pivots) in given:
        make = complex_array if kind(factors.dtype) == "c" else real_array
        b = make((*[1] * (factors.ndim - 2), factors.shape[-1], 2), seed=1)
        samples.append(Sample((factors, pivots, b), s.attrs, smooth=False))  # factors have no gradients
    return samples


_FIXED = no_gradient("the factors of ldl_factor have none")
ldl_solution = primitive(
    "ldl_solve",
    type_rule=_solution_type,
    eval=_solution,
    vjp=(_FIXED, _FIXED, _solution_vjp),
    samples=_solution_samples,
    host=True,
    raises=DomainError,
)


@public
def ldl_solve(factors: Tensor, pivots: Tensor, b: Tensor, /, *, hermitian: bool = False) -> Tensor:
    """The solution x of ``a @ x = b`` from what ``ldl_factor`` gave for a. Gradients go to b.

    >>> import weft
    >>> factors, pivots = weft.linalg.ldl_factor(weft.tensor([[0.0, 2.0], [2.0, 0.0]]))
    >>> weft.linalg.ldl_solve(factors, pivots, weft.tensor([[4.0], [6.0]]))
    tensor([[3.],
            [2.]])
    """
    factors, b = floating("ldl_solve", factors, b)
    rank = max(factors.ndim, b.ndim)
    factors, pivots, b = _of_rank(factors, rank), _of_rank(pivots, rank - 1), _of_rank(b, rank)
    out = ldl_solution(factors, pivots, b, hermitian=bool(hermitian))
    return underived(out, slice_axis(slice_axis(factors, rank - 1, 0, 1), rank - 2, 0, 1))


def _of_rank(x: Tensor, rank: int) -> Tensor:
    """x with axes of size 1 in front."""
    return reshape(x, shape=(*[1] * (rank - x.ndim), *x.shape)) if x.ndim < rank else x
