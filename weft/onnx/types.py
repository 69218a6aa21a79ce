"""ONNX element types as weft's dtypes.

Types that weft has no dtype for, *narrow* ones, are carried as integers: int4 and its like by their value in
int8 or uint8, float8 and float4 by their bits in uint8. ``weft.onnx.facts`` notes which they are.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from weft.base.dtypes import DTYPES, DType, int8, uint8

_NAMES = (  # by code, from 1 on
    "float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64 complex64"
    " complex128 bfloat16"
)
_CODES = dict(enumerate(_NAMES.split(), 1))
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
NARROW = {  # by code, the name, the dtype it is carried in, and what arrays of it have
    17: ("float8e4m3fn", uint8, ml_dtypes.float8_e4m3fn),
    18: ("float8e4m3fnuz", uint8, ml_dtypes.float8_e4m3fnuz),
    19: ("float8e5m2", uint8, ml_dtypes.float8_e5m2),
    20: ("float8e5m2fnuz", uint8, ml_dtypes.float8_e5m2fnuz),
    21: ("uint4", uint8, ml_dtypes.uint4),
    22: ("int4", int8, ml_dtypes.int4),
    23: ("float4e2m1", uint8, ml_dtypes.float4_e2m1fn),
    24: ("float8e8m0", uint8, ml_dtypes.float8_e8m0fnu),
    25: ("uint2", uint8, ml_dtypes.uint2),
    26: ("int2", int8, ml_dtypes.int2),
}
_ARRAYS = {np.dtype(array): (name, carrier) for name, carrier, array in NARROW.values()}
_NARROW_BY_NAME = {name: (carrier, np.dtype(array)) for name, carrier, array in NARROW.values()}


def dtype_of(code: int) -> DType | None:
    """The dtype that carries an ONNX element type; None for strings and unknown ones.

    >>> from weft.onnx.types import dtype_of
    >>> dtype_of(1), dtype_of(22), dtype_of(8)
    (dtype('float32'), dtype('int8'), None)
    """
    if code in NARROW:
        return NARROW[code][1]
    return _BY_NAME.get(_CODES.get(code, ""))


def narrow_of(code: int) -> str | None:
    """The name of an ONNX element type that weft has no dtype for; None for others."""
    return NARROW[code][0] if code in NARROW else None


def carrier_of(name: str) -> DType:
    """The dtype that carries a narrow type."""
    return _NARROW_BY_NAME[name][0]


def type_name(code: int) -> str:
    """What an ONNX element type is called in errors."""
    named = _CODES | {key: name for key, (name, _, _) in NARROW.items()}
    return named.get(code, f"type {code}")


def to_carried(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], str | None]:
    """An array as weft carries it, and the name of its type if that is a narrow one."""
    if array.dtype not in _ARRAYS:
        return array, None
    name, carrier = _ARRAYS[array.dtype]
    if array.dtype.name.startswith("float"):
        return array.view(np.uint8), name
    return array.astype(carrier), name


def from_carried(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """An array of a narrow type, from one that carries it.

    >>> import numpy as np
    >>> from weft.onnx.types import from_carried
    >>> from_carried(np.array([0x38], np.uint8), "float8e4m3fn")
    array([1], dtype='float8_e4m3fn')
    """
    _, own = _NARROW_BY_NAME[name]
    return array.view(own) if name.startswith("float") else array.astype(own)


def code_of(dtype: DType, narrow: str | None = None) -> int:
    """The ONNX element type of a dtype, or of a narrow type that it carries."""
    if narrow is not None:
        return next(code for code, (name, _, _) in NARROW.items() if name == narrow)
    return next(code for code, name in _CODES.items() if name == dtype.name)
