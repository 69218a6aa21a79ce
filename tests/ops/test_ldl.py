"""LDL factors and solutions of symmetric and Hermitian matrices against SciPy and ``linalg.solve``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg

import weft
from weft.errors import DomainError, DtypeError, GradientError, ShapeError

RNG = np.random.default_rng(0)


def _matrix(n: int, trial: int, *, wide: bool, hermitian: bool) -> Any:
    """Dense and sparse ones (these have many blocks of two rows), both triangles."""
    x = RNG.normal(size=(n, n)) * (RNG.random((n, n)) < (0.5 if trial % 2 else 1))
    x = x + 1j * RNG.normal(size=(n, n)) if wide else x
    full = np.tril(x) + (np.tril(x, -1).conj().T if hermitian else np.tril(x, -1).T)
    if hermitian:
        np.fill_diagonal(full, full.diagonal().real)
    return full


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_factors_are_those_of_scipy(wide: bool, hermitian: bool) -> None:
    for n in (1, 2, 3, 5, 9, 17):
        for trial in range(6):
            x = _matrix(n, trial, wide=wide, hermitian=hermitian)
            above = np.triu(np.full((n, n), 7.0), 1)  # which nobody reads
            found = weft.linalg.ldl(weft.tensor(np.tril(x) + above), hermitian=hermitian)
            for actual, expected in zip(found, linalg.ldl(x, hermitian=hermitian), strict=True):
                np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-8, atol=1e-8)
            factors, pivots = weft.linalg.ldl_factor(weft.tensor(x), hermitian=hermitian)
            with np.errstate(all="ignore"):  # of a singular one NumPy may divide by zero
                if not abs(np.linalg.det(x)) > 1e-3:
                    continue
            b = RNG.normal(size=(2, n, 3)).astype(x.dtype)
            out = weft.linalg.ldl_solve(factors, pivots, weft.tensor(b), hermitian=hermitian)
            np.testing.assert_allclose(x @ out.numpy(), b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("hermitian", [False, True])
def test_gradients_and_batches_of_solutions_are_those_of_solve(hermitian: bool) -> None:
    x = weft.tensor(_matrix(4, 0, wide=True, hermitian=hermitian))
    b = weft.tensor(RNG.normal(size=(3, 4, 2)) + 1j)
    factors, pivots = weft.linalg.ldl_factor(x, hermitian=hermitian)

    def loss(solve: Any) -> Any:
        return lambda c: weft.abs(solve(c)).square().sum()

    def by_factors(c: Any) -> Any:
        return weft.linalg.ldl_solve(factors, pivots, c, hermitian=hermitian)

    def by_matrix(c: Any) -> Any:
        return weft.linalg.solve(x, c)

    expected = weft.grad(loss(by_matrix))(b).numpy()
    np.testing.assert_allclose(weft.grad(loss(by_factors))(b).numpy(), expected, rtol=1e-8)
    np.testing.assert_allclose(weft.compile(weft.grad(loss(by_factors)))(b).numpy(), expected, rtol=1e-8)
    np.testing.assert_allclose(weft.vmap(by_factors)(b).numpy(), by_matrix(b).numpy(), rtol=1e-8)
    tangents = [weft.jvp(f, (b,), (weft.conj(b),))[1].numpy() for f in (by_factors, by_matrix)]
    np.testing.assert_allclose(*tangents, rtol=1e-8)


def test_what_is_not_there_is_said() -> None:
    x = weft.tensor([[0.0, 0.0], [0.0, 1.0]], requires_grad=True)
    b = weft.ones((2, 1))
    factors, pivots = weft.linalg.ldl_factor(x)
    assert (factors.tolist(), pivots.tolist()) == ([[0, 0], [0, 1]], [1, 2])
    with pytest.raises(GradientError, match="ldl_factor: the factors have no derivative"):
        (factors.sum() + x.sum()).backward()
    with pytest.raises(GradientError, match="ldl_factor: the factors have no derivative"):
        weft.jvp(lambda a: weft.linalg.ldl(a).D, (x.detach(),), (x.detach(),))
    good = weft.linalg.ldl_factor(weft.eye(2))
    with pytest.raises(GradientError, match="ldl_factor: the factors have no derivative"):
        weft.grad(lambda a: (weft.linalg.ldl_solve(a, good.pivots, b) + a).sum())(good.LD)
    with pytest.raises(DomainError, match="ldl_solve: matrices must be invertible, got a singular one"):
        weft.linalg.ldl_solve(factors, pivots, b)
    with pytest.raises(DomainError, match=r"ldl_solve: pivots must be those of .*, got \[-1, 2\]"):
        weft.linalg.ldl_solve(factors, weft.tensor([-1, 2]), b)
    with pytest.raises(DtypeError, match="ldl_solve: pivots must be integers"):
        weft.linalg.ldl_solve(factors, b[:, 0], b)
    with pytest.raises(ShapeError, match="ldl_solve: there must be one pivot for each row"):
        weft.linalg.ldl_solve(factors, weft.tensor([1]), b)
    with pytest.raises(ShapeError, match="ldl_factor: matrices must be square"):
        weft.linalg.ldl_factor(weft.ones((2, 3)))
