"""Derivatives of linear algebra: gauges, degenerate matrices, norms at zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import weft
from tests.ops.matrices import SHAPES, adjoint, assert_derivatives, assert_near, complexity, gradient, tensor
from weft import linalg
from weft.errors import DomainError
from weft.ops.linalg.common import positive_definite, well_conditioned
from weft.ops.samples import complex_array, real_array

# Derivatives that do not depend on the choice of phases


def spectral_function(w: Any, v: Any) -> Any:
    """exp of a Hermitian matrix, and how far vectors reach along a direction."""
    reach = weft.abs(adjoint(v) @ tensor(real_array((v.shape[-1], 1), seed=7)).astype(v.dtype)) ** 2
    return (v * weft.exp(w / 10)[..., None, :]) @ adjoint(v), reach, w


@complexity
@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 2), (1, 1)])
def test_eigh_derivatives_of_functions_that_ignore_phases(shape: tuple[int, ...], complex: bool) -> None:
    x = positive_definite(shape, complex=complex)
    assert_derivatives(lambda a: spectral_function(*linalg.eigh(a)), x)


@pytest.mark.rotating(3)
@complexity
@pytest.mark.parametrize("full", [False, True], ids=["reduced", "full"])
@pytest.mark.parametrize("shape", SHAPES)
def test_svd_derivatives_of_functions_that_ignore_phases(
    shape: tuple[int, ...], full: bool, complex: bool
) -> None:
    k = min(shape[-2:])

    def function(x: Any) -> Any:
        u, s, vh = linalg.svd(x, full_matrices=full)
        product = (u[..., :k] * weft.log(s)[..., None, :]) @ vh[..., :k, :]
        left = weft.abs(adjoint(u) @ weft.ones((shape[-2], 1), dtype=u.dtype)) ** 2
        right = weft.abs(vh @ weft.ones((shape[-1], 1), dtype=u.dtype)) ** 2
        ranges = [part.sum(axis=-2) for x in (left, right) for part in (x[..., k:, :],)]
        return product, left[..., :k, :], right[..., :k, :], s, *ranges

    assert_derivatives(function, well_conditioned(shape, complex=complex))


@complexity
def test_eig_derivatives_of_functions_that_ignore_phases(complex: bool) -> None:
    x = (complex_array if complex else real_array)((3, 3)) + np.diag([0.0, 3.0, -4.0])

    def function(a: Any) -> Any:
        w, v = linalg.eig(a)
        reach = weft.abs(adjoint(v) @ tensor(real_array((3, 1), seed=7)).astype(v.dtype)) ** 2
        return (v * weft.exp(w / 10)[..., None, :]) @ linalg.inv(v), reach.sum(), weft.abs(w).sum()

    assert_derivatives(function, x)


def test_eig_of_a_rotation_has_the_gradient_of_its_angle() -> None:
    def angle(t: Any) -> Any:
        c, s = weft.cos(t), weft.sin(t)
        rotation = weft.stack([weft.stack([c, -s]), weft.stack([s, c])])
        return weft.abs(weft.angle(linalg.eigvals(rotation))).sum()

    assert gradient(angle, 0.3) == pytest.approx(2.0)


@pytest.mark.rotating(2)
@complexity
@pytest.mark.parametrize(
    ("mode", "shape"), [("reduced", s) for s in SHAPES] + [("complete", (4, 2)), ("complete", (2, 3))]
)
def test_qr_derivatives(mode: str, shape: tuple[int, ...], complex: bool) -> None:
    n = min(shape[-2:])

    def function(x: Any) -> Any:
        q, r = linalg.qr(x, mode=mode)
        beyond = weft.abs(adjoint(q[..., n:]) @ weft.ones((shape[-2], 1), dtype=q.dtype)) ** 2
        return q[..., :n], r[..., :n, :], beyond.sum(axis=-2)

    assert_derivatives(function, well_conditioned(shape, complex=complex))


@pytest.mark.parametrize(("n", "rank"), [(3, 3), (3, 2), (3, 1), (3, 0), (1, 0), (4, 2)])
@complexity
def test_det_derivatives_at_every_rank(n: int, rank: int, complex: bool) -> None:
    make = complex_array if complex else real_array
    assert_derivatives(linalg.det, make((n, rank)) @ make((rank, n), seed=1))


@complexity
@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (4, 4)])
def test_pinv_derivatives_along_matrices_of_the_same_rank(shape: tuple[int, int], complex: bool) -> None:
    make = complex_array if complex else real_array
    m, n = shape
    assert_derivatives(lambda a, b: linalg.pinv(a @ b, rtol=1e-6), make((m, 2)), make((2, n), seed=1))


def test_lstsq_derivatives_of_the_solution() -> None:
    for shape in ((4, 2), (2, 4)):
        a, b = well_conditioned(shape), real_array((shape[0], 2), seed=1)
        assert_derivatives(lambda a, b: linalg.lstsq(a, b).solution, a, b)


def test_hessian_of_the_log_determinant_is_the_known_one() -> None:
    x = positive_definite((3, 3))
    hessian = weft.hessian(lambda a: linalg.slogdet(a).logabsdet)(tensor(x)).numpy()
    inverse = np.linalg.inv(x)
    np.testing.assert_allclose(hessian, -np.einsum("li,jk->ijkl", inverse, inverse), rtol=1e-9, atol=1e-9)


def test_gradient_of_the_trace_of_a_matrix_exponential() -> None:
    x = real_array((4, 4))
    expected = scipy.linalg.expm(x).T
    np.testing.assert_allclose(
        gradient(lambda a: linalg.trace(linalg.matrix_exp(a)), x), expected, rtol=1e-12
    )


@pytest.mark.parametrize(
    "function", [linalg.eigh, lambda x: linalg.svd(x, full_matrices=False), linalg.qr, linalg.slogdet]
)
def test_vmap_of_a_gradient_equals_a_loop(function: Callable[..., Any]) -> None:
    xs = positive_definite((4, 3, 3))

    def loss(x: Any) -> Any:
        return sum(weft.abs(part).sum() for part in function(x))

    together = weft.vmap(weft.grad(loss))(tensor(xs))
    assert_near(together, np.stack([gradient(loss, x) for x in xs]))


def test_vmap_over_one_side_of_solve() -> None:
    a, b = well_conditioned((4, 3, 3)), real_array((3, 4, 2), seed=1)
    over_b = weft.vmap(linalg.solve, in_axes=(None, 1))(tensor(a[0]), tensor(b))
    assert_near(over_b, np.stack([np.linalg.solve(a[0], b[:, i]) for i in range(4)]))
    over_a = weft.vmap(linalg.solve, in_axes=(0, None))(tensor(a), tensor(b[:, 0]))
    assert_near(over_a, np.linalg.solve(a, b[:, 0]))


# Degenerate matrices


def test_gradients_by_values_exist_where_values_coincide() -> None:
    assert np.array_equal(gradient(lambda x: linalg.eigvalsh(x).sum(), np.eye(3)), np.eye(3))
    assert np.allclose(gradient(lambda x: linalg.eigh(x).eigenvalues.sum(), np.eye(3)), np.eye(3))
    assert np.allclose(gradient(lambda x: linalg.svd(x).S.sum(), np.eye(3)), np.eye(3))
    assert np.allclose(gradient(lambda x: linalg.svdvals(x).sum(), 2 * np.eye(3)[:, :2]), np.eye(3)[:, :2])


def test_gradient_by_vectors_is_nan_where_values_coincide() -> None:
    """No function of the vectors alone is differentiable there: better no number than a wrong one."""
    assert np.isnan(gradient(lambda x: weft.abs(linalg.eigh(x).eigenvectors[0, 0]), np.eye(2))).any()
    assert np.isnan(gradient(lambda x: weft.abs(linalg.svd(x).U[0, 0]), np.eye(2))).any()


def test_rank_deficient_tall_matrix_has_gradients_by_values() -> None:
    x = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    expected = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(np.abs(gradient(lambda a: linalg.svd(a).S[0], x)), expected, atol=1e-12)


NORMS: list[tuple[str, Callable[[Any], Any]]] = [
    *((f"vector {p}", lambda x, p=p: linalg.vector_norm(x, ord=p)) for p in (1, 1.5, 2, 3, np.inf, -np.inf)),
    *(
        (f"matrix {p}", lambda x, p=p: linalg.matrix_norm(x, ord=p))
        for p in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
    ),
    ("norm", linalg.norm),
]


@pytest.mark.parametrize("norm", [f for _, f in NORMS], ids=[n for n, _ in NORMS])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_gradient_of_a_norm_at_zero_is_zero(norm: Callable[..., Any], dtype: Any) -> None:
    zeros = np.zeros((2, 2), dtype)
    assert np.array_equal(gradient(norm, zeros), zeros)


def test_second_derivative_of_a_norm_at_zero_is_zero() -> None:
    assert np.array_equal(weft.hessian(linalg.vector_norm)(tensor(np.zeros(2))).numpy(), np.zeros((2, 2)))


def test_half_precision_norm_does_not_overflow() -> None:
    x = weft.full((100,), 100.0, dtype=weft.float16)
    assert linalg.vector_norm(x).dtype == weft.float16
    assert linalg.vector_norm(x).item() == 1000.0
    assert linalg.vector_norm(x.astype(weft.bfloat16)).item() == 1000.0


def test_slogdet_of_a_singular_matrix_is_minus_infinity_and_has_no_gradient() -> None:
    x = weft.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
    sign, logabsdet = linalg.slogdet(x)
    assert (sign.item(), logabsdet.item()) == (0.0, -np.inf)
    with pytest.raises(DomainError, match="invertible"):
        logabsdet.backward()


def test_matrix_that_is_not_quite_hermitian_stands_for_its_hermitian_part() -> None:
    x = positive_definite((3, 3))
    skew = np.array([[0.0, 1.0, -2.0], [-1.0, 0.0, 0.5], [2.0, -0.5, 0.0]])
    for function in (linalg.cholesky, linalg.eigvalsh, lambda a: linalg.eigh(a).eigenvectors):
        assert_near(function(tensor(x + skew)), function(tensor(x)))


def test_gradient_of_det_is_nan_for_a_matrix_with_nan_only() -> None:
    x = np.stack([np.eye(2), np.full((2, 2), np.nan)])
    found = gradient(lambda a: linalg.det(a)[0], x)
    assert np.array_equal(found[0], np.eye(2))
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_gradient_of_det_where_det_itself_is_out_of_range(scale: float) -> None:
    np.testing.assert_allclose(gradient(linalg.det, scale * np.eye(4)), scale**3 * np.eye(4), rtol=1e-12)


def test_lstsq_takes_a_vector() -> None:
    a, b = well_conditioned((4, 2)), real_array((4,), seed=1)
    solution, residuals, rank, values = linalg.lstsq(tensor(a), tensor(b))
    expected, length, *_ = np.linalg.lstsq(a, b)
    assert_near(solution, expected)
    assert_near(residuals, length[0])
    assert rank.item() == 2
    assert_near(values, [3.0, 1.0])


def test_matrix_power_of_zero_is_the_identity_even_with_nan() -> None:
    x = weft.full((2, 3, 3), np.nan)
    assert np.array_equal(linalg.matrix_power(x, 0).numpy(), np.broadcast_to(np.eye(3), (2, 3, 3)))
