"""Distributions on the whole line, or on an interval of it, that are moved and scaled."""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any, ClassVar

import weft
from weft import Tensor
from weft.distributions.base import Distribution, Sizes, as_float, check, normal, parameters, uniform

_EULER = 0.57721566490153286
_LOG_ROOT = 0.5 * log(2 * pi)


def _lesser_side(p: Tensor) -> Tensor:
    """Of probabilities, those of the side that holds less."""
    return weft.where(p < 0.5, p, 1 - p)


class _Located(Distribution):
    """With a location and a scale."""

    has_rsample: ClassVar[bool] = True

    def __init__(self, loc: Any = 0.0, scale: Any = 1.0) -> None:
        self.loc, self.scale = parameters(type(self).__name__, ("scale",), loc=loc, scale=scale)
        self.batch_shape = self.loc.shape

    def _standard(self, value: Any) -> Tensor:
        return (as_float(value) - self.loc) / self.scale

    @property
    def mean(self) -> Tensor:
        """The location."""
        return self.loc


class Normal(_Located):
    """The normal distribution.

    >>> import weft
    >>> from weft.distributions import Normal
    >>> Normal(0.0, 2.0).log_prob(1.0)
    tensor(-1.7371)
    >>> loc = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> Normal(loc, 1.0).rsample((3,)).sum().backward()
    >>> loc.grad
    tensor([3., 3.])
    """

    def _draw(self, sizes: Sizes) -> Tensor:
        return self.loc + self.scale * normal(self._shape(sizes), self.loc)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        return -0.5 * self._standard(value).square() - self.scale.log() - _LOG_ROOT

    def entropy(self) -> Tensor:
        """The entropy."""
        return self.scale.log() + 0.5 + _LOG_ROOT

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return weft.special.ndtr(self._standard(value))

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        return self.loc + self.scale * weft.special.ndtri(as_float(value))

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale.square()


class Laplace(_Located):
    """The Laplace distribution.

    >>> from weft.distributions import Laplace
    >>> Laplace(0.0, 1.0).log_prob(2.0)
    tensor(-2.6931)
    """

    def _draw(self, sizes: Sizes) -> Tensor:
        u = uniform(self._shape(sizes), self.loc) - 0.5
        return self.loc - self.scale * u.sign() * weft.log1p(-2 * u.abs())

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        return -self._standard(value).abs() - (2 * self.scale).log()

    def entropy(self) -> Tensor:
        """The entropy."""
        return 1 + (2 * self.scale).log()

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        z = self._standard(value)
        return 0.5 - 0.5 * z.sign() * weft.expm1(-z.abs())

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        p = as_float(value)
        return self.loc - self.scale * (p - 0.5).sign() * (2 * _lesser_side(p)).log()

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return 2 * self.scale.square()


class Cauchy(_Located):
    """The Cauchy distribution, which has no mean.

    >>> from weft.distributions import Cauchy
    >>> Cauchy(0.0, 1.0).log_prob(0.0)
    tensor(-1.1447)
    """

    def _draw(self, sizes: Sizes) -> Tensor:
        return self.loc + self.scale * weft.tan(pi * (uniform(self._shape(sizes), self.loc) - 0.5))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        return -log(pi) - self.scale.log() - weft.log1p(self._standard(value).square())

    def entropy(self) -> Tensor:
        """The entropy."""
        return log(4 * pi) + self.scale.log()

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return weft.atan(self._standard(value)) / pi + 0.5

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        p = as_float(value)
        off = p - 0.5
        near = off.abs() < 0.25
        tail = weft.where(near, 0.25, _lesser_side(p))
        found = weft.where(near, (pi * weft.where(near, off, 0.0)).tan(), off.sign() / (pi * tail).tan())
        return self.loc + self.scale * found

    @property
    def mean(self) -> Tensor:
        """NaN: there is none."""
        return self.loc * float("nan")

    @property
    def variance(self) -> Tensor:
        """NaN: there is none."""
        return self.loc * float("nan")


class Gumbel(_Located):
    """The Gumbel distribution, of largest values.

    >>> from weft.distributions import Gumbel
    >>> Gumbel(0.0, 1.0).mean
    tensor(0.5772)
    """

    def _draw(self, sizes: Sizes) -> Tensor:
        return self.loc - self.scale * (-(uniform(self._shape(sizes), self.loc).log())).log()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        z = self._standard(value)
        return -z - (-z).exp() - self.scale.log()

    def entropy(self) -> Tensor:
        """The entropy."""
        return self.scale.log() + 1 + _EULER

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return (-(-self._standard(value)).exp()).exp()

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        return self.loc - self.scale * (-(as_float(value).log())).log()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.loc + self.scale * _EULER

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale.square() * (pi * pi / 6)


