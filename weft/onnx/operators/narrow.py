"""Element types that weft has no dtype for: numbers of 2 and 4 bits, and floats of 4 and 8 bits.

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
from weft.onnx.operators.registry import Call
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
