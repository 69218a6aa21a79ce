"""From Python objects to arrays: numbers, nested lists, NumPy arrays, buffers.

The dtype follows the elements: Python numbers take weft's defaults, or the dtype of the arrays and tensors
they stand next to. Everything that cannot become numbers is an error in the name of the function asked.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import (
    DEFAULT_INT,
    DType,
    bool_,
    canonical,
    default_complex,
    default_float,
    kind,
    result_dtype,
    scalar_dtype,
)
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError
from weft.ops.op import Array, TensorLike, plain_number
from weft.ops.select import cast_array

NUMBERS = (bool, int, float, complex)  # each later one holds the earlier ones
_NESTED = (list, tuple, range)
_TYPED = (np.generic, np.ndarray, TensorLike)


def number(op: str, name: str, value: Any) -> Any:
    """A Python number or NumPy scalar, from one of these or from a 0-d tensor that is concrete."""
    value = plain_number(value)
    if isinstance(value, (*NUMBERS, np.generic)):
        return value
    if getattr(value, "ndim", None) == 0:  # a tensor or an array
        return value.item()
    raise ArgumentError(op, f"{name} must be a number, got {type(value).__name__}")


def integer(op: str, name: str, value: Any) -> int:
    """A Python int from anything that is an integer."""
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(op, f"{name} must be an int, got {value!r}") from None


def number_dtype(value: object) -> DType:
    """The dtype of a Python number that stands alone."""
    if isinstance(value, np.generic):
        return supported("dtype", value.dtype)
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return DEFAULT_INT
    return default_float() if isinstance(value, float) else default_complex()


def supported(op: str, dtype: DType) -> DType:
    """weft's object for a NumPy dtype, or an error for one that weft does not have."""
    found = canonical(dtype)
    if found is None:
        hint = "elements must be numbers" if dtype.kind in "OSUV" else "cast it with NumPy first"
        raise DtypeError(op, f"dtype must be one that weft has, got NumPy's {dtype}", hint=hint)
    return found


def from_ndarray(op: str, array: object, dtype: DType | None, copy: bool | None) -> Array:
    """A NumPy array or scalar as an array of one of weft's dtypes: copied unless copy is False."""
    if type(array) is not np.ndarray and np.any(getattr(array, "mask", False)):
        raise DomainError(op, "no element must be masked, got a masked array", hint="use .filled(value)")
    array = np.asarray(array)
    out: Array
    own = supported(op, array.dtype)
    target = own if dtype is None else dtype
    if copy is False:
        if target != array.dtype:
            raise DomainError(
                op, f"copy must not be False to change the dtype, got {array.dtype} to {target.name}"
            )
        out = array.view(target)
        return out
    check_complex(op, own, target)
    if target == own:
        out = array.astype(own)
        return out
    with np.errstate(all="ignore"):
        out = cast_array(array.astype(own, copy=False), target)
    return out


def check_complex(op: str, source: DType, target: DType) -> None:
    """Raise if a cast would drop imaginary parts."""
    if kind(source) == "c" and kind(target) not in "cb":
        raise DtypeError(
            op, f"dtype must be complex for complex values, got {target.name}", hint="take .real first"
        )


def from_python(op: str, data: object, dtype: DType | None, copy: bool | None) -> Array | None:
    """Data that holds no tensors as an array; None if tensors are among it."""
    if isinstance(data, np.ndarray | np.generic):
        return from_ndarray(op, data, dtype, copy)
    if isinstance(data, NUMBERS):
        _refuse_sharing(op, data, copy)
        return fill_array(op, data, number_dtype(data) if dtype is None else dtype)
    if isinstance(data, _NESTED):
        return _from_nested(op, data, dtype, copy)
    if (shared := _as_shared(data)) is not None:
        return from_ndarray(op, shared, dtype, copy)
    if isinstance(data, Sequence) and not isinstance(data, str):
        return _from_nested(op, list(data), dtype, copy)
    hint = "make it a list first" if hasattr(data, "__iter__") and not isinstance(data, str) else None
    raise ArgumentError(
        op, f"data must be numbers, (nested) lists or arrays, got {type(data).__name__}", hint=hint
    )


