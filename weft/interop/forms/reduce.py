"""Reductions along axes, running ones, moments, and order along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.base.dtypes import DType, bool_
from weft.base.sizes import Size
from weft.interop.forms.elements import along, as_bool, floating, is_float, neutral
from weft.tensor.tensor import Tensor

Axes = Sequence[int]


def reduced(how: str, x: Tensor, axes: int | Axes | None = None, keepdims: bool = False) -> Tensor:
    """x reduced along axes; over none of them it is x itself, in its own dtype.

    Args:
        how: "sum", "prod", "mean", "max", "min", "any", "all" or "logsumexp".
        x: the tensor.
        axes: of x; None for all.
        keepdims: whether they stay, of size 1.
    """
    given = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    x = as_bool(x) if how in ("any", "all") else floating(x) if how in ("mean", "logsumexp") else x
    return _FUNCTIONS[how](x, tuple(given), keepdims) if given else x


def _own_dtype(x: Tensor) -> DType | None:
    """The dtype to compute in: integers are to stay as narrow as they are, others do so by themselves."""
    return None if is_float(x) else x.dtype


def _is_empty(x: Tensor, axes: Axes) -> bool:
    return any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes)


def _extreme(how: str, function: Any, of_bools: Any) -> Callable[[Tensor, Axes, bool], Tensor]:
    def reduce(x: Tensor, axes: Axes, keepdims: bool) -> Any:
        if _is_empty(x, axes):
            return weft.full_like(weft.sum(x, axis=axes, keepdims=keepdims), neutral(how, x.dtype))
        if x.dtype == bool_:
            return of_bools(x, axis=axes, keepdims=keepdims)
        return function(_never_empty(how, x, axes), axis=axes, keepdims=keepdims)

    return reduce


def _never_empty(how: str, x: Tensor, axes: Axes) -> Tensor:
    """x with one more element along axes of open sizes, which may be 0: one that changes no extreme."""
    for axis in [a % x.ndim for a in axes]:
        if isinstance(x.shape[axis], Size):
            widths = [(0, int(i == axis)) for i in range(x.ndim)]
            x = weft.pad(x, widths, value=neutral(how, x.dtype))
    return x


def _log_sum_exp(x: Tensor, axes: Axes, keepdims: bool) -> Any:
    if _is_empty(x, axes):
        return weft.log(weft.sum(x, axis=axes, keepdims=keepdims))
    return weft.logsumexp(x, axis=axes, keepdims=keepdims)


_FUNCTIONS: dict[str, Callable[[Tensor, Axes, bool], Tensor]] = {
    "sum": lambda x, axes, keep: weft.sum(x, axis=axes, keepdims=keep, dtype=_own_dtype(x)),
    "prod": lambda x, axes, keep: weft.prod(x, axis=axes, keepdims=keep, dtype=_own_dtype(x)),
    "mean": lambda x, axes, keep: weft.mean(x, axis=axes, keepdims=keep),
    "max": _extreme("max", weft.amax, weft.any),
    "min": _extreme("min", weft.amin, weft.all),
    "any": lambda x, axes, keep: weft.any(x, axis=axes, keepdims=keep),
    "all": lambda x, axes, keep: weft.all(x, axis=axes, keepdims=keep),
    "logsumexp": _log_sum_exp,
}


# Along one axis


def running(how: str, x: Tensor, axis: int, *, reverse: bool = False, exclusive: bool = False) -> Tensor:
    """All elements up to each one combined, from the end if asked, and without the element itself.

    ``how`` is "sum", "prod", "max", "min" or "logsumexp"; of these the first two can leave it out.
    """
    given = weft.flip(x, axis=axis) if reverse else x
    out: Tensor = _RUNNING[how](given, axis)
    if exclusive:
        widths = [(1, 0) if i == axis % x.ndim else (0, 0) for i in range(x.ndim)]
        padded = weft.pad(out, widths, value=neutral(how, x.dtype))
        out = padded[along(axis % x.ndim, slice(0, -1))]
    out = weft.flip(out, axis=axis) if reverse else out
    return out


def _running_log_sum(x: Tensor, axis: int) -> Any:
    rows = weft.moveaxis(x, axis, 0)

    def step(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        new = weft.logaddexp(total, row)
        return new, new

    _, out = weft.scan(step, weft.full(rows.shape[1:], -weft.inf, dtype=x.dtype), rows)
    return weft.moveaxis(out, 0, axis)


_RUNNING: dict[str, Callable[[Tensor, int], Any]] = {
    "sum": lambda x, axis: weft.cumsum(x, axis=axis, dtype=_own_dtype(x)),
    "prod": lambda x, axis: weft.cumprod(x, axis=axis, dtype=_own_dtype(x)),
    "max": lambda x, axis: weft.cummax(x, axis=axis)[0],
    "min": lambda x, axis: weft.cummin(x, axis=axis)[0],
    "logsumexp": _running_log_sum,
}


def ranked(x: Tensor, axis: int, *, descending: bool = False, count: Any = None) -> tuple[Tensor, Tensor]:
    """The elements in order along an axis (or the first ones of them), and the places they had.

    Equal elements stay in their order.
    """
    places = weft.argsort(x, axis=axis, descending=descending, stable=True)
    if count is not None:
        places = places[along(axis % x.ndim, slice(0, count))]
    return weft.take_along_axis(x, places, axis=axis), places


def moments(
    x: Tensor, axes: int | Sequence[int], eps: float, *, keepdims: bool = True
) -> tuple[Tensor, Tensor]:
    """The mean along axes, and one over the deviation."""
    variance = weft.var(x, axis=axes, keepdims=keepdims)
    return weft.mean(x, axis=axes, keepdims=keepdims), weft.rsqrt(variance + eps)
