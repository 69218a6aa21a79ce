"""Failures: code that notes, in the context of the call, what went wrong first, and goes on."""

from __future__ import annotations

from weft.backends.llvm.emit.registers import Registers
from weft.backends.llvm.emit.types import Value

OUT_OF_BOUNDS = -2  # the number of the failure that an access out of bounds is, in code with checks
OUT_OF_MEMORY = -4  # the number of the failure that an allocation is that the system refuses


class Failures:
    """Writes what notes failures."""

    def __init__(self, registers: Registers) -> None:
        self._registers = registers

    def fail(self, condition: Value, number: int, values: tuple[Value, ...]) -> None:
        """Note a failure where a condition holds, unless there was one; of several lanes, the first's."""
        if condition.number is False:
            return
        w, registers = self._registers.writer, self._registers
        note, keep, end = w.label("fail"), w.label("keep"), w.label("end")
        w.room()
        w.branch(registers.any_lane(condition), note, end, unlikely=True)
        with w.scope(is_loop=False, surely=False):
            w.begin(note)
            lane = registers.first_lane(condition)
            pair = w.here(f"cmpxchg ptr %context, i64 0, i64 {number + 1} monotonic monotonic")
            w.branch(w.here(f"extractvalue {{ i64, i1 }} {pair}, 1"), keep, end)
            w.begin(keep)
            for i, value in enumerate(values):
                at = w.here(f"getelementptr i64, ptr %context, i64 {i + 1}")
                w.line(f"store i64 {registers.lane(value, lane).parts[0]}, ptr {at}")
            w.jump(end)
        w.begin(end)
