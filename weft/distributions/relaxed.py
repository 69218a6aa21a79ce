"""Classes made smooth: draws that gradients flow through, near 0 and 1 where the temperature is low."""

from __future__ import annotations

from math import lgamma
from typing import Any, ClassVar

import weft
from weft import Tensor
from weft.distributions.base import Sizes, as_dtype, as_float, check, uniform
from weft.distributions.discrete import Chance, Classes


def _positive(name: str, temperature: Any, like: Tensor) -> Tensor:
    given = as_dtype(temperature, like.dtype)
    check(name, "temperature", "be positive", given, lambda t: t > 0)
    return given


class RelaxedBernoulli(Chance):
    """A number in 0..1 instead of a choice between both; C. Maddison et al., ICLR 2017.

    >>> import weft
    >>> from weft.distributions import RelaxedBernoulli
    >>> p = weft.tensor(0.3, requires_grad=True)
    >>> RelaxedBernoulli(0.5, p).rsample().backward()
    >>> p.grad.item() > 0.0
    True
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        self._set(probs, logits)
        self.temperature = _positive("RelaxedBernoulli", temperature, self.logits)
        self.batch_shape = weft.broadcast_shapes(self.batch_shape, self.temperature.shape)

    def _draw(self, sizes: Sizes) -> Tensor:
        u = uniform(self._shape(sizes), self.logits)
        return ((self.logits + u.log() - weft.log1p(-u)) / self.temperature).sigmoid()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        logs, rest = as_float(value).log(), weft.log1p(-as_float(value))
        off = self.logits - self.temperature * (logs - rest)
        heights = weft.logsigmoid(off) + weft.logsigmoid(-off)
        return self.temperature.log() + heights - logs - rest


class RelaxedOneHotCategorical(Classes):
    """Parts that sum to 1 instead of one class; C. Maddison et al., E. Jang et al., both ICLR 2017.

    >>> import weft
    >>> from weft.distributions import RelaxedOneHotCategorical
    >>> draw = RelaxedOneHotCategorical(0.5, weft.tensor([0.2, 0.8])).rsample()
    >>> weft.allclose(draw.sum(), weft.tensor(1.0))
    tensor(True)
    """

    has_rsample: ClassVar[bool] = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        self._set(probs, logits)
        self.temperature = _positive("RelaxedOneHotCategorical", temperature, self.logits)
        self.batch_shape = weft.broadcast_shapes(self.batch_shape, self.temperature.shape)
        self.event_shape = self.probs.shape[-1:]

    def _draw(self, sizes: Sizes) -> Tensor:
        noise = -(-uniform(self._shape(sizes), self.logits).log()).log()
        return weft.softmax((self.logits + noise) / self.temperature.unsqueeze(-1), axis=-1)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        logs, count = as_float(value).log(), self.event_shape[0]
        off = self.logits - self.temperature.unsqueeze(-1) * logs
        heights = off.sum(axis=-1) - count * weft.logsumexp(off, axis=-1) - logs.sum(axis=-1)
        return heights + lgamma(count) + (count - 1) * self.temperature.log()
