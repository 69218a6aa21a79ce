"""Whether data is elements themselves, and not something that stands for them.

The data of a tensor is an array, or a value of a graph being captured, a batch, a dual number. Whoever only
asks which of the two it is asks here; whoever needs NumPy's own array, to hand it to a ufunc, asks for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.base.parts import Parts

CONCRETE: set[type] = {np.ndarray}  # a device adds the type of its arrays, a mesh that of parts


def any_on_device(datas: Iterable[object]) -> bool:
    """Whether some data is on a device; in a process that uses none that is known without a look."""
    return len(CONCRETE) > 1 and any(map(is_on_device, datas))


def is_on_device(data: object) -> bool:
    """Whether data is elements on a device."""
    return type(data) is not np.ndarray and type(data) in CONCRETE and type(data) is not Parts


def any_placed(datas: Iterable[object]) -> bool:
    """Whether ranks hold parts of some data; where nothing was placed that is known without a look."""
    return Parts in CONCRETE and any(type(data) is Parts for data in datas)


def on_host(data: Any) -> Any:
    """Data for NumPy's functions: elements of a device are copied."""
    return data if type(data) is np.ndarray or type(data) not in CONCRETE else data.to_host()


def is_concrete(data: object) -> bool:
    """Whether data is elements, on whatever device.

    >>> import numpy as np
    >>> from weft.base.concrete import is_concrete
    >>> is_concrete(np.ones(2)), is_concrete("a value of a graph")
    (True, False)
    """
    return type(data) in CONCRETE
