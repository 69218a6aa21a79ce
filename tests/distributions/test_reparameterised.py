"""Gradients through draws of the gamma family: each by SciPy's quantiles, and of moments by what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import weft
from weft import distributions as d
from weft.errors import DomainError, ShapeError

f64 = weft.float64
SHAPES = np.array([0.05, 0.3, 0.9, 1.0, 1.7, 4.0, 12.0, 80.0, 900.0])


def moved_quantiles(a: Any, draws: Any) -> Any:
    """How draws move with their shapes: by differences of logarithms of quantiles, extrapolated."""
    below = special.gammainc(a, draws)

    above = special.gammaincc(a, draws)

    def quantile(shape: Any) -> Any:  # from the nearer tail
        lower, upper = special.gammaincinv(shape, below), special.gammainccinv(shape, above)
        return np.log(np.where(below < 0.5, lower, upper))

    def difference(h: float) -> Any:
        return (quantile(a * (1 + h)) - quantile(a * (1 - h))) / (2 * a * h)

    return draws * (4 * difference(5e-4) - difference(1e-3)) / 3


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradient_of_a_gamma_draw_is_that_of_its_quantile(compiled: bool) -> None:
    def total(a: Any) -> Any:
        draws = weft.random.gamma(weft.random.key(5), a, (40, len(SHAPES)))
        return draws.sum(), draws

    call: Callable[..., Any] = weft.grad(total, has_aux=True)
    slopes, draws = (weft.compile(call) if compiled else call)(weft.tensor(SHAPES))
    expected = moved_quantiles(SHAPES, draws.numpy())
    np.testing.assert_allclose(slopes.numpy(), expected.sum(0), rtol=3e-8)


def test_each_draw_moves_by_its_own_quantile() -> None:
    a = weft.tensor(np.repeat(SHAPES, 12).reshape(9, 12), requires_grad=True)
    draws = weft.random.gamma(weft.random.key(2), a)
    draws.sum().backward()
    np.testing.assert_allclose(
        a.grad.numpy(), moved_quantiles(a.detach().numpy(), draws.detach().numpy()), rtol=3e-8
    )


def test_slope_in_the_tails_is_that_of_the_quantile() -> None:
    from weft.ops.gamma_path import gamma_slope

    a, q = np.meshgrid(SHAPES, [1e-9, 1e-4, 0.5, 1 - 1e-4, 1 - 1e-9])
    x = special.gammaincinv(a, q)
    there = x > 1e-200
    a, x = a[there], x[there]
    found = gamma_slope(weft.tensor(a), weft.tensor(np.log(x))).numpy() * x
    np.testing.assert_allclose(found, moved_quantiles(a, x), rtol=1e-6)


def test_log_draws_have_gradients_where_draws_are_too_small_for_floats() -> None:
    """Near 0, P is x**a / gamma(a + 1): so log x moves by (digamma(a + 1) - log x) / a."""
    a = weft.full(200, 1e-3, dtype=f64)
    drawn, back = weft.vjp(lambda a: weft.random.loggamma(weft.random.key(1), a), a)
    (slopes,) = back(weft.ones(200, dtype=f64))
    logs = drawn.numpy()
    tiny = logs < -40
    assert tiny.sum() > 150
    assert logs.min() < -800
    expected = (special.digamma(1.001) - logs[tiny]) / 1e-3
    np.testing.assert_allclose(slopes.numpy()[tiny], expected, rtol=1e-12)


def test_second_derivative_is_that_of_the_quantile() -> None:
    key, a = weft.random.key(3), weft.tensor(2.5, dtype=f64)
    second = weft.grad(weft.grad(lambda a: weft.random.gamma(key, a)))(a).item()
    x = weft.random.gamma(key, a).item()
    q, h = special.gammainc(2.5, x), 2e-3
    low, mid, high = (special.gammaincinv(v, q) for v in (2.5 - h, 2.5, 2.5 + h))
    np.testing.assert_allclose(second, (low - 2 * mid + high) / h**2, rtol=1e-4)


def test_forward_mode_and_vmap_agree_with_reverse_mode() -> None:
    key, a = weft.random.key(3), weft.tensor(SHAPES)
    reverse = weft.vjp(lambda a: weft.random.gamma(key, a), a)[1](weft.ones(9, dtype=f64))[0]
    forward = weft.jvp(lambda a: weft.random.gamma(key, a), (a,), (weft.ones(9, dtype=f64),))[1]
    np.testing.assert_allclose(forward.numpy(), reverse.numpy(), rtol=1e-12)
    one = weft.grad(lambda a: weft.random.gamma(key, a))
    batched = weft.vmap(one)(a).numpy()
    np.testing.assert_allclose(batched, [one(x).item() for x in a], rtol=1e-12)


# A distribution of parameters, these, and the gradients of the mean and of the mean square by each.
MOMENTS: dict[str, tuple[Callable[..., Any], tuple[float, ...], Callable[..., Any], Callable[..., Any]]] = {
    "gamma": (d.Gamma, (2.5, 3.0), lambda a, r: a / r, lambda a, r: (a + a * a) / r**2),
    "small_gamma": (d.Gamma, (0.4, 1.0), lambda a, r: a / r, lambda a, r: (a + a * a) / r**2),
    "chi2": (d.Chi2, (3.0,), lambda k: k, lambda k: k * k + 2 * k),
    "beta": (
        d.Beta, (2.0, 3.5), lambda a, b: a / (a + b),
        lambda a, b: a * (a + 1) / ((a + b) * (a + b + 1)),
    ),
    "inverse_gamma": (
        d.InverseGamma, (9.0, 2.0), lambda a, r: r / (a - 1),
        lambda a, r: r * r / ((a - 1) * (a - 2)),
    ),
    "student": (
        d.StudentT, (9.0, 0.5, 2.0), lambda n, m, s: m,
        lambda n, m, s: m * m + s * s * n / (n - 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOMENTS)
def test_gradients_of_moments_are_unbiased(name: str) -> None:
    """Each estimate is within 5 of its own standard errors."""
    kind, values, *moments = MOMENTS[name]
    count = 6000
    for power, moment in enumerate(moments, 1):
        for i in range(len(values)):
            leaves = [weft.full(count, v, dtype=f64, requires_grad=True) for v in values]
            weft.manual_seed(4 + power)
            (kind(*leaves).rsample() ** power).sum().backward()
            each, h = leaves[i].grad.numpy(), 1e-5
            up, down = ([v + s * (j == i) for j, v in enumerate(values)] for s in (h, -h))
            expected = (moment(*up) - moment(*down)) / (2 * h)
            error = each.std() / np.sqrt(count)
            assert abs(each.mean() - expected) <= 5 * error + 1e-8, (power, i, each.mean(), expected, error)


def test_gradient_of_the_mean_of_a_dirichlet_is_unbiased() -> None:
    count, values = 6000, np.array([0.5, 2.0, 3.0])
    a = weft.tensor(np.tile(values, (count, 1)), requires_grad=True)
    weft.manual_seed(1)
    d.Dirichlet(a).rsample()[:, 0].sum().backward()
    total = values.sum()
    expected = (np.eye(3)[0] * total - values[0]) / total**2
    error = a.grad.numpy().std(0) / np.sqrt(count)
    assert (abs(a.grad.numpy().mean(0) - expected) < 5 * error).all()


def test_draws_of_tiny_shapes_are_numbers() -> None:
    """Their gammas are all 0 in float32, and 0 / 0 would be no part of a whole."""
    weft.manual_seed(0)
    parts = d.Dirichlet(weft.full(3, 1e-3)).sample((500,)).numpy()
    np.testing.assert_allclose(parts.sum(1), 1, rtol=1e-6)
    halves = d.Beta(weft.tensor(1e-3), 1e-3).sample((500,)).numpy()
    assert ((halves > 0) & (halves < 1)).all()
    assert 0.4 < (halves > 0.5).mean() < 0.6
    assert (d.Gamma(weft.tensor(1e-3), 1.0).sample((500,)).numpy() > 0).all()


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float32])
def test_draws_and_gradients_have_the_dtype_of_the_shape(dtype: Any) -> None:
    a = weft.tensor([0.5, 3.0], dtype=dtype, requires_grad=True)
    weft.manual_seed(0)
    draws = d.Gamma(a, 1.0).rsample((300,))
    draws.astype(f64).mean(axis=0).sum().backward()
    assert draws.dtype == a.grad.dtype == dtype
    np.testing.assert_allclose(a.grad.astype(f64).numpy(), 1.0, atol=0.25)


def test_eager_and_compiled_draws_are_equal() -> None:
    def loss(a: Any, b: Any) -> Any:
        drawn = d.Beta(a, b).rsample((50,)), d.Dirichlet(a).rsample((50,)), d.StudentT(a).rsample((50,))
        return sum((x.square().mean() for x in drawn), start=0.0)

    a, b = weft.tensor([0.5, 2.0, 7.0]), weft.tensor([1.0, 0.3, 2.0])
    weft.manual_seed(5)
    eager = weft.value_and_grad(loss, argnums=(0, 1))(a, b)
    weft.manual_seed(5)
    compiled = weft.compile(weft.value_and_grad(loss, argnums=(0, 1)))(a, b)
    for one, other in zip(weft.tree_leaves(compiled), weft.tree_leaves(eager), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-5)


def test_draws_by_key_follow_the_distributions() -> None:
    key = weft.random.key(8)
    gammas = weft.random.gamma(key, 0.6, (3000,), dtype=f64).numpy()
    assert stats.kstest(gammas, stats.gamma(0.6).cdf).pvalue > 1e-3
    betas = weft.random.beta(key, weft.tensor(2.0, dtype=f64), 0.7, (3000,)).numpy()
    assert stats.kstest(betas, stats.beta(2.0, 0.7).cdf).pvalue > 1e-3
    parts = weft.random.dirichlet(key, weft.tensor([1.0, 2.0, 4.0], dtype=f64), (3000,)).numpy()
    assert parts.shape == (3000, 3)
    assert stats.kstest(parts[:, 1], stats.beta(2.0, 5.0).cdf).pvalue > 1e-3


def test_bad_shapes_are_errors() -> None:
    key = weft.random.key(0)
    with pytest.raises(DomainError, match=r"gamma: a must be positive, got -1\.0"):
        weft.random.gamma(key, -1.0)
    with pytest.raises(DomainError, match=r"beta: b must be positive, got 0\.0"):
        weft.random.beta(key, 1.0, 0.0)
    with pytest.raises(ShapeError, match="dirichlet: alpha must have an axis of parts"):
        weft.random.dirichlet(key, weft.tensor(1.0))
    with pytest.raises(ShapeError, match="gamma: shapes must broadcast together"):
        weft.random.gamma(key, weft.ones(3), (2, 2))
