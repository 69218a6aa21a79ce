"""Memory that a main function has from the system: of buffers whose size only the run tells."""

from __future__ import annotations

from weft.backends.llvm.emit.failures import OUT_OF_MEMORY
from weft.backends.llvm.emit.statements import Statements
from weft.backends.llvm.emit.types import Value, constant
from weft.backends.llvm.emit.writer import Writer
from weft.base.dtypes import int64
from weft.loop.ir import Allocate, Buffer, Free


class Heap:
    """Writes what makes these buffers larger, and what frees them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._slots: dict[Buffer, tuple[str, str]] = {}  # where its address is, and how many bytes it has

    def __contains__(self, buffer: Buffer) -> bool:
        return buffer in self._slots

    def add(self, buffer: Buffer) -> None:
        """Have a buffer, of no size yet."""
        self._slots[buffer] = self._writer.slot("ptr", "null"), self._writer.slot("i64", "0")

    def base(self, buffer: Buffer) -> Value:
        """Where a buffer begins at this place."""
        return Value(int64, (self._address(buffer),), 0, self._writer.depth)

    def _address(self, buffer: Buffer) -> str:
        return self._writer.here(f"load ptr, ptr {self._slots[buffer][0]}")

    def allocate(self, code: Statements, s: Allocate) -> None:
        """See to it that a buffer has room for so many elements; a list that grows is copied rarely."""
        w, e = self._writer, code.scalars
        slot, room = self._slots[s.buffer]
        size = code.indices.product(
            code.indices.index_value(s.count), constant(s.buffer.dtype.itemsize, int64)
        )
        held = Value(int64, (w.here(f"load i64, ptr {room}"),), 0, w.depth)
        grow, kept, end = w.label("grow"), w.label("kept"), w.label("end")
        w.room()
        w.branch(e.lt(held, size).parts[0], grow, end)
        with w.scope(is_loop=False, surely=False):
            w.begin(grow)
            larger = e.max(size, e.add(held, held))
            w.declare("ptr @realloc(ptr, i64)")
            old = w.here(f"load ptr, ptr {slot}")
            new = w.here(f"call ptr @realloc(ptr {old}, i64 {larger.parts[0]})")
            missing = Value(int64, (w.here(f"ptrtoint ptr {new} to i64"),), 0, w.depth)
            refused = e.eq(missing, 0)
            code.failures.fail(refused, OUT_OF_MEMORY, (size,))
            w.branch(refused.parts[0], "exit", kept, unlikely=True)
            w.begin(kept)
            w.line(f"store ptr {new}, ptr {slot}")
            w.line(f"store i64 {larger.parts[0]}, ptr {room}")
            w.jump(end)
        w.begin(end)

    def free(self, s: Free) -> None:
        """Give the memory of a buffer back."""
        slot, room = self._slots[s.buffer]
        self._release(self._address(s.buffer))
        self._writer.line(f"store ptr null, ptr {slot}")
        self._writer.line(f"store i64 0, ptr {room}")

    def end(self, failed: str, parameters: dict[Buffer, int]) -> None:
        """Free all but outputs, which are handed over unless there was a failure."""
        w = self._writer
        for buffer in self._slots:
            memory = self._address(buffer)
            if buffer in parameters:
                place = w.here(f"getelementptr ptr, ptr %buffers, i64 {parameters[buffer]}")
                is_fine = w.here(f"icmp eq i64 {failed}, 0")
                w.line(f"store ptr {w.here(f'select i1 {is_fine}, ptr {memory}, ptr null')}, ptr {place}")
                memory = w.here(f"select i1 {is_fine}, ptr null, ptr {memory}")
            self._release(memory)

    def _release(self, memory: str) -> None:
        self._writer.declare("void @free(ptr)")
        self._writer.line(f"call void @free(ptr {memory})")
