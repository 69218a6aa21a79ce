"""The error for a result that is NaN, as every backend words it under ``check_nan=True``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import kind, short_name
from weft.errors import DomainError


def count_nans(array: Any) -> int:
    """How many elements of an array are NaN.

    >>> import numpy as np
    >>> from weft.ops.nan import count_nans
    >>> count_nans(np.array([1.0, np.nan]))
    1
    """
    array = np.asarray(array)
    return int(np.isnan(array).sum()) if kind(array.dtype) in "fc" else 0


def nan_error(op: str, result: Any, arrays: Sequence[Any]) -> DomainError:
    """The error for a result of an op, with the ranges of what it was made of.

    >>> import numpy as np
    >>> from weft.ops.nan import nan_error
    >>> print(nan_error("log", np.float32([np.nan]), [np.float32([-2])]).message)
    results must not be NaN, got 1 in f32[1], from f32[1] in -2..-2
    """
    given = ", ".join(_range(np.asarray(a)) for a in arrays)
    return DomainError(
        op,
        f"results must not be NaN, got {count_nans(result)} in {_type(result)}"
        + (f", from {given}" if given else ""),
        hint="check_nan=True asks for this error",
    )


def _type(array: Any) -> str:
    return f"{short_name(array.dtype)}[{','.join(map(str, array.shape))}]"


def _range(array: Any) -> str:
    """An array in words: its type, the range of its numbers, and how many are none."""
    if array.size == 0 or kind(array.dtype) in "bc":
        return _type(array)
    count = count_nans(array)
    if count == array.size:
        return f"{_type(array)} of NaN"
    wide = array.astype(np.float64)
    return f"{_type(array)} in {np.nanmin(wide):.4g}..{np.nanmax(wide):.4g}" + (
        f" and {count} NaN" if count else ""
    )
