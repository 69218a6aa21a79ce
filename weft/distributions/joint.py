"""Distributions of vectors, and several distributions taken as one."""

from __future__ import annotations

from math import log, pi
from typing import Any, ClassVar

import weft
from weft import Tensor
from weft.distributions.base import Distribution, Sizes, as_float, normal, sum_last
from weft.distributions.discrete import Categorical
from weft.errors import ArgumentError, ShapeError


class MultivariateNormal(Distribution):
    """Normal vectors, with a covariance or its Cholesky factor.

    >>> import weft
    >>> from weft.distributions import MultivariateNormal
    >>> MultivariateNormal(weft.zeros(2), weft.eye(2)).log_prob(weft.zeros(2))
    tensor(-1.8379)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
    ) -> None:
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ArgumentError(
                "MultivariateNormal",
                f"takes one of covariance_matrix, precision_matrix and scale_tril, got {len(given)}",
            )
        self.loc, matrix = as_float(loc), as_float(given[0])
        if matrix.ndim < 2 or matrix.shape[-2:] != (self.loc.shape[-1],) * 2:
            raise ShapeError(
                "MultivariateNormal",
                f"the matrix must be square, and as wide as loc, got {matrix.shape} and {self.loc.shape}",
            )
        if scale_tril is not None:
            self.scale_tril = matrix
        else:
            covariance = matrix if precision_matrix is None else weft.linalg.inv(matrix)
            self.scale_tril = weft.linalg.cholesky(covariance)
        self.batch_shape = weft.broadcast_shapes(self.loc.shape[:-1], matrix.shape[:-2])
        self.event_shape = self.loc.shape[-1:]

    def _draw(self, sizes: Sizes) -> Tensor:
        drawn = normal(self._shape(sizes), self.loc)
        return self.loc + (self.scale_tril @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        off = as_float(value) - self.loc
        shape = weft.broadcast_shapes(off.shape[:-1], self.scale_tril.shape[:-2])
        count = self.event_shape[0]
        factor = weft.broadcast_to(self.scale_tril, (*shape, count, count))
        off = weft.broadcast_to(off, (*shape, count))
        z = weft.linalg.solve_triangular(factor, off.unsqueeze(-1), upper=False).squeeze(-1)
        return -0.5 * (z.square().sum(axis=-1) + count * log(2 * pi)) - self._half_log_det()

    def _half_log_det(self) -> Tensor:
        return weft.linalg.diagonal(self.scale_tril).log().sum(axis=-1)

    def entropy(self) -> Tensor:
        """The entropy."""
        found = 0.5 * self.event_shape[0] * (1 + log(2 * pi)) + self._half_log_det()
        return weft.broadcast_to(found, self.batch_shape)

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return weft.broadcast_to(self.loc, (*self.batch_shape, *self.event_shape))

    @property
    def variance(self) -> Tensor:
        """The variance of each part."""
        found = self.scale_tril.square().sum(axis=-1)
        return weft.broadcast_to(found, (*self.batch_shape, *self.event_shape))


class Independent(Distribution):
    """A batch of distributions as one of vectors: their last axes are parts of an event.

    >>> import weft
    >>> from weft.distributions import Independent, Normal
    >>> both = Independent(Normal(weft.zeros(2), 1.0), 1)
    >>> both.batch_shape, both.event_shape, both.log_prob(weft.zeros(2))
    ((), (2,), tensor(-1.8379))
    """

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int) -> None:
        shape = base_distribution.batch_shape
        count = len(shape) - reinterpreted_batch_ndims
        if reinterpreted_batch_ndims < 0 or count < 0:
            raise ArgumentError(
                "Independent",
                f"there must be {reinterpreted_batch_ndims} axes of the batch, got {shape}",
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.batch_shape = base_distribution.batch_shape[:count]
        self.event_shape = (*base_distribution.batch_shape[count:], *base_distribution.event_shape)
        self.has_rsample = base_distribution.has_rsample  # type: ignore[misc]

    def _draw(self, sizes: Sizes) -> Tensor:
        return self.base_dist._draw(sizes)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density: the sum of those of the parts."""
        return sum_last(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        """The entropy: the sum of those of the parts."""
        return sum_last(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.base_dist.variance

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Distribution):
    """One of several distributions, which a ``Categorical`` chooses: the last axis of a batch.

    >>> import weft
    >>> from weft.distributions import Categorical, MixtureSameFamily, Normal
    >>> sides = Normal(weft.tensor([-1.0, 3.0]), 0.1)
    >>> MixtureSameFamily(Categorical(weft.tensor([0.5, 0.5])), sides).mean
    tensor(1.)
    """

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution) -> None:
        mixture, component = mixture_distribution, component_distribution
        if type(mixture) is not Categorical:
            raise ArgumentError(
                "MixtureSameFamily",
                f"mixture_distribution must be a Categorical, got {type(mixture).__name__}",
            )
        if not component.batch_shape or component.batch_shape[-1] != mixture.probs.shape[-1]:
            raise ShapeError(
                "MixtureSameFamily",
                f"there must be {mixture.probs.shape[-1]} components along the last axis of the batch, "
                f"got {component.batch_shape}",
            )
        self.mixture_distribution, self.component_distribution = mixture, component
        own = component.batch_shape[:-1]
        self.batch_shape = weft.broadcast_shapes(mixture.batch_shape, own)
        if own != self.batch_shape[len(self.batch_shape) - len(own) :]:
            raise ShapeError(
                "MixtureSameFamily",
                f"each of a batch of {self.batch_shape} must have components of its own, got {own}",
            )
        self.event_shape = component.event_shape

    def _at(self, count: int) -> int:
        """The axis of components in a tensor that ends in it and ``count`` axes of an event."""
        return -1 - count

    def _draw(self, sizes: Sizes) -> Tensor:
        count = len(self.event_shape)
        many = self.mixture_distribution.probs.shape[-1]
        logits = weft.broadcast_to(self.mixture_distribution.logits, (*self.batch_shape, many))
        chosen = Categorical(logits=logits)._draw(sizes)
        # where batches of weights are larger than those of components, each draws its own
        shape = (*sizes, *self.batch_shape, many, *self.event_shape)
        missing = shape[: len(shape) - len(self.component_distribution._shape(()))]
        all_of_them = self.component_distribution._draw(missing)
        index = chosen.reshape(*chosen.shape, 1, *[1] * count)
        index = weft.broadcast_to(index, (*chosen.shape, 1, *self.event_shape))
        axis = self._at(count)
        return weft.take_along_axis(weft.broadcast_to(all_of_them, shape), index, axis=axis).squeeze(axis)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability."""
        value = as_float(value).unsqueeze(self._at(len(self.event_shape)))
        logs = self.component_distribution.log_prob(value)
        return weft.logsumexp(logs + self.mixture_distribution.logits, axis=-1)

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        parts = self.component_distribution.cdf(as_float(value).unsqueeze(-1))
        return (parts * self.mixture_distribution.probs).sum(axis=-1)

    def _weighed(self, x: Tensor) -> Tensor:
        """The mean over components."""
        count = len(self.event_shape)
        weights = self.mixture_distribution.probs
        weights = weights.reshape(*weights.shape, *[1] * count)
        return (x * weights).sum(axis=self._at(count))

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self._weighed(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """The variance: that of the components, and that of their means."""
        off = self.component_distribution.mean - self.mean.unsqueeze(self._at(len(self.event_shape)))
        return self._weighed(self.component_distribution.variance + off.square())

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution!r}, {self.component_distribution!r})"
