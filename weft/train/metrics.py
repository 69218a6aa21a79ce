"""Metrics: functions of outputs and targets, means of them over many batches, and those that are added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import weft
from weft.base.public import name_constructor
from weft.errors import ArgumentError, DomainError
from weft.train.classes import AUC, F1, Confusion, IoU, Precision, Recall, TopKAccuracy
from weft.train.streaming import R2, Metric, Perplexity

MetricFunction = Callable[[Any, Any], Any]

__all__ = [
    "AUC",
    "F1",
    "R2",
    "Confusion",
    "IoU",
    "Metric",
    "Perplexity",
    "Precision",
    "Recall",
    "TopKAccuracy",
    "accuracy",
    "binary_accuracy",
    "mean_absolute_error",
    "mean_squared_error",
]

for _class in (AUC, F1, R2, Confusion, IoU, Perplexity, Precision, Recall, TopKAccuracy):
    name_constructor(_class)


def accuracy(output: Any, target: Any) -> Any:
    """The share of examples whose largest output, along the last axis, is that of the target.

    >>> import weft
    >>> from weft.train import metrics
    >>> metrics.accuracy(weft.tensor([[0.1, 0.9], [0.8, 0.2]]), weft.tensor([1, 1]))
    tensor(0.5000)
    """
    return (output.argmax(axis=-1) == target).astype(weft.float32).mean()


def binary_accuracy(output: Any, target: Any) -> Any:
    """The share of outputs whose sign is that of the target, 0 or 1.

    >>> import weft
    >>> from weft.train import metrics
    >>> metrics.binary_accuracy(weft.tensor([2.0, -1.0, 1.0]), weft.tensor([1.0, 0.0, 0.0]))
    tensor(0.6667)
    """
    return ((output > 0) == (target > 0.5)).astype(weft.float32).mean()


def mean_absolute_error(output: Any, target: Any) -> Any:
    """The mean distance of outputs and targets.

    >>> import weft
    >>> from weft.train import metrics
    >>> metrics.mean_absolute_error(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 4.0]))
    tensor(1.)
    """
    return (output - target).abs().mean()


def mean_squared_error(output: Any, target: Any) -> Any:
    """The mean of the squared distances of outputs and targets.

    >>> import weft
    >>> from weft.train import metrics
    >>> metrics.mean_squared_error(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 4.0]))
    tensor(2.)
    """
    return (output - target).square().mean()


_OWN = (accuracy, binary_accuracy, mean_absolute_error, mean_squared_error)
_NAMED: dict[str, Callable[[], MetricFunction | Metric]] = {
    **{function.__name__: lambda function=function: function for function in _OWN},  # type: ignore[misc]
    "precision": Precision,
    "recall": Recall,
    "f1": F1,
    "auc": AUC,
    "perplexity": Perplexity,
    "r2": R2,
    "top_5_accuracy": TopKAccuracy,
}


def named_metrics(given: Mapping[str, MetricFunction | Metric] | Sequence[str]) -> dict[str, Any]:
    """Metrics by name, of which those that are given by name alone are weft's own."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Mapping):
        for name in given:
            if name not in _NAMED:
                raise DomainError("Trainer", f"metrics must be among {', '.join(_NAMED)}, got {name!r}")
        given = {name: _NAMED[name]() for name in given}
    for name, function in given.items():
        if (
            not (callable(function) or isinstance(function, Metric))
            or name == "loss"
            or not name.isidentifier()
        ):
            raise ArgumentError("Trainer", f"metrics must be functions by names, got {name!r}: {function!r}")
    return dict(given)


def _one(name: str, metric: Metric) -> float:
    """The number of a metric."""
    found = metric.compute()
    if getattr(found, "ndim", 0):
        hint = "one with average= gives a number; the others are for own loops, see docs/training.md"
        got = f"{type(metric).__name__} for {name!r}"
        raise ArgumentError("Trainer", f"metrics must give one number each, got {got}", hint=hint)
    return float(found)


class Means:
    """Means of several numbers, each weighted by how many examples it is of; and metrics that are added up.

    Args:
        metrics: by name, those of which what ``measure`` gave is added.

    >>> from weft.train.metrics import Means
    >>> means = Means()
    >>> means.add({"loss": 1.0}, 1)
    >>> means.add({"loss": 4.0}, 2)
    >>> means.values()
    {'loss': 3.0}
    """

    def __init__(self, metrics: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._sums: dict[str, float] = {}
        self._count = 0
        self._metrics = {name: m.clone() for name, m in metrics.items() if isinstance(m, Metric)}

    def add(self, numbers: Mapping[str, Any], weight: int) -> None:
        """Add the numbers of one batch."""
        for name, number in numbers.items():
            if name in self._metrics:
                self._metrics[name].add(number)
                continue
            self._sums[name] = self._sums.get(name, 0.0) + number * weight
        self._count += weight

    def values(self, quick: bool = False) -> dict[str, float]:
        """The means; nothing if nothing was added.

        Args:
            quick: without metrics that have to look at all that was added.
        """
        if not self._count:
            return {}
        means = {name: total / self._count for name, total in self._sums.items()}
        return means | {name: _one(name, m) for name, m in self._metrics.items() if not (quick and m.grows)}

    def clear(self) -> None:
        """Begin anew."""
        self._sums, self._count = {}, 0
        for metric in self._metrics.values():
            metric.reset()

    def state_dict(self) -> dict[str, Any]:
        """What has been added."""
        metrics = {name: metric.state_dict() for name, metric in self._metrics.items()}
        return {"sums": dict(self._sums), "count": self._count, "metrics": metrics}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._sums, self._count = dict(state["sums"]), state["count"]
        for name, metric in self._metrics.items():
            metric.load_state_dict(state["metrics"][name])
