"""What leaves a capture, and what it has met outside, must hold nothing that stands for a value of its graph.

Everything that leaves is described, so that each call makes it anew. This looks at what is given away as it
is: a tensor of the capture in there was put where nobody has told the capture of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from weft.capture.runtime.number import Number
from weft.tensor.tensor import Tensor
from weft.transform.captured import Captured

_SEQUENCES = (list, tuple, set, frozenset, deque)
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), type, ModuleType)
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
    if isinstance(x, dict):
        inside: list[Any] = [*dict.keys(x), *dict.values(x)]
    elif isinstance(x, _SEQUENCES):
        inside = [*type(x).__iter__(x)] if not isinstance(x, list) else [*list.__iter__(x)]
    elif isinstance(x, MethodType):
        inside = [x.__self__]
    elif isinstance(x, partial):
        inside = [x.func, *x.args, *x.keywords.values()]
    else:
        inside = []
    own = None if isinstance(x, FunctionType) else getattr(x, "__dict__", None)
    return [*inside, *own.values()] if type(own) is dict else inside
