"""Constants, numbers in a row, casts, and random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.base.dtypes import bool_, kind
from weft.base.sizes import Size
from weft.onnx.facts import Array
from weft.onnx.operators.registry import Call, operator
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
    return weft.broadcast_to(weft.asarray(value.reshape(())), call.ints(shape, "input"))


@operator("Range")
def numbers(call: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Any:
    """Numbers from one to another."""
    first, end, step = (
        call.scalar(x, name) for x, name in ((start, "start"), (limit, "limit"), (delta, "delta"))
    )
    if not any(isinstance(x, Size) for x in (first, end, step)):
        count = max(int(np.ceil((end - first) / step)), 0)
        return (weft.arange(count, dtype=weft.int64) * step + first).astype(start.dtype, copy=False)
    return weft.arange(first, end, step, dtype=start.dtype)


@operator("EyeLike")
def eye_like(call: Call, x: Tensor) -> Tensor:
    """Ones on a diagonal, in the shape of a matrix."""
    dtype = call.dtype(call.attribute("dtype")) if call.has("dtype") else x.dtype
    rows, columns = x.shape
    k = call.attribute("k", 0)
    return weft.eye(rows, columns, k=k, dtype=dtype)


@operator("Cast")
def cast(call: Call, x: Tensor) -> Tensor:
    """The numbers in another element type."""
    return cast_to(call, x, call.attribute("to"))


@operator("CastLike")
def cast_like(call: Call, x: Tensor, like: Tensor) -> Tensor:
    """The numbers in the element type of another tensor."""
    return cast_to(call, x, code_of(like.dtype, call.narrow(like)))


def cast_to(call: Call, x: Tensor, code: int) -> Tensor:
    """The numbers of a tensor in an ONNX element type."""
    if not isinstance(x, Tensor):
        raise call.error("text cannot become numbers")
    if call.narrow_type(code) or call.narrow(x):
        from weft.onnx.operators.narrow import cast_narrow

        return cast_narrow(call, x, code)
    dtype = call.dtype(code)
    if kind(x.dtype) == "f" and kind(dtype) in "iu":
        return _whole(x, dtype)
    return x.astype(dtype, copy=False)


def _whole(x: Tensor, dtype: Any) -> Tensor:
    """Floats as integers; what is too large for a small type keeps its last bits, as C programs have it."""
    if dtype.itemsize < 4:
        return x.astype(weft.int32).astype(dtype)
    return x.astype(dtype)


# Random numbers


def _dtype(call: Call, like: Tensor | None) -> Any:
    if call.has("dtype"):
        return call.dtype(call.attribute("dtype"))
    return weft.float32 if like is None else like.dtype


def _shape(call: Call, like: Tensor | None) -> Any:
    return call.attribute("shape") if like is None else like.shape


@operator("RandomNormal", "RandomNormalLike", folds=False)
def normal(call: Call, like: Tensor | None = None) -> Any:
    """Numbers from a normal distribution."""
    out = weft.randn(*_shape(call, like), dtype=weft.float32)
    return (out * call.attribute("scale", 1.0) + call.attribute("mean", 0.0)).astype(
        _dtype(call, like), copy=False
    )


@operator("RandomUniform", "RandomUniformLike", folds=False)
def uniform(call: Call, like: Tensor | None = None) -> Any:
    """Numbers that are as likely as each other."""
    low, high = call.attribute("low", 0.0), call.attribute("high", 1.0)
    out = weft.rand(*_shape(call, like), dtype=weft.float32)
    return (out * (high - low) + low).astype(_dtype(call, like), copy=False)


@operator("Bernoulli", folds=False)
def bernoulli(call: Call, x: Tensor) -> Tensor:
    """1 with the probability that the input says."""
    return (weft.rand(*x.shape, dtype=x.dtype) < x).astype(_dtype(call, x))


@operator("Multinomial", folds=False)
def multinomial(call: Call, x: Tensor) -> Tensor:
    """Classes drawn with the probabilities whose logarithms are the input."""
    dtype = call.dtype(call.attribute("dtype", 6))
    count = call.attribute("sample_size", 1)
    return weft.multinomial(weft.softmax(x, axis=-1), count, replacement=True).astype(dtype, copy=False)


@operator("BitCast")
def bit_cast(call: Call, x: Tensor) -> Tensor:
    """The bits of the numbers as others of the same size."""
    dtype = call.dtype(call.attribute("to"))
    if bool_ in (x.dtype, dtype) or x.dtype == dtype:
        return x.astype(dtype, copy=False)
    out: Tensor = bitcast.on_tensors(x, dtype=dtype)
    return out
