"""Reductions along axes, sums that go on, and normalisation by statistics."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import weft
from weft import Tensor
from weft.interop.forms.elements import floating
from weft.interop.forms.reduce import moments, reduced, running
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
    everything = () if call.attribute("noop_with_empty_axes", 0) else range(x.ndim)
    along = tuple([int(a) % x.ndim for a in call.told(axes, "axes") or everything])
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
def cumulative(call: Call, x: Tensor, axis: Tensor, *, reverse: int = 0, exclusive: int = 0) -> Tensor:
    """The sums or products of all elements up to each."""
    how = "sum" if call.op == "CumSum" else "prod"

    def running_along(a: int) -> Tensor:
        return running(how, x, a, reverse=bool(reverse), exclusive=bool(exclusive))

    if call.known(axis) is not None:
        return running_along(int(call.scalar(axis, "axis")) % x.ndim)
    asked = weft.remainder(axis.reshape(()), x.ndim)  # a run tells it, and there are few
    return reduce(lambda out, a: weft.where(asked == a, running_along(a), out), range(x.ndim), x)


# Normalisation: over batches, features, groups, channels and single examples

_FLOAT = 1  # ONNX's code of float32


@operator("BatchNormalization")
def batch_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Any:
    """Each channel by given statistics; in training by those of x, and the given ones moved towards them."""
    eps = call.attribute("epsilon", 1e-5)
    if not call.attribute("training_mode", 0):
        return weft.batch_norm(x, mean, var, scale, bias, eps=eps)
    keep, axes = call.attribute("momentum", 0.9), (0, *range(2, x.ndim))
    wide = x.astype(mean.dtype)
    own_mean, own_var = weft.mean(wide, axis=axes), weft.var(wide, axis=axes)
    out = weft.batch_norm(x, own_mean, own_var, scale, bias, eps=eps)
    return out, mean * keep + own_mean * (1 - keep), var * keep + own_var * (1 - keep)


@operator("GroupNormalization")
def group_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int) -> Any:
    """Groups of channels of each example; before version 21 there is one scale for each group."""
    if call.version >= 21:
        call.agree(x.shape[1], scale.shape[0], "channels and scales")
    else:
        scale, bias = (weft.repeat(p, x.shape[1] // num_groups, axis=0) for p in (scale, bias))
    wide, scale, bias = (t.astype(_stash(call, x)) for t in (x, scale, bias))
    return weft.group_norm(wide, num_groups, scale, bias, call.attribute("epsilon", 1e-5)).astype(x.dtype)


@operator("LayerNormalization")
def layer_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    """The axes from one on; also the mean and one over the spread, if they are used."""
    first, eps = call.attribute("axis", -1) % x.ndim, call.attribute("epsilon", 1e-5)
    sizes, dtype = x.shape[first:], _stash(call, x)
    wide = x.astype(dtype)
    if scale.shape == sizes and (bias is None or bias.shape == sizes) and dtype == x.dtype:
        out = weft.layer_norm(x, sizes, scale, bias, eps)
    else:
        out = weft.layer_norm(wide, sizes, eps=eps).astype(x.dtype) * scale
        out = out if bias is None else out + bias
    if not any(call.outputs[1:]):
        return out
    return out, *moments(wide, tuple(range(first, x.ndim)), eps)


@operator("RMSNormalization")
def rms_normalization(call: Call, x: Tensor, scale: Tensor) -> Any:
    """The axes from one on, divided by the root of their mean square."""
    first, eps = call.attribute("axis", -1) % x.ndim, call.attribute("epsilon", 1e-5)
    sizes, dtype = x.shape[first:], _stash(call, x)
    if scale.shape == sizes and dtype == x.dtype:
        return weft.rms_norm(x, sizes, scale, eps)
    return weft.rms_norm(x.astype(dtype), sizes, eps=eps).astype(scale.dtype) * scale


def _stash(call: Call, x: Tensor) -> Any:
    """The dtype that statistics are computed in."""
    asked = call.dtype(call.attribute("stash_type", _FLOAT))
    return x.dtype if x.dtype == weft.float64 else asked


@operator("LRN")
def lrn(
    call: Call, x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Any:
    """Each element by the squares of neighbouring channels; of an even number one more after it."""
    if size % 2:
        return weft.local_response_norm(x, size, alpha, beta, bias)
    return weft.flip(weft.local_response_norm(weft.flip(x, axis=1), size, alpha, beta, bias), axis=1)


@operator("LpNormalization")
def lp_normalization(call: Call, x: Tensor, *, axis: int = -1, p: int = 2) -> Any:
    """x divided by its norm along an axis; 0 where that is 0."""
    norm = weft.linalg.vector_norm(x, axis=axis, keepdims=True, ord=p)
    return weft.where(norm == 0, 0.0, x / weft.where(norm == 0, 1.0, norm))


@operator("InstanceNormalization")
def instance_normalization(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Any:
    """Each channel of each example."""
    call.agree(x.shape[1], scale.shape[0], "channels and scales")
    return weft.group_norm(x, x.shape[1], scale, bias, epsilon)
