"""How far distributions are from each other: Kullback-Leibler divergences in closed form, by two classes."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import Any

import weft
from weft import Tensor
from weft.base.public import public
from weft.distributions import circular, continuous, discrete, joint, positive
from weft.distributions.base import Distribution, check, log_beta, sum_last
from weft.errors import ArgumentError

Rule = Callable[[Any, Any], Tensor]
_EULER = 0.57721566490153286
RULES: dict[tuple[type, type], Rule] = {}


def register_kl(p: type, q: type) -> Callable[[Rule], Rule]:
    """Make a function the divergence of two classes of distributions.

    >>> from weft import distributions
    >>> class Mine(distributions.Normal): ...
    >>> @distributions.register_kl(Mine, Mine)
    ... def _(p, q):
    ...     return p.loc - q.loc
    >>> distributions.kl_divergence(Mine(3.0), Mine(1.0))
    tensor(2.)
    """

    def enter(rule: Rule) -> Rule:
        RULES[p, q] = rule
        return rule

    return enter


@public
def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence of q from p, of each pair of the batch.

    >>> from weft.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(1.0, 1.0), Normal(0.0, 1.0))
    tensor(0.5000)
    """
    for mine in type(p).__mro__:
        for theirs in type(q).__mro__:
            if (rule := RULES.get((mine, theirs))) is not None:
                return rule(p, q)
    raise ArgumentError(
        "kl_divergence",
        f"there is no closed form for {type(p).__name__} and {type(q).__name__}",
        hint="average p.log_prob(x) - q.log_prob(x) over x = p.sample((n,))",
    )


