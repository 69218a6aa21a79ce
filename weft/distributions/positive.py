"""Distributions of positive numbers, and of parts of a whole, that come of the gamma function."""

from __future__ import annotations

from math import log, pi
from typing import Any, ClassVar

import weft
from weft import Tensor
from weft.distributions.base import (
    Distribution,
    Sizes,
    as_float,
    log_beta,
    normal,
    parameters,
    sum_last,
    uniform,
)
from weft.tensor.generator import next_key
from weft.tensor.moving import moved_like

_EULER = 0.57721566490153286


def _key(like: Tensor) -> Tensor:
    """The next key of the generator, where a parameter is."""
    return moved_like(next_key(), None, like)


class Gamma(Distribution):
    """The gamma distribution, with a concentration and a rate.

    >>> from weft.distributions import Gamma
    >>> Gamma(2.0, 1.0).log_prob(1.0)
    tensor(-1.)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, concentration: Any, rate: Any = 1.0) -> None:
        names = ("concentration", "rate")
        self.concentration, self.rate = parameters("Gamma", names, concentration=concentration, rate=rate)
        self.batch_shape = self.concentration.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        a = self.concentration
        return weft.random.gamma(_key(a), a, self._shape(sizes)) / self.rate

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        x, a = as_float(value), self.concentration
        return a * self.rate.log() + (a - 1) * x.log() - self.rate * x - a.lgamma()

    def entropy(self) -> Tensor:
        """The entropy."""
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return weft.special.gammainc(self.concentration, self.rate * as_float(value).clip(0.0))

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.concentration / self.rate

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.concentration / self.rate.square()


class Chi2(Gamma):
    """The chi-squared distribution, with degrees of freedom.

    >>> from weft.distributions import Chi2
    >>> Chi2(4.0).mean
    tensor(4.)
    """

    def __init__(self, df: Any) -> None:
        (self.df,) = parameters("Chi2", ("df",), df=df)
        super().__init__(0.5 * self.df, 0.5)


class InverseGamma(Distribution):
    """What is 1 over a gamma variable, with a concentration and a rate.

    >>> from weft.distributions import InverseGamma
    >>> InverseGamma(3.0, 4.0).mean
    tensor(2.)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, concentration: Any, rate: Any = 1.0) -> None:
        names = ("concentration", "rate")
        self.concentration, self.rate = parameters(
            "InverseGamma", names, concentration=concentration, rate=rate
        )
        self.batch_shape = self.concentration.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        a = self.concentration
        return self.rate * (-weft.random.loggamma(_key(a), a, self._shape(sizes))).exp()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        x, a = as_float(value), self.concentration
        return a * self.rate.log() - (a + 1) * x.log() - self.rate / x - a.lgamma()

    def entropy(self) -> Tensor:
        """The entropy."""
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        x = as_float(value)
        inside = x > 0
        found = weft.special.gammaincc(self.concentration, self.rate / weft.where(inside, x, 1.0))
        return weft.where(inside, found, 0.0)

    @property
    def mean(self) -> Tensor:
        """The mean, infinite where the concentration is at most 1."""
        a = self.concentration
        return weft.where(a > 1, self.rate / weft.where(a > 1, a - 1, 1.0), float("inf"))

    @property
    def variance(self) -> Tensor:
        """The variance, infinite where the concentration is at most 2."""
        a = self.concentration
        safe = weft.where(a > 2, a, 3.0)
        found = self.rate.square() / ((safe - 1).square() * (safe - 2))
        return weft.where(a > 2, found, float("inf"))


