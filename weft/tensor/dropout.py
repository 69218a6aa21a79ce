"""Random masks in training: dropout and its relatives, random slopes, and relaxed draws from categories.

Each draws from the global generator, or from a ``key`` if one is given.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from weft.base.public import public
from weft.base.shapes import Shape, normalize_axis
from weft.errors import DomainError, ShapeError
from weft.ops.activation import leaky_relu
from weft.ops.index_axis import one_hot
from weft.ops.op import Tensor, type_of
from weft.ops.reduce import argmax
from weft.ops.select import select, weight
from weft.ops.softmax import softmax
from weft.ops.statistics import as_floating
from weft.ops.view.primitives import permute
from weft.tensor import random
from weft.tensor.generator import next_key
from weft.tensor.moving import moved_like


def _check_probability(op: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise DomainError(op, f"p must be in 0..1, got {p}")


def _keep_mask(shape: Shape, p: float, key: Tensor | None, like: Any) -> Tensor:
    """1 with probability 1 - p, else 0, in a tensor's dtype."""
    own = moved_like(next_key(), None, like) if key is None else key
    return weight(random.bernoulli(own, 1 - p, shape), like)


def _dropped(op: str, x: Tensor, p: float, training: bool, key: Tensor | None, shape: Shape | None) -> Tensor:
    _check_probability(op, p)
    x = as_floating(x)
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0.0
    mask = _keep_mask(x.shape if shape is None else shape, p, key, x)
    return x * (mask * (1 / (1 - p)))


@public
def dropout(x: Tensor, p: float = 0.5, training: bool = True, *, key: Tensor | None = None) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p); x itself unless ``training``.

    >>> import weft
    >>> _ = weft.manual_seed(0)
    >>> kept = weft.dropout(weft.ones(1000), 0.25)
    >>> weft.unique_values(kept)
    tensor([0.0000, 1.3333])
    """
    return _dropped("dropout", x, p, training, key, None)


def _feature_dropout(op: str, rank: int, x: Tensor, p: float, training: bool, key: Tensor | None) -> Tensor:
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(op, f"the tensor must have {rank + 1} or {rank + 2} axes, got {type_of(x)}")
    return _dropped(op, x, p, training, key, (*x.shape[: x.ndim - rank], *(1,) * rank))


@public
def dropout1d(x: Tensor, p: float = 0.5, training: bool = True, *, key: Tensor | None = None) -> Tensor:
    """Zero whole channels of x (N, C, L) with probability p and scale the rest by 1 / (1 - p).

    >>> import weft
    >>> weft.dropout1d(weft.ones((2, 8, 5)), 0.5).sum(axis=-1).shape
    (2, 8)
    """
    return _feature_dropout("dropout1d", 1, x, p, training, key)


@public
def dropout2d(x: Tensor, p: float = 0.5, training: bool = True, *, key: Tensor | None = None) -> Tensor:
    """Zero whole channels of x (N, C, H, W) with probability p and scale the rest by 1 / (1 - p).

    >>> import weft
    >>> weft.dropout2d(weft.ones((2, 8, 5, 5)), 1.0).sum()
    tensor(0.)
    """
    return _feature_dropout("dropout2d", 2, x, p, training, key)


@public
def dropout3d(x: Tensor, p: float = 0.5, training: bool = True, *, key: Tensor | None = None) -> Tensor:
    """Zero whole channels of x (N, C, D, H, W) with probability p and scale the rest by 1 / (1 - p).

    >>> import weft
    >>> weft.dropout3d(weft.ones((2, 8, 3, 3, 3)), 0.5, training=False).sum()
    tensor(432.)
    """
    return _feature_dropout("dropout3d", 3, x, p, training, key)


_SATURATION = -1.7580993408473766  # what selu goes to at -inf: -scale * alpha


@public
def alpha_dropout(x: Tensor, p: float = 0.5, training: bool = True, *, key: Tensor | None = None) -> Tensor:
    """Dropout for networks of selu: dropped elements saturate, and mean and variance stay.

    >>> import weft
    >>> weft.alpha_dropout(weft.randn(100, 100), 0.1).shape
    (100, 100)
    """
    return _saturated("alpha_dropout", x, p, training, key, x.shape)


@public
def feature_alpha_dropout(
    x: Tensor, p: float = 0.5, training: bool = True, *, key: Tensor | None = None
) -> Tensor:
    """``alpha_dropout`` of whole channels of x (N, C, *S).

    >>> import weft
    >>> weft.feature_alpha_dropout(weft.randn(2, 8, 5), 0.1).shape
    (2, 8, 5)
    """
    if x.ndim < 2:
        raise ShapeError("feature_alpha_dropout", f"the tensor must have channels, got {type_of(x)}")
    shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
    return _saturated("feature_alpha_dropout", x, p, training, key, shape)


def _saturated(op: str, x: Tensor, p: float, training: bool, key: Tensor | None, shape: Shape) -> Tensor:
    _check_probability(op, p)
    x = as_floating(x)
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0.0
    mask = _keep_mask(shape, p, key, x)
    scale = 1 / sqrt((1 - p) * (1 + p * _SATURATION**2))
    shift = -scale * p * _SATURATION
    return x * (mask * scale) + ((1 - mask) * (_SATURATION * scale) + shift)


@public
def rrelu(
    x: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """x where it is above 0, else x times a slope: drawn for each element in training, else their mean.

    >>> import weft
    >>> weft.rrelu(weft.tensor([-1.0, 2.0]), 0.25, 0.75)
    tensor([-0.5000,  2.0000])
    """
    if not lower <= upper:
        raise DomainError("rrelu", f"lower must not be above upper, got {lower} and {upper}")
    if not training:
        return leaky_relu(x, (lower + upper) / 2)
    x = as_floating(x)
    slope = random.uniform(next_key() if key is None else key, x.shape, lower, upper, dtype=x.dtype)
    return select(x > 0, x, x * slope)


@public
def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, axis: int = -1, *, key: Tensor | None = None
) -> Tensor:
    """A relaxed draw of one category along an axis: the softmax of logits plus Gumbel noise, divided by tau.

    With ``hard`` the value is one-hot while the gradient stays that of the relaxed draw.

    >>> import weft
    >>> weft.gumbel_softmax(weft.zeros((2, 3)), hard=True).sum(axis=-1)
    tensor([1., 1.])
    """
    if not tau > 0:
        raise DomainError("gumbel_softmax", f"tau must be positive, got {tau}")
    where = normalize_axis("gumbel_softmax", axis, logits.ndim)
    noise = random.gumbel(next_key() if key is None else key, logits.shape, dtype=logits.dtype)
    soft = softmax((logits + noise) * (1 / tau), axis=where)
    if not hard:
        return soft
    chosen = one_hot(argmax(soft, axis=where), soft.shape[where], dtype=soft.dtype)
    order = (*range(where), soft.ndim - 1, *range(where, soft.ndim - 1))
    return permute(chosen, axes=order) + (soft - soft._value())
