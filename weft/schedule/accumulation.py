"""What many elements are made one in: the dtype, the instruction and the value to begin with."""

from __future__ import annotations

from weft.base.dtypes import DType, bfloat16, bool_, float16, float32, integer_range, kind


def sum_dtype(dtype: DType) -> DType:
    """The dtype that elements are folded in: half precision in float32."""
    return float32 if dtype in (float16, bfloat16) else dtype


def sum_instruction(dtype: DType) -> str:
    """The instruction that sums elements."""
    return "or_" if dtype == bool_ else "add"


def identity(instruction: str, dtype: DType) -> float:
    """What a fold begins with: it changes no element.

    >>> import numpy as np
    >>> from weft.schedule.accumulation import identity
    >>> identity("mul", np.dtype("f4")), identity("max", np.dtype("i1"))
    (1, -128)
    """
    if dtype == bool_ or instruction in ("and_", "or_"):
        return instruction in ("and_", "min", "mul")
    if instruction in ("add", "mul"):
        return int(instruction == "mul")
    low, high = (float("-inf"), float("inf")) if kind(dtype) == "f" else integer_range(dtype)
    return low if instruction == "max" else high
