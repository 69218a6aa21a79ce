"""Quantisation: numbers as small integers or floats by a scale and a zero point, and products of these."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.narrow import decode, encode, is_small_float, limits
from weft.onnx.operators.registry import Call, operator
from weft.onnx.types import carrier_of


def _spread(call: Call, x: Tensor, values: Tensor) -> Any:
    """Scales or zero points to broadcast against x: one, or one for each place or block along an axis."""
    block = call.attribute("block_size", 0)
    if not block and values.shape in ((), (1,)):
        return values.reshape(())
    axis = call.attribute("axis", 1) % x.ndim if x.ndim > 1 else 0
    if not block:
        return values.reshape((-1, *(1,) * (x.ndim - axis - 1)))
    wide = weft.repeat(values, block, axis=axis)
    if wide.shape[axis] == x.shape[axis]:
        return wide
    return wide[(slice(None),) * axis + (slice(0, x.shape[axis]),)]


def _saturated(x: Tensor, zero: Any, low: int, high: int) -> Any:
    """Rounded (halves to even), moved by a zero point and kept within limits; still floating."""
    return weft.clip(weft.round(x) + zero, float(low), float(high))


@operator("QuantizeLinear")
def quantize_linear(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """``x / scale + zero``, rounded and kept within the limits of the type of zero."""
    code, precision = call.attribute("output_dtype", 0), call.attribute("precision", 0)
    narrow = call.narrow(zero) if zero is not None else call.narrow_type(code) if code else None
    dtype = zero.dtype if zero is not None else call.dtype(code) if code else weft.uint8
    factor = decode(scale, call.narrow(scale))
    work = call.dtype(precision) if precision else factor.dtype
    work = work if weft.isdtype(work, "real floating") else weft.float32
    ratio = x.astype(work) / _spread(call, x, factor.astype(work))
    if is_small_float(narrow):
        moved = ratio if zero is None else ratio + _spread(call, x, decode(zero, narrow)).astype(work)
        out = encode(moved, str(narrow), bool(call.attribute("saturate", 1)))
        return call.as_narrow(out, narrow)
    wide = weft.float64 if work == weft.float64 else weft.float32
    start: Any = 0.0 if zero is None else _spread(call, x, zero).astype(wide)
    out = _saturated(ratio.astype(wide), start, *limits(dtype, narrow))
    return call.as_narrow(out.astype(carrier_of(narrow) if narrow else dtype), narrow)


@operator("DequantizeLinear")
def dequantize_linear(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Any:
    """``(x - zero) * scale``."""
    factor = decode(scale, call.narrow(scale))
    dtype = call.dtype(call.attribute("output_dtype")) if call.attribute("output_dtype") else factor.dtype
    numbers = decode(x, call.narrow(x))
    if zero is not None:
        start = _spread(call, x, decode(zero, call.narrow(zero)))
        if not is_small_float(call.narrow(x)):
            numbers, start = numbers.astype(weft.int32), start.astype(weft.int32)
        numbers = numbers - start
    return numbers.astype(dtype) * _spread(call, x, factor).astype(dtype)


def requantize(total: Tensor, factor: Tensor, zero: Tensor) -> Any:
    """Exact sums of products, scaled and quantised to the type of a zero point."""
    wide = total.astype(weft.float32) * factor.astype(weft.float32)
    start = zero.reshape(()) if zero.shape == (1,) else zero
    return _saturated(wide, start.astype(weft.float32), *limits(zero.dtype, None)).astype(zero.dtype)


# Products


def _centred(x: Tensor, zero: Tensor | None, rows: bool) -> Tensor:
    """Integers less their zero point, in int32; a vector of these is one for each row or column."""
    x = x.astype(weft.int32)
    return x if zero is None else x - _along(zero.astype(weft.int32), rows)


def _along(values: Tensor, rows: bool) -> Tensor:
    if values.shape == (1,):
        return values.reshape(())
    return values[:, None] if rows and values.ndim == 1 else values


@operator("MatMulInteger")
def matmul_integer(
    call: Call, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """A product of integers less their zero points, in int32."""
    return _centred(a, a_zero, rows=True) @ _centred(b, b_zero, rows=False)


@operator("QLinearMatMul")
def qlinear_matmul(call: Call, *given: Tensor) -> Any:
    """A product of quantised numbers, quantised again; the sums in between are exact."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = given
    total = _centred(a, a_zero, rows=True) @ _centred(b, b_zero, rows=False)
    factor = _along(a_scale, rows=True) * _along(b_scale, rows=False) / _along(y_scale, rows=True)
    return requantize(total, factor, y_zero)
