"""Single elements: their dtypes, the ends of these, quotients, bounds; and the parts of one axis."""

from __future__ import annotations

from typing import Any

import weft
from weft.base.dtypes import DType, bool_, kind
from weft.base.sizes import Size
from weft.ops.size import count_to
from weft.tensor.tensor import Tensor

Number = bool | int | float


def astype(x: Tensor, dtype: DType) -> Tensor:
    """A tensor in a dtype; the same one if it has it."""
    return x if x.dtype == dtype else weft.astype(x, dtype)


def as_bool(x: Tensor) -> Tensor:
    """Whether each element is other than zero."""
    return x if x.dtype == bool_ else x != 0


def is_float(x: Tensor) -> bool:
    """Whether a tensor holds real or complex floating numbers."""
    return kind(x.dtype) in "fc"


def floating(x: Tensor) -> Tensor:
    """A tensor of floating numbers; integers become float64."""
    return x if is_float(x) else x.astype(weft.float64)


def lowest(dtype: DType) -> Number:
    """What no number of a dtype is below."""
    if kind(dtype) in "fc":
        return -weft.inf
    return False if dtype == bool_ else int(weft.iinfo(dtype).min)


def highest(dtype: DType) -> Number:
    """What no number of a dtype is above."""
    if kind(dtype) in "fc":
        return weft.inf
    return True if dtype == bool_ else int(weft.iinfo(dtype).max)


def neutral(how: str, dtype: DType) -> Number:
    """The number that changes nothing: of "sum", "prod", "max" or "min"."""
    if how in ("sum", "prod"):
        return 0 if how == "sum" else 1
    return lowest(dtype) if how == "max" else highest(dtype)


def whole_quotient(x: Any, y: Any) -> Any:
    """The quotient of integers, rounded towards zero."""
    down = weft.floor_divide(x, y)
    if kind(down.dtype) == "u":
        return down
    return weft.where(weft.logical_and(down < 0, down * y != x), down + 1, down)


def clamped(x: Any, low: Any = None, high: Any = None) -> Any:
    """x within bounds, of which either may be None; where these cross, the upper one."""
    x = x if low is None else weft.maximum(x, low)
    return x if high is None else weft.minimum(x, high)


def dropped(x: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """x with a share of its elements made 0 and the others larger, and which were kept."""
    kept = weft.rand(*x.shape) >= share
    return weft.where(kept, x / (1.0 - share) if share < 1 else x, weft.zeros((), dtype=x.dtype)), kept


# Along an axis


def along(axis: int, part: Any) -> tuple[Any, ...]:
    """The key of a part of one axis, and all of those before it."""
    return (*(slice(None),) * axis, part)


def cut(x: Tensor, axis: int, sizes: Any) -> list[Tensor]:
    """Parts of some sizes along an axis, which may be named."""
    out: list[Tensor] = []
    start: Any = 0
    for size in sizes:
        out.append(x[along(axis % x.ndim, slice(start, start + size))])
        start = start + size
    return out


def numbers_below(size: Any, after: int = 0) -> Tensor:
    """The whole numbers from 0 up to a size, which may be named; along an axis with so many after it."""
    row = count_to(size, weft.int64)
    row = row if isinstance(row, Tensor) else weft.tensor(row)
    return weft.reshape(row, (size, *(1,) * after)) if after else row


def as_number(size: Any) -> Any:
    """A size as an operand: itself where it is known, else a tensor that a run fills."""
    return weft.zeros((), dtype=weft.int64) + size if isinstance(size, Size) else size
