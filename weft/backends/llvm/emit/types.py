"""How dtypes and numbers are spelled in LLVM assembly, and the values that code is written with.

A ``Value`` names one or two registers (a complex number has two), each a scalar or, inside a vector loop, a
vector of lanes. bool is i1 in a register and a byte in memory; float16 and bfloat16 are float in registers.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np

from weft.base.dtypes import DTYPES, DType, bfloat16, bool_, float16, int64, kind, real_dtype
from weft.base.records import dataclass

HALVES = frozenset({float16, bfloat16})
PARTS: dict[DType, DType] = {d: real_dtype(d) for d in DTYPES if kind(d) == "c"}
WHOLES: dict[DType, DType] = {part: d for d, part in PARTS.items()}


def _register(dtype: DType) -> str:
    """The type of a number, or of its parts, in a register."""
    if kind(dtype) in "iu":
        return f"i{8 * dtype.itemsize}"
    return "i1" if dtype == bool_ else "double" if real_dtype(dtype).itemsize == 8 else "float"


REGISTER: dict[DType, str] = {dtype: _register(dtype) for dtype in DTYPES}


@dataclass(eq=False, slots=True)
class Value:
    """A scalar or a vector in registers.

    Attributes:
        dtype: as weft sees it.
        parts: the text of each register: one, or two for a complex number.
        lanes: of each part; 0 for a scalar, which is the same in all lanes.
        scope: how deep in the function's nest of scopes it is defined; 0 for constants and parameters.
        number: for a constant, the number.
        rounded: for a half-precision dtype, whether the number in the register fits the dtype.
    """

    dtype: DType
    parts: tuple[str, ...]
    lanes: int
    scope: int
    number: Any = None
    rounded: bool = False


Operand = Value | complex | np.generic  # a number stands for a constant of the other operand's dtype


def vector(lanes: int, scalar: str) -> str:
    """The type of so many lanes; of none, the scalar type itself.

    >>> from weft.backends.llvm.emit.types import vector
    >>> vector(8, "float"), vector(0, "i64")
    ('<8 x float>', 'i64')
    """
    return f"<{lanes} x {scalar}>" if lanes else scalar


def splat(text: str, scalar: str) -> str:
    """A constant in all lanes, as text."""
    return f"splat ({scalar} {text})"


def intrinsic_suffix(lanes: int, scalar: str) -> str:
    """How a type is spelled in the name of an intrinsic: ``v8f32``, ``f64``, ``i32``."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(scalar, scalar)
    return f"v{lanes}{short}" if lanes else short


@lru_cache(maxsize=4096)
def whole(number: int) -> Value:
    """A constant of dtype int64, such as indices are made of.

    >>> from weft.backends.llvm.emit.types import whole
    >>> whole(3).parts
    ('3',)
    """
    return Value(int64, (str(number),), 0, 0, number, True)


def constant(number: complex | np.generic, dtype: DType) -> Value:
    """A constant of a dtype, exactly as NumPy converts the number.

    >>> import weft
    >>> from weft.backends.llvm.emit.types import constant
    >>> constant(0.1, weft.float32).parts
    ('0x3FB99999A0000000',)
    """
    if dtype == bool_:
        return Value(dtype, ("true" if number else "false",), 0, 0, bool(number), True)
    exact: Any = number
    if not isinstance(number, np.generic) or number.dtype != dtype:
        with np.errstate(all="ignore"):
            exact = np.asarray(number).astype(dtype)[()]
    if dtype in PARTS:
        return Value(dtype, (float_text(exact.real), float_text(exact.imag)), 0, 0, complex(exact), True)
    if REGISTER[dtype] in ("float", "double"):
        return Value(dtype, (float_text(exact),), 0, 0, float(exact), True)
    return Value(dtype, (str(int(exact)),), 0, 0, int(exact), True)


def float_text(number: float) -> str:
    """A floating constant by its bits, which LLVM spells as a double's also where it is a float."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"


def identity(instruction: str, dtype: DType) -> Value:
    """What an instruction that accumulates leaves as it is.

    >>> import weft
    >>> from weft.backends.llvm.emit.types import identity
    >>> identity("min", weft.float32).number, identity("max", weft.int8).number
    (inf, -128)
    """
    if instruction in ("add", "or_"):
        return constant(-0.0 if kind(dtype) in "fc" else 0, dtype)
    if instruction == "mul":
        return constant(1, dtype)
    if instruction == "and_":
        return constant(True if dtype == bool_ else ~0, dtype)
    least = instruction == "max"
    if dtype == bool_:
        return constant(not least, dtype)
    if kind(dtype) == "f":
        return constant(-np.inf if least else np.inf, dtype)
    limits = np.iinfo(dtype)
    return constant(limits.min if least else limits.max, dtype)
