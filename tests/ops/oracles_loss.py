"""Oracles of losses and distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from tests.ops.plain import enter_into

Array = Any
ORACLES: dict[str, Callable[..., Any]] = {}
oracle = enter_into(ORACLES)

# Losses


@oracle
def take_class(x: Array, target: Array, *, axis: int, ignore: int) -> Array:
    out = np.zeros(target.shape, x.dtype)
    for at in np.ndindex(target.shape):
        if target[at] != ignore:
            out[at] = x[(*at[:axis], target[at], *at[axis:])]
    return out


ORACLES["pick_class"] = take_class


@oracle
def put_class(x: Array, target: Array, *, classes: int, axis: int, ignore: int) -> Array:
    out = np.zeros((*x.shape[:axis], classes, *x.shape[axis:]), x.dtype)
    for at in np.ndindex(target.shape):
        if target[at] != ignore:
            out[(*at[:axis], target[at], *at[axis:])] = x[at]
    return out


def _reduce(losses: Array, reduction: str) -> Array:
    return {"none": losses, "mean": losses.sum() / max(1, losses.size), "sum": losses.sum()}[reduction]


def _elementwise_loss(formula: Callable[..., Array]) -> Callable[..., Array]:
    def function(x: Array, t: Array, *more: Array, reduction: str = "mean", **attrs: Any) -> Array:
        return _reduce(formula(x, t, *more, **attrs), reduction)

    return function


def _smooth_l1(x: Array, t: Array, beta: float = 1.0) -> Array:
    gap = np.abs(x - t)
    return np.where(gap < beta, 0.5 * gap**2 / (beta or 1.0), gap - 0.5 * beta)


def _bce(x: Array, t: Array, w: Any = 1.0) -> Array:
    return -w * (t * np.maximum(np.log(x), -100) + (1 - t) * np.maximum(np.log(1 - x), -100))


def _bce_logits(x: Array, t: Array, w: Any = 1.0, p: Any = 1.0) -> Array:
    return -w * (p * t * scipy.special.log_expit(x) + (1 - t) * scipy.special.log_expit(-x))


def _poisson(x: Array, t: Array, log_input: bool = True, full: bool = False) -> Array:
    out = np.exp(x) - t * x if log_input else x - t * np.log(x + 1e-8)
    stirling = t * np.log(t) - t + 0.5 * np.log(2 * np.pi * t) if full else 0.0
    return out + np.where(t > 1, stirling, 0.0) if full else out


def _gaussian(x: Array, t: Array, v: Array, full: bool = False) -> Array:
    v = v if v.ndim == x.ndim else v[..., None]
    return 0.5 * (np.log(v) + (x - t) ** 2 / v) + (0.5 * np.log(2 * np.pi) if full else 0.0)


def _cosine(x: Array, y: Array, axis: int = 1) -> Array:
    x, y = np.broadcast_arrays(x, y)
    lengths = [np.maximum(np.linalg.norm(v, axis=axis), 1e-8) for v in (x, y)]
    return (x * y).sum(axis=axis) / (lengths[0] * lengths[1])


def _distance(x: Array, y: Array, p: float = 2.0, keepdims: bool = False) -> Array:
    return np.linalg.norm(x - y + 1e-6, ord=p, axis=-1, keepdims=keepdims)


def _triplet(
    anchor: Array, near: Array, far: Array, /, margin: float = 1.0, p: float = 2.0, swap: bool = False
) -> Array:
    distance = _distance(anchor, far, p)
    if swap:
        distance = np.minimum(distance, _distance(near, far, p))
    return np.maximum(_distance(anchor, near, p) - distance + margin, 0)


ORACLES.update(
    mse_loss=_elementwise_loss(lambda x, t: (x - t) ** 2),
    l1_loss=_elementwise_loss(lambda x, t: np.abs(x - t)),
    huber_loss=_elementwise_loss(lambda x, t, delta=1.0: scipy.special.huber(delta, x - t)),
    smooth_l1_loss=_elementwise_loss(_smooth_l1),
    binary_cross_entropy=_bce,
    binary_cross_entropy_weighted=_elementwise_loss(_bce),
    binary_cross_entropy_with_logits=_elementwise_loss(_bce_logits),
    poisson_nll_loss=_elementwise_loss(_poisson),
    gaussian_nll_loss=_elementwise_loss(_gaussian),
    cosine_similarity=_cosine,
    pairwise_distance=_distance,
    cdist=lambda x, y, p=2.0: np.linalg.norm(x[..., :, None, :] - y[..., None, :, :], ord=p, axis=-1),
    cosine_embedding_loss=_elementwise_loss(
        lambda x, y, t, margin=0.0: np.where(t == 1, 1 - _cosine(x, y), np.maximum(_cosine(x, y) - margin, 0))
    ),
    margin_ranking_loss=_elementwise_loss(lambda x, y, t, margin=0.0: np.maximum(-t * (x - y) + margin, 0)),
    triplet_margin_loss=_elementwise_loss(_triplet),
    hinge_embedding_loss=_elementwise_loss(
        lambda x, t, margin=1.0: np.where(t == 1, x, np.maximum(margin - x, 0))
    ),
    soft_margin_loss=_elementwise_loss(lambda x, t: np.logaddexp(0, -t * x)),
    multilabel_soft_margin_loss=_elementwise_loss(lambda x, t, w=1.0: _bce_logits(x, t, w).mean(axis=-1)),
)


@oracle
def kl_div(x: Array, t: Array, *, reduction: str = "mean", log_target: bool = False) -> Array:
    losses = np.exp(t) * (t - x) if log_target else scipy.special.xlogy(t, t) - t * x
    return losses.sum() / x.shape[0] if reduction == "batchmean" else _reduce(losses, reduction)


@oracle
def multi_margin_loss(x: Array, t: Array, w: Any = None, *, p: int = 1, margin: float = 1.0) -> Array:
    out = 0.0
    for row, c in zip(x, t, strict=True):
        terms = [max(0.0, margin - row[c] + v) ** p for i, v in enumerate(row) if i != c]
        out += sum(terms) / x.shape[1] * (1.0 if w is None else w[c])
    return np.asarray(out / len(x))


@oracle
def multilabel_margin_loss(x: Array, target: Array, *, reduction: str = "mean") -> Array:
    losses = []
    for row, classes in zip(np.atleast_2d(x), np.atleast_2d(target), strict=True):
        wanted = list(classes[: np.argmax(classes < 0)] if (classes < 0).any() else classes)
        others = [c for c in range(len(row)) if c not in wanted]
        losses.append(sum(max(0.0, 1 - row[j] + row[i]) for j in wanted for i in others) / len(row))
    return _reduce(np.asarray(losses), reduction)


@oracle
def pdist(x: Array, *, p: float = 2.0) -> Array:
    rows = range(len(x))
    return np.asarray([np.linalg.norm(x[i] - x[j], p) for i in rows for j in rows if j > i])


def _by_example(
    x: Array, target: Array, loss: Callable[[Array, Any], tuple[float, float]], reduction: str
) -> Array:
    """A loss of scores along the class axis and a target, for each example; mean by the sum of weights."""
    axis = 0 if x.ndim == 1 else 1
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    soft = target.dtype.kind == "f"
    losses, weights = np.zeros(shape), np.zeros(shape)
    for at in np.ndindex(shape):
        key = (*at[:axis], slice(None), *at[axis:])
        losses[at], weights[at] = loss(x[key], target[key] if soft else target[at])
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / (weights.sum() or 1.0)}[reduction]


@oracle
def nll_loss(
    x: Array, target: Array, w: Any = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    def loss(row: Array, c: int) -> tuple[float, float]:
        factor = 0.0 if c == ignore_index else 1.0 if w is None else w[c]
        return -row[c] * factor, factor

    return _by_example(x, target, loss, reduction)


@oracle
def cross_entropy(
    x: Array,
    target: Array,
    w: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Both kinds of target as probabilities; weights multiply the terms of their classes."""

    def loss(row: Array, t: Any) -> tuple[float, float]:
        weight = np.ones(len(row)) if w is None else w
        soft = target.dtype.kind == "f"
        if not soft and t == ignore_index:
            return 0.0, 0.0
        share = t if soft else np.eye(len(row))[t]
        share = share * (1 - label_smoothing) + label_smoothing / len(row)
        scores = scipy.special.log_softmax(row)
        return -(share * scores * weight).sum(), 1.0 if soft else weight[t]

    return _by_example(x, target, loss, reduction)
