"""Systems of linear equations: solve, triangular solve, inverse."""

from __future__ import annotations

import numpy as np

from weft.base.public import public
from weft.base.shapes import broadcast_shapes
from weft.errors import DomainError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_elementwise
from weft.ops.broadcast import unbroadcast
from weft.ops.contract import adjoint, transpose_last
from weft.ops.factors import of_matrices
from weft.ops.families import primitive
from weft.ops.linalg.common import (
    check_matrix,
    check_square,
    floating,
    singular,
    square_type,
    well_conditioned,
)
from weft.ops.linalg.kernels import substitute
from weft.ops.op import Array, Sample, Tensor, composite
from weft.ops.samples import complex_array, real_array
from weft.ops.view.padding import tril, triu
from weft.ops.view.primitives import reshape


def check_system(op: str, a: TensorType, b: TensorType) -> TensorType:
    """The type of the solution of ``a @ x = b``, or an error if they do not fit."""
    check_square(op, a)
    check_matrix(op, b)
    if a.dtype != b.dtype:
        raise DtypeError(op, f"dtypes must be equal, got {a.dtype.name} and {b.dtype.name}")
    n, m = a.shape[-1], b.shape[-2]
    if n != m:
        raise ShapeError(op, f"both sides must have as many rows, got {a} and {b} ({n} vs {m})")
    lead = broadcast_shapes(op, [a.shape[:-2], b.shape[:-2]], (a, b))
    return TensorType((*lead, *b.shape[-2:]), b.dtype)


def _solve(a: Array, b: Array) -> Array:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        raise singular("solve", a) from None


def _solve_vjp(g: Tensor, a: Tensor, out: Tensor, b_type: TensorType) -> tuple[Tensor, Tensor]:
    gb = solve_system(adjoint(a), g)
    ga = -(gb @ adjoint(out))
    return unbroadcast(ga, a.shape), unbroadcast(gb, b_type.shape)


solve_system = primitive(
    "solve",
    type_rule=lambda a, b: check_system("solve", a, b),
    eval=_solve,
    vjp=_solve_vjp,
    batch=batch_elementwise,
    factors=of_matrices,
    samples=lambda: [
        Sample((well_conditioned((3, 3)), real_array((3, 2), seed=1))),
        Sample((well_conditioned((2, 3, 3)), real_array((3, 1), seed=1))),
        Sample((well_conditioned((3, 3)).T, real_array((4, 1, 2, 3), seed=1).swapaxes(-1, -2))),
        Sample((well_conditioned((3, 3), complex=True), complex_array((3, 2), seed=1))),
        Sample((real_array((0, 0)), real_array((0, 2)))),
        Sample((well_conditioned((2, 2)), real_array((2, 0)))),
    ],
    host=True,
    raises=DomainError,
)