@register_kl(continuous.Normal, continuous.Normal)
@register_kl(continuous.LogNormal, continuous.LogNormal)
def _normal(p: continuous.Normal, q: continuous.Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(continuous.HalfNormal, continuous.HalfNormal)
def _half_normal(p: continuous.HalfNormal, q: continuous.HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio - 1 - ratio.log())


@register_kl(continuous.Laplace, continuous.Laplace)
def _laplace(p: continuous.Laplace, q: continuous.Laplace) -> Tensor:
    off = (p.loc - q.loc).abs()
    return (p.scale * (-off / p.scale).exp() + off) / q.scale + (q.scale / p.scale).log() - 1


@register_kl(continuous.Uniform, continuous.Uniform)
def _uniform(p: continuous.Uniform, q: continuous.Uniform) -> Tensor:
    inside = (p.low >= q.low) & (p.high <= q.high)
    return weft.where(inside, ((q.high - q.low) / (p.high - p.low)).log(), float("inf"))


@register_kl(continuous.Cauchy, continuous.Cauchy)
def _cauchy(p: continuous.Cauchy, q: continuous.Cauchy) -> Tensor:
    both = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return (both / (4 * p.scale * q.scale)).log()


@register_kl(continuous.Gumbel, continuous.Gumbel)
def _gumbel(p: continuous.Gumbel, q: continuous.Gumbel) -> Tensor:
    ratio, off = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return off - ratio.log() + _EULER * (ratio - 1) - 1 + ((1 + ratio).lgamma() - off).exp()


@register_kl(continuous.Uniform, continuous.Normal)
def _uniform_normal(p: continuous.Uniform, q: continuous.Normal) -> Tensor:
    width = p.high - p.low
    squares = width.square() / 12 + (p.mean - q.loc).square()
    return (q.scale / width).log() + 0.5 * log(2 * pi) + 0.5 * squares / q.scale.square()


@register_kl(circular.VonMises, circular.VonMises)
def _von_mises(p: circular.VonMises, q: circular.VonMises) -> Tensor:
    (own, first), (other, _) = circular.bessel(p.concentration), circular.bessel(q.concentration)
    k, scaled = p.concentration, q.concentration
    along = first / own * (k - scaled * weft.cos(p.loc - q.loc))
    return other.log() - own.log() + scaled - k + along


@register_kl(positive.Pareto, positive.Pareto)
def _pareto(p: positive.Pareto, q: positive.Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return weft.where(p.scale >= q.scale, found, float("inf"))


@register_kl(positive.Exponential, positive.Gamma)
@register_kl(positive.Gamma, positive.Exponential)
def _gammas(p: Any, q: Any) -> Tensor:
    return _gamma(*(x if isinstance(x, positive.Gamma) else positive.Gamma(1.0, x.rate) for x in (p, q)))


@register_kl(positive.Exponential, positive.Exponential)
def _exponential(p: positive.Exponential, q: positive.Exponential) -> Tensor:
    return q.rate / p.rate - 1 + (p.rate / q.rate).log()


@register_kl(positive.Gamma, positive.Gamma)
@register_kl(positive.InverseGamma, positive.InverseGamma)
def _gamma(p: positive.Gamma, q: positive.Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    shapes = (a - b) * a.digamma() - a.lgamma() + b.lgamma()
    return shapes + b * (p.rate / q.rate).log() + a * (q.rate / p.rate - 1)


@register_kl(positive.Beta, positive.Beta)
def _beta(p: positive.Beta, q: positive.Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    slopes = (a - c) * a.digamma() + (b - d) * b.digamma() + (c - a + d - b) * (a + b).digamma()
    return log_beta(c, d) - log_beta(a, b) + slopes


@register_kl(positive.Dirichlet, positive.Dirichlet)
def _dirichlet(p: positive.Dirichlet, q: positive.Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(axis=-1, keepdims=True)
    logs = sum_last(a, 1).lgamma() - sum_last(b, 1).lgamma() + sum_last(b.lgamma() - a.lgamma(), 1)
    return logs + sum_last((a - b) * (a.digamma() - total.digamma()), 1)


@register_kl(discrete.Bernoulli, discrete.Bernoulli)
def _bernoulli(p: discrete.Chance, q: discrete.Chance) -> Tensor:
    yes = p.probs * (weft.logsigmoid(p.logits) - weft.logsigmoid(q.logits))
    return yes + (1 - p.probs) * (weft.logsigmoid(-p.logits) - weft.logsigmoid(-q.logits))


@register_kl(discrete.Geometric, discrete.Geometric)
def _geometric(p: discrete.Geometric, q: discrete.Geometric) -> Tensor:
    return _bernoulli(p, q) / p.probs


@register_kl(discrete.Binomial, discrete.Binomial)
def _binomial(p: discrete.Binomial, q: discrete.Binomial) -> Tensor:
    if p.total_count != q.total_count:
        counts = f"{p.total_count} and {q.total_count}"
        raise ArgumentError("kl_divergence", f"total_count must be the same, got {counts}")
    return p.total_count * _bernoulli(p, q)


@register_kl(discrete.NegativeBinomial, discrete.NegativeBinomial)
def _negative_binomial(p: discrete.NegativeBinomial, q: discrete.NegativeBinomial) -> Tensor:
    check("kl_divergence", "total_count", "be the same", p.total_count, lambda n: n == q.total_count)
    failures = weft.logsigmoid(-p.logits) - weft.logsigmoid(-q.logits)
    return p.total_count * failures + p.mean * (weft.logsigmoid(p.logits) - weft.logsigmoid(q.logits))


@register_kl(discrete.Poisson, discrete.Poisson)
def _poisson(p: discrete.Poisson, q: discrete.Poisson) -> Tensor:
    return p.rate * (p.rate / q.rate).log() - p.rate + q.rate


@register_kl(discrete.Categorical, discrete.Categorical)
def _categorical(p: discrete.Categorical, q: discrete.Categorical) -> Tensor:
    return (p.probs * (p.logits - q.logits)).sum(axis=-1)


@register_kl(joint.MultivariateNormal, joint.MultivariateNormal)
def _multivariate(p: joint.MultivariateNormal, q: joint.MultivariateNormal) -> Tensor:
    solved = weft.linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    off = weft.linalg.solve_triangular(q.scale_tril, (q.loc - p.loc).unsqueeze(-1), upper=False)
    squares = solved.square().sum(axis=(-2, -1)) + off.square().sum(axis=(-2, -1))
    return 0.5 * (squares - p.event_shape[0]) + q._half_log_det() - p._half_log_det()


@register_kl(joint.Independent, joint.Independent)
def _independent(p: joint.Independent, q: joint.Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ArgumentError("kl_divergence", "as many axes must be parts of an event, got others")
    return sum_last(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
