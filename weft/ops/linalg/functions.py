"""Functions of one matrix: pseudo-inverse, least squares, rank, powers and the exponential."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import real_dtype
from weft.base.public import public
from weft.base.records import NamedTuple
from weft.base.shapes import broadcast_shapes
from weft.base.size_bounds import size_max
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.ir.types import TensorType
from weft.ops.arithmetic import maximum, square
from weft.ops.batching import move_axis, to_front
from weft.ops.complex import absolute
from weft.ops.contract import adjoint, matmul
from weft.ops.factors import of_matrices
from weft.ops.families import primitive
from weft.ops.linalg.common import check_matrix, check_square, floating, square_type, well_conditioned
from weft.ops.linalg.eigen import eigvalsh
from weft.ops.linalg.kernels import exponential
from weft.ops.linalg.svd import singular_values
from weft.ops.linalg.systems import invert
from weft.ops.op import Array, Attrs, Op, Sample, Tensor, composite, no_gradient, plain_number, type_of
from weft.ops.public import example, published
from weft.ops.reduce import max, sum
from weft.ops.samples import complex_array, real_array
from weft.ops.select import cast, in_dtype, select, zeros_like
from weft.ops.size import size_value, unit_matrix
from weft.ops.view.primitives import join, reshape
from weft.ops.view.slices import slice_axis


class LstsqResult(NamedTuple):
    """The solution, the squared lengths of what is left of b, the rank of a, and its singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def _default_rtol(x: Tensor) -> Tensor:
    """The relative size below which rounding cannot tell a singular value from 0."""
    dtype = real_dtype(x.dtype)
    return size_value(size_max(*x.shape[-2:]), dtype) * np.asarray(np.finfo(x.dtype).eps, dtype)  # type: ignore[no-any-return]


def _cutoff(op: str, x: Tensor, rtol: Any) -> Tensor:
    if rtol is None:
        return _default_rtol(x)
    if not hasattr(rtol, "dtype"):
        rtol = plain_number(rtol)
        if not isinstance(rtol, int | float):
            raise ArgumentError(op, f"rtol must be a number or a tensor, got {rtol!r}")
        return np.asarray(rtol, real_dtype(x.dtype))  # type: ignore[return-value]
    return rtol if rtol.dtype == real_dtype(x.dtype) else cast(rtol, dtype=real_dtype(x.dtype))


# Pseudo-inverse


def _pinv_type(x: TensorType, rtol: TensorType) -> TensorType:
    check_matrix("pinv", x)
    lead = x.shape[:-2]
    if broadcast_shapes("pinv", [lead, rtol.shape], (x, rtol)) != lead:
        raise ShapeError("pinv", f"rtol must have at most one number a matrix, got {x} and rtol {rtol}")
    return TensorType((*lead, x.shape[-1], x.shape[-2]), x.dtype)


def _pinv(x: Array, rtol: Array) -> Array:
    _pinv_type(type_of(x), type_of(rtol))
    return np.linalg.pinv(x, rtol=rtol)


def _pinv_vjp(g: Tensor, x: Tensor, out: Tensor) -> Tensor:
    """G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses, SIAM J. Numer. Anal. 10 (1973).

    It holds where a small change of x does not change its rank.
    """
    h, gh = adjoint(out), adjoint(g)
    left = gh @ (out @ h)
    right = (h @ out) @ gh
    return (left - x @ (out @ left)) + (right - (right @ out) @ x) - h @ g @ h


