"""Metrics: functions of outputs and targets, and their means over many batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError, DomainError

Metric = Callable[[Any, Any], Any]


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
_NAMED: dict[str, Metric] = {function.__name__: function for function in _OWN}


def named_metrics(given: Mapping[str, Metric] | Sequence[str]) -> dict[str, Metric]:
    """Metrics by name, of which those that are given by name alone are weft's own."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Mapping):
        for name in given:
            if name not in _NAMED:
                raise DomainError("Trainer", f"metrics must be among {', '.join(_NAMED)}, got {name!r}")
        given = {name: _NAMED[name] for name in given}
    for name, function in given.items():
        if not callable(function) or name == "loss" or not name.isidentifier():
            raise ArgumentError("Trainer", f"metrics must be functions by names, got {name!r}: {function!r}")
    return dict(given)


class Means:
    """Means of several numbers, each weighted by how many examples it is of.

    >>> from weft.train.metrics import Means
    >>> means = Means()
    >>> means.add({"loss": 1.0}, 1)
    >>> means.add({"loss": 4.0}, 2)
    >>> means.values()
    {'loss': 3.0}
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._count = 0

    def add(self, numbers: Mapping[str, float], weight: int) -> None:
        """Add the numbers of one batch."""
        for name, number in numbers.items():
            self._sums[name] = self._sums.get(name, 0.0) + number * weight
        self._count += weight

    def values(self) -> dict[str, float]:
        """The means; nothing if nothing was added."""
        return {name: total / self._count for name, total in self._sums.items()} if self._count else {}

    def clear(self) -> None:
        """Begin anew."""
        self._sums, self._count = {}, 0

    def state_dict(self) -> dict[str, Any]:
        """What has been added."""
        return {"sums": dict(self._sums), "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._sums, self._count = dict(state["sums"]), state["count"]
