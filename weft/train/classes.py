"""Metrics of classes: the confusion matrix and what comes of it, the best few, and the area under the curve.

Outputs are scores with an axis of classes at the end, numbers of classes, or, where there are two classes,
one score for each example, of which those above ``threshold`` are class 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.errors import DomainError, ShapeError
from weft.train.streaming import (
    Metric,
    State,
    check_choice,
    check_same_shape,
    check_scores,
    count,
    ratio,
)

AVERAGES = ("macro", "micro", "weighted", None)


class TopKAccuracy(Metric):
    """The share of examples whose target is among the k largest outputs along the last axis.

    >>> import weft
    >>> from weft.train import metrics
    >>> top = metrics.TopKAccuracy(2)
    >>> top.update(weft.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]), weft.tensor([1, 2]))
    >>> top.compute()
    0.5
    """

    def __init__(self, k: int = 5) -> None:
        if type(k) is not int or k < 1:
            raise DomainError("TopKAccuracy", f"k must be a whole number from 1 on, got {k!r}")
        self.k = k
        super().__init__()

    def zero(self) -> State:
        """Nothing seen."""
        return {"right": count(), "count": count()}

    def measure(self, output: Any, target: Any) -> State:
        """How many targets are among the best; of equal outputs the one with the smaller number is better."""
        check_scores(self._name, output, target)
        if self.k > output.shape[-1]:
            raise DomainError(self._name, f"k must be at most the {output.shape[-1]} classes, got {self.k}")
        own = weft.take_along_axis(output, target[..., None], axis=-1)
        order = weft.arange(output.shape[-1])
        better = (output > own) | ((output == own) & (order < target[..., None]))
        right = better.astype(weft.int64).sum(axis=-1) < self.k
        return {
            "right": right.astype(weft.int64).sum(),
            "count": weft.full((), target.numel(), dtype=weft.int64),
        }

    def result(self, state: State) -> float:
        """The share."""
        return ratio(state["right"], state["count"])


class Confusion(Metric):
    """How often each class was taken for each: rows are targets, columns what the outputs say.

    Args:
        classes: how many there are.
        threshold: above which one score for each example means class 1.
        ignore: the target of examples that do not count.

    >>> import weft
    >>> from weft.train import metrics
    >>> confusion = metrics.Confusion(3)
    >>> confusion.update(weft.tensor([0, 1, 1, 2]), weft.tensor([0, 1, 2, 2]))
    >>> confusion.compute()
    tensor([[1, 0, 0],
            [0, 1, 0],
            [0, 1, 1]])
    """

    def __init__(self, classes: int = 2, threshold: float = 0.0, ignore: int | None = None) -> None:
        if type(classes) is not int or classes < 2:
            raise DomainError(self._name, f"classes must be a whole number from 2 on, got {classes!r}")
        self.classes = classes
        self.threshold = threshold
        self.ignore = ignore
        super().__init__()

    def zero(self) -> State:
        """An empty matrix."""
        return {"matrix": weft.zeros((self.classes, self.classes), dtype=weft.int64), "outside": count()}

    def measure(self, output: Any, target: Any) -> State:
        """The matrix of a batch, and how many targets or outputs are of no class."""
        found, wanted = self._chosen(output, target).reshape(-1), target.reshape(-1)
        found, wanted = found.astype(weft.int64), wanted.astype(weft.int64)
        counts = weft.ones_like(wanted, dtype=weft.bool)
        if self.ignore is not None:
            counts = wanted != self.ignore
        n = self.classes
        inside = (wanted >= 0) & (wanted < n) & (found >= 0) & (found < n)
        cells = weft.where(counts & inside, wanted * n + found, n * n)  # the last one is for what is left out
        matrix = weft.bincount(cells, minlength=n * n + 1)[: n * n].reshape(n, n)
        return {"matrix": matrix, "outside": (counts & ~inside).astype(weft.int64).sum()}

    def _chosen(self, output: Any, target: Any) -> Any:
        """The class that outputs say."""
        if output.ndim == target.ndim + 1:
            check_scores(self._name, output, target)
            if output.shape[-1] == 1 and self.classes == 2:
                return output[..., 0] > self.threshold
            if output.shape[-1] != self.classes:
                got = f"{output.shape[-1]} of {tuple(output.shape)}"
                raise ShapeError(self._name, f"the last axis must have {self.classes} classes, got {got}")
            return output.argmax(axis=-1)
        check_same_shape(self._name, output, target)
        if not weft.isdtype(output.dtype, "real floating"):
            return output
        if self.classes != 2:
            hint = "give scores with an axis of classes at the end, or numbers of classes"
            message = f"one score for each example must be of 2 classes, got {self.classes}"
            raise DomainError(self._name, message, hint=hint)
        return output > self.threshold

    def result(self, state: State) -> Any:
        """The matrix."""
        return self.matrix(state)

    def matrix(self, state: State) -> Any:
        """The matrix of a state; an error if something was of no class."""
        if outside := int(state["outside"]):
            message = f"targets and outputs must be from 0 to {self.classes - 1}, got {outside} that are not"
            raise DomainError(self._name, message, hint="ignore= names a target that does not count")
        return state["matrix"]


class _Averaged(Confusion):
    """A number for each class, and their average.

    Args:
        classes: how many there are; of two classes it is the number of class 1.
        average: over several classes: "macro" (each class alike), "weighted" (by how many examples it has),
            "micro" (all examples together), or None for the numbers of all classes.
        threshold: above which one score for each example means class 1.
        ignore: the target of examples that do not count.
    """

    def __init__(
        self,
        classes: int = 2,
        average: str | None = "macro",
        threshold: float = 0.0,
        ignore: int | None = None,
    ) -> None:
        check_choice(self._name, "average", average, AVERAGES)
        self.average = average
        super().__init__(classes, threshold, ignore)

    def result(self, state: State) -> Any:
        """The number of class 1 of two, or the average."""
        matrix = self.matrix(state).numpy().astype(np.float64)
        right, found, wanted = np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1)
        each = self._of(right, found, wanted)
        if self.average is None:
            return weft.asarray(each)
        if self.average == "micro":
            return float(self._of(right.sum(), found.sum(), wanted.sum()))
        if self.classes == 2:
            return float(each[1])
        used = (found + wanted) > 0  # a class that never occurs says nothing
        weights = wanted if self.average == "weighted" else used.astype(np.float64)
        return ratio((each * weights).sum(), weights.sum())

    def _of(self, right: Any, found: Any, wanted: Any) -> Any:
        raise NotImplementedError


def _share(above: Any, below: Any) -> Any:
    """Shares; 0 where there is nothing."""
    return np.divide(above, below, out=np.zeros_like(np.asarray(below, np.float64)), where=below != 0)


class Precision(_Averaged):
    """Of the examples that were taken for a class, the share that is of it.

    >>> import weft
    >>> from weft.train import metrics
    >>> precision = metrics.Precision()
    >>> precision.update(weft.tensor([2.0, 1.0, -1.0, 3.0]), weft.tensor([1, 0, 1, 1]))
    >>> round(precision.compute(), 4)
    0.6667
    """

    def _of(self, right: Any, found: Any, wanted: Any) -> Any:
        return _share(right, found)


class Recall(_Averaged):
    """Of the examples of a class, the share that was taken for it.

    >>> import weft
    >>> from weft.train import metrics
    >>> recall = metrics.Recall()
    >>> recall.update(weft.tensor([2.0, 1.0, -1.0, 3.0]), weft.tensor([1, 0, 1, 1]))
    >>> round(recall.compute(), 4)
    0.6667
    """

    def _of(self, right: Any, found: Any, wanted: Any) -> Any:
        return _share(right, wanted)


class F1(_Averaged):
    """The harmonic mean of precision and recall.

    >>> import weft
    >>> from weft.train import metrics
    >>> f1 = metrics.F1(classes=3)
    >>> f1.update(weft.tensor([0, 1, 1, 2]), weft.tensor([0, 1, 2, 2]))
    >>> round(f1.compute(), 4)
    0.7778
    """

    def _of(self, right: Any, found: Any, wanted: Any) -> Any:
        return _share(2.0 * right, found + wanted)


class IoU(_Averaged):
    """Intersection over union, of the pixels of each class; by default the mean over classes.

    >>> import weft
    >>> from weft.train import metrics
    >>> iou = metrics.IoU(classes=3)
    >>> iou.update(weft.tensor([[0, 1], [1, 2]]), weft.tensor([[0, 1], [2, 2]]))
    >>> round(iou.compute(), 4)
    0.6667
    """

    def _of(self, right: Any, found: Any, wanted: Any) -> Any:
        return _share(right, found + wanted - right)


class AUC(Metric):
    """The area under the ROC curve: how often a positive example has a larger output than a negative one.

    Equal outputs count half. It is exact, for which all outputs are kept; with ``bins`` they are counted in
    so many bins of their sigmoid instead, which takes constant memory and can be updated in compiled code.

    Args:
        bins: how many; None for the exact area.

    >>> import weft
    >>> from weft.train import metrics
    >>> auc = metrics.AUC()
    >>> auc.update(weft.tensor([0.1, 0.4, 0.35, 0.8]), weft.tensor([0, 0, 1, 1]))
    >>> auc.compute()
    0.75
    """

    def __init__(self, bins: int | None = None) -> None:
        if bins is not None and (type(bins) is not int or bins < 2):
            raise DomainError("AUC", f"bins must be None or a whole number from 2 on, got {bins!r}")
        self.bins = bins
        super().__init__()

    @property
    def grows(self) -> bool:  # type: ignore[override]
        """Whether all outputs are kept."""
        return self.bins is None

    def zero(self) -> State:
        """No outputs."""
        if self.bins is not None:
            empty = weft.zeros((self.bins,), dtype=weft.int64)
            return {"negative": empty, "positive": weft.zeros_like(empty)}
        return {"score": weft.zeros((0,), dtype=weft.float64), "target": weft.zeros((0,), dtype=weft.bool)}

    def measure(self, output: Any, target: Any) -> State:
        """The outputs and targets of a batch, or how many are in which bin."""
        if output.ndim == target.ndim + 1 and output.shape[-1] == 1:
            output = output[..., 0]
        check_same_shape("AUC", output, target)
        score, positive = output.reshape(-1), target.reshape(-1) > 0.5
        if self.bins is None:
            return {"score": score.astype(weft.float64), "target": positive}
        place = weft.sigmoid(score.astype(weft.float32)) * self.bins
        place = weft.clip(place, 0, self.bins - 1).astype(weft.int64)
        left_out = weft.full_like(place, self.bins)
        sides = {"negative": weft.where(positive, left_out, place)}
        sides["positive"] = weft.where(positive, place, left_out)
        return {name: weft.bincount(x, minlength=self.bins + 1)[: self.bins] for name, x in sides.items()}

    def combine_all(self, states: Sequence[State]) -> State:
        """All outputs, or the sums of their bins."""
        if self.bins is not None:
            return super().combine_all(states)
        return {name: weft.concat([state[name] for state in states]) for name in states[0]}

    def result(self, state: State) -> float:
        """The area; NaN unless there are examples of both kinds."""
        if self.bins is not None:
            negative, positive = (state[k].numpy().astype(np.float64) for k in ("negative", "positive"))
            return _area(negative, positive)
        score, target = state["score"].numpy(), state["target"].numpy()
        if np.isnan(score).any():
            raise DomainError("AUC", "outputs must be numbers that can be ordered, got NaN")
        levels, place = np.unique(score, return_inverse=True)
        sides = (np.bincount(place[side], minlength=len(levels)) for side in (~target, target))
        return _area(*(side.astype(np.float64) for side in sides))


def _area(negative: Any, positive: Any) -> float:
    """From the numbers of examples at each output, the outputs in order."""
    below = np.cumsum(negative) - negative
    return ratio((positive * (below + negative / 2)).sum(), negative.sum() * positive.sum())
