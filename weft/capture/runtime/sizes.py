"""Named sizes in captured code: what Python asks of one that only a run tells becomes a value of the graph.

Elsewhere, as in weft's own functions, an undecidable comparison of sizes stays an error that says so.
"""

from __future__ import annotations

import operator as operators
import sys
from typing import Any

from weft.base.sizes import Size
from weft.capture.convert.source import is_library
from weft.capture.runtime import branch as runtime_branch
from weft.capture.runtime import operators as runtime_operators
from weft.capture.runtime import truth as runtime_truth
from weft.capture.runtime.number import number_of
from weft.tensor.mode import thread

# Which do what converted code says
_ASKERS = (runtime_branch.__file__, runtime_operators.__file__, runtime_truth.__file__)
_COMPARISONS = frozenset(
    getattr(Size, name).__code__
    for name in ("__lt__", "__gt__", "__le__", "__ge__", "__eq__", "__ne__", "_ordered", "_equals")
)


def compare_size(operator: str, size: Size, other: Any) -> Any:
    """A comparison as a Number, in converted code; None elsewhere."""
    capture = thread.capture
    if capture is None or not capture.root.guards_reads or not _is_asked_by_user():
        return None
    return getattr(operators, operator)(number_of(size), other)


def _is_asked_by_user() -> bool:
    """Whether the code that compares is that of a user."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code in _COMPARISONS:
        frame = frame.f_back
    return frame.f_code.co_filename in _ASKERS or not is_library(frame.f_code.co_filename)
