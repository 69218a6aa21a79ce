"""What leaves a capture, and what it has met outside, must hold nothing that stands for a value of its graph.

Everything that leaves is described, so that each call makes it anew. This looks at what is given away as it
is: a tensor of the capture in there was put where nobody has told the capture of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from weft.capture.record.leaving import held_by
from weft.capture.runtime.number import Number
from weft.tensor.tensor import Tensor
from weft.transform.captured import Captured

_SEQUENCES = (tuple, set, frozenset, deque)
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), ModuleType)
_MOST = 20_000  # things that are looked at


def check_alive(root: Any, found: Iterable[Any]) -> None:
    """Raise if something holds a tensor or number of a capture that has ended."""
    seen: dict[int, Any] = {}
    waiting = [*found]
    while waiting and len(seen) < _MOST:
        x = waiting.pop()
        if isinstance(x, _SIMPLE) or id(x) in seen:
            continue
        seen[id(x)] = x
        tensor = x.tensor if isinstance(x, Number) else x
        if isinstance(tensor, Tensor):
            data = tensor._data
            if type(data) is Captured and data.capture.root is root:
                raise data.escaped(root.name)
        else:
            waiting += _held(x)


def _held(x: Any) -> Iterable[Any]:
    """What something holds, as Python keeps it."""
    if isinstance(x, type):
        return [*vars(x).values()]
    if isinstance(x, dict):
        return [*dict.keys(x), *dict.values(x), *held_by(x)]
    if isinstance(x, list):
        return [*list.__iter__(x), *held_by(x)]
    return [*x, *held_by(x)] if isinstance(x, _SEQUENCES) else held_by(x)
