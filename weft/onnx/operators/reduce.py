"""Reductions along axes, the places of extremes, and sums that go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.base.dtypes import bool_, kind
from weft.onnx.operators.registry import Call, operator

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _axes(call: Call, x: Tensor, given: Tensor | None, *, since: int) -> tuple[int, ...] | None:
    """The axes to reduce; None where the elements are to stay apart."""
    if call.version >= since:
        found = None if given is None else call.ints(given, "axes")
    else:
        found = call.attribute("axes")
    if found:
        return tuple([int(a) % x.ndim for a in found])
    return None if call.attribute("noop_with_empty_axes", 0) else tuple(range(x.ndim))


def _reduce(call: Call, x: Tensor, given: Tensor | None, function: Reduction, *, since: int = 18) -> Tensor:
    axes = _axes(call, x, given, since=since)
    keep = bool(call.attribute("keepdims", 1))
    if axes:
        out = function(x, axes, keep)
    else:  # along an axis of one element each: what is done to single elements is done
        out = function(x[None], (0,), False)
    return out.astype(x.dtype, copy=False)


def _is_empty(x: Tensor, axes: tuple[int, ...]) -> bool:
    return any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes)


def _extreme(x: Tensor, axes: tuple[int, ...], keep: bool, *, largest: bool) -> Any:
    if x.dtype == bool_:
        return (weft.any if largest else weft.all)(x, axis=axes, keepdims=keep)
    if _is_empty(x, axes):
        like = weft.sum(x, axis=axes, keepdims=keep)
        if kind(x.dtype) == "f":
            return weft.full_like(like, -weft.inf if largest else weft.inf)
        info = weft.iinfo(x.dtype)
        return weft.full_like(like, info.min if largest else info.max)
    return (weft.max if largest else weft.min)(x, axis=axes, keepdims=keep)


def _total(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    return weft.sum(x, axis=axes, keepdims=keep, dtype=_own_dtype(x))


def _own_dtype(x: Tensor) -> Any:
    """The dtype to compute in: integers are to stay as narrow as they are, others do so by themselves."""
    return None if kind(x.dtype) in "fc" else x.dtype


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    if _is_empty(x, axes):
        return weft.log(_total(x, axes, keep))
    return weft.logsumexp(_floating(x), axis=axes, keepdims=keep)


def _floating(x: Tensor) -> Tensor:
    return x if kind(x.dtype) in "fc" else x.astype(weft.float64)


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceMax": lambda x, axes, keep: _extreme(x, axes, keep, largest=True),
    "ReduceMin": lambda x, axes, keep: _extreme(x, axes, keep, largest=False),
    "ReduceMean": lambda x, axes, keep: weft.mean(_floating(x), axis=axes, keepdims=keep),
    "ReduceProd": lambda x, axes, keep: weft.prod(x, axis=axes, keepdims=keep, dtype=_own_dtype(x)),
    "ReduceL1": lambda x, axes, keep: _total(weft.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: weft.sqrt(_floating(_total(x * x, axes, keep))),
    "ReduceLogSum": lambda x, axes, keep: weft.log(_floating(_total(x, axes, keep))),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, axes, keep: _total(x * x, axes, keep),
}


@operator(*_REDUCTIONS)
def reduction(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """A reduction along axes, which are an attribute up to version 17."""
    return _reduce(call, x, axes, _REDUCTIONS[call.op])


@operator("ReduceSum")
def total(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """The sum along axes, which are an attribute up to version 12."""
    return _reduce(call, x, axes, _total, since=13)


@operator("ArgMax", "ArgMin")
def place(call: Call, x: Tensor) -> Any:
    """The place of an extreme: the first one, or if asked the last."""
    axis = call.attribute("axis", 0) % x.ndim
    last = bool(call.attribute("select_last_index", 0))
    function = weft.argmax if call.op == "ArgMax" else weft.argmin
    out = function(weft.flip(x, axis=axis) if last else x, axis=axis, keepdims=True)
    if last:
        out = x.shape[axis] - 1 - out
    return out if call.attribute("keepdims", 1) else weft.squeeze(out, axis=axis)


@operator("CumSum", "CumProd")
def running(call: Call, x: Tensor, axis: Tensor) -> Any:
    """The sums or products of all elements up to each."""
    along = int(call.scalar(axis, "axis")) % x.ndim
    backwards = bool(call.attribute("reverse", 0))
    x = weft.flip(x, axis=along) if backwards else x
    function: Any = weft.cumsum if call.op == "CumSum" else weft.cumprod
    out = function(x, axis=along, dtype=_own_dtype(x))
    if call.attribute("exclusive", 0):
        widths = [(1, 0) if i == along else (0, 0) for i in range(x.ndim)]
        padded = weft.pad(out, widths, value=0 if call.op == "CumSum" else 1)
        out = padded[(*(slice(None),) * along, slice(0, -1))]
    return weft.flip(out, axis=along) if backwards else out
