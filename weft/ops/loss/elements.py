"""Losses of regression and classification. Those on distances and margins are in ``margins``.

Every loss takes ``reduction``: "mean" over all elements, "sum", or "none" for the loss of each.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log as _log
from math import pi
from typing import Any

import numpy as np

from weft.base.dtypes import float32
from weft.errors import DomainError, ShapeError
from weft.ops.activation import soft_rectify
from weft.ops.arithmetic import maximum, minimum
from weft.ops.complex import absolute
from weft.ops.elementary import widened
from weft.ops.exponential import exp, log, log1p_code
from weft.ops.families import elementwise
from weft.ops.op import Array, Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.reduce import reduce_sum
from weft.ops.samples import large_half, real_array
from weft.ops.scalar import ScalarEmitter, Value
from weft.ops.select import same_dtype, select
from weft.ops.statistics import as_floating
from weft.ops.view.primitives import reshape


def total(x: Tensor) -> Tensor:
    """The sum of all elements."""
    return reduce_sum(x, axes=tuple(range(x.ndim)), keepdims=False)


def reduced(op: str, losses: Tensor, reduction: str) -> Tensor:
    """Losses of elements reduced as asked."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return total(losses)
    if reduction == "mean":
        return total(losses) / losses.size
    raise DomainError(op, f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def paired(op: str, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Input and target as floats of one dtype and shape; a target may be one number for all."""
    x, target = same_dtype(op, as_floating(x), target)
    if target.ndim and target.shape != x.shape:
        raise ShapeError(
            op,
            f"input and target must have one shape, got {type_of(x)} and {type_of(target)}",
            hint="reshape or broadcast one of them to say how they belong together",
        )
    return x, target


def _pairs(low: float = -2.0, high: float = 2.0, **attrs: object) -> Callable[..., Any]:
    """Samples of two arrays with each reduction."""

    def generate() -> list[Sample]:
        x, y = real_array((3, 4), low, high), real_array((3, 4), low, high, seed=1)
        cases = [Sample((x, y), {"reduction": r, **attrs}) for r in ("none", "mean", "sum")]
        return [*cases, Sample((x, y), attrs), Sample((x[:0], y[:0]), {"reduction": "sum", **attrs})]

    return generate


# Differences


def _large_pairs() -> list[Sample]:
    x = large_half(5000, "float16")
    return [*_pairs()(), Sample((x, x[::-1].copy()), smooth=False)]


@composite(samples=_large_pairs, precision="high", single=True)
@example("(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 4.0])) -> tensor(2.)")
def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The mean squared difference."""
    x, target = paired("mse_loss", x, target)
    gap = x - target
    return reduced("mse_loss", gap * gap, reduction)


@composite(samples=_pairs(), precision="high", single=True)
@example("(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 4.0])) -> tensor(1.)")
def l1_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The mean absolute difference."""
    x, target = paired("l1_loss", x, target)
    return reduced("l1_loss", absolute(x - target), reduction)


def _bent(gap: Tensor, bend: float) -> Tensor:
    """``gap**2 / 2`` up to the bend, and from there on a line with the slope ``bend``."""
    size = absolute(gap)
    inner = minimum(size, np.asarray(bend, size.dtype))
    return inner * (size - inner * 0.5)


@composite(samples=lambda: [*_pairs()(), *_pairs(delta=0.8)()], precision="high", single=True)
@example('(weft.tensor([0.0, 0.0]), weft.tensor([1.0, 4.0]), reduction="none") -> tensor([0.5000, 3.5000])')
def huber_loss(x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Half the squared difference up to ``delta``, from there on a line with the slope ``delta``."""
    if not delta > 0:
        raise DomainError("huber_loss", f"delta must be positive, got {delta}")
    x, target = paired("huber_loss", x, target)
    return reduced("huber_loss", _bent(x - target, delta), reduction)


@composite(
    samples=lambda: [*_pairs()(), *_pairs(beta=0.8)(), *_pairs(beta=0.0)()], precision="high", single=True
)
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """The absolute difference, rounded off below ``beta``: ``huber_loss / beta``.

    >>> import weft
    >>> weft.smooth_l1_loss(weft.tensor([0.0, 0.0]), weft.tensor([1.0, 4.0]), reduction="none", beta=2.0)
    tensor([0.2500, 3.0000])
    """
    if beta < 0:
        raise DomainError("smooth_l1_loss", f"beta must not be negative, got {beta}")
    x, target = paired("smooth_l1_loss", x, target)
    losses = absolute(x - target) if beta == 0 else _bent(x - target, beta) * (1 / beta)
    return reduced("smooth_l1_loss", losses, reduction)


# Probabilities

_LEAST_LOG = -100.0  # logarithms of 0 are cut here, so that a loss stays finite


def _binary_entropy(x: Array, y: Array) -> Array:
    if x.dtype.itemsize == 2:
        return _binary_entropy(x.astype(float32), y.astype(float32)).astype(x.dtype)
    positive = np.maximum(np.log(x), x.dtype.type(_LEAST_LOG))
    negative = np.maximum(np.log1p(-x), x.dtype.type(_LEAST_LOG))
    out: Array = (1 - y) * -negative - y * positive
    return out


def _binary_entropy_code(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    positive, negative = e.max(e.log(x), _LEAST_LOG), e.max(log1p_code(e, e.neg(x)), _LEAST_LOG)
    return e.sub(e.mul(e.sub(1, y), e.neg(negative)), e.mul(y, positive))


def _cut_log(x: Tensor) -> Tensor:
    return maximum(log(x), np.asarray(_LEAST_LOG, x.dtype))


binary_entropy = elementwise(
    "binary_cross_entropy",
    eval=_binary_entropy,
    partials=(
        lambda x, y: (x - y) / maximum(x * (1 - x), np.asarray(1e-12, x.dtype)),
        lambda x: _cut_log(1 - x) - _cut_log(x),
    ),
    accepts="f",
    samples=lambda: [
        Sample((real_array((3, 4), 0.1, 0.9), real_array((3, 4), 0.0, 1.0, seed=1))),
        Sample((np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0])), smooth=False),
        Sample((real_array((0, 3)), real_array((0, 3)))),
    ],
    scalar=widened(_binary_entropy_code),
)


def _probability_samples() -> list[Sample]:
    x, t = real_array((3, 4), 0.1, 0.9), real_array((3, 4), 0.0, 1.0, seed=1)
    w = real_array((4,), 0.5, 2.0, seed=2)
    return [*(Sample((x, t), {"reduction": r}) for r in ("none", "mean", "sum")), Sample((x, t, w))]


@composite("binary_cross_entropy_weighted", samples=_probability_samples, precision="high", single=True)
@example('(weft.tensor([0.5, 1.0]), weft.tensor([1.0, 1.0]), reduction="none") -> tensor([0.6931, 0.0000])')
def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The cross entropy of probabilities with targets in 0..1; logarithms are cut at -100."""
    x, target = paired("binary_cross_entropy", x, target)
    losses = binary_entropy(x, target)
    return reduced("binary_cross_entropy", losses if weight is None else losses * weight, reduction)


def _logit_samples() -> list[Sample]:
    x, t = real_array((3, 4)), real_array((3, 4), 0.0, 1.0, seed=1)
    w, p = real_array((4,), 0.5, 2.0, seed=2), real_array((4,), 0.5, 2.0, seed=3)
    return [
        *(Sample((x, t), {"reduction": r}) for r in ("none", "mean", "sum")),
        Sample((x, t, w, p)),
        Sample((x * 1000, t, w), smooth=False),
    ]


@composite(
    samples=_logit_samples,
    sampled=lambda x, t, w=None, p=None, *, reduction="mean": binary_cross_entropy_with_logits(  # type: ignore[has-type]
        x, t, w, reduction, p
    ),
    precision="high",
    single=True,
)
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """``binary_cross_entropy`` of ``sigmoid(x)``, without overflow; ``pos_weight`` scales the positive part.

    >>> import weft
    >>> weft.binary_cross_entropy_with_logits(weft.tensor([0.0, 1000.0]), weft.tensor([1.0, 1.0]))
    tensor(0.3466)
    """
    x, target = paired("binary_cross_entropy_with_logits", x, target)
    if pos_weight is None:
        losses = soft_rectify(x) - x * target
    else:
        losses = x * (1 - target) + ((pos_weight - 1) * target + 1) * soft_rectify(-x)
    losses = losses if weight is None else losses * weight
    return reduced("binary_cross_entropy_with_logits", losses, reduction)


@composite(
    samples=lambda: [
        *(Sample((real_array((3, 4)), real_array((3, 4), 0.1, 1.0, seed=1)), {"reduction": r})
          for r in ("none", "mean", "sum", "batchmean")),
        Sample((real_array((3, 4)), real_array((3, 4), seed=1)), {"log_target": True}),
        Sample((real_array((2,)), np.array([0.0, 1.0])), smooth=False),
    ],
    precision="high", single=True,
)  # fmt: skip
def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """The divergence ``target * (log(target) - x)`` of log-probabilities x from a target distribution.

    The divergence of distributions is the sum over classes: use ``reduction="batchmean"``.

    >>> import weft
    >>> weft.kl_div(weft.log(weft.tensor([[0.5, 0.5]])), weft.tensor([[1.0, 0.0]]), reduction="batchmean")
    tensor(0.6931)
    """
    x, target = paired("kl_div", x, target)
    if log_target:
        losses = exp(target) * (target - x)
    else:
        positive = target > 0
        safe = select(positive, target, np.ones((), target.dtype))
        losses = target * (log(safe) - x)
    if reduction == "batchmean":
        return total(losses) / (x.shape[0] if x.ndim else 1)
    return reduced("kl_div", losses, reduction)


_HALF_LOG_TAU = 0.5 * _log(2 * pi)


@composite(
    samples=lambda: [
        *_pairs(0.5, 2.0)(),
        *_pairs(0.5, 2.0, log_input=False)(),
        Sample((real_array((3, 4)), real_array((3, 4), 0.2, 3.0, seed=1)), {"full": True}),
    ],
    precision="high",
    single=True,
)
@example("(weft.tensor([0.0]), weft.tensor([2.0])) -> tensor(1.)")
def poisson_nll_loss(
    x: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of counts under a Poisson distribution whose (log) rate is x.

    With ``full`` the term that depends on the target alone is added, by Stirling's formula.
    """
    x, target = paired("poisson_nll_loss", x, target)
    losses = exp(x) - target * x if log_input else x - target * log(x + eps)
    if full:
        large = target > 1
        safe = select(large, target, np.ones((), target.dtype))
        term = safe * log(safe) - safe + log(safe) * 0.5 + _HALF_LOG_TAU
        losses = losses + select(large, term, np.zeros((), term.dtype))
    return reduced("poisson_nll_loss", losses, reduction)


@composite(
    samples=lambda: [
        Sample((real_array((3, 4)), real_array((3, 4), seed=1), real_array((3, 4), 0.5, 2.0, seed=2))),
        Sample(
            (real_array((3, 4)), real_array((3, 4), seed=1), real_array((3,), 0.5, 2.0, seed=2)),
            {"full": True},
        ),
    ],
    precision="high",
    single=True,
)
@example("(weft.zeros(2), weft.ones(2), weft.ones(2)) -> tensor(0.5000)")
def gaussian_nll_loss(
    x: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of targets under normal distributions with means x and variances.

    Variances below ``eps`` count as ``eps``; with ``full`` the constant term is added.
    """
    x, target = paired("gaussian_nll_loss", x, target)
    if not eps > 0:
        raise DomainError("gaussian_nll_loss", f"eps must be positive, got {eps}")
    if var.shape not in (x.shape, x.shape[:-1], (*x.shape[:-1], 1)):
        raise ShapeError("gaussian_nll_loss", f"var must fit {type_of(x)}, got {type_of(var)}")
    if var.ndim == x.ndim - 1:
        var = reshape(var, shape=(*var.shape, 1))
    spread = maximum(var, np.asarray(eps, var.dtype))
    gap = x - target
    losses = (log(spread) + gap * gap / spread) * 0.5
    return reduced("gaussian_nll_loss", losses + _HALF_LOG_TAU if full else losses, reduction)
