"""Conversions between dtypes on LLVM values, and the rounding of half precision.

bfloat16, and float16 where no instruction has it, are converted by their bits, in scalar instructions, so
that it runs in lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.backends.llvm.emit.types import HALVES, PARTS, REGISTER, Value, constant, intrinsic_suffix, vector
from weft.base.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int32,
    int64,
    integer_range,
    kind,
    uint16,
    uint32,
)
from weft.ops.scalar import integer_of_size

if TYPE_CHECKING:
    from weft.backends.llvm.emit.scalars import Scalars


class Casts:
    """The instructions cast and bitcast, written in the other scalar instructions."""

    def __init__(self, scalars: Scalars) -> None:
        self._scalars = scalars
        self._machine = scalars.machine
        self.writer = scalars.writer
        self.instruction, self.convert = scalars.registers.instruction, scalars.registers.convert
        self.arithmetic, self.in_lanes = scalars.arithmetic, scalars.registers.in_lanes

    def cast(self, x: Value, dtype: DType) -> Value:
        """x converted to dtype: floats to integers towards zero, anything to bool by x != 0."""
        if x.dtype == dtype:
            return x
        if x.number is not None and kind(x.dtype) in "biu":
            return constant(x.number, dtype)
        if x.dtype in PARTS:
            return self._from_complex(x, dtype)
        if dtype in PARTS:
            real = self.cast(x, PARTS[dtype])
            zero = self.in_lanes(constant(0, PARTS[dtype]), real.lanes)
            return Value(dtype, (*real.parts, *zero.parts), real.lanes, real.scope)
        if dtype == bool_:
            return self.truth(x)
        if kind(x.dtype) == "f":
            return self._from_float(x, dtype)
        return self._from_integer(x, dtype)

    def truth(self, x: Value) -> Value:
        """Whether a real is not 0; NaN is not."""
        code = "fcmp une" if kind(x.dtype) == "f" else "icmp ne"
        return self.instruction(code, bool_, self.rounded(x), constant(0, x.dtype))

    def _from_complex(self, x: Value, dtype: DType) -> Value:
        parts = [Value(PARTS[x.dtype], (part,), x.lanes, x.scope) for part in x.parts]
        if dtype == bool_:
            return self.arithmetic("or_", self.truth(parts[0]), self.truth(parts[1]))
        if dtype not in PARTS:
            return self.cast(parts[0], dtype)
        re, im = (self.cast(part, PARTS[dtype]) for part in parts)
        return Value(dtype, (*re.parts, *im.parts), x.lanes, x.scope)

    def _from_float(self, x: Value, dtype: DType) -> Value:
        x = self.rounded(x)
        if kind(dtype) != "f":
            return self._to_integer(x, dtype)
        if x.dtype == float64:
            out = self._narrowed(x, dtype)
        elif dtype == float64:
            out = self.convert("fpext", x, dtype)
        else:
            out = Value(dtype, x.parts, x.lanes, x.scope, None, x.dtype == dtype)
        return self.rounded(out)

    def _narrowed(self, x: Value, dtype: DType) -> Value:
        """A double in the register of a narrower dtype, not rounded to half precision yet."""
        if dtype != float16:
            return self.convert("fptrunc", x, dtype)
        odd = rounded_to_odd(self._scalars, x)
        return Value(dtype, odd.parts, odd.lanes, odd.scope)

    def _to_integer(self, x: Value, dtype: DType) -> Value:
        """Towards zero; what is out of range is the nearest number of the dtype, and NaN is 0."""
        if dtype.itemsize >= 4:
            return self._saturating(x, dtype)
        least, most = integer_range(dtype)
        whole = self._scalars.max(self._saturating(x, int32), least)
        return self.convert("trunc", self._scalars.min(whole, most), dtype)

    def _saturating(self, x: Value, dtype: DType) -> Value:
        opcode = "fptoui" if kind(dtype) == "u" else "fptosi"
        source, target = vector(x.lanes, REGISTER[x.dtype]), vector(x.lanes, REGISTER[dtype])
        suffixes = ".".join(intrinsic_suffix(x.lanes, REGISTER[d]) for d in (dtype, x.dtype))
        name = f"@llvm.{opcode}.sat.{suffixes}"
        self.writer.declare(f"{target} {name}({source})")
        text = f"call {target} {name}({source} {x.parts[0]})"
        return Value(dtype, (self.writer.pure(text, x.scope),), x.lanes, self.writer.home(x.scope))

    def _from_integer(self, x: Value, dtype: DType) -> Value:
        signed = kind(x.dtype) == "i"
        if kind(dtype) == "f":
            return self.rounded(self.convert("sitofp" if signed else "uitofp", x, dtype))
        if REGISTER[x.dtype] == REGISTER[dtype]:
            return Value(dtype, x.parts, x.lanes, x.scope)
        wider = x.dtype == bool_ or dtype.itemsize > x.dtype.itemsize
        return self.convert(("sext" if signed else "zext") if wider else "trunc", x, dtype)

    # Half precision

    def rounded(self, x: Value) -> Value:
        """The number in the register as the dtype can hold it, if that is a half precision one."""
        if x.dtype not in HALVES or x.rounded:
            return x
        return self.from_bits(self.to_bits(x), x.dtype)

    def to_bits(self, x: Value) -> Value:
        """The bits of a half precision number, as uint16."""
        brain = x.dtype == bfloat16
        if brain and not self._machine.rounds_bfloat16:
            return bits_of_bfloat16(self._scalars, x)
        if not brain and not self._machine.converts_half:
            return bits_of_float16(self._scalars, x)
        type_ = "bfloat" if brain else "half"
        half = self.convert("fptrunc", x, x.dtype, type_)
        text = f"bitcast {vector(x.lanes, type_)} {half.parts[0]} to {vector(x.lanes, 'i16')}"
        return Value(uint16, (self.writer.pure(text, half.scope),), x.lanes, half.scope)

    def from_bits(self, bits: Value, dtype: DType) -> Value:
        """The half precision number with these bits."""
        if dtype == bfloat16 and self._machine.pairs_halves and bits.lanes and bits.lanes % 2 == 0:
            out = self._from_pairs(bits)
        elif dtype == bfloat16:
            out = bfloat16_of_bits(self._scalars, bits)
        elif not self._machine.converts_half:
            out = float16_of_bits(self._scalars, bits)
        else:
            text = f"bitcast {vector(bits.lanes, 'i16')} {bits.parts[0]} to {vector(bits.lanes, 'half')}"
            half = self.writer.pure(text, bits.scope)
            text = f"fpext {vector(bits.lanes, 'half')} {half} to {vector(bits.lanes, 'float')}"
            name = self.writer.pure(text, bits.scope)
            out = Value(dtype, (name,), bits.lanes, self.writer.home(bits.scope))
        return Value(dtype, out.parts, out.lanes, out.scope, None, True)

    def _from_pairs(self, bits: Value) -> Value:
        """bfloat16 numbers of which a register holds two: one instruction for each, and none to part them."""
        count, w = bits.lanes, self.writer
        pairs = w.pure(f"bitcast <{count} x i16> {bits.parts[0]} to <{count // 2} x i32>", bits.scope)
        held = Value(uint32, (pairs,), count // 2, w.home(bits.scope))
        low = self._scalars.shl(held, 16)
        high = self._scalars.and_(held, constant(0xFFFF0000, uint32))
        order = ", ".join([f"i32 {i // 2 + i % 2 * (count // 2)}" for i in range(count)])
        type_ = f"<{count // 2} x i32>"
        text = f"shufflevector {type_} {low.parts[0]}, {type_} {high.parts[0]}, <{count} x i32> <{order}>"
        out = Value(uint32, (w.pure(text, held.scope),), count, w.home(held.scope))
        return self.convert("bitcast", out, float32)

    def bitcast(self, x: Value, dtype: DType) -> Value:
        """The bits of x as another dtype of the same size."""
        if x.dtype == dtype:
            return x
        bits = self._bits(x)
        if dtype in HALVES:
            return self.from_bits(bits, dtype)
        if dtype == bool_:
            return self.truth(bits)
        if dtype in PARTS:
            return self._complex_of_bits(bits, dtype)
        if kind(dtype) == "f":
            return self.convert("bitcast", bits, dtype)
        return Value(dtype, bits.parts, bits.lanes, bits.scope, bits.number)

    def _bits(self, x: Value) -> Value:
        """The bits of a number, as an integer of its size."""
        if x.dtype in HALVES:
            return self.to_bits(x)
        if x.dtype == bool_:
            return self.cast(x, integer_of_size(x.dtype))
        if x.dtype in PARTS:
            return self._bits_of_complex(x)
        return self.convert("bitcast", x, integer_of_size(x.dtype)) if kind(x.dtype) == "f" else x

    def _bits_of_complex(self, x: Value) -> Value:
        parts = [Value(float32, (part,), x.lanes, x.scope) for part in x.parts]
        low, high = (self.convert("zext", self.convert("bitcast", p, int32), int64) for p in parts)
        return self.arithmetic("or_", low, self.instruction("shl", int64, high, constant(32, int64)))

    def _complex_of_bits(self, bits: Value, dtype: DType) -> Value:
        high = self.instruction("lshr", int64, bits, constant(32, int64))
        halves = (self.convert("trunc", x, int32) for x in (bits, high))
        re, im = (self.convert("bitcast", half, float32) for half in halves)
        return Value(dtype, (*re.parts, *im.parts), bits.lanes, bits.scope)


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


def rounded_to_odd(e: Scalars, x: Value) -> Value:
    """A double as float, such that rounding that to float16 gives what rounding the double itself would.

    Cut off, with the last bit set where something was lost: so it is never taken for a middle of two (S.
    Boldo, G. Melquiond, IEEE Transactions on Computers 57(4), 2008).
    """
    near = e.cast(x, float32)
    back, bits = e.cast(near, float64), e.bitcast(near, int32)
    beyond = e.cast(e.lt(e.abs(x), e.abs(back)), int32)
    return e.bitcast(e.or_(e.sub(bits, beyond), e.cast(e.not_(e.eq(back, x)), int32)), float32)


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
    held = Value(float32, x.parts, x.lanes, x.scope)  # a half is held in a float
    return e.cast(e.bitcast(held, int32), uint32)
