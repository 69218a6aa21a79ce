"""Arrays that nobody writes to any more: what was computed from one holds for as long as the array is there.

The weights of a loaded graph are such arrays. They are read-only before anybody else gets to see them, so
nothing that shares their memory may be written to; who changes a tensor gives it another array.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np

Array = np.ndarray[Any, Any]

_frozen: WeakValueDictionary[int, Array] = WeakValueDictionary()


def freeze(array: Array) -> Array:
    """Make an array read-only for good: nobody else has it yet, nor what it is a view of.

    >>> import numpy as np
    >>> from weft.base.frozen import freeze, is_frozen
    >>> x, y = freeze(np.ones(3)), np.ones(3)
    >>> is_frozen(x), is_frozen(y), x.flags.writeable
    (True, False, False)
    """
    base: Any = array
    while type(base) is np.ndarray:
        base.flags.writeable = False
        base = base.base
    _frozen[id(array)] = array
    return array


def is_frozen(array: object) -> bool:
    """Whether an array is one that was frozen, and is so still."""
    found = _frozen.get(id(array))
    return found is not None and found is array and not found.flags.writeable