class LogNormal(_Located):
    """The distribution of what has a normal logarithm.

    >>> from weft.distributions import LogNormal
    >>> LogNormal(0.0, 1.0).log_prob(1.0)
    tensor(-0.9189)
    """

    def _draw(self, sizes: Sizes) -> Tensor:
        return (self.loc + self.scale * normal(self._shape(sizes), self.loc)).exp()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        logs = as_float(value).log()
        return Normal(self.loc, self.scale).log_prob(logs) - logs

    def entropy(self) -> Tensor:
        """The entropy."""
        return Normal(self.loc, self.scale).entropy() + self.loc

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return Normal(self.loc, self.scale).cdf(as_float(value).log())

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        return Normal(self.loc, self.scale).icdf(value).exp()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return (self.loc + 0.5 * self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        """The variance."""
        squared = self.scale.square()
        return weft.expm1(squared) * (2 * self.loc + squared).exp()


class Uniform(Distribution):
    """The uniform distribution on [low, high).

    >>> from weft.distributions import Uniform
    >>> Uniform(0.0, 4.0).log_prob(1.0)
    tensor(-1.3863)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, low: Any = 0.0, high: Any = 1.0) -> None:
        self.low, self.high = parameters("Uniform", low=low, high=high)
        check("Uniform", "high - low", "be positive", self.high - self.low, lambda t: t > 0)
        self.batch_shape = self.low.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        drawn = weft.rand(self._shape(sizes), dtype=self.low.dtype, device=self.low.device)
        return self.low + (self.high - self.low) * drawn

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, -inf outside."""
        value = as_float(value)
        inside = (value >= self.low) & (value < self.high)
        return weft.where(inside, -(self.high - self.low).log(), -float("inf"))

    def entropy(self) -> Tensor:
        """The entropy."""
        return (self.high - self.low).log()

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return ((as_float(value) - self.low) / (self.high - self.low)).clip(0.0, 1.0)

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        return self.low + (self.high - self.low) * as_float(value)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return 0.5 * (self.low + self.high)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return (self.high - self.low).square() / 12


class _Half(Distribution):
    """The absolute value of a distribution around 0."""

    has_rsample: ClassVar[bool] = True
    whole: type[_Located]

    def __init__(self, scale: Any = 1.0) -> None:
        (self.scale,) = parameters(type(self).__name__, ("scale",), scale=scale)
        self.batch_shape = self.scale.shape
        self._base = self.whole(0.0, self.scale)

    def _draw(self, sizes: Sizes) -> Tensor:
        return self._base._draw(sizes).abs()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, -inf below 0."""
        value = as_float(value)
        return weft.where(value >= 0, self._base.log_prob(value) + log(2), -float("inf"))

    def entropy(self) -> Tensor:
        """The entropy."""
        return self._base.entropy() - log(2)

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        return 2 * self._base.cdf(value) - 1


class HalfNormal(_Half):
    """The absolute value of a normal distribution around 0.

    >>> from weft.distributions import HalfNormal
    >>> HalfNormal(1.0).mean
    tensor(0.7979)
    """

    whole = Normal

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        return self.scale * sqrt(2) * weft.erfinv(as_float(value))

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.scale * sqrt(2 / pi)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale.square() * (1 - 2 / pi)


class HalfCauchy(_Half):
    """The absolute value of a Cauchy distribution around 0.

    >>> from weft.distributions import HalfCauchy
    >>> HalfCauchy(1.0).log_prob(0.0)
    tensor(-0.4516)
    """

    whole = Cauchy

    def icdf(self, value: Any) -> Tensor:
        """The quantiles."""
        p = as_float(value)
        near = p < 0.5
        beyond = 1 / (0.5 * pi * weft.where(near, 0.5, 1 - p)).tan()
        return self.scale * weft.where(near, (0.5 * pi * weft.where(near, p, 0.0)).tan(), beyond)

    @property
    def mean(self) -> Tensor:
        """Infinite."""
        return self.scale * float("inf")

    @property
    def variance(self) -> Tensor:
        """Infinite."""
        return self.scale * float("inf")
