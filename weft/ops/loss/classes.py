"""Losses on classes, given as numbers or as probabilities."""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import DType, kind
from weft.errors import DomainError, DtypeError, ShapeError
from weft.ops.classes import take_class
from weft.ops.index import gather_nd
from weft.ops.loss.elements import paired, reduced, total
from weft.ops.op import Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.reduce import reduce_sum
from weft.ops.samples import int_array, real_array
from weft.ops.select import cast, select
from weft.ops.size import divided, size_value
from weft.ops.softmax import as_real, log_softmax_op
from weft.ops.view.primitives import reshape

# Classes


def _class_weights(op: str, weight: Tensor | None, classes: int, like: Tensor) -> Tensor | None:
    if weight is None:
        return None
    if weight.shape != (classes,):
        raise ShapeError(
            op, f"weight must have one element for each of {classes} classes, got {type_of(weight)}"
        )
    return weight if weight.dtype == like.dtype else cast(weight, dtype=like.dtype)


def _class_axis(op: str, x: Tensor) -> int:
    if x.ndim == 0:
        raise ShapeError(op, f"the input must be (C,) or (N, C, *S), got {type_of(x)}")
    return 0 if x.ndim == 1 else 1


def _check_numbers(op: str, x: Tensor, target: Tensor, axis: int) -> None:
    if kind(target.dtype) not in "iu" or target.shape != (*x.shape[:axis], *x.shape[axis + 1 :]):
        expected = "class numbers of the input's shape without its class axis"
        raise ShapeError(op, f"target must be {expected}, got {type_of(x)} and {type_of(target)}")


def _number_weights(target: Tensor, weight: Tensor | None, ignore_index: int, dtype: DType) -> Tensor:
    """The weight of each class number: 0 where it is ignored."""
    limits = np.iinfo(target.dtype)
    possible = limits.min <= ignore_index <= limits.max
    kept = target != int(ignore_index) if possible else target == target
    if weight is None:
        return cast(kept, dtype=dtype)
    safe = select(kept, target, np.zeros((), target.dtype))
    return select(kept, gather_nd(weight, safe), np.zeros((), dtype))


def _weighted(op: str, losses: Tensor, weights: Tensor, reduction: str) -> Tensor:
    """Losses that are weighted already, reduced; their mean is by the sum of weights."""
    return total(losses) / total(weights) if reduction == "mean" else reduced(op, losses, reduction)


def _number_samples() -> list[Sample]:
    x, t, w = real_array((4, 3)), np.array([0, 2, 1, 2]), real_array((3,), 0.5, 2.0, seed=2)
    image, labels = real_array((2, 3, 4)), int_array((2, 4), 0, 3)
    return [
        *(Sample((x, t), {"reduction": r}) for r in ("none", "mean", "sum")),
        *(Sample((x, t, w), {"reduction": r, "ignore_index": 2}) for r in ("none", "mean", "sum")),
        Sample((image, labels, w)),
        Sample((x[0], np.array(1))),
        Sample((x[:0], t[:0]), {"reduction": "sum"}),
    ]


@composite(samples=_number_samples, whole=("x", "target"), precision="high", single=True)
@example("(weft.log(weft.tensor([[0.5, 0.5], [0.9, 0.1]])), weft.tensor([0, 0])) -> tensor(0.3993)")
def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """The negative log-probability, from log-probabilities (N, C, *S), of the class numbers (N, *S)."""
    axis = _class_axis("nll_loss", x)
    weight = _class_weights("nll_loss", weight, x.shape[axis], x)
    return _hard_cross_entropy("nll_loss", x, target, weight, axis, ignore_index, reduction)


def _hard_cross_entropy(
    op: str,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    axis: int,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    _check_numbers(op, scores, target, axis)
    weights = _number_weights(target, weight, ignore_index, scores.dtype)
    losses = -take_class(scores, target, axis=axis, ignore=int(ignore_index))
    return _weighted(op, losses if weight is None else losses * weights, weights, reduction)


def _entropy_samples() -> list[Sample]:
    x, w = real_array((4, 3)), real_array((3,), 0.5, 2.0, seed=2)
    shares = real_array((4, 3), 0.1, 1.0, seed=3)
    smooth = {"label_smoothing": 0.1}
    return [
        *_number_samples(),
        *(Sample(s.inputs, {**s.attrs, **smooth}) for s in _number_samples()),
        *(Sample((x, shares), {"reduction": r, **smooth}) for r in ("none", "mean", "sum")),
        Sample((x, shares, w)),
        Sample((real_array((2, 3, 4)), real_array((2, 3, 4), 0.1, 1.0), w), smooth),
        Sample((x * 1000, np.array([0, 2, 1, 2])), smooth=False),
    ]


@composite(samples=_entropy_samples, whole=("x", "target"), precision="high", single=True)
@example("(weft.tensor([[0.0, 0.0], [0.0, 100.0]]), weft.tensor([0, 1])) -> tensor(0.3466)")
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of the softmax of logits (N, C, *S) with class numbers (N, *S) or probabilities.

    Args:
        x: logits.
        target: class numbers, or probabilities of the shape of x.
        weight: of each class; the mean is then by the sum of weights.
        ignore_index: a class number that does not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: the share of the target that is spread over all classes.
    """
    if not 0 <= label_smoothing <= 1:
        raise DomainError("cross_entropy", f"label_smoothing must be in 0..1, got {label_smoothing}")
    x = as_real("cross_entropy", x)
    axis = _class_axis("cross_entropy", x)
    scores = log_softmax_op(x, axis=axis)
    weight = _class_weights("cross_entropy", weight, x.shape[axis], x)
    if kind(target.dtype) == "f":
        if target.ndim == x.ndim - 1:
            message = f"class numbers must be integers, got {type_of(target)}"
            hint = "use target.long(); probabilities have the shape of x"
            raise DtypeError("cross_entropy", message, hint=hint)
        return _soft_cross_entropy(scores, target, weight, axis, reduction, label_smoothing)
    hard = _hard_cross_entropy("cross_entropy", scores, target, weight, axis, ignore_index, reduction)
    if label_smoothing == 0:
        return hard
    kept = _number_weights(target, None, ignore_index, x.dtype)
    spread = _class_sum(scores, weight, axis) * kept
    weights = kept if weight is None else _number_weights(target, weight, ignore_index, x.dtype)
    even = divided(_weighted("cross_entropy", spread, weights, reduction), x.shape[axis])
    return hard * (1 - label_smoothing) + even * label_smoothing


def _class_sum(scores: Tensor, weight: Tensor | None, axis: int) -> Tensor:
    """The negative sum of log-probabilities over classes, weighted."""
    if weight is not None:
        scores = scores * reshape(weight, shape=(*weight.shape, *(1,) * (scores.ndim - axis - 1)))
    return -reduce_sum(scores, axes=(axis,), keepdims=False)


def _soft_cross_entropy(
    scores: Tensor, target: Tensor, weight: Tensor | None, axis: int, reduction: str, label_smoothing: float
) -> Tensor:
    scores, target = paired("cross_entropy", scores, target)
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / size_value(
            scores.shape[axis], target.dtype
        )
    return reduced("cross_entropy", _class_sum(scores * target, weight, axis), reduction)
