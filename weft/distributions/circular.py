"""The von Mises distribution, of angles, and the Bessel functions that it needs."""

from __future__ import annotations

from math import log, pi
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.distributions.base import Distribution, Sizes, as_float, parameters, uniform

# The Bessel functions are means over a circle, which equally spaced points give to the last digit as long as
# the concentration is moderate; beyond, by the first terms of their expansion (DLMF 10.32.1, 10.40.1).
_POINTS = 32  # of half a circle
_COSINES = np.cos(np.arange(_POINTS + 1) * (pi / _POINTS))
_SHARES = np.concatenate([[0.5], np.ones(_POINTS - 1), [0.5]]) / _POINTS
_LARGE = 30.0
_TERMS = 16
_FLAT = 1e-5  # below which the form of rho would cancel
_TRIES = 32  # each is taken with a probability of at least 0.65; where none is, the first stands


def bessel(k: Tensor) -> tuple[Tensor, Tensor]:
    """The Bessel functions I0 and I1 of positive numbers, both times exp(-k)."""
    dtype, k = k.dtype, k.astype(weft.float64)
    large = k > _LARGE
    some = weft.where(large, 1.0, k).unsqueeze(-1)
    heights = (some * weft.asarray(_COSINES - 1.0)).exp() * weft.asarray(_SHARES)
    # the cosines themselves add up to 0, which would hide what small numbers add
    apart = weft.expm1(some * weft.asarray(_COSINES)) * weft.asarray(_COSINES * _SHARES)
    near = heights.sum(axis=-1), apart.sum(axis=-1) * (-some.squeeze(-1)).exp()
    much = weft.where(large, k, _LARGE)
    return tuple(  # type: ignore[return-value]
        weft.where(large, _expansion(much, order), few).astype(dtype) for order, few in enumerate(near)
    )


def _expansion(k: Tensor, order: int) -> Tensor:
    total: Any = 1.0
    for n in range(_TERMS, 0, -1):
        total = 1.0 - total * (4 * order * order - (2 * n - 1) ** 2) / (8.0 * n) / k
    out: Tensor = total / (2 * pi * k).sqrt()
    return out


class VonMises(Distribution):
    """The von Mises distribution, of angles around a direction; draws are in -pi..pi.

    >>> from weft.distributions import VonMises
    >>> VonMises(0.0, 2.0).log_prob(0.0)
    tensor(-0.6619)
    """

    def __init__(self, loc: Any, concentration: Any) -> None:
        self.loc, self.concentration = parameters(
            "VonMises", ("concentration",), loc=loc, concentration=concentration
        )
        self.batch_shape = self.loc.shape

    def _draw(self, sizes: Sizes) -> Tensor:
        """After D. Best, N. Fisher, Applied Statistics 28(2), 1979, in float64."""
        k = self.concentration.astype(weft.float64)
        tau = 1.0 + weft.sqrt(1.0 + 4.0 * k * k)
        flat = k < _FLAT
        rho = weft.where(flat, 0.5 * k, (tau - weft.sqrt(2.0 * tau)) / (2.0 * k))
        beyond = (1.0 - rho).square() / (2.0 * rho)  # what they call r, less 1
        shape = (_TRIES, *self._shape(sizes))
        u, v, side = (uniform(shape, k) for _ in range(3))
        z = weft.cos(pi * u)
        short = beyond * (1.0 - z) / (1.0 + beyond + z)  # 1 less the cosine of the angle
        c = k * (beyond + short)
        taken = (c * (2.0 - c) > v) | ((c / v).log() + 1.0 >= c)
        first = taken.astype(weft.int8).argmax(axis=0, keepdims=True)
        angles = 2.0 * weft.asin((0.5 * short).clip(0.0, 1.0).sqrt())
        angle = weft.take_along_axis(angles * weft.sign(side - 0.5), first, axis=0).squeeze(0)
        turned = angle + self.loc
        return (weft.remainder(turned + pi, 2 * pi) - pi).astype(self.loc.dtype)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        k = self.concentration
        off = weft.cos(as_float(value) - self.loc) - 1.0
        return k * off - log(2 * pi) - bessel(k)[0].log()

    def entropy(self) -> Tensor:
        """The entropy."""
        zeroth, first = bessel(self.concentration)
        return log(2 * pi) + zeroth.log() + self.concentration * (1.0 - first / zeroth)

    @property
    def mean(self) -> Tensor:
        """The direction."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance: 1 less the length of the mean of unit vectors."""
        zeroth, first = bessel(self.concentration)
        return 1.0 - first / zeroth
