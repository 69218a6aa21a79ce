"""What the schedule knows of the machine that it writes for: its vector registers."""

from __future__ import annotations

from typing import NamedTuple

from weft.base.dtypes import DType, bfloat16, float16


class Machine(NamedTuple):
    """A processor's vector registers.

    >>> import numpy as np
    >>> from weft.schedule.cpu.machine import Machine
    >>> Machine(vector_bytes=16).lanes(np.dtype("f4"))
    4

    Attributes:
        vector_bytes: the size of a vector register.
        registers: how many of them there are.
    """

    vector_bytes: int = 64
    registers: int = 32

    def lanes(self, dtype: DType) -> int:
        """How many numbers that are computed with as one dtype fill a register."""
        size = 4 if dtype in (float16, bfloat16) else dtype.itemsize
        return max(1, self.vector_bytes // size)
