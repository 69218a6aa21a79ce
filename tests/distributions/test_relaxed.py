"""Relaxed classes, mixtures and angles: densities against integrals and SciPy, draws against both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

import weft
from weft import distributions as d
from weft.distributions.circular import bessel
from weft.errors import ArgumentError, DomainError, ShapeError

f64 = weft.float64
LOGITS = np.array([0.3, -0.7, 1.1])


def t(*values: float) -> Any:
    return weft.tensor(values, dtype=f64)


def logistic(value: Any, temperature: float, logit: float) -> Any:
    """The cdf of a relaxed Bernoulli variable: its logit is logistic, around that of the probability."""
    return stats.logistic(logit / temperature, 1 / temperature).cdf(special.logit(value))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_relaxed_bernoulli(temperature: float) -> None:
    ours = d.RelaxedBernoulli(temperature, logits=weft.tensor(0.7, dtype=f64))
    x, h = np.array([0.05, 0.4, 0.9]), 1e-6
    slope = (logistic(x + h, temperature, 0.7) - logistic(x - h, temperature, 0.7)) / (2 * h)
    np.testing.assert_allclose(ours.prob(weft.tensor(x)).numpy(), slope, rtol=1e-7)
    weft.manual_seed(3)
    drawn = ours.sample((4000,)).numpy()
    assert stats.kstest(drawn, lambda v: logistic(v, temperature, 0.7)).pvalue > 1e-4


def relaxed_density(x: Any, temperature: float, logits: Any) -> Any:
    """Of Maddison et al., equation 10, as it stands there."""
    a, n = np.exp(logits), len(logits)
    powers = (a * x ** (-temperature - 1)).prod()
    return special.gamma(n) * temperature ** (n - 1) * powers / (a * x**-temperature).sum() ** n


def test_density_of_relaxed_classes() -> None:
    for temperature in (0.4, 1.5):
        ours = d.RelaxedOneHotCategorical(temperature, logits=weft.tensor(LOGITS))
        for x in ([0.2, 0.3, 0.5], [0.05, 0.9, 0.05]):
            expected = relaxed_density(np.array(x), temperature, LOGITS)
            np.testing.assert_allclose(ours.prob(t(*x)).item(), expected, rtol=1e-10)


def test_relaxed_classes_of_two_are_a_relaxed_bernoulli() -> None:
    two, one = d.RelaxedOneHotCategorical(0.7, logits=t(0.4, 0.0)), d.RelaxedBernoulli(0.7, logits=t(0.4))
    x = np.array([0.1, 0.5, 0.8])
    vectors = weft.tensor(np.stack([x, 1 - x], -1))
    np.testing.assert_allclose(two.log_prob(vectors).numpy(), one.log_prob(weft.tensor(x)).numpy())


def test_largest_part_of_relaxed_classes_has_the_probabilities() -> None:
    weft.manual_seed(2)
    ours = d.RelaxedOneHotCategorical(0.5, logits=weft.tensor(LOGITS))
    drawn = ours.sample((6000,)).numpy()
    np.testing.assert_allclose(drawn.sum(1), 1)
    shares = np.bincount(drawn.argmax(1), minlength=3) / 6000
    np.testing.assert_allclose(shares, special.softmax(LOGITS), atol=0.025)
    assert (ours.batch_shape, ours.event_shape) == ((), (3,))


@pytest.mark.parametrize("name", ["bernoulli", "classes"])
def test_gradients_of_relaxed_draws_are_those_of_the_draws(name: str) -> None:
    def total(temperature: Any, logits: Any) -> Any:
        weft.manual_seed(7)
        kind = d.RelaxedBernoulli if name == "bernoulli" else d.RelaxedOneHotCategorical
        return (kind(temperature, logits=logits).rsample((5,)) * weft.arange(3, dtype=f64)).sum()

    start = [weft.tensor(0.7, dtype=f64), weft.tensor(LOGITS)]
    found = weft.grad(total, argnums=(0, 1))(*start)
    h = 1e-6
    for i, gradient in enumerate(found):
        for place in np.ndindex(gradient.shape):
            off = np.zeros(gradient.shape)
            off[place] = h
            ends = [
                total(*[x + s * off if j == i else x for j, x in enumerate(start)]).item() for s in (1, -1)
            ]
            expected = (ends[0] - ends[1]) / (2 * h)
            np.testing.assert_allclose(gradient.numpy()[place], expected, rtol=1e-6, atol=1e-8)


WEIGHTS, MEANS, DEVIATIONS = np.array([0.2, 0.5, 0.3]), np.array([-2.0, 0.5, 3.0]), np.array([0.5, 1.0, 0.7])


def mixture() -> Any:
    return d.MixtureSameFamily(
        d.Categorical(weft.tensor(WEIGHTS)), d.Normal(weft.tensor(MEANS), weft.tensor(DEVIATIONS))
    )


def mixed(values: Any) -> Any:
    return (WEIGHTS * stats.norm(MEANS, DEVIATIONS).pdf(np.asarray(values)[..., None])).sum(-1)


def mixed_cdf(values: Any) -> Any:
    return (WEIGHTS * stats.norm(MEANS, DEVIATIONS).cdf(np.asarray(values)[..., None])).sum(-1)


def test_mixture_is_the_sum_of_its_parts() -> None:
    ours, x = mixture(), np.array([-3.0, 0.0, 2.5])
    np.testing.assert_allclose(ours.prob(weft.tensor(x)).numpy(), mixed(x))
    np.testing.assert_allclose(ours.cdf(weft.tensor(x)).numpy(), mixed_cdf(x))
    mean = integrate.quad(lambda v: v * mixed(v), -20, 20)[0]
    variance = integrate.quad(lambda v: (v - mean) ** 2 * mixed(v), -20, 20, limit=200)[0]
    np.testing.assert_allclose(ours.mean.item(), mean, rtol=1e-7)
    np.testing.assert_allclose(ours.variance.item(), variance, rtol=1e-7)
    weft.manual_seed(3)
    assert stats.kstest(ours.sample((4000,)).numpy(), mixed_cdf).pvalue > 1e-4


def test_mixture_of_vectors_and_batches() -> None:
    parts = d.Independent(d.Normal(weft.tensor(np.arange(24.0).reshape(4, 3, 2)), 1.0), 1)
    ours = d.MixtureSameFamily(d.Categorical(weft.tensor(WEIGHTS)), parts)
    assert (ours.batch_shape, ours.event_shape) == ((4,), (2,))
    assert ours.sample((5,)).shape == (5, 4, 2)
    assert ours.mean.shape == ours.variance.shape == (4, 2)
    x = np.linspace(-1.0, 4.0, 8).reshape(4, 2)
    logs = stats.norm(np.arange(24.0).reshape(4, 3, 2), 1.0).logpdf(x[:, None]).sum(-1)
    expected = special.logsumexp(logs + np.log(WEIGHTS), axis=-1)
    np.testing.assert_allclose(ours.log_prob(weft.tensor(x)).numpy(), expected)
    np.testing.assert_allclose(
        ours.mean.numpy(), (np.arange(24.0).reshape(4, 3, 2) * WEIGHTS[:, None]).sum(1)
    )


def test_parts_of_a_draw_of_vectors_come_from_one_component() -> None:
    ours = d.MixtureSameFamily(
        d.Categorical(t(0.5, 0.5)), d.Independent(d.Normal(weft.tensor([[0.0, 0.0], [100.0, 100.0]]), 1.0), 1)
    )
    weft.manual_seed(1)
    far = ours.sample((200,)).numpy() > 50
    assert (far[:, 0] == far[:, 1]).all()
    assert 60 < far[:, 0].sum() < 140


def test_draws_of_a_batch_of_mixtures_are_independent() -> None:
    parts = d.Normal(t(0.0, 100.0), 1.0)
    for weights in (weft.full((6, 2), 0.5, dtype=f64), weft.full((1, 2), 0.5, dtype=f64)):
        ours = d.MixtureSameFamily(d.Categorical(weights), parts)
        weft.manual_seed(1)
        drawn = ours.sample((500,)).numpy()
        assert drawn.shape == (500, len(weights))
        assert (abs((drawn > 50).mean(0) - 0.5) < 0.12).all()
        assert len(np.unique(drawn)) == drawn.size


def test_weights_of_a_mixture_have_gradients() -> None:
    logits = weft.tensor(LOGITS, requires_grad=True)
    parts = d.Normal(weft.tensor(MEANS), weft.tensor(DEVIATIONS))
    d.MixtureSameFamily(d.Categorical(logits=logits), parts).log_prob(t(0.3)).backward()
    joint = special.softmax(LOGITS) * stats.norm(MEANS, DEVIATIONS).pdf(0.3)
    np.testing.assert_allclose(logits.grad.numpy(), joint / joint.sum() - special.softmax(LOGITS))


def test_bessel_functions_are_scipys() -> None:
    k = np.concatenate([np.logspace(-8, 8, 200), [29.9, 30.0, 30.1]])
    zeroth, first = bessel(weft.tensor(k))
    np.testing.assert_allclose(zeroth.numpy(), special.i0e(k), rtol=3e-15)
    np.testing.assert_allclose(first.numpy(), special.i1e(k), rtol=3e-14)


@pytest.mark.parametrize("k", [1e-8, 0.1, 3.0, 50.0, 1e6])
def test_angles(k: float) -> None:
    ours, theirs = d.VonMises(0.0, weft.tensor(k, dtype=f64)), stats.vonmises(k)
    x = np.array([-2.0, 0.01, 1.0])
    np.testing.assert_allclose(ours.log_prob(weft.tensor(x)).numpy(), theirs.logpdf(x), rtol=1e-9)
    np.testing.assert_allclose(ours.variance.item(), 1 - special.i1e(k) / special.i0e(k), rtol=1e-8)
    weft.manual_seed(4)
    drawn = ours.sample((3000,)).numpy()
    assert (abs(drawn) <= np.pi).all()
    assert stats.kstest(drawn, theirs.cdf).pvalue > 1e-4


def test_angles_go_round() -> None:
    weft.manual_seed(4)
    drawn = d.VonMises(3.0, 4.0).sample((2000,)).numpy()
    assert (drawn < -2.0).any()
    np.testing.assert_allclose(np.angle(np.exp(1j * drawn).mean()), 3.0, atol=0.05)


def test_gradient_of_the_density_of_angles() -> None:
    k = weft.tensor([0.2, 4.0, 70.0], dtype=f64, requires_grad=True)
    d.VonMises(0.0, k).log_prob(t(0.4)).sum().backward()
    expected = np.cos(0.4) - special.i1e(k.detach().numpy()) / special.i0e(k.detach().numpy())
    np.testing.assert_allclose(k.grad.numpy(), expected, rtol=1e-10)


def test_compiled_densities_are_eager_ones() -> None:
    def logs(x: Any) -> Any:
        relaxed = d.RelaxedBernoulli(0.5, logits=x).log_prob(0.3)
        gamma = d.Gamma(x, 2.0).cdf(1.5) + d.InverseGamma(x, 2.0).log_prob(0.7)
        return (relaxed + gamma + d.VonMises(0.1, x).log_prob(0.3)).sum()

    x = weft.tensor([0.5, 1.5, 40.0])
    eager, compiled = weft.value_and_grad(logs)(x), weft.compile(weft.value_and_grad(logs))(x)
    for one, other in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-5, atol=1e-6)


def test_mistakes_are_told() -> None:
    with pytest.raises(DomainError, match="RelaxedBernoulli: temperature must be positive"):
        d.RelaxedBernoulli(0.0, 0.5)
    with pytest.raises(ArgumentError, match="RelaxedOneHotCategorical: takes probs or logits, got none"):
        d.RelaxedOneHotCategorical(1.0)
    with pytest.raises(ArgumentError, match="must be a Categorical, got Normal"):
        d.MixtureSameFamily(d.Normal(), d.Normal(t(0.0, 1.0)))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"there must be 2 components along the last axis.*got \(3,\)"):
        d.MixtureSameFamily(d.Categorical(t(0.5, 0.5)), d.Normal(t(0.0, 1.0, 2.0)))
    with pytest.raises(ShapeError, match=r"a batch of \(6,\) must have components of its own, got \(1,\)"):
        d.MixtureSameFamily(d.Categorical(weft.ones(6, 2)), d.Normal(weft.ones(1, 2)))
    relaxed = d.RelaxedOneHotCategorical(0.5, t(0.5, 0.5))
    with pytest.raises(ArgumentError, match="no closed form for RelaxedOneHotCategorical and Relaxed"):
        d.kl_divergence(relaxed, relaxed)
    with pytest.raises(DomainError, match="VonMises: concentration must be positive"):
        d.VonMises(0.0, -1.0)