def _batch_pinv(
    op: Op, size: int, inputs: Sequence[Tensor], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    x, rtol = to_front(inputs[0], axes[0], size), inputs[1]
    if axes[1] is not None:
        front = move_axis(rtol, axes[1], 0)
        rtol = reshape(front, shape=(size, *[1] * (x.ndim - 2 - front.ndim), *front.shape[1:]))
    return op(x, rtol), 0


def _pinv_samples() -> list[Sample]:
    rtol = np.asarray(1e-10)
    low_rank = real_array((4, 2)) @ real_array((2, 3), seed=1)
    return [
        Sample((well_conditioned((3, 3)), rtol)),
        Sample((well_conditioned((2, 4, 2)), np.array([1e-10, 1e-9]))),
        Sample((well_conditioned((2, 3), complex=True), rtol)),
        Sample((np.eye(3)[:, :2], rtol)),
        Sample((low_rank, rtol), smooth=False),
        Sample((real_array((3, 0)), rtol)),
        Sample((well_conditioned((3, 2)).T.astype(np.float32), np.asarray(1e-6, np.float32)), smooth=False),
    ]


pseudo_inverse = primitive(
    "pinv",
    type_rule=_pinv_type,
    eval=_pinv,
    vjp=(_pinv_vjp, no_gradient("a cutoff")),
    batch=_batch_pinv,
    samples=_pinv_samples,
    host=True,
    raises=DomainError,
)


@published("weft.linalg.pinv(weft.tensor([[2.0], [0.0]])) -> tensor([[0.5000, 0.0000]])")
def pinv(x: Tensor, /, *, rtol: Tensor | float | None = None) -> Tensor:
    """The Moore-Penrose pseudo-inverse; singular values below ``rtol`` times the largest count as 0.

    rtol is by default the larger of the matrix's sizes times the rounding unit. The gradient holds where
    small changes do not change the rank.
    """
    (x,) = floating("pinv", x)
    check_matrix("pinv", type_of(x))
    return pseudo_inverse(x, _cutoff("pinv", x, rtol))


def _rank_samples() -> list[Sample]:
    return [
        Sample((well_conditioned((3, 2)),)),
        Sample((real_array((2, 4, 2)) @ real_array((2, 2, 3)),)),
        Sample((well_conditioned((3, 3)),), {"rtol": 0.5}),
        Sample((np.diag([1.0, 0.01, 5.0]),), {"atol": 0.1}),
        Sample((np.diag([1.0, -3.0, 0.0]),), {"hermitian": True}),
        Sample((real_array((3, 0)),)),
        Sample((complex_array((2, 3)),)),
    ]


@composite(samples=_rank_samples)
@example("weft.linalg.matrix_rank(weft.tensor([[1.0, 2.0], [2.0, 4.0]])) -> tensor(1)")
def matrix_rank(
    x: Tensor,
    /,
    *,
    rtol: Tensor | float | None = None,
    atol: Tensor | float | None = None,
    hermitian: bool = False,
) -> Tensor:
    """The number of singular values above ``rtol`` times the largest, and above ``atol``.

    With ``atol`` alone, ``rtol`` is 0. Of a ``hermitian`` matrix eigenvalues are taken, which is faster.
    """
    (x,) = floating("matrix_rank", x)
    s = absolute(eigvalsh(x)) if hermitian else singular_values(x)
    if s.shape[-1] == 0:
        return sum(s > 0, axis=-1)
    relative = 0.0 if rtol is None and atol is not None else _cutoff("matrix_rank", x, rtol)
    cutoff = max(s, axis=-1) * relative
    if atol is not None:
        cutoff = maximum(cutoff, in_dtype(atol if hasattr(atol, "dtype") else np.asarray(atol), s.dtype))  # type: ignore[arg-type]
    return sum(s > reshape(cutoff, shape=(*cutoff.shape, 1)), axis=-1)


def _lstsq_samples() -> list[Sample]:
    return [
        Sample((well_conditioned((4, 2)), real_array((4, 3), seed=1))),
        Sample((well_conditioned((2, 2, 3)), real_array((2, 2, 1), seed=1))),
        Sample((well_conditioned((3, 2), complex=True), complex_array((3, 1), seed=1))),
    ]


@composite(samples=_lstsq_samples)
def lstsq(a: Tensor, b: Tensor, /, *, rtol: float | None = None) -> LstsqResult:
    """The x that makes ``a @ x`` closest to b, the shortest one if there are several; b may be a vector.

    >>> import weft
    >>> a, b = weft.tensor([[1.0], [1.0]]), weft.tensor([[2.0], [4.0]])
    >>> weft.round(weft.linalg.lstsq(a, b).solution)
    tensor([[3.]])
    """
    a, b = floating("lstsq", a, b)
    columns = reshape(b, shape=(*b.shape, 1)) if b.ndim == 1 else b
    for x in (a, columns):
        check_matrix("lstsq", type_of(x))
    if a.shape[-2] != columns.shape[-2]:
        raise ShapeError("lstsq", f"both sides must have as many rows, got {type_of(a)} and {type_of(b)}")
    solution = matmul(pinv(a, rtol=rtol), columns)
    residuals = sum(square(absolute(matmul(a, solution) - columns)), axis=-2)
    if b.ndim == 1:
        solution, residuals = (reshape(x, shape=x.shape[:-1]) for x in (solution, residuals))
    return LstsqResult(solution, residuals, matrix_rank(a, rtol=rtol), singular_values(a))


# Powers and the exponential


def _power_samples() -> list[Sample]:
    x = well_conditioned((3, 3))
    return [
        *(Sample((x,), {"n": n}) for n in (0, 1, 2, 5, -1, -3)),
        Sample((well_conditioned((2, 2, 2), complex=True),), {"n": 3}),
        Sample((np.array([[1, 1], [1, 0]]),), {"n": 10}),
    ]


@composite(samples=_power_samples, single=True)
def matrix_power(x: Tensor, /, n: int) -> Tensor:
    """The product of n copies of a square matrix, or of its inverse if n is negative.

    >>> import weft
    >>> weft.linalg.matrix_power(weft.tensor([[1, 1], [1, 0]]), 5)
    tensor([[8, 5],
            [5, 3]])
    """
    try:
        n = operator.index(n)
    except TypeError:
        raise ArgumentError("matrix_power", f"n must be an int, got {n!r}") from None
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError("matrix_power", f"must be a square matrix or a batch of them, got {type_of(x)}")
    if n < 0:
        x, n = invert(*floating("matrix_power", x)), -n
    power = None
    while n:
        if n & 1:
            power = x if power is None else power @ x
        n >>= 1
        x = x @ x if n else x
    return select(np.zeros((), bool), x, unit_matrix(x.shape[-1], x.dtype)) if power is None else power


def _exponential_block(x: Tensor, e: Tensor) -> Tensor:
    """The derivative of the exponential at x along e: the corner of the exponential of ``[[x, e], [0, x]]``.

    R. Mathias, A chain rule for matrix functions and applications, SIAM J. Matrix Anal. Appl. 17 (1996).
    """
    n, last = x.shape[-1], x.ndim - 1
    top = join(x, e, axis=last)
    bottom = join(zeros_like(x), x, axis=last)
    full = matrix_exponential(join(top, bottom, axis=last - 1))
    return slice_axis(slice_axis(full, last - 1, 0, n), last, n, 2 * n)


matrix_exponential = primitive(
    "matrix_exp",
    type_rule=square_type("matrix_exp"),
    eval=lambda x: exponential(x),
    vjp=(lambda g, x: _exponential_block(adjoint(x), g),),
    jvp=lambda primals, tangents, out: _exponential_block(primals[0], tangents[0]),
    factors=of_matrices,
    samples=lambda: [
        Sample((real_array((3, 3)),)),
        Sample((real_array((2, 1, 2, 2)) * np.array([0.01, 10.0])[:, None, None, None],)),
        Sample((complex_array((3, 3)).T,)),
        Sample((np.zeros((2, 2)),)),
        Sample((np.array([[0.0, 1.0], [0.0, 0.0]]),)),
        Sample((real_array((0, 0)),)),
        Sample((real_array((3, 3)).astype(np.float32),), smooth=False),
    ],
    host=True,
)


@public
def matrix_exp(x: Tensor, /) -> Tensor:
    """The exponential of a square matrix, ``I + x + x @ x / 2 + ...``.

    >>> import weft
    >>> weft.linalg.matrix_exp(weft.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    (x,) = floating("matrix_exp", x)
    check_square("matrix_exp", type_of(x))
    return matrix_exponential(x)
