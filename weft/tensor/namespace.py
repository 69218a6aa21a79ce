"""What the array API standard lets a program ask: limits of dtypes, promotion, and the namespace itself."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from weft.base.device import CPU, Device, DeviceLike, as_device
from weft.base.dtypes import (
    DEFAULT_INT,
    DType,
    as_dtype,
    bfloat16,
    default_complex,
    default_float,
    dtypes_of_kind,
    float16,
    float64,
    int16,
    int64,
    integer_range,
    kind,
    promote,
    real_dtype,
    result_dtype,
    scalar_dtype,
)
from weft.base.hooks import hooks
from weft.base.public import public
from weft.base.records import NamedTuple
from weft.errors import ArgumentError, DtypeError
from weft.tensor.convert import NUMBERS, number_dtype
from weft.tensor.tensor import Tensor

# The constants of the standard
e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi

# Short names of dtypes, but for those that would hide a builtin of Python
double, half = float64, float16
long, short = int64, int16


class FloatInfo(NamedTuple):
    """The limits of a floating dtype; of a complex one, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """The smallest positive normal number, under NumPy's older name."""
        return self.smallest_normal


class IntInfo(NamedTuple):
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(op: str, type: object) -> DType:
    if isinstance(type, Tensor | np.ndarray):
        return as_dtype(type.dtype)
    if isinstance(type, bool | int | float | complex):
        raise ArgumentError(op, f"must be a dtype or a tensor, got {type!r}")
    return as_dtype(type)


@public
def finfo(type: object, /) -> FloatInfo:
    """The limits of a floating dtype, or of the dtype of a tensor.

    >>> import weft
    >>> weft.finfo(weft.float32).max
    3.4028234663852886e+38
    >>> weft.finfo(weft.bfloat16).eps
    0.0078125
    """
    dtype = real_dtype(_dtype_of("finfo", type))
    if kind(dtype) != "f":
        raise DtypeError(
            "finfo", f"dtype must be floating or complex, got {dtype.name}", hint="use weft.iinfo"
        )
    limits: Any = ml_dtypes.finfo
    info = limits(dtype) if dtype == bfloat16 else np.finfo(dtype)
    eps, largest, least, normal = map(float, (info.eps, info.max, info.min, info.smallest_normal))
    return FloatInfo(dtype.itemsize * 8, eps, largest, least, normal, dtype)


@public
def iinfo(type: object, /) -> IntInfo:
    """The limits of an integer dtype, or of the dtype of a tensor.

    >>> import weft
    >>> weft.iinfo(weft.int8)
    IntInfo(bits=8, max=127, min=-128, dtype=dtype('int8'))
    """
    dtype = _dtype_of("iinfo", type)
    if kind(dtype) not in "iu":
        hint = "use weft.finfo" if kind(dtype) in "fc" else None
        raise DtypeError("iinfo", f"dtype must be integer, got {dtype.name}", hint=hint)
    least, largest = integer_range(dtype)
    return IntInfo(dtype.itemsize * 8, largest, least, dtype)


@public
def can_cast(from_: object, to: object, /) -> bool:
    """Whether promotion takes one dtype to another.

    >>> import weft
    >>> weft.can_cast(weft.int8, weft.int16), weft.can_cast(weft.float64, weft.float32)
    (True, False)
    """
    target = _dtype_of("can_cast", to)
    return promote(_dtype_of("can_cast", from_), target) == target


@public
def result_type(*arrays_and_dtypes: object) -> DType:
    """The dtype that tensors, dtypes and Python numbers combine to; numbers are weak.

    >>> import weft
    >>> weft.result_type(weft.int8, weft.uint8, 3), weft.result_type(weft.float16, 2.5)
    (dtype('int16'), dtype('float16'))
    """
    if not arrays_and_dtypes:
        raise ArgumentError("result_type", "takes at least one tensor, dtype or number, got none")
    numbers = [v for v in arrays_and_dtypes if isinstance(v, NUMBERS) and not isinstance(v, np.generic)]
    others = [_dtype_of("result_type", v) for v in arrays_and_dtypes if not isinstance(v, NUMBERS)]
    others += [v.dtype for v in arrays_and_dtypes if isinstance(v, np.generic)]
    if not others:
        return result_dtype("result_type", *map(number_dtype, numbers))
    common = result_dtype("result_type", *others)
    return result_dtype("result_type", common, *[scalar_dtype(n, common) for n in numbers])


@public
def is_tensor(x: Tensor, /) -> bool:
    """Whether an object is a tensor.

    >>> import weft
    >>> weft.is_tensor(weft.ones(2)), weft.is_tensor([1.0, 1.0])
    (True, False)
    """
    return isinstance(x, Tensor)


@public
def is_floating_point(x: Tensor, /) -> bool:
    """Whether the dtype of a tensor is a real floating one.

    >>> import weft
    >>> weft.is_floating_point(weft.ones(2)), weft.is_floating_point(weft.arange(2))
    (True, False)
    """
    return kind(_dtype_of("is_floating_point", x)) == "f"


@public
def is_complex(x: Tensor, /) -> bool:
    """Whether the dtype of a tensor is complex.

    >>> import weft
    >>> weft.is_complex(weft.tensor(1j))
    True
    """
    return kind(_dtype_of("is_complex", x)) == "c"


@public
def numel(x: Tensor, /) -> int:
    """The number of elements of a tensor.

    >>> import weft
    >>> weft.numel(weft.ones(2, 3))
    6
    """
    return int(x.size)


class Inspection:
    """What ``weft.__array_namespace_info__()`` returns: the capabilities, dtypes and devices of weft.

    >>> import weft
    >>> info = weft.__array_namespace_info__()
    >>> info.default_device(), info.default_dtypes()["real floating"]
    (device('cpu'), dtype('float32'))
    >>> list(info.dtypes(kind="complex floating"))
    ['complex64', 'complex128']
    """

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Which optional behaviours there are: boolean masks, and shapes that depend on data."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of tensors made without one."""
        return as_device(None)

    def default_dtypes(self, *, device: DeviceLike | None = None) -> dict[str, DType]:
        """The dtype of tensors made without one, for each kind."""
        as_device(device)
        return {
            "real floating": default_float(),
            "complex floating": default_complex(),
            "integral": DEFAULT_INT,
            "indexing": DEFAULT_INT,
        }

    def dtypes(self, *, device: DeviceLike | None = None, kind: object = None) -> dict[str, DType]:
        """The dtypes of the standard of a kind, or all of them, by name."""
        as_device(device)
        return {d.name: d for d in dtypes_of_kind("dtypes", kind) if d not in (float16, bfloat16)}

    def devices(self) -> list[Device]:
        """The devices that are there."""
        return [CPU, *hooks.cuda_devices()]


def __array_namespace_info__() -> Inspection:  # noqa: N807 - the name is the standard's
    """What this namespace can do, as the array API standard asks it.

    >>> import weft
    >>> weft.__array_namespace_info__().capabilities()["boolean indexing"]
    True
    """
    return Inspection()