class Exponential(Distribution):
    """The exponential distribution, with a rate.

    >>> from weft.distributions import Exponential
    >>> Exponential(2.0).mean
    tensor(0.5000)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, rate: Any = 1.0) -> None:
        (self.rate,) = parameters("Exponential", ("rate",), rate=rate)
        self.batch_shape = self.rate.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        return -uniform(self._shape(sizes), self.rate).log() / self.rate

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        return self.rate.log() - self.rate * as_float(value)

    def entropy(self) -> Tensor:
        """The entropy."""
        return 1 - self.rate.log()

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return -weft.expm1(-self.rate * as_float(value))

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        return -weft.log1p(-as_float(value)) / self.rate

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return 1 / self.rate.square()


class Weibull(Distribution):
    """The Weibull distribution, with a scale and a concentration.

    >>> from weft.distributions import Weibull
    >>> Weibull(1.0, 1.0).mean
    tensor(1.)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, scale: Any, concentration: Any) -> None:
        names = ("scale", "concentration")
        self.scale, self.concentration = parameters(
            "Weibull", names, scale=scale, concentration=concentration
        )
        self.batch_shape = self.scale.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        u = uniform(self._shape(sizes), self.scale)
        return self.scale * (-(u.log())) ** (1 / self.concentration)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        z, k = as_float(value) / self.scale, self.concentration
        return (k / self.scale).log() + (k - 1) * z.log() - z**k

    def entropy(self) -> Tensor:
        """The entropy."""
        k = self.concentration
        return _EULER * (1 - 1 / k) + (self.scale / k).log() + 1

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return -weft.expm1(-((as_float(value) / self.scale) ** self.concentration))

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        return self.scale * (-weft.log1p(-as_float(value))) ** (1 / self.concentration)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.scale * (1 + 1 / self.concentration).lgamma().exp()

    @property
    def variance(self) -> Tensor:
        """The variance."""
        k = self.concentration
        return self.scale.square() * ((1 + 2 / k).lgamma().exp() - (2 * (1 + 1 / k).lgamma()).exp())


class Pareto(Distribution):
    """The Pareto distribution, with a scale, which is the least value, and an exponent.

    >>> from weft.distributions import Pareto
    >>> Pareto(1.0, 2.0).mean
    tensor(2.)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, scale: Any, alpha: Any) -> None:
        self.scale, self.alpha = parameters("Pareto", ("scale", "alpha"), scale=scale, alpha=alpha)
        self.batch_shape = self.scale.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        return self.scale * uniform(self._shape(sizes), self.scale) ** (-1 / self.alpha)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, -inf below the scale."""
        value = as_float(value)
        found = self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()
        return weft.where(value >= self.scale, found, -float("inf"))

    def entropy(self) -> Tensor:
        """The entropy."""
        return (self.scale / self.alpha).log() + 1 + 1 / self.alpha

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values, 0 below the scale."""
        value = as_float(value)
        inside = value >= self.scale
        logs = self.scale.log() - weft.where(inside, value, self.scale).log()
        return -weft.expm1(self.alpha * logs)

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        return self.scale * (-weft.log1p(-as_float(value)) / self.alpha).exp()

    @property
    def mean(self) -> Tensor:
        """The mean, infinite where the exponent is at most 1."""
        a = self.alpha
        return weft.where(a > 1, a * self.scale / weft.where(a > 1, a - 1, 1.0), float("inf"))

    @property
    def variance(self) -> Tensor:
        """The variance, infinite where the exponent is at most 2."""
        a = self.alpha
        safe = weft.where(a > 2, a, 3.0)
        found = self.scale.square() * safe / ((safe - 1).square() * (safe - 2))
        return weft.where(a > 2, found, float("inf"))


class StudentT(Distribution):
    """Student's t distribution, with degrees of freedom, a location and a scale.

    >>> from weft.distributions import StudentT
    >>> StudentT(1.0).log_prob(0.0)
    tensor(-1.1447)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> None:
        self.df, self.loc, self.scale = parameters("StudentT", ("df", "scale"), df=df, loc=loc, scale=scale)
        self.batch_shape = self.df.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        shape = self._shape(sizes)
        half = 0.5 * self.df
        logs = weft.random.loggamma(_key(half), half, shape)
        return self.loc + self.scale * normal(shape, self.df) * (0.5 * (half.log() - logs)).exp()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        z, df = (as_float(value) - self.loc) / self.scale, self.df
        norm = self.scale.log() + 0.5 * df.log() + 0.5 * log(pi) + (0.5 * df).lgamma()
        return (0.5 * (df + 1)).lgamma() - norm - 0.5 * (df + 1) * weft.log1p(z.square() / df)

    def entropy(self) -> Tensor:
        """The entropy."""
        df = self.df
        half = 0.5 * (df + 1)
        half_beta = 0.5 * df.log() + log_beta(0.5 * df, weft.full_like(df, 0.5))
        return self.scale.log() + half * (half.digamma() - (0.5 * df).digamma()) + half_beta

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        z = (as_float(value) - self.loc) / self.scale
        dtype, z, df = z.dtype, z.astype(weft.float64), self.df.astype(weft.float64)
        near = z.abs() < 1e-5  # where it is straight, and its slope no product of 0 and infinity
        squared = weft.where(near, 1.0, z).square() / df
        inner, half = squared < 1, weft.full_like(df, 0.5)
        tail = weft.where(
            inner,
            weft.special.betaincc(half, 0.5 * df, weft.where(inner, squared / (1 + squared), 0.5)),
            weft.special.betainc(0.5 * df, half, 1 / (1 + weft.where(inner, 1.0, squared))),
        )
        at_0 = StudentT(df).log_prob(0.0).exp()
        found = weft.where(z < 0, 0.5 * tail, 1 - 0.5 * tail)
        return weft.where(near, 0.5 + weft.where(near, z, 0.0) * at_0, found).astype(dtype)

    @property
    def mean(self) -> Tensor:
        """The location, NaN where there is no mean."""
        return weft.where(self.df > 1, self.loc, float("nan"))

    @property
    def variance(self) -> Tensor:
        """The variance, infinite or NaN where there is none."""
        df = self.df
        found = self.scale.square() * df / weft.where(df > 2, df - 2, 1.0)
        return weft.where(df > 2, found, weft.where(df > 1, float("inf"), float("nan")))


