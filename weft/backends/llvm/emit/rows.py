"""Lanes to and from memory: rows of elements, backwards too, gathers and scatters, masked or not."""

from __future__ import annotations

from weft.backends.llvm.emit.places import Places
from weft.backends.llvm.emit.scalars import Scalars
from weft.backends.llvm.emit.types import PARTS, Value, constant, intrinsic_suffix, vector
from weft.base.dtypes import DType, bfloat16, bool_, float16, int64, uint8, uint16
from weft.loop.ir import Buffer

_IN_MEMORY: dict[DType, DType] = {bool_: uint8, float16: uint16, bfloat16: uint16}


class Rows:
    """Moves what is in lanes, as it is in memory."""

    def __init__(self, places: Places, scalars: Scalars) -> None:
        self.writer = scalars.writer
        self._wide = scalars.registers.wide
        self._machine = scalars.machine
        self._places = places
        self._lanes = places.indices.lanes

    def fetch(self, buffer: Buffer, at: Value, scalar: str, lanes: int = 0) -> Value:
        """What stands at an address, as it is in memory; what nobody writes is read once, before a loop."""
        type_ = vector(lanes, scalar)
        alias = self._places.aliases.get(buffer, "")
        text = f"load {type_}, ptr {at.parts[0]}, align {alignment(buffer.dtype)}{alias}"
        if buffer in self._places.constants and self._lanes.mask is None:
            name, scope = self.writer.invariant(text, at.scope)
        else:
            name, scope = self.writer.here(text), self.writer.depth
        return Value(_IN_MEMORY.get(buffer.dtype, buffer.dtype), (name,), lanes, scope)

    def in_memory(self, buffer: Buffer, name: str) -> Value:
        """Lanes that were loaded here, as they are in memory."""
        dtype = _IN_MEMORY.get(buffer.dtype, buffer.dtype)
        return Value(dtype, (name,), self._lanes.count, self.writer.depth)

    def reverse(self, name: str, type_: str) -> str:
        """Lanes in the opposite order."""
        order = ", ".join([f"i32 {n}" for n in range(self._lanes.count - 1, -1, -1)])
        return self.writer.here(
            f"shufflevector {type_} {name}, {type_} poison, <{self._lanes.count} x i32> <{order}>"
        )

    # Masks

    def _split_on_all(self, mask: Value) -> tuple[str, str, str]:
        """Branch on whether a mask holds in all lanes; gives the labels of both ways and of their end."""
        w = self.writer
        type_, name = vector(self._lanes.count, "i1"), f"@llvm.vector.reduce.and.v{self._lanes.count}i1"
        w.declare(f"i1 {name}({type_})")
        every = w.here(f"call i1 {name}({type_} {self._wide(mask, self._lanes.count)[0]})")
        whole, some, end = w.label("whole"), w.label("some"), w.label("end")
        w.branch(every, whole, some)
        return whole, some, end

    def masked_load(self, buffer: Buffer, at: Value, scalar: str, mask: Value) -> str:
        """A row of elements where a mask holds, else 0."""
        if self._machine.has_masks(buffer.dtype):
            return self._masked_load_only(buffer, at, scalar, mask)
        whole, some, end = self._split_on_all(mask)
        w, type_ = self.writer, vector(self._lanes.count, scalar)
        alias, size = self._places.aliases.get(buffer, ""), alignment(buffer.dtype)
        w.begin(whole)
        plain = w.here(f"load {type_}, ptr {at.parts[0]}, align {size}{alias}")
        w.jump(end)
        w.begin(some)
        masked = self._masked_load_only(buffer, at, scalar, mask)
        w.jump(end)
        w.begin(end)
        return w.here(f"phi {type_} [ {plain}, %{whole} ], [ {masked}, %{some} ]")

    def _masked_load_only(self, buffer: Buffer, at: Value, scalar: str, mask: Value) -> str:
        type_, bits = vector(self._lanes.count, scalar), vector(self._lanes.count, "i1")
        name = f"@llvm.masked.load.{intrinsic_suffix(self._lanes.count, scalar)}.p0"
        self.writer.declare(f"{type_} {name}(ptr, {bits}, {type_})")
        active = self._wide(mask, self._lanes.count)[0]
        pointer = f"ptr align {alignment(buffer.dtype)} {at.parts[0]}"
        call = f"call {type_} {name}({pointer}, {bits} {active}, {type_} zeroinitializer)"
        return self.writer.here(call + self._places.aliases.get(buffer, ""))

    def masked_store(self, buffer: Buffer, at: Value, part: str, scalar: str, mask: Value) -> None:
        """Write a row of elements where a mask holds."""
        if self._machine.has_masks(buffer.dtype):
            self._masked_store_only(buffer, at, part, scalar, mask)
            return
        whole, some, end = self._split_on_all(mask)
        w, alias = self.writer, self._places.aliases.get(buffer, "")
        w.begin(whole)
        place = f"ptr {at.parts[0]}, align {alignment(buffer.dtype)}{alias}"
        w.line(f"store {vector(self._lanes.count, scalar)} {part}, {place}")
        w.jump(end)
        w.begin(some)
        self._masked_store_only(buffer, at, part, scalar, mask)
        w.jump(end)
        w.begin(end)

    def _masked_store_only(self, buffer: Buffer, at: Value, part: str, scalar: str, mask: Value) -> None:
        type_, bits = vector(self._lanes.count, scalar), vector(self._lanes.count, "i1")
        name = f"@llvm.masked.store.{intrinsic_suffix(self._lanes.count, scalar)}.p0"
        self.writer.declare(f"void {name}({type_}, ptr, {bits})")
        active = self._wide(mask, self._lanes.count)[0]
        pointer = f"ptr align {alignment(buffer.dtype)} {at.parts[0]}"
        call = f"call void {name}({type_} {part}, {pointer}, {bits} {active})"
        self.writer.line(call + self._places.aliases.get(buffer, ""))

    # Elements that are not in a row

    def second(self, at: Value, scalar: str) -> Value:
        """The addresses of imaginary parts."""
        text = f"getelementptr {scalar}, {vector(at.lanes, 'ptr')} {at.parts[0]}, i64 1"
        return Value(int64, (self.writer.pure(text, at.scope, cheap=True),), at.lanes, at.scope)

    def is_cheaper_unmasked(self, buffer: Buffer) -> bool:
        """Whether it is better to read the first element, which is there, than to branch around a load."""
        return self._machine.prefers_unmasked and isinstance(buffer.size, int) and buffer.size > 0

    def gather_part(self, buffer: Buffer, at: Value, scalar: str, mask: Value | None) -> str:
        """What stands at an address in each lane where a mask holds, else 0."""
        n = self._lanes.count
        type_, bits = vector(n, scalar), vector(n, "i1")
        name = f"@llvm.masked.gather.{intrinsic_suffix(n, scalar)}.v{n}p0"
        self.writer.declare(f"{type_} {name}(<{n} x ptr>, {bits}, {type_})")
        active = self._wide(constant(True, bool_) if mask is None else mask, n)[0]
        pointers = f"<{n} x ptr> align {alignment(buffer.dtype)} {at.parts[0]}"
        call = f"call {type_} {name}({pointers}, {bits} {active}, {type_} zeroinitializer)"
        return self.writer.here(call + self._places.aliases.get(buffer, ""))

    def interleave(self, parts: tuple[str, ...], scalar: str) -> tuple[str, str]:
        """Real and imaginary parts by turns, as in memory."""
        n = self._lanes.count
        type_, both = vector(n, scalar), vector(2 * n, scalar)
        order = ", ".join([f"i32 {i}, i32 {n + i}" for i in range(n)])
        text = f"shufflevector {type_} {parts[0]}, {type_} {parts[1]}, <{2 * n} x i32> <{order}>"
        return both, self.writer.here(text)


def alignment(dtype: DType) -> int:
    """What the address of an element, or of a part of one, is surely a multiple of."""
    return dtype.itemsize // 2 if dtype in PARTS else dtype.itemsize
