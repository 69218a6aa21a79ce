"""Distributions of vectors, and several distributions taken as one."""

from __future__ import annotations

from math import log, pi
from typing import Any, ClassVar

import weft
from weft import Tensor
from weft.distributions.base import Distribution, Sizes, as_float, normal, sum_last
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