class Dirichlet(Distribution):
    """The Dirichlet distribution, of parts that sum to 1 along the last axis.

    >>> import weft
    >>> from weft.distributions import Dirichlet
    >>> Dirichlet(weft.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, concentration: Any) -> None:
        (self.concentration,) = parameters("Dirichlet", ("concentration",), concentration=concentration)
        self.batch_shape, self.event_shape = self.concentration.shape[:-1], self.concentration.shape[-1:]

    def _draw(self, sizes: Sizes) -> Tensor:
        a = self.concentration
        return weft.random.dirichlet(_key(a), a, self._shape(sizes)[:-1])

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        a = self.concentration
        powers = sum_last((a - 1) * as_float(value).log(), 1)
        return powers + sum_last(a, 1).lgamma() - sum_last(a.lgamma(), 1)

    def entropy(self) -> Tensor:
        """The entropy."""
        a, count = self.concentration, self.event_shape[0]
        total = sum_last(a, 1)
        found = sum_last(a.lgamma(), 1) - total.lgamma() + (total - count) * total.digamma()
        return found - sum_last((a - 1) * a.digamma(), 1)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.concentration / self.concentration.sum(axis=-1, keepdims=True)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        total, mean = self.concentration.sum(axis=-1, keepdims=True), self.mean
        return mean * (1 - mean) / (total + 1)


class Beta(Distribution):
    """The beta distribution on (0, 1).

    >>> from weft.distributions import Beta
    >>> Beta(1.0, 1.0).log_prob(0.3).abs() < 1e-6
    tensor(True)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, concentration1: Any, concentration0: Any) -> None:
        names = ("concentration1", "concentration0")
        self.concentration1, self.concentration0 = parameters(
            "Beta", names, concentration1=concentration1, concentration0=concentration0
        )
        self.batch_shape = self.concentration1.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return weft.random.beta(_key(a), a, b, self._shape(sizes))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        x, a, b = as_float(value), self.concentration1, self.concentration0
        return (a - 1) * x.log() + (b - 1) * weft.log1p(-x) - log_beta(a, b)

    def entropy(self) -> Tensor:
        """The entropy."""
        a, b = self.concentration1, self.concentration0
        slopes = (a - 1) * a.digamma() + (b - 1) * b.digamma() - (a + b - 2) * (a + b).digamma()
        return log_beta(a, b) - slopes

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return weft.special.betainc(self.concentration1, self.concentration0, as_float(value).clip(0.0, 1.0))

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        a, b = self.concentration1, self.concentration0
        return a * b / ((a + b).square() * (a + b + 1))
