"""Distributions to draw from and to ask for probabilities, with gradients.

>>> import weft
>>> from weft.distributions import Normal, kl_divergence
>>> mean = weft.tensor([0.0, 1.0], requires_grad=True)
>>> posterior, prior = Normal(mean, 1.0), Normal(0.0, 1.0)
>>> loss = kl_divergence(posterior, prior).sum()
>>> loss.backward()
>>> loss.item(), mean.grad
(0.5, tensor([0., 1.]))
"""

from typing import NoReturn as _NoReturn

from weft.base.public import name_constructor as _name_constructor
from weft.base.public import name_methods as _name_methods
from weft.distributions.base import Distribution
from weft.distributions.circular import VonMises
from weft.distributions.continuous import (
    Cauchy,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Uniform,
)
from weft.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    Poisson,
)
from weft.distributions.divergence import kl_divergence, register_kl
from weft.distributions.joint import Independent, MixtureSameFamily, MultivariateNormal
from weft.distributions.positive import (
    Beta,
    Chi2,
    Dirichlet,
    Exponential,
    Gamma,
    InverseGamma,
    Pareto,
    StudentT,
    Weibull,
)
from weft.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Laplace",
    "LogNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "Pareto",
    "Poisson",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "StudentT",
    "Uniform",
    "VonMises",
    "Weibull",
    "kl_divergence",
    "register_kl",
]

for _name in __all__:
    if isinstance(globals()[_name], type):
        _name_constructor(globals()[_name])
        _name_methods(globals()[_name])


def __getattr__(name: str) -> _NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)
