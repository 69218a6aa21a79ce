"""Linear algebra beyond the matrix of samples: properties of results, and their types."""

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
from tests.ops.matrices import DTYPES, adjoint, assert_near, complexity, tensor, tolerance_of
from weft import linalg
from weft.errors import DomainError
from weft.ops.linalg.common import positive_definite, well_conditioned
from weft.ops.samples import complex_array, real_array

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
