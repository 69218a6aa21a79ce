"""Tensors of requests and answers: their datatypes, as JSON and as bytes.

JSON has no NaN and no infinities. They are the strings "NaN", "Infinity" and "-Infinity", in both directions,
as in the JSON of protocol buffers.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dtypes import DType, kind
from weft.serve.settings import RefusedError

Array = np.ndarray[Any, Any]

_WIDTHS = {"uint": (8, 16, 32, 64), "int": (8, 16, 32, 64), "float": (16, 32, 64)}
DTYPES: dict[str, DType] = {"BOOL": dtypes.bool_}
for _name, _widths in _WIDTHS.items():
    _word = _name.upper().replace("FLOAT", "FP")
    DTYPES |= {f"{_word}{bits}": dtypes.as_dtype(f"{_name}{bits}") for bits in _widths}
DTYPES["BF16"] = dtypes.bfloat16
DATATYPES = {dtype: name for name, dtype in DTYPES.items()}

_HIGHEST_RANK = 32
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_TYPES: dict[str, frozenset[type]] = {  # by kind, what JSON may have
    "b": frozenset({bool}),
    "i": frozenset({int}),
    "u": frozenset({int}),
    "f": frozenset({int, float}),
}


def checked_shape(name: str, shape: Any, most: int) -> tuple[int, ...]:
    """A shape of a request, or an error; nothing is allocated for it.

    Args:
        name: of the input.
        shape: that a request gives.
        most: elements that it may stand for, where a size of 0 counts as 1: no size may be larger than what
            could be sent.
    """
    if not isinstance(shape, list) or len(shape) > _HIGHEST_RANK:
        raise RefusedError(400, f"input {name!r}: shape must be a list of at most {_HIGHEST_RANK} sizes")
    count = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise RefusedError(400, f"input {name!r}: shape must be made of sizes, got {_told(size)}")
        count *= size or 1
    if count > most:
        raise RefusedError(413, f"input {name!r}: must have at most {most} elements, got {_told(shape)}")
    return tuple(shape)


def array_of_bytes(name: str, data: memoryview, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The array that bytes are, row after row, little-endian; it shares their memory."""
    wanted = _count(shape) * dtype.itemsize
    if len(data) != wanted:
        raise RefusedError(
            400, f"input {name!r}: {list(shape)} must have {wanted} bytes of data, got {len(data)}"
        )
    array = np.frombuffer(data, dtype)
    if dtype == dtypes.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise RefusedError(400, f"input {name!r}: bytes of BOOL must be 0 or 1, got others")
    return _shaped(name, array, shape)


def array_of_json(name: str, data: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The array that numbers in JSON are, in one row or nested as the shape says."""
    if not isinstance(data, list):
        raise RefusedError(400, f"input {name!r}: data must be a list, got {_told(data)}")
    flat = _flat(name, data, shape) if data and type(data[0]) is list else data
    if len(flat) != _count(shape):
        raise RefusedError(
            400, f"input {name!r}: data must be of shape {list(shape)}, got {len(flat)} numbers"
        )
    letter = kind(dtype)
    if not _TYPES[letter].issuperset(map(type, flat)):
        flat = _without_words(name, flat, dtype)
    try:
        if letter != "f":
            return _shaped(name, np.array(flat, dtype), shape)
        return _shaped(name, _rounded(np.array(flat, np.float64), dtype), shape)
    except (OverflowError, FloatingPointError):
        message = f"input {name!r}: data must be numbers that {DATATYPES[dtype]} holds, got others"
        raise RefusedError(400, message) from None


def _flat(name: str, data: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Nested lists as one, if they are nested as the shape says."""
    fits = len(data) == shape[0] if shape else False
    for size in shape[1:]:
        fits = fits and all(type(row) is list and len(row) == size for row in data)
        data = list(chain.from_iterable(data)) if fits else data
    if not fits:
        raise RefusedError(400, f"input {name!r}: lists must be nested like {list(shape)}, got others")
    return data


def _without_words(name: str, data: list[Any], dtype: DType) -> list[Any]:
    """The items with NaN and infinities for their names; an error where others are of another kind."""
    letter = kind(dtype)
    if letter == "f":
        data = [_WORDS.get(x, x) if type(x) is str else x for x in data]
    for x in data:
        if type(x) not in _TYPES[letter]:
            raise RefusedError(400, f"input {name!r}: data must be {DATATYPES[dtype]}, got {_told(x)}")
    return data


def _rounded(array: Array, dtype: DType) -> Array:
    """Floats in another dtype; a FloatingPointError where one becomes infinite."""
    if dtype == dtypes.float64:
        return array
    with np.errstate(over="raise"):
        out: Array = array.astype(dtype)
    if dtype == dtypes.bfloat16 and (np.isinf(out) & np.isfinite(array)).any():  # its casts raise nothing
        raise FloatingPointError
    return out


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _shaped(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    try:
        return array.reshape(shape)
    except ValueError:  # an empty array whose other sizes are too large
        raise RefusedError(400, f"input {name!r}: shape must be possible, got {list(shape)}") from None


def _told(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 40 else f"{text[:40]}..."


def json_of_array(array: Array) -> Any:
    """What becomes the JSON of an array, in one row."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype == dtypes.bfloat16:
        flat = flat.astype(np.float32)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        return [_worded(x) for x in flat.tolist()]
    return flat


def _worded(x: float) -> Any:
    if x != x:
        return "NaN"
    return x if np.isfinite(x) else "Infinity" if x > 0 else "-Infinity"
