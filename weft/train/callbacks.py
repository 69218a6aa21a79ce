"""Callbacks: what a trainer calls while it trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from weft.errors import DomainError

Row = Mapping[str, Any]


class Callback:
    """Base of callbacks; each method may be left as it is. What ``state_dict`` gives is in checkpoints.

    >>> import weft
    >>> class Print(weft.train.Callback):
    ...     def on_epoch(self, trainer, row):
    ...         print(row["epoch"], row["loss"])
    """

    def on_start(self, trainer: Any) -> None:
        """``fit`` begins, or goes on."""

    def on_step(self, trainer: Any, row: Row) -> None:
        """A step has ended; the row has its numbers."""

    def on_epoch(self, trainer: Any, row: Row) -> None:
        """An epoch and its validation have ended; the row has their means."""

    def on_end(self, trainer: Any) -> None:
        """``fit`` ends, for whatever reason."""

    def state_dict(self) -> dict[str, Any]:
        """What it takes to go on."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""


class Best:
    """The best of a number so far.

    >>> from weft.train.callbacks import Best
    >>> best = Best("max")
    >>> [best.improves(x) for x in (0.5, 0.4, 0.6)]
    [True, False, True]
    """

    def __init__(self, mode: str = "min", min_delta: float = 0.0) -> None:
        if mode not in ("min", "max"):
            raise DomainError("Trainer", f"mode must be min or max, got {mode!r}")
        self._sign = 1.0 if mode == "min" else -1.0
        self._delta = min_delta
        self.value: float | None = None

    def improves(self, value: float) -> bool:
        """Whether a number is better than all before; it then is the best."""
        if math.isnan(value):
            return False
        if self.value is not None and not self._sign * value < self._sign * self.value - self._delta:
            return False
        self.value = float(value)
        return True


class EarlyStopping(Callback):
    """Stops when a number has not become better for some epochs.

    Args:
        monitor: the number, such as "val_loss".
        patience: how many epochs without a better one are let pass.
        mode: whether better is "min", lower, or "max", higher.
        min_delta: how much better counts.

    >>> import weft
    >>> weft.train.EarlyStopping("val_accuracy", mode="max").patience
    5
    """

    def __init__(
        self, monitor: str = "val_loss", patience: int = 5, mode: str = "min", min_delta: float = 0.0
    ) -> None:
        self.monitor = monitor
        self.patience = patience
        self.waited = 0
        self._best = Best(mode, min_delta)

    @property
    def best(self) -> float | None:
        """The best number so far."""
        return self._best.value

    def on_epoch(self, trainer: Any, row: Row) -> None:
        """Look at the number of the epoch."""
        value = monitored(row, self.monitor)
        self.waited = 0 if self._best.improves(value) else self.waited + 1
        if self.waited > self.patience:
            trainer.stop(f"{self.monitor} has not become better for {self.waited} epochs")

    def state_dict(self) -> dict[str, Any]:
        """The best number, and how long ago it was."""
        return {"best": self._best.value, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._best.value, self.waited = state["best"], state["waited"]


def monitored(row: Row, name: str) -> float:
    """The number of a row that is watched."""
    if name not in row:
        known = ", ".join(k for k, v in row.items() if isinstance(v, float))
        raise DomainError("Trainer", f"monitor must be among {known}, got {name!r}")
    return float(row[name])
