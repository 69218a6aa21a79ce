"""Half precision by the bits: conversions between float and bfloat16, or float16 where no instruction has it.

Written in scalar instructions, so that it runs in lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.backends.llvm.emit.types import Value
from weft.base.dtypes import float32, int32, uint16, uint32

if TYPE_CHECKING:
    from weft.backends.llvm.emit.scalars import Scalars

_INFINITY = 0x7F800000  # of float
_LARGEST = 0x47800000  # 2**16, where float16 is infinite
_SMALLEST = 0x38800000  # 2**-14, its smallest normal number
_ALIGN = 0.5  # its last bit is that of the smallest float16 number: a sum with it rounds there


def bits_of_bfloat16(e: Scalars, x: Value) -> Value:
    """A float rounded to bfloat16, the even one of two, as bits in uint16."""
    bits = _as_bits(e, x)
    high = e.shr(bits, 16)
    number = e.shr(e.add(bits, e.add(e.and_(high, 1), 0x7FFF)), 16)
    is_nan = e.lt(_INFINITY, e.and_(bits, 0x7FFFFFFF))
    return e.cast(e.select(is_nan, e.or_(high, 0x40), number), uint16)


def bfloat16_of_bits(e: Scalars, bits: Value) -> Value:
    """A bfloat16 number as float."""
    return e.bitcast(e.shl(e.cast(bits, uint32), 16), float32)


def bits_of_float16(e: Scalars, x: Value) -> Value:
    """A float rounded to float16, the even one of two, as bits in uint16."""
    bits = _as_bits(e, x)
    size = e.and_(bits, 0x7FFFFFFF)
    special = e.select(e.lt(_INFINITY, size), 0x7E00, e.constant(0x7C00, uint32))
    small = e.sub(e.bitcast(e.add(e.bitcast(size, float32), _ALIGN), uint32), 0x3F000000)
    odd = e.and_(e.shr(size, 13), 1)
    normal = e.shr(e.add(e.add(size, odd), (0xFFF - (112 << 23)) % 2**32), 13)
    finite = e.select(e.lt(size, _SMALLEST), small, normal)
    number = e.select(e.lt(size, _LARGEST), finite, special)
    return e.cast(e.or_(number, e.and_(e.shr(bits, 16), 0x8000)), uint16)


def float16_of_bits(e: Scalars, bits: Value) -> Value:
    """A float16 number as float."""
    wide = e.cast(bits, uint32)
    size = e.shl(e.and_(wide, 0x7FFF), 13)
    number = e.bitcast(e.mul(e.bitcast(size, float32), 2.0**112), uint32)
    number = e.select(e.lt(size, 0x7C00 << 13), number, e.or_(size, _INFINITY))
    return e.bitcast(e.or_(number, e.shl(e.and_(wide, 0x8000), 16)), float32)


def _as_bits(e: Scalars, x: Value) -> Value:
    return e.cast(e.bitcast(_as_float(x), int32), uint32)


def _as_float(x: Value) -> Value:
    """A half precision number, which is held in a float, as that float."""
    return Value(float32, x.parts, x.lanes, x.scope)