@public
def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution x of ``x1 @ x = x2``; an x2 with one axis is a vector, else a matrix or a batch of them.

    >>> import weft
    >>> weft.linalg.solve(weft.tensor([[2.0, 0.0], [1.0, 1.0]]), weft.tensor([4.0, 5.0]))
    tensor([2., 3.])
    """
    x1, x2 = floating("solve", x1, x2)
    if x2.ndim != 1:
        return solve_system(x1, x2)
    out = solve_system(x1, reshape(x2, shape=(*x2.shape, 1)))
    return reshape(out, shape=out.shape[:-1])


# Triangular systems


def _solve_triangular(a: Array, b: Array, *, upper: bool, unit: bool) -> Array:
    check_system("solve_triangular", TensorType(a.shape, a.dtype), TensorType(b.shape, b.dtype))
    a = np.triu(a) if upper else np.tril(a)
    if unit:
        a = np.where(np.eye(a.shape[-1], dtype=bool), np.ones((), a.dtype), a)
    try:
        return substitute(a, b) if upper else substitute(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]
    except np.linalg.LinAlgError:
        raise singular("solve_triangular", a) from None


def _triangular_vjp(
    g: Tensor, a: Tensor, out: Tensor, b_type: TensorType, upper: bool, unit: bool
) -> tuple[Tensor, Tensor]:
    gb = triangular_solve(adjoint(a), g, upper=not upper, unit=unit)
    full = -(gb @ adjoint(out))
    ga = triu(full, k=int(unit)) if upper else tril(full, k=-int(unit))
    return unbroadcast(ga, a.shape), unbroadcast(gb, b_type.shape)


triangular_solve = primitive(
    "solve_triangular",
    type_rule=lambda a, b, *, upper, unit: check_system("solve_triangular", a, b),
    eval=_solve_triangular,
    vjp=_triangular_vjp,
    batch=batch_elementwise,
    factors=of_matrices,
    samples=lambda: [
        Sample((well_conditioned((3, 3)), real_array((3, 2), seed=1)), {"upper": True, "unit": False}),
        Sample((well_conditioned((2, 3, 3)), real_array((3, 1), seed=1)), {"upper": False, "unit": False}),
        Sample((well_conditioned((3, 3)), real_array((2, 3, 2), seed=1)), {"upper": False, "unit": True}),
        Sample(
            (well_conditioned((3, 3), complex=True), complex_array((3, 2), seed=1)),
            {"upper": True, "unit": False},
        ),
        Sample((real_array((0, 0)), real_array((0, 2))), {"upper": True, "unit": True}),
    ],
    fallible=True,
    raises=DomainError,
)


@public
def solve_triangular(
    a: Tensor, b: Tensor, /, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The solution x of ``a @ x = b`` for a triangular a, or of ``x @ a = b`` if not ``left``.

    Args:
        a: of which just the upper or the lower triangle is read.
        b: a matrix or a batch of them.
        upper: which triangle.
        left: whether a stands left of x.
        unitriangular: take the diagonal of a to be 1.

    >>> import weft
    >>> a = weft.tensor([[2.0, 1.0], [0.0, 4.0]])
    >>> weft.linalg.solve_triangular(a, weft.tensor([[4.0], [8.0]]), upper=True)
    tensor([[1.],
            [2.]])
    """
    a, b = floating("solve_triangular", a, b)
    upper, unit = bool(upper), bool(unitriangular)
    if left:
        return triangular_solve(a, b, upper=upper, unit=unit)
    return transpose_last(triangular_solve(transpose_last(a), transpose_last(b), upper=not upper, unit=unit))


def _cholesky_solve_samples() -> list[Sample]:
    return [
        Sample((real_array((3, 2)), well_conditioned((3, 3), seed=1))),
        Sample((complex_array((3, 2)), well_conditioned((3, 3), seed=1, complex=True)), {"upper": True}),
    ]


@composite(samples=_cholesky_solve_samples)
def cholesky_solve(b: Tensor, factor: Tensor, /, *, upper: bool = False) -> Tensor:
    """The solution x of ``a @ x = b`` from the Cholesky factor of a.

    >>> import weft
    >>> factor = weft.linalg.cholesky(weft.tensor([[4.0, 0.0], [0.0, 9.0]]))
    >>> weft.linalg.cholesky_solve(weft.tensor([[8.0], [9.0]]), factor)
    tensor([[2.],
            [1.]])
    """
    b, factor = floating("cholesky_solve", b, factor)
    lower = adjoint(factor) if upper else factor
    half = triangular_solve(lower, b, upper=False, unit=False)
    return triangular_solve(adjoint(lower), half, upper=True, unit=False)


# The inverse


def _invert(x: Array) -> Array:
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:
        raise singular("inv", x) from None


def _invert_vjp(g: Tensor, out: Tensor) -> Tensor:
    h = adjoint(out)
    return -(h @ g @ h)


invert = primitive(
    "inv",
    type_rule=square_type("inv"),
    eval=_invert,
    vjp=(_invert_vjp,),
    factors=of_matrices,
    samples=lambda: [
        Sample((well_conditioned((3, 3)),)),
        Sample((well_conditioned((2, 2, 2, 2)),)),
        Sample((well_conditioned((3, 3)).T,)),
        Sample((well_conditioned((3, 3), complex=True),)),
        Sample((real_array((0, 0)),)),
        Sample((real_array((0, 2, 2)),)),
        Sample((well_conditioned((3, 3)).astype(np.float32),), smooth=False),
    ],
    host=True,
    raises=DomainError,
)


@public
def inv(x: Tensor, /) -> Tensor:
    """The inverse matrix.

    >>> import weft
    >>> weft.linalg.inv(weft.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return invert(*floating("inv", x))
