"""What a benchmark is: one workload, written in each framework, with its data and its goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


def _nothing() -> None:
    """There is nothing to wait for."""


class Run(NamedTuple):
    """A workload that is ready to run in one framework.

    Args:
        step: does the work once and returns numbers that can be compared.
        wait: returns when all that ``step`` began is done; for frameworks that go on by themselves.
        before: makes what a step changes anew, before each one and outside of its time.
    """

    step: Callable[[], Any]
    wait: Callable[[], None] = _nothing
    before: Callable[[], None] | None = None


Build = Callable[[Arrays], Run]


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Args:
        name: the row, and what of it is measured.
        arrays: makes the data and the initial weights that all frameworks are given.
        builders: from a label (a framework, and a way to use it) to the workload written in it.
        goal: the best peer's time over weft's; None where there is none.
        steps: how many steps the compared results come from; more than one if the work is training.
        beside: labels that are shown and do not count as peers.
        flops: operations of a step, for the limit of the machine.
        bytes: that a step must at least read and write.
        limit: seconds that a first step may take, where that is less than for others.
        tolerance: how far results may be apart, relative.
        on_request: whether it is run only if its row is named.
    """

    name: str
    arrays: Callable[[np.random.Generator], Arrays]
    builders: dict[str, Build]
    goal: float | None = None
    steps: int = 1
    beside: tuple[str, ...] = ()
    flops: float = 0.0
    bytes: float = 0.0
    limit: float = float("inf")
    tolerance: float = 1e-3
    on_request: bool = False

    @property
    def row(self) -> str:
        """The row that it belongs to."""
        return self.name.split()[0]
