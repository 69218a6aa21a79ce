"""What is wrong with a result that is not finite, and the error for it, as every backend words it.

A NaN is always wrong where it is looked for. An infinity is where it was made: of finite inputs, by an op
that was not asked for one. ``log(0)`` is that too, and often meant: infinities are looked for only if asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any

import numpy as np

from weft.base.dtypes import kind, short_name
from weft.errors import DomainError, NonFiniteError
from weft.ops.op import Array

NAN, ALL = True, "all"


def check_setting(op: str, check_nan: object) -> Any:
    """What ``check_nan`` says: False, True for NaN, "all" for infinities too; an error for anything else.

    >>> from weft.ops.nan import check_setting
    >>> check_setting("compile", "all")
    'all'
    """
    if isinstance(check_nan, bool) or check_nan == ALL:
        return check_nan
    raise DomainError(op, f'check_nan must be True, False or "all", got {check_nan!r}')


def describe_fault(result: Any, arrays: Sequence[Any], attrs: Mapping[str, Any], check: Any) -> str:
    """What is wrong with a result of an op, with the ranges of what it was made of; "" if nothing is.

    >>> import numpy as np
    >>> from weft.ops.nan import describe_fault
    >>> describe_fault(np.float32([np.nan]), [np.float32([-2])], {}, True)
    'results must not be NaN, got 1 in f32[1], from f32[1] in -2..-2'
    >>> describe_fault(np.float32([np.inf]), [np.float32([89])], {}, "all")
    'results must be finite, got 1 infinite in f32[1], from f32[1] in 89..89'
    """
    if not is_float(result):
        return ""
    given = ", ".join(describe_range(np.asarray(a)) for a in arrays)
    source = f", from {given}" if given else ""
    if nans := int(np.isnan(result).sum()):
        return f"results must not be NaN, got {nans} in {describe_type(result)}{source}"
    if check != ALL or asks_for_infinity(attrs):
        return ""
    count = int(np.isinf(result).sum())
    if not count or any(is_float(a) and not np.isfinite(a).all() for a in arrays):
        return ""
    return f"results must be finite, got {count} infinite in {describe_type(result)}{source}"


def asks_for_infinity(attrs: Mapping[str, Any]) -> bool:
    """Whether an infinity is among the attributes of an op, or regions, whose own nodes are looked at."""
    return any(
        (isinstance(x, float) and isinf(x)) or hasattr(x, "nodes")
        for attr in attrs.values()
        for x in (attr if isinstance(attr, tuple) else (attr,))
    )


def non_finite_error(
    op: str, result: object, arrays: Sequence[Any], attrs: Mapping[str, Any], check: object
) -> NonFiniteError | None:
    """The error for a result of an op; None if nothing is wrong with it.

    >>> import numpy as np
    >>> from weft.ops.nan import non_finite_error
    >>> non_finite_error("log", np.float32([0]), [np.float32([1])], {}, True) is None
    True
    """
    fault = describe_fault(result, arrays, attrs, check)
    return NonFiniteError(op, fault, hint=f"check_nan={check!r} asks for this error") if fault else None


def is_float(array: Array) -> bool:
    """Whether the elements of an array can be NaN.

    >>> import numpy as np
    >>> from weft.ops.nan import is_float
    >>> is_float(np.ones(2)), is_float(np.arange(2))
    (True, False)
    """
    return kind(np.asarray(array).dtype) in "fc"


def describe_type(array: Array) -> str:
    """The type of an array in words: ``f32[2,3]``."""
    return f"{short_name(array.dtype)}[{','.join(map(str, array.shape))}]"


def describe_range(array: Array) -> str:
    """An array in words: its type, the range of its numbers, and how many are none.

    >>> import numpy as np
    >>> from weft.ops.nan import describe_range
    >>> describe_range(np.array([1.0, np.nan, 3.0]))
    'f64[3] in 1..3 and 1 NaN'
    """
    if array.size == 0 or kind(array.dtype) in "bc":
        return describe_type(array)
    wide = array.astype(np.float64)
    count = int(np.isnan(wide).sum())
    if count == array.size:
        return f"{describe_type(array)} of NaN"
    return f"{describe_type(array)} in {np.nanmin(wide):.4g}..{np.nanmax(wide):.4g}" + (
        f" and {count} NaN" if count else ""
    )
