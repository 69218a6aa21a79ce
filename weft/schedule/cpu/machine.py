"""What the schedule knows of the machine that it writes for: its vector registers, and what pays on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.base.dtypes import DType
from weft.base.records import NamedTuple
from weft.schedule.cpu.tuning import Tuning
from weft.schedule.extents import sum_dtype

if TYPE_CHECKING:
    from weft.schedule.writer import Writer


class Machine(NamedTuple):
    """A processor.

    >>> import numpy as np
    >>> from weft.schedule.cpu.machine import Machine
    >>> Machine(vector_bytes=16).lanes(np.dtype("f4"))
    4

    Attributes:
        vector_bytes: the size of a vector register.
        registers: how many of them there are.
        tuning: what pays on it.
        units: instructions of ``weft.loop.dots`` that it has.
    """

    vector_bytes: int = 64
    registers: int = 32
    tuning: Tuning = Tuning()
    units: tuple[str, ...] = ()

    def lanes(self, dtype: DType) -> int:
        """How many numbers that are computed with as one dtype fill a register."""
        return max(1, self.vector_bytes // sum_dtype(dtype).itemsize)


def machine_of(writer: Writer) -> Machine:
    """The machine that a program is written for."""
    machine = writer.target.machine
    assert isinstance(machine, Machine), "a lowering for CPUs wrote a program for something else"
    return machine