def _as_shared(data: Any) -> Array | None:
    """The memory of an object with the buffer protocol or one of NumPy's, as an array; else None."""
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return np.asarray(data)
    try:
        return np.asarray(memoryview(data))
    except TypeError:
        return None


def _refuse_sharing(op: str, data: object, copy: bool | None) -> None:
    if copy is False:
        raise DomainError(
            op, f"copy must not be False for data without memory to share, got {type(data).__name__}"
        )


def _from_nested(op: str, data: Sequence[Any], dtype: DType | None, copy: bool | None) -> Array | None:
    _refuse_sharing(op, data, copy)
    types = leaf_types(op, data)
    if any(issubclass(t, TensorLike) for t in types):
        return None
    return fill_array(op, data, infer_dtype(op, data, types) if dtype is None else dtype)


def fill_array(op: str, data: object, dtype: DType) -> Array:
    """Python numbers, or nested lists of them, as an array of a dtype that must be able to hold them."""
    try:
        with np.errstate(all="ignore"):
            out: Array = np.array(data, dtype)
    except OverflowError:
        hint = "pass dtype=weft.uint64 or a floating dtype" if dtype == DEFAULT_INT else None
        raise DomainError(op, f"values must fit in {dtype.name}, got a larger one", hint=hint) from None
    except TypeError:
        raise DtypeError(
            op,
            f"dtype must be complex for complex values, got {dtype.name}",
            hint="take the real parts first",
        ) from None
    except ValueError:
        _check_lengths(op, data)
        raise DomainError(op, f"values must fit in {dtype.name}, got NaN") from None
    return out


def leaf_types(op: str, data: Sequence[Any]) -> set[type]:
    """The types of everything in nested lists that is not itself a list; it must be numbers or arrays."""
    types = set(map(type, data))
    nested = {t for t in types if issubclass(t, _NESTED)}
    types -= nested
    for t in types:
        if not issubclass(t, (*NUMBERS, *_TYPED)):
            raise ArgumentError(op, f"elements must be numbers, got {t.__name__}")
    if nested:
        for item in data:
            if type(item) in nested:
                types |= leaf_types(op, item)
    return types


def leaves(data: Sequence[Any]) -> Iterator[Any]:
    """Everything in nested lists that is not itself a list."""
    for item in data:
        if isinstance(item, _NESTED):
            yield from leaves(item)
        else:
            yield item


def infer_dtype(op: str, data: Sequence[Any], types: set[type]) -> DType:
    """The dtype of nested lists: that of the arrays and tensors in them, next to which numbers are weak."""
    typed = {t for t in types if issubclass(t, _TYPED)}
    bases = {next(base for base in NUMBERS if issubclass(t, base)) for t in types.difference(typed)}
    numbers = [base() for base in NUMBERS if base in bases]
    if not typed:
        return number_dtype(numbers[-1]) if numbers else default_float()
    found = {supported(op, leaf.dtype) for leaf in leaves(data) if type(leaf) in typed}
    common = result_dtype(op, *found)
    return result_dtype(op, common, *[scalar_dtype(n, common) for n in numbers])


def _check_lengths(op: str, data: Any) -> None:
    """Raise if nested lists are ragged."""
    level, axis = [data], 0
    while level:
        lengths = sorted({_length(item) for item in level})
        if len(lengths) > 1:
            listed = " and ".join("a number" if n < 0 else str(n) for n in lengths)
            hint = "pad the rows to one length"
            raise ShapeError(op, f"lists must have equal lengths on axis {axis}, got {listed}", hint=hint)
        if lengths == [-1]:
            return
        level, axis = [item for row in level for item in row], axis + 1


def _length(item: Any) -> int:
    """The length of a list or array, -1 for a number."""
    return -1 if isinstance(item, NUMBERS) or getattr(item, "ndim", None) == 0 else len(item)
