"""Constants, numbers in a row, casts, and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.base.dtypes import bool_, kind
from weft.base.sizes import Size
from weft.onnx.facts import Array
from weft.onnx.operators.registry import Call, enter_handlers, operator
from weft.onnx.operators.run_time import counted, counts
from weft.onnx.types import code_of
from weft.ops.bits import bitcast


@operator("Constant")
def constant(call: Call) -> Array:
    """A value that is in the model."""
    for name in ("value", "sparse_value"):
        if call.has(name):
            array: Array = call.attribute(name)
            return array
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        if call.has(name):
            return np.array(call.attribute(name), dtype)
        if call.has(f"{name}s"):
            return np.array(call.attribute(f"{name}s"), dtype)
    raise call.error("constants must be of numbers, got text")


@operator("ConstantOfShape")
def constant_of_shape(call: Call, shape: Tensor) -> Any:
    """One number in a shape."""
    value = call.attribute("value", np.zeros(1, np.float32))
    return weft.broadcast_to(weft.asarray(value.reshape(())), counts(call, shape, "input"))


@operator("Range")
def numbers(call: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Any:
    """Numbers from one to another."""
    given = {"start": start, "limit": limit, "delta": delta}
    unknown = [name for name, x in given.items() if call.sizes(x) is None]
    if unknown:
        call.leave_to_run(given[unknown[0]], unknown[0])
        return _numbers_told(start, limit, delta)
    first, end, step = (call.scalar(x, name) for name, x in given.items())
    if not any(isinstance(x, Size) for x in (first, end, step)):
        count = max(int(np.ceil((end - first) / step)), 0)
        return (weft.arange(count, dtype=weft.int64) * step + first).astype(start.dtype, copy=False)
    return weft.arange(first, end, step, dtype=start.dtype)


def _numbers_told(start: Tensor, limit: Tensor, delta: Tensor) -> Any:
    """The same, of which only a run tells how many there are."""
    first, end, step = (x.reshape(()).astype(weft.float64) for x in (start, limit, delta))
    row = counted(weft.ceil((end - first) / step).astype(weft.int64))
    return row.astype(start.dtype) * delta.reshape(()) + start.reshape(())


def cast_to(call: Call, x: Tensor, code: int) -> Tensor:
    """The numbers of a tensor in an ONNX element type."""
    if not isinstance(x, Tensor):
        raise call.error("text cannot become numbers")
    if call.narrow_type(code) or call.narrow(x):
        from weft.onnx.operators.quantize import cast_narrow

        return cast_narrow(call, x, code)
    dtype = call.dtype(code)
    if kind(x.dtype) == "f" and kind(dtype) in "iu":
        small = dtype.itemsize < 4  # what is too large for it keeps its last bits, as C programs have it
        return (x.astype(weft.int32) if small else x).astype(dtype)
    return x.astype(dtype, copy=False)


# Random numbers


def _dtype(call: Call, like: Tensor | None) -> Any:
    if call.has("dtype"):
        return call.dtype(call.attribute("dtype"))
    return weft.float32 if like is None else like.dtype


def _drawn(call: Call, like: Tensor | None, draw: Callable[..., Any], scale: float, start: float) -> Any:
    """Numbers that are drawn, times a scale and plus a start."""
    shape = call.attribute("shape") if like is None else like.shape
    return (draw(*shape, dtype=weft.float32) * scale + start).astype(_dtype(call, like), copy=False)


@operator("Multinomial", folds=False)
def multinomial(call: Call, x: Tensor, *, dtype: int = 6, sample_size: int = 1) -> Tensor:
    """Classes drawn with the probabilities whose logarithms are the input."""
    found = weft.multinomial(weft.softmax(x, axis=-1), sample_size, replacement=True)
    return found.astype(call.dtype(dtype), copy=False)


@operator("BitCast")
def bit_cast(call: Call, x: Tensor, *, to: int) -> Tensor:
    """The bits of the numbers as others of the same size."""
    dtype = call.dtype(to)
    if bool_ in (x.dtype, dtype) or x.dtype == dtype:
        return x.astype(dtype, copy=False)
    out: Tensor = bitcast.on_tensors(x, dtype=dtype)
    return out


enter_handlers(
    {
        "EyeLike": lambda call, x, *, k=0: weft.eye(*x.shape, k=k, dtype=_dtype(call, x)),
        "Cast": lambda call, x, *, to: cast_to(call, x, to),
        "CastLike": lambda call, x, like: cast_to(call, x, code_of(like.dtype, call.narrow(like))),
    }
)
enter_handlers(
    {
        "RandomNormal RandomNormalLike": lambda call, like=None, *, scale=1.0, mean=0.0: _drawn(
            call, like, weft.randn, scale, mean
        ),
        "RandomUniform RandomUniformLike": lambda call, like=None, *, low=0.0, high=1.0: _drawn(
            call, like, weft.rand, high - low, low
        ),
        "Bernoulli": lambda call, x: (weft.rand(*x.shape, dtype=x.dtype) < x).astype(_dtype(call, x)),
    },
    folds=False,
)
