"""Distributions against SciPy: densities, moments, draws and gradients; divergences against integrals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import weft
from weft import distributions as d
from weft.errors import ArgumentError, DomainError, GradientError

f64 = weft.float64


def t(*values: float) -> Any:
    return weft.tensor(values, dtype=f64)


P = np.array([0.1, 0.6, 0.3])
COVARIANCE = np.array([[2.0, 0.5], [0.5, 1.0]])

# A distribution, SciPy's, and values to ask for.
CONTINUOUS: dict[str, tuple[Any, Any, list[float]]] = {
    "normal": (d.Normal(t(0.5), t(2.0)), stats.norm(0.5, 2.0), [-1.0, 0.3, 4.0]),
    "laplace": (d.Laplace(t(0.5), t(2.0)), stats.laplace(0.5, 2.0), [-1.0, 0.3, 4.0]),
    "cauchy": (d.Cauchy(t(0.5), t(2.0)), stats.cauchy(0.5, 2.0), [-1.0, 0.3, 4.0]),
    "gumbel": (d.Gumbel(t(0.5), t(2.0)), stats.gumbel_r(0.5, 2.0), [-1.0, 0.3, 4.0]),
    "log_normal": (d.LogNormal(t(0.5), t(0.7)), stats.lognorm(0.7, scale=np.exp(0.5)), [0.1, 1.0, 4.0]),
    "uniform": (d.Uniform(t(-1.0), t(3.0)), stats.uniform(-1.0, 4.0), [-2.0, 0.0, 2.9]),
    "half_normal": (d.HalfNormal(t(2.0)), stats.halfnorm(scale=2.0), [0.1, 1.0, 4.0]),
    "half_cauchy": (d.HalfCauchy(t(2.0)), stats.halfcauchy(scale=2.0), [0.1, 1.0, 4.0]),
    "gamma": (d.Gamma(t(2.5), t(3.0)), stats.gamma(2.5, scale=1 / 3), [0.1, 1.0, 4.0]),
    "small_gamma": (d.Gamma(t(0.3), t(1.0)), stats.gamma(0.3), [0.1, 1.0, 4.0]),
    "chi2": (d.Chi2(t(3.0)), stats.chi2(3.0), [0.1, 1.0, 4.0]),
    "exponential": (d.Exponential(t(3.0)), stats.expon(scale=1 / 3), [0.1, 1.0, 4.0]),
    "weibull": (d.Weibull(t(2.0), t(1.5)), stats.weibull_min(1.5, scale=2.0), [0.1, 1.0, 4.0]),
    "pareto": (d.Pareto(t(2.0), t(4.5)), stats.pareto(4.5, scale=2.0), [1.0, 2.5, 4.0]),
    "student": (d.StudentT(t(5.0), t(0.5), t(2.0)), stats.t(5.0, 0.5, 2.0), [-1.0, 0.3, 4.0]),
    "beta": (d.Beta(t(2.0), t(3.5)), stats.beta(2.0, 3.5), [0.1, 0.5, 0.9]),
    "inverse_gamma": (d.InverseGamma(t(4.5), t(3.0)), stats.invgamma(4.5, scale=3.0), [-1.0, 0.1, 1.0, 4.0]),
    "von_mises": (d.VonMises(t(0.5), t(2.5)), stats.vonmises(2.5, 0.5), [-1.0, 0.3, 2.9]),
}
DISCRETE: dict[str, tuple[Any, Any, list[float]]] = {
    "bernoulli": (d.Bernoulli(t(0.3)), stats.bernoulli(0.3), [0.0, 1.0]),
    "bernoulli_of_logits": (d.Bernoulli(logits=t(0.4)), stats.bernoulli(1 / (1 + np.exp(-0.4))), [0.0, 1.0]),
    "geometric": (d.Geometric(t(0.3)), stats.geom(0.3, loc=-1), [0.0, 1.0, 4.0]),
    "binomial": (d.Binomial(7, t(0.3)), stats.binom(7, 0.3), [0.0, 3.0, 7.0]),
    "poisson": (d.Poisson(t(2.5)), stats.poisson(2.5), [-1.0, 0.0, 2.0, 9.0]),
    "negative_binomial": (d.NegativeBinomial(2.5, t(0.3)), stats.nbinom(2.5, 0.7), [0.0, 1.0, 6.0]),
    "negative_binomial_of_logits": (
        d.NegativeBinomial(4, logits=t(0.4)),
        stats.nbinom(4, 1 / (1 + np.exp(0.4))),
        [0.0, 1.0, 6.0],
    ),
}
SINGLE = CONTINUOUS | DISCRETE
HAVE_CDF = ["normal", "laplace", "cauchy", "gumbel", "log_normal", "uniform", "half_normal", "half_cauchy"]
HAVE_CDF += ["exponential", "weibull", "gamma", "small_gamma", "chi2", "inverse_gamma", "poisson", "pareto"]
HAVE_CDF += ["student", "beta", "geometric", "binomial", "negative_binomial", "negative_binomial_of_logits"]
HAVE_ICDF = ["normal", "laplace", "cauchy", "gumbel", "log_normal", "uniform", "half_normal", "half_cauchy"]
HAVE_ICDF += ["exponential", "weibull", "pareto"]
BY_QUANTILES = {"gamma", "small_gamma", "chi2", "student", "beta", "inverse_gamma"}  # test_reparameterised.py
NO_ENTROPY = {"poisson", "negative_binomial", "negative_binomial_of_logits"}


@pytest.mark.parametrize("name", SINGLE)
def test_log_prob_is_scipys(name: str) -> None:
    ours, theirs, values = SINGLE[name]
    values = [
        v for v in values if v >= 0 or name not in ("inverse_gamma", "poisson")
    ]  # those are for the cdf
    expected = theirs.logpdf(values) if name in CONTINUOUS else theirs.logpmf(values)
    np.testing.assert_allclose(ours.log_prob(t(*values)).numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in SINGLE if n not in NO_ENTROPY])
def test_entropy_is_scipys(name: str) -> None:
    ours, theirs, _ = SINGLE[name]
    expected = float(theirs.entropy())
    if name == "geometric":
        k = np.arange(400)
        expected = float(-(theirs.pmf(k) * theirs.logpmf(k)).sum())
    np.testing.assert_allclose(ours.entropy().numpy(), [expected], rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in SINGLE if n != "von_mises"])
def test_mean_and_variance_are_scipys(name: str) -> None:
    ours, theirs, _ = SINGLE[name]
    mean, variance = theirs.stats("mv")
    if np.isnan(mean):
        assert not np.isfinite(ours.mean.numpy()).any()
    else:
        np.testing.assert_allclose(ours.mean.numpy(), [mean], rtol=1e-9)
        np.testing.assert_allclose(ours.variance.numpy(), [variance], rtol=1e-9)
        np.testing.assert_allclose(ours.stddev.numpy() ** 2, ours.variance.numpy(), rtol=1e-9)


@pytest.mark.parametrize("name", HAVE_CDF)
def test_cdf_is_scipys(name: str) -> None:
    ours, theirs, values = SINGLE[name]
    np.testing.assert_allclose(ours.cdf(t(*values)).numpy(), theirs.cdf(values), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", HAVE_ICDF)
def test_icdf_is_scipys(name: str) -> None:
    ours, theirs, _ = SINGLE[name]
    p = [0.0, 1e-12, 1e-3, 0.1, 0.5, 0.8, 0.999, 1.0]
    np.testing.assert_allclose(ours.icdf(t(*p)).numpy(), theirs.ppf(p), rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize("name", [n for n in HAVE_CDF if n in CONTINUOUS])
def test_slope_of_the_cdf_is_the_density(name: str) -> None:
    ours, theirs, values = SINGLE[name]
    values = [v for v in values if theirs.pdf(v) > 0]
    slope = weft.grad(lambda x: ours.cdf(x).sum())(t(*values))
    np.testing.assert_allclose(slope.numpy(), theirs.pdf(values), rtol=1e-9)


@pytest.mark.parametrize("df", [0.3, 1.0, 4.0, 1e3, 1e8])
def test_tails_of_student(df: float) -> None:
    z = np.array([-np.inf, -1e30, -1e4, -37.0, -8.0, -1e-3, -1e-5, 0.0, 1.0, 20.0, np.inf])
    ours, theirs = d.StudentT(t(df)), stats.t(df)
    np.testing.assert_allclose(ours.cdf(t(*z)).numpy(), theirs.cdf(z), rtol=1e-10, atol=1e-300)
    close = ours.cdf(t(-1e-9, 1e-9)).numpy() - 0.5  # SciPy's is 0 there
    np.testing.assert_allclose(close, theirs.pdf(0.0) * np.array([-1e-9, 1e-9]), rtol=1e-6)
    finite = t(*z[2:-1])
    slope = weft.grad(lambda x: ours.cdf(x).sum())(finite)
    np.testing.assert_allclose(slope.numpy(), theirs.pdf(z[2:-1]), rtol=1e-7, atol=1e-300)
    by_df = weft.grad(lambda n: d.StudentT(n).cdf(-2.0).sum())(t(df))
    h = 1e-4 * df
    ends = [stats.t(df + s * h).cdf(-2.0) for s in (-2, -1, 1, 2)]
    difference = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)
    np.testing.assert_allclose(by_df.numpy(), [difference], rtol=1e-6, atol=1e-13)


def test_cdf_of_counts_at_the_ends() -> None:
    k = np.array([-np.inf, -1.0, -0.5, 0.0, 2.5, 7.0, 8.0, np.inf])
    for p in (1e-9, 0.3, 0.5, 0.8, 1 - 1e-9):
        binomial, negative = d.Binomial(7, t(p)), d.NegativeBinomial(2.5, t(p))
        np.testing.assert_allclose(binomial.cdf(t(*k)).numpy(), stats.binom(7, p).cdf(k), rtol=1e-9)
        theirs = stats.nbinom(2.5, 1 - p).cdf(k)
        np.testing.assert_allclose(negative.cdf(t(*k)).numpy(), theirs, rtol=1e-6 if p > 0.9 else 1e-9)
    rare = d.NegativeBinomial(1, logits=weft.tensor([40.0])).cdf(weft.tensor([2.0]))
    np.testing.assert_allclose(rare.numpy(), [3 * np.exp(-40.0)], rtol=1e-6)


def test_small_probabilities_of_the_normal_distribution() -> None:
    z = np.array([-30.0, -10.0, -3.0, 0.0, 5.0])
    np.testing.assert_allclose(d.Normal(t(0.0), t(1.0)).cdf(t(*z)).numpy(), stats.norm.cdf(z), rtol=1e-12)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_pass_a_kolmogorov_smirnov_test(name: str) -> None:
    weft.manual_seed(3)
    ours, theirs, _ = CONTINUOUS[name]
    drawn = ours.sample((4000,)).numpy()[:, 0]
    assert stats.kstest(drawn, theirs.cdf).pvalue > 1e-4


@pytest.mark.parametrize("name", DISCRETE)
def test_draws_have_the_frequencies(name: str) -> None:
    weft.manual_seed(3)
    ours, theirs, _ = DISCRETE[name]
    drawn = ours.sample((4000,)).numpy()[:, 0]
    for k in range(4):
        p = float(theirs.pmf(k))
        assert abs((drawn == k).mean() - p) < 5 * np.sqrt(p * (1 - p) / 4000) + 1e-9


@pytest.mark.parametrize("name", [n for n in CONTINUOUS if n not in BY_QUANTILES | {"von_mises"}])
def test_gradient_of_rsample_is_that_of_the_draw(name: str) -> None:
    """Against a difference: the same seed draws the same numbers."""
    kind = type(CONTINUOUS[name][0])
    names = {"Uniform": ["low", "high"], "Exponential": ["rate"], "Pareto": ["scale", "alpha"]}
    names |= {"Weibull": ["scale", "concentration"], "HalfNormal": ["scale"], "HalfCauchy": ["scale"]}
    keys = names.get(kind.__name__, ["loc", "scale"])
    start = [0.5, 2.0][: len(keys)]

    def total(values: Any) -> Any:
        weft.manual_seed(11)
        return kind(*values).rsample((5,)).sum()

    leaves = [weft.tensor(v, dtype=f64, requires_grad=True) for v in start]
    total(leaves).backward()
    for i, leaf in enumerate(leaves):
        up, down = ([v + s * (j == i) for j, v in enumerate(start)] for s in (1e-5, -1e-5))
        ends = [total([weft.tensor(v, dtype=f64) for v in side]).item() for side in (up, down)]
        np.testing.assert_allclose(leaf.grad.item(), (ends[0] - ends[1]) / 2e-5, rtol=1e-5)


def test_rsample_where_draws_are_not_smooth_is_an_error() -> None:
    for kind in (d.Bernoulli(0.5), d.Poisson(1.0), d.Categorical(t(0.5, 0.5)), d.VonMises(0.0, 1.0)):
        with pytest.raises(GradientError, match="smoothly"):
            kind.rsample()


def test_gradient_of_log_prob_is_the_score() -> None:
    loc = weft.tensor(0.3, dtype=f64, requires_grad=True)
    d.Normal(loc, 2.0).log_prob(1.3).backward()
    np.testing.assert_allclose(loc.grad.item(), (1.3 - 0.3) / 4.0)


def test_categorical() -> None:
    weft.manual_seed(0)
    ours = d.Categorical(weft.tensor(P * 5))
    np.testing.assert_allclose(ours.log_prob(weft.tensor([2, 0])).numpy(), np.log(P[[2, 0]]))
    np.testing.assert_allclose(ours.entropy().item(), stats.entropy(P))
    drawn = ours.sample((5000,)).numpy()
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 5000, P, atol=0.03)
    batch = d.Categorical(logits=weft.tensor(np.log(np.stack([P, P[::-1]]))))
    assert (batch.batch_shape, batch.sample((4,)).shape) == ((2,), (4, 2))
    np.testing.assert_allclose(batch.log_prob(weft.tensor([0, 0])).numpy(), np.log(P[[0, 2]]))


def test_one_hot_and_multinomial() -> None:
    weft.manual_seed(0)
    hot = d.OneHotCategorical(weft.tensor(P)).sample((3000,)).numpy()
    assert (hot.sum(1) == 1).all()
    np.testing.assert_allclose(hot.mean(0), P, atol=0.04)
    many = d.Multinomial(4, weft.tensor(P))
    expected = stats.multinomial(4, P).logpmf([1, 2, 1])
    np.testing.assert_allclose(many.log_prob(t(1.0, 2.0, 1.0)).item(), expected)
    assert (many.sample((50,)).numpy().sum(1) == 4).all()
    np.testing.assert_allclose(many.mean.numpy(), 4 * P)


def test_dirichlet() -> None:
    weft.manual_seed(0)
    a = np.array([0.5, 2.0, 3.0])
    ours, theirs = d.Dirichlet(weft.tensor(a)), stats.dirichlet(a)
    np.testing.assert_allclose(ours.log_prob(weft.tensor(P)).item(), theirs.logpdf(P))
    np.testing.assert_allclose(ours.entropy().item(), theirs.entropy())
    np.testing.assert_allclose(ours.mean.numpy(), theirs.mean())
    np.testing.assert_allclose(ours.variance.numpy(), theirs.var())
    drawn = ours.sample((4000,)).numpy()
    np.testing.assert_allclose(drawn.sum(1), 1)
    np.testing.assert_allclose(drawn.mean(0), theirs.mean(), atol=0.02)


def test_multivariate_normal() -> None:
    weft.manual_seed(0)
    loc = np.array([1.0, -1.0])
    theirs = stats.multivariate_normal(loc, COVARIANCE)
    points = np.array([[0.0, 0.0], [1.0, 2.0]])
    factor = np.linalg.cholesky(COVARIANCE)
    makers: list[Callable[[], Any]] = [
        lambda: d.MultivariateNormal(weft.tensor(loc), weft.tensor(COVARIANCE)),
        lambda: d.MultivariateNormal(weft.tensor(loc), scale_tril=weft.tensor(factor)),
        lambda: d.MultivariateNormal(
            weft.tensor(loc), precision_matrix=weft.tensor(np.linalg.inv(COVARIANCE))
        ),
    ]
    for make in makers:
        ours = make()
        np.testing.assert_allclose(ours.log_prob(weft.tensor(points)).numpy(), theirs.logpdf(points))
        np.testing.assert_allclose(ours.entropy().item(), theirs.entropy())
        np.testing.assert_allclose(ours.covariance_matrix.numpy(), COVARIANCE)
    np.testing.assert_allclose(np.cov(ours.sample((8000,)).numpy().T), COVARIANCE, atol=0.1)


def test_independent_sums_over_its_parts() -> None:
    base = d.Normal(weft.zeros((3, 2), dtype=f64), 1.0)
    both = d.Independent(base, 1)
    assert (both.batch_shape, both.event_shape, both.rsample((4,)).shape) == ((3,), (2,), (4, 3, 2))
    value = weft.ones((3, 2), dtype=f64)
    np.testing.assert_allclose(both.log_prob(value).numpy(), base.log_prob(value).numpy().sum(1))
    np.testing.assert_allclose(both.entropy().numpy(), base.entropy().numpy().sum(1))
    far = d.Independent(d.Normal(weft.ones((3, 2), dtype=f64), 1.0), 1)
    np.testing.assert_allclose(d.kl_divergence(both, far).numpy(), np.full(3, 1.0))


PAIRS: dict[str, tuple[Any, Any, tuple[float, float]]] = {
    "normal": (d.Normal(t(0.5), t(1.0)), d.Normal(t(0.0), t(2.0)), (-12, 12)),
    "log_normal": (d.LogNormal(t(0.5), t(0.5)), d.LogNormal(t(0.0), t(0.8)), (1e-6, 60)),
    "half_normal": (d.HalfNormal(t(1.0)), d.HalfNormal(t(2.0)), (0, 12)),
    "laplace": (d.Laplace(t(0.5), t(1.0)), d.Laplace(t(0.0), t(2.0)), (-40, 40)),
    "uniform": (d.Uniform(t(0.5), t(1.0)), d.Uniform(t(0.0), t(2.0)), (0.5, 1.0)),
    "cauchy": (d.Cauchy(t(0.5), t(1.0)), d.Cauchy(t(0.0), t(2.0)), (-np.inf, np.inf)),
    "exponential": (d.Exponential(t(0.5)), d.Exponential(t(2.0)), (0, 90)),
    "gamma": (d.Gamma(t(2.5), t(1.0)), d.Gamma(t(2.0), t(2.0)), (1e-9, 60)),
    "beta": (d.Beta(t(2.5), t(2.0)), d.Beta(t(1.5), t(3.0)), (1e-9, 1 - 1e-9)),
    "gumbel": (d.Gumbel(t(0.5), t(1.0)), d.Gumbel(t(0.0), t(2.0)), (-6, 60)),
    "inverse_gamma": (d.InverseGamma(t(4.5), t(1.0)), d.InverseGamma(t(3.0), t(2.0)), (1e-3, np.inf)),
    "von_mises": (d.VonMises(t(0.5), t(1.0)), d.VonMises(t(-0.7), t(3.0)), (-np.pi, np.pi)),
    "pareto": (d.Pareto(t(2.0), t(3.0)), d.Pareto(t(1.5), t(2.0)), (2.0, np.inf)),
    "uniform_normal": (d.Uniform(t(0.5), t(1.5)), d.Normal(t(0.0), t(2.0)), (0.5, 1.5)),
    "exponential_gamma": (d.Exponential(t(0.5)), d.Gamma(t(2.0), t(2.0)), (0, 90)),
    "gamma_exponential": (d.Gamma(t(2.0), t(2.0)), d.Exponential(t(0.5)), (1e-9, 60)),
    "chi2_gamma": (d.Chi2(t(4.0)), d.Gamma(t(3.0), t(1.0)), (1e-9, 120)),
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", PAIRS)
def test_kl_divergence_is_the_integral(name: str) -> None:
    p, q, (low, high) = PAIRS[name]

    def density(x: float) -> float:
        own = p.log_prob(t(x))
        return float((own.exp() * (own - q.log_prob(t(x)))).item())

    expected = integrate.quad(density, low, high, limit=200, epsabs=1e-9)[0]
    np.testing.assert_allclose(d.kl_divergence(p, q).numpy(), [expected], rtol=1e-5)


@pytest.mark.parametrize(
    ("p", "q", "count"),
    [
        (d.Bernoulli(t(0.3)), d.Bernoulli(t(0.6)), 2),
        (d.Geometric(t(0.3)), d.Geometric(t(0.6)), 200),
        (d.Binomial(5, t(0.3)), d.Binomial(5, t(0.6)), 6),
        (d.Poisson(t(2.0)), d.Poisson(t(3.0)), 80),
        (d.NegativeBinomial(2.5, t(0.3)), d.NegativeBinomial(2.5, t(0.6)), 200),
    ],
    ids=["bernoulli", "geometric", "binomial", "poisson", "negative_binomial"],
)
def test_kl_divergence_is_the_sum(p: Any, q: Any, count: int) -> None:
    k = weft.arange(count, dtype=f64)
    own, other = p.log_prob(k).numpy(), q.log_prob(k).numpy()
    np.testing.assert_allclose(
        d.kl_divergence(p, q).numpy(), [(np.exp(own) * (own - other)).sum()], rtol=1e-7
    )


def test_kl_divergence_of_vectors() -> None:
    a, b = np.array([0.5, 2.0, 3.0]), np.array([1.0, 1.0, 2.0])
    weft.manual_seed(0)
    p, q = d.Dirichlet(weft.tensor(a)), d.Dirichlet(weft.tensor(b))
    x = p.sample((20000,))
    estimate = (p.log_prob(x) - q.log_prob(x)).mean().item()
    np.testing.assert_allclose(d.kl_divergence(p, q).item(), estimate, rtol=0.05)
    one = d.MultivariateNormal(weft.zeros(2, dtype=f64), weft.tensor(COVARIANCE))
    two = d.MultivariateNormal(weft.ones(2, dtype=f64), weft.eye(2, dtype=f64))
    expected = 0.5 * (np.trace(COVARIANCE) + 2 - 2 - np.log(np.linalg.det(COVARIANCE)))
    np.testing.assert_allclose(d.kl_divergence(one, two).item(), expected)
    first, second = d.Categorical(weft.tensor(P)), d.Categorical(weft.tensor(P[::-1].copy()))
    np.testing.assert_allclose(d.kl_divergence(first, second).item(), stats.entropy(P, P[::-1]))


def test_bad_parameters_are_errors() -> None:
    with pytest.raises(DomainError, match="Normal: scale must be positive"):
        d.Normal(0.0, -1.0)
    with pytest.raises(DomainError, match=r"Bernoulli: probs must be in 0\.\.1"):
        d.Bernoulli(1.5)
    with pytest.raises(ArgumentError, match="probs or logits, got both"):
        d.Bernoulli(0.5, 0.0)
    with pytest.raises(ArgumentError, match="no closed form for Normal and Uniform"):
        d.kl_divergence(d.Normal(), d.Uniform())
    with pytest.raises(ArgumentError, match="VonMises has no closed form of it"):
        d.VonMises(1.0, 1.0).cdf(1.0)
    with pytest.raises(DomainError, match="NegativeBinomial: total_count must be positive"):
        d.NegativeBinomial(0, 0.5)
    with pytest.raises(DomainError, match="kl_divergence: total_count must be the same"):
        d.kl_divergence(d.NegativeBinomial(1, 0.5), d.NegativeBinomial(2, 0.5))


def test_calls_that_do_not_fit_are_told() -> None:
    with pytest.raises(ArgumentError, match="Normal: unknown keyword 'mean'") as told:
        d.Normal(mean=0.0)  # type: ignore[call-arg]
    assert told.value.hint == "it takes loc, scale"
    with pytest.raises(ArgumentError, match="rsample: unknown keyword 'shape'"):
        d.Normal().rsample(shape=(2,))  # type: ignore[call-arg]


def test_compiled_code_draws_and_differentiates() -> None:
    def loss(mean: Any, deviation: Any) -> Any:
        posterior = d.Normal(mean, deviation)
        drawn = posterior.rsample()
        return d.kl_divergence(posterior, d.Normal(0.0, 1.0)).sum() + drawn.square().sum()

    mean, deviation = weft.tensor([0.5, 1.0]), weft.tensor([1.0, 2.0])
    weft.manual_seed(5)
    eager = [g.numpy() for g in weft.grad(loss, argnums=(0, 1))(mean, deviation)]
    weft.manual_seed(5)
    compiled = weft.compile(weft.grad(loss, argnums=(0, 1)))(mean, deviation)
    for one, other in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5)
