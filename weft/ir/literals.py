"""How literals are written in graph text: numbers, strings, dtypes, sizes and small arrays, each exactly.

``weft.ir.reader`` reads the same forms. A number reads back to the same bits: the shortest text that does is
used, and a NaN that is not the usual one shows its bits.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np

from weft.base.dtypes import DTYPES, DType, integer_range, kind, real_dtype, short_name
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.errors import GraphError
from weft.ir.graph import Array, Operand

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
INLINE = 8  # elements that are written out; of longer arrays the data is beside the text
FILLED = 2**20  # elements of an array that are all the same: it is short to write, but not short to have
DTYPE_NAMES = {short_name(d): d for d in DTYPES}
RESERVED = frozenset({*DTYPE_NAMES, "True", "False", "None", "inf", "nan", "infj", "nanj", "size", "operand"})


def format_name(name: str, pattern: re.Pattern[str] = IDENTIFIER) -> str:
    """A name as it is where it fits a pattern, else in quotes."""
    return name if pattern.fullmatch(name) else json.dumps(name)


def format_literal(x: object) -> str:
    """An attribute: a number, string, bytes, None, dtype, size, or a tuple of these.

    >>> from weft.ir.literals import format_literal
    >>> format_literal((1, 2.5, "a", None, (True,)))
    '(1, 2.5, "a", None, (True,))'
    """
    if isinstance(x, Operand):
        return f"operand({x.index})"
    if isinstance(x, tuple):
        inner = ", ".join(map(format_literal, x))
        return f"({inner},)" if len(x) == 1 else f"({inner})"
    for kinds, write in _WRITERS:
        if isinstance(x, kinds):
            return str(write(x))
    message = f"an attribute must be a literal, got {type(x).__name__}"
    hint = "attributes are numbers, strings, bytes, None, dtypes, sizes and tuples of these"
    raise GraphError("text", message, hint=hint)


def _format_size(x: Size) -> str:
    text = str(x)
    plain = re.match(r"-?\d*\*?[A-Za-z_]", text) and text not in RESERVED and not text.startswith("max(")
    return text if plain else f"size({text})"


_WRITERS: tuple[tuple[Any, Any], ...] = (
    ((bool, int, type(None)), repr),
    (float, lambda x: format_number(np.float64(x))),
    (complex, lambda x: format_number(np.complex128(x))),
    (str, json.dumps),
    (bytes, lambda x: "b" + json.dumps(x.decode("latin-1"))),
    (np.dtype, short_name),
    (Size, _format_size),
)


def format_array(array: Array) -> str:
    """A small array in full: ``f32(2.0)``, ``i64[2](1, 2)``; elements stand in row-major order.

    >>> import numpy as np
    >>> from weft.ir.literals import format_array
    >>> format_array(np.eye(2, dtype=np.int8)), format_array(np.ones((100, 3)))
    ('i8[2,2](1, 0, 0, 1)', 'f64[100,3](1.0, ...)')
    """
    dims = f"[{','.join(map(str, array.shape))}]" if array.ndim else ""
    if array.size > INLINE or (array.size > 3 and _is_filled(array)):
        return f"{short_name(array.dtype)}{dims}({format_number(array.flat[0])}, ...)"
    return f"{short_name(array.dtype)}{dims}({', '.join(map(format_number, array.reshape(-1)))})"


def is_short(array: Array) -> bool:
    """Whether an array is written out: it has few elements, or not too many of the same bits."""
    if array.size <= INLINE:
        return True
    return array.size <= FILLED and _is_filled(array)


def _is_filled(array: Array) -> bool:
    first: bytes = array.flat[0].tobytes()
    last: bytes = array.flat[-1].tobytes()
    if first != last or not any(array.strides):
        return first == last
    return array.tobytes() == first * array.size


def format_number(x: Any) -> str:
    """A NumPy scalar, so that it reads back to the same bits."""
    letter = kind(x.dtype)
    if letter == "b":
        return str(bool(x))
    if letter in "iu":
        return str(int(x))
    if letter == "c":
        real, imag = _format_float(x.real), _format_float(x.imag)
        return f"{real}{imag}j" if imag.startswith("-") else f"{real}+{imag}j"
    return _format_float(x)


def _format_float(x: Any) -> str:
    if np.isnan(x):
        usual = np.asarray(np.nan, x.dtype).tobytes()
        return "nan" if x.tobytes() == usual else f"nan({int.from_bytes(x.tobytes(), sys.byteorder):#x})"
    if np.isinf(x):
        return "inf" if x > 0 else "-inf"
    text = str(x)
    if np.asarray(float(text), x.dtype).tobytes() != x.tobytes():
        text = repr(float(x))
    return text if "." in text or "e" in text else f"{text}.0"


# The way back


class Number(NamedTuple):
    """A number as it is written; exact until its dtype is known."""

    real: str
    imag: str | None

    @property
    def is_whole(self) -> bool:
        """Whether it is written as an int."""
        return self.imag is None and self.real.lstrip("-").isdecimal()

    def python(self) -> Any:
        """As a number of Python's."""
        if self.is_whole:
            return int(self.real)
        real = float(_float(self.real, np.dtype(np.float64)))
        return real if self.imag is None else complex(real, float(_float(self.imag, np.dtype(np.float64))))

    def data(self, dtype: DType) -> bytes:
        """As the bytes of an element of an array; a ValueError if it is none of the dtype."""
        if kind(dtype) in "iu":
            low, high = integer_range(dtype)
            if not self.is_whole or not low <= int(self.real) <= high:
                raise ValueError
            return np.asarray(int(self.real), dtype).tobytes()
        real = real_dtype(dtype)
        if self.imag is not None and kind(dtype) != "c":
            raise ValueError
        parts = [_float(self.real, real), *([_float(self.imag or "0.0", real)] if kind(dtype) == "c" else [])]
        return b"".join(p.tobytes() for p in parts)


def _float(text: str, dtype: DType) -> Any:
    """The float of a dtype that a text stands for."""
    digits = text.lstrip("+-")
    if digits.startswith("nan("):
        bits = int(digits[4:-1], 16)
        if bits >= 1 << 8 * dtype.itemsize or not np.isnan(value := _float_of_bits(bits, dtype)):
            raise ValueError
        return value
    with np.errstate(over="ignore"):
        return np.asarray(float(text), dtype)[()]


def _float_of_bits(bits: int, dtype: DType) -> Any:
    """The float of a dtype with these bits."""
    return np.frombuffer(bits.to_bytes(dtype.itemsize, sys.byteorder), dtype)[0]
