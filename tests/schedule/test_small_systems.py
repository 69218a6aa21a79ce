"""Small matrices in compiled code: no call of Python, and as accurate as LAPACK's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import DomainError

SIZES = [1, 2, 5, 16, 64]
DTYPES = [np.float32, np.float64]


def matrices(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    return weft.tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def definite(n: int, dtype: Any = np.float64) -> Any:
    x = np.random.default_rng(n).normal(size=(n, n))
    return weft.tensor((x @ x.T + np.eye(n)).astype(dtype))


def run(f: Callable[..., Any], *args: Any, hosts: int = 0) -> Any:
    """What a compiled function gives; so many of its ops are run by Python."""
    compiled: Any = weft.compile(f)
    out = compiled(*args)
    assert len(compiled.versions[0].run.program.hosts) == hosts
    return out


def room(n: int, dtype: Any) -> float:
    """What rounding may do to a result of n steps, as a share of what it is made of."""
    return 30 * n * float(np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_residuals(n: int, dtype: Any) -> None:
    a, b = matrices(n, n, dtype=dtype, seed=n), matrices(n, 3, dtype=dtype, seed=1)
    x = run(lambda a, b: weft.linalg.solve(a, b), a, b).numpy().astype(np.float64)
    wide, right = a.numpy().astype(np.float64), b.numpy().astype(np.float64)
    size = np.abs(wide).sum(1).max() * np.abs(x).max()
    assert np.abs(wide @ x - right).max() <= room(n, dtype) * size  # backward stable
    inverse = run(weft.linalg.inv, a).numpy().astype(np.float64)
    size = np.abs(wide).sum(1).max() * np.abs(inverse).max()
    assert np.abs(wide @ inverse - np.eye(n)).max() <= room(n, dtype) * size
    s = definite(n, dtype)
    factor = run(weft.linalg.cholesky, s).numpy().astype(np.float64)
    assert np.array_equal(factor, np.tril(factor))
    assert np.abs(factor @ factor.T - s.numpy()).max() <= room(n, dtype) * np.abs(s.numpy()).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_determinants(n: int, dtype: Any) -> None:
    a = matrices(n, n, dtype=dtype, seed=n)
    sign, size = np.linalg.slogdet(a.numpy().astype(np.float64))
    found = run(lambda a: tuple(weft.linalg.slogdet(a)), a)
    condition = np.linalg.cond(a.numpy().astype(np.float64))
    assert float(found[0]) == sign
    assert abs(float(found[1]) - size) <= room(n, dtype) * condition
    if n < 32:
        wanted = np.linalg.det(a.numpy().astype(np.float64))
        assert abs(float(run(weft.linalg.det, a)) / wanted - 1) <= room(n, dtype) * condition


def test_rows_are_pivoted() -> None:
    a = weft.tensor([[1e-20, 1.0], [1.0, 1.0]], dtype=weft.float64)
    x = run(lambda a: weft.linalg.solve(a, weft.tensor([1.0, 2.0], dtype=weft.float64)), a)
    np.testing.assert_allclose(x.numpy(), [1.0, 1.0], rtol=1e-15)
    turned = weft.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [4.0, 0.0, 0.0]])
    assert float(run(weft.linalg.det, turned)) == 24.0
    swapped = weft.tensor([[0.0, 2.0], [3.0, 0.0]])
    assert [float(x) for x in run(lambda a: tuple(weft.linalg.slogdet(a)), swapped)] == [
        -1.0,
        pytest.approx(np.log(6.0)),
    ]


@pytest.mark.parametrize("columns", [1, 7, 8, 20])
def test_batches_broadcast(columns: int) -> None:
    a, b = matrices(4, 1, 5, 5), matrices(3, 5, columns, seed=1)
    found = run(lambda a, b: weft.linalg.solve(a, b), a, b)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(a.numpy(), b.numpy()), rtol=1e-9, atol=1e-9)
    turned = run(lambda a, b: weft.linalg.solve(a.mT, b), a, b)
    wanted = np.linalg.solve(a.numpy().swapaxes(-1, -2), b.numpy())
    np.testing.assert_allclose(turned.numpy(), wanted, rtol=1e-9, atol=1e-9)


def test_batches_of_any_size() -> None:
    f = weft.compile(lambda a, b: (weft.linalg.solve(a, b), weft.linalg.slogdet(a).logabsdet))
    for count in (3, 4, 9, 0, 1):
        a, b = matrices(count, 6, 6, seed=count), matrices(count, 6, 2, seed=count + 1)
        x, size = f(a, b)
        np.testing.assert_allclose(x.numpy(), np.linalg.solve(a.numpy(), b.numpy()), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(size.numpy(), np.linalg.slogdet(a.numpy())[1], rtol=1e-9, atol=1e-9)


def test_larger_ones_and_complex_ones_are_for_the_library() -> None:
    large = matrices(65, 65)
    np.testing.assert_allclose(run(weft.linalg.inv, large, hosts=1).numpy(), np.linalg.inv(large.numpy()))
    turn = weft.tensor([[0.0, 1.0j], [1.0, 0.0]])
    assert run(weft.linalg.det, turn, hosts=1).numpy() == -1.0j


def test_empty_matrices() -> None:
    none = weft.zeros(0, 0)
    assert float(run(weft.linalg.det, none)) == 1.0
    assert [float(x) for x in run(lambda a: tuple(weft.linalg.slogdet(a)), none)] == [1.0, 0.0]
    assert run(lambda a: weft.linalg.solve(a, weft.zeros(0, 2)), none).shape == (0, 2)


def test_products_out_of_range() -> None:
    a = weft.diag(weft.tensor([1e30, 1e30, 1e-30, 1e-30]))
    assert float(run(weft.linalg.det, a)) == pytest.approx(1.0, rel=1e-5)
    assert float(run(weft.linalg.det, weft.zeros(3, 3))) == 0.0
    assert [float(x) for x in run(lambda a: tuple(weft.linalg.slogdet(a)), weft.ones(3, 3))] == [
        0.0,
        -np.inf,
    ]


SOLVE = lambda a: weft.linalg.solve(a, weft.ones(a.shape[-1], 1))  # noqa: E731


@pytest.mark.parametrize("f", [SOLVE, weft.linalg.inv], ids=["solve", "inv"])
def test_singular_matrices_are_named(f: Callable[..., Any]) -> None:
    for a in (weft.ones(3, 3), weft.stack([weft.eye(3), weft.eye(3), weft.ones(3, 3)])):
        messages = []
        for g in (f, weft.compile(f)):
            with pytest.raises(DomainError, match="matrices must be invertible, got a singular one") as error:
                g(a)
            messages.append(str(error.value).splitlines()[0])
            assert "test_small_systems.py" in str(error.value)
        assert messages[0] == messages[1]


def test_matrices_that_are_not_positive_definite() -> None:
    f = weft.compile(weft.linalg.cholesky)
    with pytest.raises(DomainError, match=r"must be positive definite, got one that is not from row 1 on"):
        f(weft.tensor([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(DomainError, match=r"\(matrix 1 of f32\[2,2,2\]\)"):
        f(weft.stack([weft.eye(2), -weft.eye(2)]))
    with pytest.raises(DomainError, match=r"elements must be finite"):
        f(weft.tensor([[1.0, -float("inf")], [-float("inf"), 1.0]]))
    lopsided = weft.tensor([[4.0, 2.0], [0.0, 2.0]])  # its symmetric part counts
    np.testing.assert_allclose(f(lopsided).numpy(), weft.linalg.cholesky(lopsided).numpy(), rtol=1e-6)


def test_explain_of_what_made_up_numbers_do_not_suit(capsys: Any) -> None:
    f = weft.compile(weft.linalg.cholesky)
    f(weft.eye(3))
    f.explain()
    assert "not measured" in capsys.readouterr().out


def test_numbers_that_are_not_are_handed_on() -> None:
    a = weft.tensor([[1.0, float("nan")], [0.0, 1.0]])
    assert np.isnan(run(SOLVE, a).numpy()).any()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "solve": lambda a: (weft.linalg.solve(a, a * a) ** 2).sum(),
    "inv": lambda a: (weft.linalg.inv(a) ** 2).sum(),
    "slogdet": lambda a: weft.linalg.slogdet(a).logabsdet,
    "cholesky": lambda a: (weft.linalg.cholesky(a @ a.mT) ** 3).sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str) -> None:
    a, f = definite(4) / 4.0, FUNCTIONS[name]
    slope = run(weft.grad(f), a).numpy()
    for i, j in ((0, 0), (1, 3), (3, 2)):
        step = np.zeros((4, 4))
        step[i, j] = 1e-6
        around = [float(f(weft.tensor(a.numpy() + s))) for s in (step, -step)]
        assert slope[i, j] == pytest.approx((around[0] - around[1]) / 2e-6, rel=1e-5, abs=1e-5)


def test_a_filter_and_its_gradient_run_without_python() -> None:
    n, m = 4, 2
    ys, noise = matrices(12, m, seed=5), weft.eye(m, dtype=weft.float64)
    moves, sees = matrices(n, n, seed=1) * 0.3, matrices(m, n, seed=2)

    def likelihood(moves: Any, sees: Any, ys: Any) -> Any:
        x, p = weft.zeros(n, dtype=weft.float64), weft.eye(n, dtype=weft.float64)
        total = weft.tensor(0.0, dtype=weft.float64)
        for y in ys:
            x, p = moves @ x, moves @ p @ moves.mT + weft.eye(n, dtype=weft.float64)
            error, spread = y - sees @ x, sees @ p @ sees.mT + noise
            gain = weft.linalg.solve(spread, sees @ p).mT
            total = total - weft.linalg.slogdet(spread).logabsdet - error @ weft.linalg.solve(spread, error)
            x, p = x + gain @ error, p - gain @ sees @ p
        return total

    f = weft.value_and_grad(likelihood, argnums=(0, 1))
    found, wanted = run(f, moves, sees, ys), f(moves, sees, ys)
    for a, b in zip(weft.tree_leaves(found), weft.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-11)
