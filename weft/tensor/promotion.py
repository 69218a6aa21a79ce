"""How the inputs of an op become tensors of one dtype.

Arrays keep their dtype. Numbers, of Python or of NumPy, are weak: they take the dtype of the tensors beside
them, or the default dtype of their own kind where that is higher. Bool, integer, floating and complex are
the kinds, from low to high; between tensors of one kind the array API standard decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DEFAULT_INT, DType, default_float, kind, result_dtype, scalar_dtype
from weft.base.sizes import Size
from weft.errors import ArgumentError, DtypeError
from weft.ops.families import describe_kinds
from weft.ops.op import Array, Op, Tensor, TensorLike, WeakNumber
from weft.ops.select import cast, python_number
from weft.ops.size import size_value
from weft.tensor.convert import number_dtype, supported

ndarray = np.ndarray
NUMBERS = (bool, int, float, complex, np.generic)
_TYPED: Any = (TensorLike, ndarray)
_WEAK: Any = (*NUMBERS, WeakNumber)
_HINTS = {
    "sub": "use weft.logical_xor for bools",
    "neg": "use weft.logical_not for bools",
    "bitwise_and": "use weft.logical_and for floats",
    "bitwise_or": "use weft.logical_or for floats",
}


def as_arrays(op: Op, inputs: Sequence[Any]) -> list[Tensor]:
    """Inputs with numbers as 0-d arrays of the dtype they take next to the tensors and arrays."""
    dtypes = [supported(op.name, x.dtype) for x in inputs if isinstance(x, _TYPED)]
    if not dtypes:
        dtypes = [number_dtype(_example(x)) for x in inputs if isinstance(x, _WEAK)]
    out: list[Any] = []
    for x in inputs:
        if isinstance(x, TensorLike):
            out.append(x)
        elif isinstance(x, ndarray):
            out.append(x.astype(supported(op.name, x.dtype), copy=False))
        elif isinstance(x, NUMBERS):
            out.append(number_array(op, python_number(x), result_dtype(op.name, *dtypes)))
        elif isinstance(x, WeakNumber):
            out.append(x.in_dtype(scalar_dtype(x.example, result_dtype(op.name, *dtypes))))
        elif isinstance(x, Size):
            out.append(size_value(x, scalar_dtype(1, result_dtype(op.name, *(dtypes or [DEFAULT_INT])))))
        else:
            hint = "make it one with weft.tensor(...)" if isinstance(x, list | tuple) else None
            raise ArgumentError(op.name, f"inputs must be tensors, got {type(x).__name__}", hint=hint)
    return out


def _example(x: Tensor) -> Any:
    """A Python number of the kind of a number."""
    return x.example if isinstance(x, WeakNumber) else python_number(x)


def number_array(op: Op, value: Any, like: DType) -> Array:
    """A number as a 0-d array of the dtype it has next to tensors of dtype ``like``, which must hold it."""
    dtype = scalar_dtype(value, like)
    try:
        return np.asarray(value, dtype)
    except OverflowError:
        if op.result == "bool" and -(2**63) <= value < 2**63:
            return np.asarray(value, DEFAULT_INT)  # a comparison has an answer nonetheless
        hint = (
            f"use a larger dtype, such as .astype({'weft.int64' if kind(dtype) in 'iu' else 'weft.float64'})"
        )
        raise DtypeError(op.name, f"the number must fit in {dtype.name}, got {value}", hint=hint) from None


def common_dtype(op: Op, dtypes: Sequence[DType]) -> DType:
    """The dtype an elementwise op computes in, given those of its inputs."""
    dtype = result_dtype(op.name, *dtypes)
    letter = kind(dtype)
    if letter in op.accepts:
        return dtype
    if letter not in "biu" or "f" not in op.accepts or (letter == "b" and "i" in op.accepts):
        message = f"dtype must be {describe_kinds(op.accepts)}, got {dtype.name}"
        raise DtypeError(op.name, message, hint=_HINTS.get(op.name))
    return default_float()


def in_dtype(tensor: Tensor, dtype: DType) -> Tensor:
    """A tensor in a dtype, itself if it has it."""
    return tensor if tensor._data.dtype == dtype else cast(tensor, dtype=dtype)
