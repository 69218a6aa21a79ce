"""Arithmetic for those who divide work into loops: on numbers of elements, which are ints or named sizes.

And what many elements are made one in: the dtype, the instruction and the value to begin with.
"""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    integer_range,
    kind,
)
from weft.base.sizes import Size, size_names
from weft.loop.builder import Builder
from weft.loop.index import Index

GUESS = 4096  # what a named size is taken for where it only matters how large it is


def is_number(size: Any, value: int | None = None) -> bool:
    """Whether a size is known (and is a value)."""
    return isinstance(size, int) and (value is None or size == value)


def is_positive(step: Any) -> bool:
    """Whether a step goes forward; one with a name does."""
    return isinstance(step, Size) or step > 0


def weight(*sizes: Any) -> int:
    """A guess of the product of sizes."""
    total = 1
    for size in sizes:
        if isinstance(size, Size):
            size = size.substitute(dict.fromkeys(size_names([size]), GUESS))
        total *= max(int(size), 0)
    return total


def ceil_div(size: Any, by: Any) -> Any:
    """``size / by`` rounded up."""
    return (size + (by - 1)) // by


def block_of(b: Builder, number: Any, size: Any, block: int, *, full: bool = False) -> tuple[Index, Any]:
    """Where a block of an axis begins, and how many elements it has; the last block may be shorter.

    ``full`` says that every block has some elements: then the number of them has bounds that are known.
    """
    start = Index.of(number) * block
    if is_number(size) and size % block == 0:
        return start, block
    if start.is_fixed and is_number(size) and is_number(start.offset):
        return start, min(block, size - start.offset)
    rest = Index.of(size) - start
    return start, b.term(b.min(rest, Index.of(block)), block + 1 if full else None)


def sum_dtype(dtype: DType) -> DType:
    """The dtype that elements are folded in: half precision in float32."""
    return float32 if dtype in (float16, bfloat16) else dtype


def fold_instruction(instruction: str, dtype: DType) -> str:
    """The instruction of a fold of elements of a dtype; of truth values it is "and_" or "or_".

    >>> import numpy as np
    >>> from weft.schedule.extents import fold_instruction
    >>> fold_instruction("min", np.dtype("?")), fold_instruction("add", np.dtype("?"))
    ('and_', 'or_')
    """
    if dtype != bool_:
        return instruction
    return "and_" if identity(instruction, dtype) else "or_"


def fold_dtype(instruction: str, dtype: DType) -> DType:
    """The dtype that elements are folded in: as sums are, and products of float32 in float64.

    Every factor rounds the product once, so that of many there would be few digits left.

    >>> import numpy as np
    >>> from weft.schedule.extents import fold_dtype
    >>> fold_dtype("mul", np.dtype("f4")), fold_dtype("add", np.dtype("f4"))
    (dtype('float64'), dtype('float32'))
    """
    return _DOUBLE.get(dtype, dtype) if instruction == "mul" else sum_dtype(dtype)


_DOUBLE = {float16: float32, bfloat16: float32, float32: float64, complex64: complex128}


def running_dtype(dtype: DType) -> DType:
    """The dtype of running sums and products: of float32 it is float64, as each is made of the one before."""
    return _DOUBLE.get(dtype, dtype)


def sum_instruction(dtype: DType) -> str:
    """The instruction that sums elements."""
    return "or_" if dtype == bool_ else "add"


def identity(instruction: str, dtype: DType) -> float:
    """What a fold begins with: it changes no element.

    >>> import numpy as np
    >>> from weft.schedule.extents import identity
    >>> identity("mul", np.dtype("f4")), identity("max", np.dtype("i1"))
    (1, -128)
    """
    if dtype == bool_ or instruction in ("and_", "or_"):
        return instruction in ("and_", "min", "mul")
    if instruction in ("add", "mul"):
        return int(instruction == "mul")
    low, high = (float("-inf"), float("inf")) if kind(dtype) == "f" else integer_range(dtype)
    return low if instruction == "max" else high
