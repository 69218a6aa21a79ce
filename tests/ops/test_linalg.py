"""Linear algebra beyond the matrix of samples: properties, gauges, degenerate matrices, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from tests.ops import checks
from weft import linalg
from weft.errors import DomainError
from weft.ops.linalg.common import positive_definite, well_conditioned
from weft.ops.op import Sample
from weft.ops.samples import complex_array, real_array

DTYPES = [weft.float32, weft.float64, weft.complex64, weft.complex128]
SHAPES = [(3, 3), (4, 2), (2, 4), (2, 3, 2), (1, 1)]
complexity = pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])


def tensor(array: Any) -> Any:
    return weft.tensor(np.asarray(array))


def adjoint(x: Any) -> Any:
    return weft.matrix_transpose(x.conj())


def assert_near(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(
        np.asarray(actual.detach()), np.asarray(expected), rtol=tolerance, atol=tolerance
    )


def assert_derivatives(function: Callable[..., Any], *arrays: Any) -> None:
    """First and second derivatives against finite differences, and forward against reverse mode."""
    entry = checks.Entry("function", function, Sample(arrays), None)  # type: ignore[arg-type]
    checks.check_jvp(entry)
    checks.check_transposed(entry)
    checks.check_second_order(entry)


def gradient(function: Callable[[Any], Any], array: Any) -> Any:
    x = tensor(array).requires_grad_()
    function(x).backward()
    return x.grad.numpy()


def tolerance_of(dtype: Any) -> float:
    return 2e-4 if dtype in (weft.float32, weft.complex64) else 1e-9


# Decompositions give their matrix back, for any shape and dtype

sizes = st.integers(0, 5)
leads = st.lists(st.integers(0, 3), max_size=2).map(tuple)
dtypes = st.sampled_from(DTYPES)
seeds = st.integers(0, 10_000)
quick = examples(40, 13)


def matrices(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    make = complex_array if dtype.kind == "c" else real_array
    return make(shape, seed=seed).astype(dtype)


def is_unitary(q: Any, tolerance: float) -> bool:
    inner = np.asarray(adjoint(q) @ q)
    return np.allclose(inner, np.eye(q.shape[-1]), atol=tolerance)


@quick
@given(leads, sizes, sizes, dtypes, seeds, st.sampled_from(["reduced", "complete"]))
def test_qr_gives_orthonormal_and_triangular_factors(
    lead: Any, m: int, n: int, dtype: Any, seed: int, mode: str
) -> None:
    x = matrices((*lead, m, n), dtype, seed)
    q, r = linalg.qr(tensor(x), mode=mode)
    k = m if mode == "complete" else min(m, n)
    assert (q.shape, r.shape, q.dtype, r.dtype) == ((*lead, m, k), (*lead, k, n), dtype, dtype)
    assert_near(q @ r, x, tolerance_of(dtype))
    assert is_unitary(q, tolerance_of(dtype))
    assert np.array_equal(np.asarray(r), np.triu(np.asarray(r)))


@quick
@given(leads, sizes, sizes, dtypes, seeds, st.booleans())
def test_svd_gives_unitary_factors_and_descending_values(
    lead: Any, m: int, n: int, dtype: Any, seed: int, full: bool
) -> None:
    x = matrices((*lead, m, n), dtype, seed)
    u, s, vh = linalg.svd(tensor(x), full_matrices=full)
    k = min(m, n)
    assert (u.shape[-1], s.shape, vh.shape[-2]) == ((m, (*lead, k), n) if full else (k, (*lead, k), k))
    assert u.dtype == vh.dtype == dtype
    assert s.dtype == np.finfo(dtype).dtype
    assert_near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, tolerance_of(dtype))
    assert is_unitary(u, tolerance_of(dtype))
    assert is_unitary(adjoint(vh), tolerance_of(dtype))
    values = np.asarray(s)
    assert (values >= 0).all()
    assert (np.diff(values, axis=-1) <= 0).all()
    assert_near(linalg.svdvals(tensor(x)), values, tolerance_of(dtype))


@quick
@given(leads, sizes, dtypes, seeds)
def test_eigh_gives_unitary_vectors_and_ascending_values(lead: Any, n: int, dtype: Any, seed: int) -> None:
    x = matrices((*lead, n, n), dtype, seed)
    x = x + x.swapaxes(-1, -2).conj()
    w, v = linalg.eigh(tensor(x))
    assert (w.dtype, v.dtype) == (np.finfo(dtype).dtype, dtype)
    assert_near((v * w[..., None, :]) @ adjoint(v), x, 5 * tolerance_of(dtype))
    assert is_unitary(v, tolerance_of(dtype))
    assert (np.diff(np.asarray(w), axis=-1) >= 0).all()
    assert_near(linalg.eigvalsh(tensor(x)), np.asarray(w), 5 * tolerance_of(dtype))


@quick
@given(leads, sizes, dtypes, seeds, st.booleans())
def test_cholesky_gives_a_triangular_root(lead: Any, n: int, dtype: Any, seed: int, upper: bool) -> None:
    x = positive_definite((*lead, n, n), seed=seed, complex=dtype.kind == "c").astype(dtype)
    factor = linalg.cholesky(tensor(x), upper=upper)
    assert factor.dtype == dtype
    assert_near(adjoint(factor) @ factor if upper else factor @ adjoint(factor), x, tolerance_of(dtype))
    triangle = np.triu if upper else np.tril
    assert np.array_equal(np.asarray(factor), triangle(np.asarray(factor)))


@quick
@given(leads, sizes, dtypes, seeds)
def test_eig_gives_eigenvectors_of_length_one(lead: Any, n: int, dtype: Any, seed: int) -> None:
    x = matrices((*lead, n, n), dtype, seed)
    w, v = linalg.eig(tensor(x))
    assert (
        w.dtype
        == v.dtype
        == (weft.complex64 if dtype.itemsize // (2 if dtype.kind == "c" else 1) == 4 else weft.complex128)
    )
    assert_near(tensor(x).astype(v.dtype) @ v, np.asarray(v * w[..., None, :]), 10 * tolerance_of(dtype))
    assert_near(linalg.vector_norm(v, axis=-2), np.ones((*lead, n)), tolerance_of(dtype))


@quick
@given(leads, leads, sizes, sizes, dtypes, seeds)
def test_solve_solves_over_broadcast_batches(la: Any, lb: Any, n: int, k: int, dtype: Any, seed: int) -> None:
    try:
        lead = np.broadcast_shapes(la, lb)
    except ValueError:
        return
    a = well_conditioned((*la, n, n), seed=seed, complex=dtype.kind == "c").astype(dtype)
    b = matrices((*lb, n, k), dtype, seed + 1)
    x = linalg.solve(tensor(a), tensor(b))
    assert (x.shape, x.dtype) == ((*lead, n, k), dtype)
    assert_near(tensor(a) @ x, np.broadcast_to(b, (*lead, n, k)), tolerance_of(dtype))


@quick
@given(leads, sizes, sizes, dtypes, seeds)
def test_pinv_satisfies_the_penrose_conditions(lead: Any, m: int, n: int, dtype: Any, seed: int) -> None:
    x = matrices((*lead, m, 2), dtype, seed) @ matrices((*lead, 2, n), dtype, seed + 1)
    p = np.asarray(linalg.pinv(tensor(x), rtol=1e-4))
    near = {"rtol": 0.0, "atol": 50 * tolerance_of(dtype)}
    scale = 1 + np.abs(p).max(initial=0.0) ** 2
    for matrix, expected in ((x @ p @ x, x), (p @ x @ p, p)):
        np.testing.assert_allclose(matrix / scale, expected / scale, **near)
    for product in (x @ p, p @ x):
        np.testing.assert_allclose(product / scale, product.swapaxes(-1, -2).conj() / scale, **near)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("upper", [False, True])
def test_solve_triangular_agrees_with_scipy_over_block_borders(n: int, upper: bool) -> None:
    a, b = real_array((n, n)) + 4 * np.sqrt(n) * np.eye(n), real_array((n, 3), seed=1)
    expected = scipy.linalg.solve_triangular(a, b, lower=not upper)
    assert_near(linalg.solve_triangular(tensor(a), tensor(b), upper=upper), expected)
    right = linalg.solve_triangular(tensor(a), tensor(b.T), upper=upper, left=False)
    assert_near(right, scipy.linalg.solve_triangular(a, b, lower=not upper, trans="T").T)


def test_solve_triangular_reads_one_triangle_and_maybe_no_diagonal() -> None:
    a, b = real_array((3, 3)), real_array((3, 2), seed=1)
    noisy = np.where(np.tri(3, k=0, dtype=bool), np.nan, a)
    x = linalg.solve_triangular(tensor(noisy), tensor(b), upper=True, unitriangular=True)
    assert_near(x, np.linalg.solve(np.triu(a, 1) + np.eye(3), b))


def test_solve_takes_a_vector_only_with_one_axis() -> None:
    a, b = well_conditioned((2, 3, 3)), real_array((3,))
    assert_near(linalg.solve(tensor(a), tensor(b)), np.linalg.solve(a, np.stack([b, b])[..., None])[..., 0])
    assert linalg.solve(tensor(a[0]), tensor(real_array((3, 3)))).shape == (3, 3)


@pytest.mark.parametrize("scale", [1e-9, 1e-2, 1.0, 30.0, 300.0])
@complexity
def test_matrix_exp_agrees_with_scipy_at_every_scale(scale: float, complex: bool) -> None:
    x = (complex_array if complex else real_array)((4, 4))
    x = x / np.linalg.norm(x, 1) * scale
    expected = scipy.linalg.expm(x)
    actual = linalg.matrix_exp(tensor(x)).numpy()
    assert np.linalg.norm(actual - expected, 1) <= 1e-12 * max(scale, 1) * np.linalg.norm(expected, 1)


def test_multi_dot_takes_the_cheap_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.ops.linalg import products as linalg_products

    shapes = []
    original = linalg_products.matmul  # type: ignore[attr-defined]
    monkeypatch.setattr(
        linalg_products, "matmul", lambda a, b: shapes.append((a.shape, b.shape)) or original(a, b)
    )
    linalg.multi_dot([weft.ones((10, 100)), weft.ones((100, 5)), weft.ones((5, 50))])
    assert shapes == [((10, 100), (100, 5)), ((10, 5), (5, 50))]


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


# Types


PRECISION: dict[str, Callable[[Any], Any]] = {
    "cholesky": linalg.cholesky,
    "det": linalg.det,
    "eigh": lambda x: linalg.eigh(x).eigenvectors,
    "eigvals": linalg.eigvals,
    "eigvalsh": linalg.eigvalsh,
    "inv": linalg.inv,
    "lstsq": lambda x: linalg.lstsq(x, x).solution,
    "matrix_exp": linalg.matrix_exp,
    "matrix_norm": lambda x: linalg.matrix_norm(x, ord="nuc"),
    "matrix_power": lambda x: linalg.matrix_power(x, -2),
    "pinv": linalg.pinv,
    "qr": lambda x: linalg.qr(x).R,
    "slogdet": lambda x: linalg.slogdet(x).logabsdet,
    "solve": lambda x: linalg.solve(x, x),
    "solve_triangular": lambda x: linalg.solve_triangular(x, x, upper=True),
    "svd": lambda x: linalg.svd(x).U,
    "svdvals": linalg.svdvals,
    "vector_norm": lambda x: linalg.vector_norm(x, ord=3),
}


@pytest.mark.parametrize("name", PRECISION)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_keep_the_precision(name: str, dtype: Any) -> None:
    x = tensor(positive_definite((3, 3), complex=dtype.kind == "c").astype(dtype)).requires_grad_()
    weft.abs(PRECISION[name](x)).sum().backward(create_graph=True)
    assert x.grad.dtype == dtype
    (second,) = weft.autograd.grad(weft.abs(x.grad).sum(), [x])
    assert second.dtype == dtype


def test_integers_become_the_default_float() -> None:
    x = weft.tensor([[2, 1], [1, 3]])
    for function in (
        linalg.inv,
        linalg.det,
        linalg.cholesky,
        linalg.svdvals,
        linalg.norm,
        linalg.pinv,
        linalg.matrix_exp,
    ):
        assert function(x).dtype == weft.float32
    assert linalg.solve(x, weft.tensor([1, 2])).dtype == weft.float32
    assert linalg.matrix_power(x, 2).dtype == weft.int64
    assert linalg.trace(x).dtype == weft.int64


def test_dtypes_are_promoted() -> None:
    a, b = weft.ones((1, 1), dtype=weft.float64), weft.ones((1, 1), dtype=weft.complex64)
    assert linalg.solve(a, b).dtype == weft.complex128
    assert linalg.cross(weft.tensor([1, 0, 0]), weft.tensor([0.0, 1.0, 0.0])).dtype == weft.float32


def test_results_have_the_names_of_the_standard() -> None:
    x = weft.eye(2)
    assert linalg.qr(x)._fields == ("Q", "R")
    assert linalg.svd(x)._fields == ("U", "S", "Vh")
    assert linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert linalg.slogdet(x)._fields == ("sign", "logabsdet")


def test_pinv_and_rank_take_a_tolerance_for_each_matrix() -> None:
    x = np.stack([np.diag([1.0, 0.01])] * 2)
    rtol = tensor(np.array([0.1, 0.001]))
    assert linalg.matrix_rank(tensor(x), rtol=rtol).tolist() == [1, 2]
    assert_near(linalg.pinv(tensor(x), rtol=rtol), [np.diag([1.0, 0.0]), np.diag([1.0, 100.0])])


def test_cross_broadcasts_and_takes_any_axis() -> None:
    x, y = real_array((3, 1)), real_array((2, 3, 4), seed=1)
    assert_near(linalg.cross(tensor(x), tensor(y), axis=-2), np.cross(x[None], y, axis=1))


def test_gradient_of_qr_of_dependent_columns_is_an_error() -> None:
    x = weft.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]], requires_grad=True)
    with pytest.raises(DomainError, match="invertible"):
        linalg.qr(x).R.sum().backward()
