"""The dtypes of weft and how they combine.

A dtype is NumPy's dtype object, so arrays, tensors and types share one notion. What lives here: the
names, the kinds of the array API standard, promotion, and the defaults.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from weft.base.public import public
from weft.errors import ArgumentError, DomainError, DtypeError

DType = np.dtype[Any]
DTypeLike = DType | type | str  # what as_dtype takes

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
bfloat16: DType = np.dtype(ml_dtypes.bfloat16)
complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)

SIGNED: tuple[DType, ...] = (int8, int16, int32, int64)
UNSIGNED: tuple[DType, ...] = (uint8, uint16, uint32, uint64)
INTEGERS = SIGNED + UNSIGNED
FLOATS: tuple[DType, ...] = (float16, bfloat16, float32, float64)
COMPLEX: tuple[DType, ...] = (complex64, complex128)
DTYPES: tuple[DType, ...] = (bool_, *INTEGERS, *FLOATS, *COMPLEX)

DEFAULT_INT: DType = int64

_KIND = {bool_: "b"} | dict.fromkeys(SIGNED, "i") | dict.fromkeys(UNSIGNED, "u")
_KIND |= dict.fromkeys(FLOATS, "f") | dict.fromkeys(COMPLEX, "c")
_SHORT = {bool_: "bool", bfloat16: "bf16"}
_BY_NAME = {d.name: d for d in DTYPES} | {"bool_": bool_}
_ARRAY_KINDS = {
    "bool": (bool_,),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGERS,
    "real floating": FLOATS,
    "complex floating": COMPLEX,
    "numeric": (*INTEGERS, *FLOATS, *COMPLEX),
}


def kind(dtype: DType) -> str:
    """One letter for the kind of a dtype: b, i, u, f or c (bfloat16 is f)."""
    return _KIND[dtype]


def short_name(dtype: DType) -> str:
    """The name used in graph text and errors: ``f32``, ``bf16``, ``i64``, ``bool``."""
    return _SHORT.get(dtype) or f"{_KIND[dtype]}{dtype.itemsize * 8}"


def as_dtype(spec: object) -> DType:
    """The dtype meant by ``weft.float32``, ``"float32"``, ``np.float32``, ``float``, ``int`` or ``bool``.

    Python's ``float``, ``int`` and ``complex`` mean weft's defaults: float32, int64 and complex64.
    """
    found = _resolve(spec) if spec.__hash__ is not None else None
    if found is None:
        names = ", ".join(d.name for d in DTYPES)
        elsewhere = isinstance(spec, str) and spec.lower().partition(":")[0] in ("gpu", "mps", "tpu", "xpu")
        hint = 'devices are called "cpu", "cuda" and "cuda:1"' if elsewhere else None
        raise ArgumentError("dtype", f"must be one of {names}, got {spec!r}", hint=hint)
    return found


@lru_cache(maxsize=256)
def _resolve(spec: object) -> DType | None:
    if spec is bool:
        return bool_
    if spec is int:
        return DEFAULT_INT
    if spec is float:
        return default_float()
    if spec is complex:
        return default_complex()
    if isinstance(spec, str):
        return _BY_NAME.get(spec)
    if spec is None:  # which NumPy takes for float64
        return None
    try:
        dtype = np.dtype(spec)  # type: ignore[call-overload]
    except TypeError:
        return None
    return canonical(dtype) if dtype.isnative else None


def canonical(dtype: DType) -> DType | None:
    """weft's own object for a dtype of either byte order, or None for one that weft does not have.

    NumPy has several equal objects for a dtype (``longlong`` and ``int64``, or after unpickling); weft's
    arrays hold just this one, so that the hot path can compare with ``is``.
    """
    return _BY_NAME.get(dtype.name)


default_float_cell: list[DType] = [float32]  # generated code reads it without a call


def default_float() -> DType:
    """The dtype of floats made without one; float32 unless ``set_default_dtype`` changed it."""
    return default_float_cell[0]


def default_complex() -> DType:
    """The dtype of complex numbers made without one; complex64 unless float64 is the default float."""
    return complex_dtype(default_float())


def get_default_dtype() -> DType:
    """The dtype of floats made without one.

    >>> import weft
    >>> weft.get_default_dtype() == weft.float32
    True
    """
    return default_float()


@public
def set_default_dtype(dtype: object) -> None:
    """Set the dtype of floats made without one; that of complex numbers follows.

    >>> import weft
    >>> weft.set_default_dtype(weft.float64)
    >>> weft.tensor(1.0).dtype == weft.float64
    True
    >>> weft.set_default_dtype(weft.float32)
    """
    resolved = as_dtype(dtype)
    if kind(resolved) != "f":
        raise DtypeError("set_default_dtype", f"dtype must be floating, got {resolved.name}")
    default_float_cell[0] = resolved
    _resolve.cache_clear()


def scalar_dtype(value: object, like: DType) -> DType:
    """The dtype a Python scalar takes next to a tensor of dtype ``like``: the scalar is weak."""
    k = _KIND[like]
    if isinstance(value, bool):
        return like
    if isinstance(value, int):
        return like if k != "b" else DEFAULT_INT
    if isinstance(value, float):
        return like if k in "fc" else default_float()
    if k == "c":
        return like
    return complex_dtype(like) if k == "f" else default_complex()


@lru_cache(maxsize=1024)
def promote(a: DType, b: DType) -> DType | None:
    """The common dtype of two dtypes, or None where there is none (uint64 with a signed integer).

    Within a kind as in the array API standard; across kinds the higher kind decides
    (int64 with float32 is float32), so that precision never changes behind the user's back.
    """
    if a == b:
        return a
    ka, kb = _KIND[a], _KIND[b]
    if ka == "b" or kb == "b":
        return b if ka == "b" else a
    if ka in "iu" and kb in "iu":
        return _promote_integers(a, b)
    if ka in "iu" or kb in "iu":
        return b if ka in "iu" else a
    if {a, b} == {float16, bfloat16}:
        return float32
    if ka == "c" or kb == "c":
        return complex128 if float64 in (a, b) or complex128 in (a, b) else complex64
    return a if a.itemsize > b.itemsize else b


def _promote_integers(a: DType, b: DType) -> DType | None:
    if _KIND[a] == _KIND[b]:
        return a if a.itemsize > b.itemsize else b
    unsigned, signed = (a, b) if _KIND[a] == "u" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    return None if unsigned == uint64 else SIGNED[UNSIGNED.index(unsigned) + 1]


def result_dtype(op: str, *dtypes: DType) -> DType:
    """The common dtype of several, or a DtypeError in the name of ``op``."""
    out = dtypes[0]
    for dtype in dtypes[1:]:
        common = promote(out, dtype)
        if common is None:
            raise DtypeError(
                op,
                f"dtypes must have a common dtype, got {out.name} and {dtype.name}",
                hint="cast one of them with .astype(...)",
            )
        out = common
    return out


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the largest value of an integer dtype."""
    bits = dtype.itemsize * 8
    return (0, 2**bits - 1) if _KIND[dtype] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def real_dtype(dtype: DType) -> DType:
    """The dtype of the real part: float32 for complex64, the dtype itself for a real one."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    """The complex dtype that holds a dtype: complex128 for float64, else complex64."""
    return complex128 if dtype in (float64, complex128) else complex64


def dtypes_of_kind(op: str, kind: object) -> tuple[DType, ...]:
    """The dtypes of a kind: a name of the array API standard, a dtype, or a tuple of such; None means all."""
    if kind is None:
        return DTYPES
    if isinstance(kind, tuple):
        wanted = {d for k in kind for d in dtypes_of_kind(op, k)}
        return tuple(d for d in DTYPES if d in wanted)
    if isinstance(kind, str) and kind not in _BY_NAME:
        if kind not in _ARRAY_KINDS:
            raise DomainError(op, f"kind must be one of {', '.join(_ARRAY_KINDS)}, got {kind!r}")
        return _ARRAY_KINDS[kind]
    return (as_dtype(kind),)


@public
def isdtype(dtype: object, kind: object) -> bool:
    """Whether a dtype is of a kind: a name of the array API standard, a dtype, or a tuple of such.

    >>> import weft
    >>> weft.isdtype(weft.int8, "integral"), weft.isdtype(weft.float32, ("bool", "real floating"))
    (True, True)
    """
    return as_dtype(dtype) in dtypes_of_kind("isdtype", kind)
