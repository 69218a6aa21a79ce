"""Quantisation: numbers as small integers or floats by a scale and a zero point, and products of these.

Element types that weft has no dtype for are narrow ones: numbers of 2 and 4 bits, floats of 4 and 8 bits.
Small integers are carried by their value, small floats by their bits (``weft.onnx.types``). Small floats
are few, so tables hold them all: a cast to one looks for its place among them, a cast from one looks it up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, operator
from weft.onnx.types import carrier_of, from_carried

Array = np.ndarray[Any, Any]

_INTEGERS = {"int4": (4, True), "uint4": (4, False), "int2": (2, True), "uint2": (2, False)}
_POWERS = "float8e8m0"  # powers of two without a sign


@dataclass(frozen=True, slots=True)
class Format:
    """What bits of a small float mean.

    Attributes:
        values: of the finite numbers that are not negative, by their code.
        sign: the bit that makes one negative.
        nan: the code of what is no number; where a type has none, what ONNX says instead.
        infinity: the code of infinity; None if there is none.
        signed_zero: whether the sign of 0 is kept; where it is not, the sign alone is no number.
    """

    values: Array
    sign: int
    nan: int
    infinity: int | None
    signed_zero: bool


@lru_cache
def _format(name: str) -> Format:
    codes = np.arange(8 if name == "float4e2m1" else 128, dtype=np.uint8)
    values = _values(name)[: len(codes)]
    finite = values[np.isfinite(values)]
    infinity = int(codes[np.isinf(values)][0]) if np.isinf(values).any() else None
    unsigned_zero = name.endswith("fnuz")
    nan = int(codes[np.isnan(values)][-1]) if np.isnan(values).any() else len(codes)  # the sign alone
    return Format(finite, len(codes), nan, infinity, not unsigned_zero)


@lru_cache
def _values(name: str) -> Array:
    """What each code means."""
    codes = np.arange(16 if name == "float4e2m1" else 256, dtype=np.uint8)
    return from_carried(codes, name).astype(np.float64)


def decode(x: Tensor, name: str | None) -> Any:
    """A tensor of a narrow type as numbers that weft computes with: float32, or the integers themselves."""
    if name is None or name in _INTEGERS:
        return x
    return weft.take(weft.asarray(_values(name).astype(np.float32)), x.astype(weft.int64), axis=0)


def cast_narrow(call: Call, x: Tensor, to: int) -> Tensor:
    """A cast of which either side is a narrow type; ``to`` is ONNX's code of a type."""
    numbers = decode(x, call.narrow(x))
    target = call.narrow_type(to)
    if target is None:
        return call.as_narrow(numbers.astype(call.dtype(to)), None)
    saturate = bool(call.attribute("saturate", 1))
    return call.as_narrow(encode(numbers, target, saturate, call.attribute("round_mode", "up")), target)


def encode(x: Tensor, name: str, saturate: bool = True, round_mode: str = "up") -> Any:
    """Numbers as a narrow type, in the dtype that carries it."""
    if name in _INTEGERS:
        return _as_small_integer(x, *_INTEGERS[name]).astype(carrier_of(name))
    if not weft.isdtype(x.dtype, "real floating"):
        x = x.astype(weft.float32)
    if x.dtype.itemsize < 4:
        x = x.astype(weft.float32)
    if name == _POWERS:
        return _as_power(x, saturate, round_mode)
    return _as_small_float(x, _format(name), saturate or name == "float4e2m1")


def _as_small_integer(x: Tensor, bits: int, signed: bool) -> Any:
    """The lowest bits of an integer; what is after the point is cut off."""
    whole = x.astype(weft.int32)
    kept = whole & (2**bits - 1)
    return weft.where(kept >= 2 ** (bits - 1), kept - 2**bits, kept) if signed else kept


def _as_small_float(x: Tensor, form: Format, saturate: bool) -> Any:
    """Rounded to the nearest number, ties to the even code."""
    last = len(form.values) - 1
    code = weft.searchsorted(weft.asarray(_borders(form, x.dtype)), weft.abs(x), side="left")
    if saturate:
        code = weft.minimum(code, last)
    else:
        code = weft.where(code > last, form.nan if form.infinity is None else form.infinity, code)
    negative = weft.signbit(x) if form.signed_zero else (x < 0) & (code > 0)
    code = weft.where(negative & (code < form.sign), code + form.sign, code)
    return weft.where(weft.isnan(x), form.nan, code).astype(weft.uint8)


def _borders(form: Format, dtype: Any) -> Any:
    """Above which number the next code is nearer; just before the middle where that goes to an even one."""
    step = form.values[-1] - form.values[-2]
    values = np.append(form.values, form.values[-1] + step)
    middles = ((values[1:] + values[:-1]) / 2).astype(dtype)
    odd = np.arange(len(middles)) % 2 == 1
    return np.where(odd, np.nextafter(middles, np.asarray(0, dtype)), middles).astype(dtype)


def _as_power(x: Tensor, saturate: bool, mode: str) -> Any:
    """The exponent of the power of two above, below or nearest to a number (of two as near the upper)."""
    powers = 2.0 ** np.arange(-127, 128)
    if mode == "up":
        code = weft.searchsorted(weft.asarray(powers.astype(x.dtype)), x, side="left")
    elif mode == "down":
        code = weft.searchsorted(weft.asarray(powers.astype(x.dtype)), x, side="right") - 1
    else:
        code = weft.searchsorted(weft.asarray((powers * 1.5).astype(x.dtype)), x, side="right")
    bad = weft.isnan(x)
    if not saturate:
        bad = bad | (x > float(powers[-1])) | (x < float(powers[0]))
    return weft.where(bad, 255, weft.clip(code, 0, 254)).astype(weft.uint8)


def limits(x: Any, name: str | None) -> tuple[int, int]:
    """The least and the largest number of an integer type: a narrow one, or the dtype of x."""
    if name in _INTEGERS:
        bits, signed = _INTEGERS[str(name)]
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    info = weft.iinfo(x)
    return int(info.min), int(info.max)


def is_small_float(name: str | None) -> bool:
    """Whether a narrow type is a float."""
    return name is not None and name not in _INTEGERS


# Quantisation


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
