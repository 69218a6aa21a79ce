"""Distributions of counts and of classes. Probabilities are given as such, or as logits."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.distributions.base import Distribution, Sizes, as_dtype, as_float, check, parameters, uniform
from weft.distributions.positive import Gamma
from weft.errors import ArgumentError


def _one(name: str, probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ArgumentError(name, f"takes probs or logits, got {'none' if probs is None else 'both'}")


class Chance(Distribution):
    """With the probability of a success."""

    probs: Tensor
    logits: Tensor

    def _set(self, probs: Any, logits: Any) -> None:
        name = type(self).__name__
        _one(name, probs, logits)
        if logits is None:
            (self.probs,) = parameters(name, probs=probs)
            check(name, "probs", "be in 0..1", self.probs, lambda p: (p >= 0) & (p <= 1))
            tiny = float(weft.finfo(self.probs.dtype).eps)
            safe = self.probs.clip(tiny, 1 - tiny)
            self.logits = safe.log() - weft.log1p(-safe)
        else:
            (self.logits,) = parameters(name, logits=logits)
            self.probs = self.logits.sigmoid()
        self.batch_shape = self.probs.shape

    def _at_most(self, count: Tensor, failures: Any) -> Tensor:
        """The probability of no more than so many successes before so many failures."""
        p, few = self.probs, self.probs <= 0.5  # the lesser of p and 1 - p has all its digits
        q = weft.where(few, 0.5, (-self.logits).sigmoid())
        failures = as_dtype(failures, p.dtype)
        from_p = weft.special.betaincc(count + 1, failures, weft.where(few, p, 0.5))
        return weft.where(few, from_p, weft.special.betainc(failures, count + 1, q))


class Bernoulli(Chance):
    """1 with a probability, else 0.

    >>> from weft.distributions import Bernoulli
    >>> Bernoulli(0.25).log_prob(1.0)
    tensor(-1.3863)
    """

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        self._set(probs, logits)

    def _draw(self, sizes: Sizes) -> Tensor:
        drawn = weft.rand(self._shape(sizes), dtype=self.probs.dtype, device=self.probs.device)
        return (drawn < self.probs).astype(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability."""
        x = as_float(value)
        return x * weft.logsigmoid(self.logits) + (1 - x) * weft.logsigmoid(-self.logits)

    def entropy(self) -> Tensor:
        """The entropy."""
        p = self.probs
        return -(p * weft.logsigmoid(self.logits) + (1 - p) * weft.logsigmoid(-self.logits))

    @property
    def mean(self) -> Tensor:
        """The probability."""
        return self.probs

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.probs * (1 - self.probs)


class Geometric(Chance):
    """The number of failures before the first success.

    >>> from weft.distributions import Geometric
    >>> Geometric(0.5).log_prob(2.0)
    tensor(-2.0794)
    """

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        self._set(probs, logits)

    def _draw(self, sizes: Sizes) -> Tensor:
        return (uniform(self._shape(sizes), self.probs).log() / weft.logsigmoid(-self.logits)).floor()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability."""
        return as_float(value) * weft.logsigmoid(-self.logits) + weft.logsigmoid(self.logits)

    def entropy(self) -> Tensor:
        """The entropy."""
        return Bernoulli(logits=self.logits).entropy() / self.probs

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        count = as_float(value).floor()
        return -weft.expm1((count + 1).clip(0.0) * weft.logsigmoid(-self.logits))

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return 1 / self.probs - 1

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return (1 / self.probs - 1) / self.probs


class Binomial(Chance):
    """The number of successes among ``total_count`` tries.

    >>> from weft.distributions import Binomial
    >>> Binomial(4, 0.5).log_prob(2.0).exp()
    tensor(0.3750)
    """

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None) -> None:
        if not isinstance(total_count, int) or total_count < 0:
            raise ArgumentError("Binomial", f"total_count must be a number of tries, got {total_count!r}")
        self._set(probs, logits)
        self.total_count = total_count

    def _draw(self, sizes: Sizes) -> Tensor:
        return Bernoulli(self.probs)._draw((self.total_count, *sizes)).sum(axis=0)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability."""
        k, n = as_float(value), float(self.total_count)
        ways = weft.lgamma(weft.full_like(k, n + 1)) - (k + 1).lgamma() - (n - k + 1).lgamma()
        return ways + k * weft.logsigmoid(self.logits) + (n - k) * weft.logsigmoid(-self.logits)

    def entropy(self) -> Tensor:
        """The entropy, summed over all counts."""
        k = weft.arange(self.total_count + 1, dtype=self.probs.dtype)
        logs = self.log_prob(k.reshape(-1, *[1] * len(self.batch_shape)))
        return -(logs.exp() * logs).sum(axis=0)

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        count = as_float(value).floor()
        inside = (count >= 0) & (count < self.total_count)
        some = weft.where(inside, count, 0.0)
        found = self._at_most(some, max(self.total_count, 1) - some)
        return weft.where(inside, found, weft.where(count >= self.total_count, 1.0, count.clip(0.0, 0.0)))

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.total_count * self.probs * (1 - self.probs)


