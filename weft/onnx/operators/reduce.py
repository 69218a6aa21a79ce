"""Reductions along axes, the places of extremes, and sums that go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.interop.forms.elements import floating
from weft.interop.forms.reduce import reduced, running
from weft.onnx.operators.registry import Call, operator

Reduce = Callable[[str, Tensor], Tensor]  # along the axes of a call

_REDUCTIONS: dict[str, Callable[[Tensor, Reduce], Any]] = {
    "ReduceMax": lambda x, over: over("max", x),
    "ReduceMin": lambda x, over: over("min", x),
    "ReduceMean": lambda x, over: over("mean", x),
    "ReduceSum": lambda x, over: over("sum", x),
    "ReduceProd": lambda x, over: over("prod", x),
    "ReduceL1": lambda x, over: over("sum", weft.abs(x)),
    "ReduceL2": lambda x, over: weft.sqrt(floating(over("sum", x * x))),
    "ReduceLogSum": lambda x, over: weft.log(floating(over("sum", x))),
    "ReduceLogSumExp": lambda x, over: over("logsumexp", x),
    "ReduceSumSquare": lambda x, over: over("sum", x * x),
}


@operator(*_REDUCTIONS)
def reduction(call: Call, x: Tensor, axes: Tensor | None = None) -> Any:
    """A reduction along axes, which are an attribute up to version 17, or 12 for sums."""
    if call.version >= (13 if call.op == "ReduceSum" else 18):
        given = None if axes is None else call.ints(axes, "axes")
    else:
        given = call.attribute("axes")
    if given:
        along = tuple([int(a) % x.ndim for a in given])
    else:
        along = () if call.attribute("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    keep = bool(call.attribute("keepdims", 1))
    out = _REDUCTIONS[call.op](x, lambda how, values: reduced(how, values, along, keep))
    return out.astype(x.dtype, copy=False)


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
def cumulative(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    """The sums or products of all elements up to each."""
    reverse, exclusive = (bool(call.attribute(name, 0)) for name in ("reverse", "exclusive"))
    along = int(call.scalar(axis, "axis")) % x.ndim
    how = "sum" if call.op == "CumSum" else "prod"
    return running(how, x, along, reverse=reverse, exclusive=exclusive)
