"""How far the results of what was built are from those of the graph that was captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.records import NamedTuple


class Accuracy(NamedTuple):
    """What was lost.

    >>> from weft.capture.call.accuracy import Accuracy
    >>> print(Accuracy((0.00312,)))
    largest relative loss of accuracy on these inputs, of each result: 0.0031

    Attributes:
        losses: of each result that has floating numbers, the largest difference, as a part of the largest
            number of the result; infinite where one has infinities or no numbers and the other has not.
    """

    losses: tuple[float, ...]

    def __str__(self) -> str:
        told = ", ".join(f"{loss:.2g}" for loss in self.losses) or "none is floating"
        return f"largest relative loss of accuracy on these inputs, of each result: {told}"


def accuracy_of(found: Sequence[Any], expected: Sequence[Any]) -> Accuracy:
    """The loss of results beside those that are expected, array by array."""
    pairs = zip(found, expected, strict=True)
    return Accuracy(tuple(_loss(a, b) for a, b in pairs if kind(b.dtype) in "fc"))


def _loss(found: Any, expected: Any) -> float:
    wide = np.complex128 if kind(expected.dtype) == "c" else np.float64
    a, b = (np.asarray(x).astype(wide) for x in (found, expected))
    if not a.size:
        return 0.0
    finite = np.isfinite(b)
    if not (
        np.array_equal(np.isfinite(a), finite) and np.array_equal(a[~finite], b[~finite], equal_nan=True)
    ):
        return float("inf")
    a, b = a[finite], b[finite]
    largest = float(np.abs(b).max(initial=0.0))
    difference = float(np.abs(a - b).max(initial=0.0))
    return difference / largest if largest else (0.0 if difference == 0 else float("inf"))