class NegativeBinomial(Chance):
    """The number of successes before ``total_count`` failures, with the probability of a success.

    >>> from weft.distributions import NegativeBinomial
    >>> NegativeBinomial(1, 0.5).log_prob(2.0).exp()
    tensor(0.1250)
    """

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None) -> None:
        self._set(probs, logits)
        given = as_dtype(total_count, self.probs.dtype)
        check("NegativeBinomial", "total_count", "be positive", given, lambda n: n > 0)
        self.total_count, self.probs, self.logits = weft.broadcast_arrays(given, self.probs, self.logits)
        self.batch_shape = self.probs.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        """Counts at rates that are gamma draws themselves."""
        return Poisson(Gamma(self.total_count, (-self.logits).exp())._draw(sizes))._draw(())

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability."""
        k, n = as_float(value), self.total_count
        ways = (n + k).lgamma() - (k + 1).lgamma() - n.lgamma()
        return ways + n * weft.logsigmoid(-self.logits) + k * weft.logsigmoid(self.logits)

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        count = as_float(value).floor()
        return weft.where(count >= 0, self._at_most(count.clip(0.0), self.total_count), 0.0)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.total_count * self.logits.exp()

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.mean * (1 + self.logits.exp())


class Poisson(Distribution):
    """Counts of what happens at a rate.

    >>> from weft.distributions import Poisson
    >>> Poisson(2.0).log_prob(0.0)
    tensor(-2.)
    """

    def __init__(self, rate: Any) -> None:
        (self.rate,) = parameters("Poisson", ("rate",), rate=rate)
        self.batch_shape = self.rate.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        """How many waiting times fit into 1; as many are drawn as the largest rate could need."""
        most = float(self.rate.max())
        tries = int(most + 12 * most**0.5 + 24)
        waits = -uniform((tries, *self._shape(sizes)), self.rate).log()
        return (waits.cumsum(0) < self.rate).astype(self.rate.dtype).sum(axis=0)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability."""
        x = as_float(value)
        return x * self.rate.log() - self.rate - (x + 1).lgamma()

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        count = as_float(value).floor()
        found = weft.special.gammaincc((count + 1).clip(1.0), self.rate)
        return weft.where(count >= 0, found, 0.0)

    @property
    def mean(self) -> Tensor:
        """The rate."""
        return self.rate

    @property
    def variance(self) -> Tensor:
        """The rate."""
        return self.rate


class Classes(Distribution):
    """With a probability for each class along the last axis."""

    probs: Tensor
    logits: Tensor

    def _set(self, probs: Any, logits: Any) -> None:
        name = type(self).__name__
        _one(name, probs, logits)
        if logits is None:
            given = as_float(probs)
            check(name, "probs", "not be negative", given, lambda p: p >= 0)
            self.probs = given / given.sum(axis=-1, keepdims=True)
            self.logits = self.probs.clip(float(weft.finfo(self.probs.dtype).smallest_normal)).log()
        else:
            self.logits = weft.log_softmax(as_float(logits), axis=-1)
            self.probs = self.logits.exp()
        self.batch_shape = self.probs.shape[:-1]


class Categorical(Classes):
    """A class, with a probability for each along the last axis, or with logits.

    >>> import weft
    >>> from weft.distributions import Categorical
    >>> choice = Categorical(weft.tensor([1.0, 3.0]))
    >>> choice.probs, choice.log_prob(weft.tensor(1)).exp()
    (tensor([0.2500, 0.7500]), tensor(0.7500))
    """

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        self._set(probs, logits)

    def _draw(self, sizes: Sizes) -> Tensor:
        noise = uniform((*sizes, *self.logits.shape), self.logits)
        return (self.logits - (-(noise.log())).log()).argmax(axis=-1)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of classes."""
        value = value if isinstance(value, Tensor) else weft.asarray(value)
        value = value.astype(weft.int64)
        shape = weft.broadcast_shapes(value.shape, self.batch_shape)
        logits = weft.broadcast_to(self.logits, (*shape, self.logits.shape[-1]))
        index = weft.broadcast_to(value, shape).unsqueeze(-1)
        return weft.take_along_axis(logits, index, axis=-1).squeeze(-1)

    def entropy(self) -> Tensor:
        """The entropy."""
        return -(self.probs * self.logits).sum(axis=-1)


class OneHotCategorical(Categorical):
    """A class as a vector that is 1 at it and 0 elsewhere.

    >>> import weft
    >>> from weft.distributions import OneHotCategorical
    >>> OneHotCategorical(weft.tensor([0.0, 1.0])).sample()
    tensor([0., 1.])
    """

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        super().__init__(probs, logits)
        self.event_shape = self.probs.shape[-1:]

    def _draw(self, sizes: Sizes) -> Tensor:
        return weft.one_hot(super()._draw(sizes), self.event_shape[0], dtype=self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of vectors."""
        return (as_float(value) * self.logits).sum(axis=-1)

    @property
    def mean(self) -> Tensor:
        """The probabilities."""
        return self.probs

    @property
    def variance(self) -> Tensor:
        """The variance of each part."""
        return self.probs * (1 - self.probs)


class Multinomial(Distribution):
    """How often each class came in ``total_count`` draws.

    >>> import weft
    >>> from weft.distributions import Multinomial
    >>> Multinomial(3, weft.tensor([0.5, 0.5])).log_prob(weft.tensor([1.0, 2.0])).exp()
    tensor(0.3750)
    """

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None) -> None:
        if not isinstance(total_count, int) or total_count < 0:
            raise ArgumentError("Multinomial", f"total_count must be a number of draws, got {total_count!r}")
        self.total_count = total_count
        self._base = OneHotCategorical(probs, logits)
        self.probs, self.logits = self._base.probs, self._base.logits
        self.batch_shape, self.event_shape = self._base.batch_shape, self._base.event_shape

    def _draw(self, sizes: Sizes) -> Tensor:
        return self._base._draw((self.total_count, *sizes)).sum(axis=0)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of counts."""
        x = as_float(value)
        ways = (x.sum(axis=-1) + 1).lgamma() - (x + 1).lgamma().sum(axis=-1)
        return ways + (x * self.logits).sum(axis=-1)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        """The variance of each count."""
        return self.total_count * self.probs * (1 - self.probs)
