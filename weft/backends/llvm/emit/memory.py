"""Loads and stores: single elements, or rows of lanes, each converted between registers and memory."""

from __future__ import annotations

from weft.backends.llvm.emit.loops import LINE
from weft.backends.llvm.emit.places import Places, element_type
from weft.backends.llvm.emit.scalars import Scalars
from weft.backends.llvm.emit.types import HALVES, PARTS, REGISTER, Value, constant, intrinsic_suffix, vector
from weft.base.dtypes import DType, bfloat16, bool_, float16, int64, uint8, uint16
from weft.base.sizes import Size
from weft.loop.index import Index
from weft.loop.ir import Buffer, Load, Store

_IN_MEMORY: dict[DType, DType] = {bool_: uint8, float16: uint16, bfloat16: uint16}


class Rows:
    """Moves what is in lanes, as it is in memory."""

    def __init__(self, places: Places, scalars: Scalars) -> None:
        self.writer = scalars.writer
        self._wide = scalars.registers.wide
        self._machine = scalars.machine
        self._places = places
        self._lanes = places.indices.lanes

    def fetch(self, buffer: Buffer, at: Value, scalar: str, lanes: int = 0, align: int = 0) -> Value:
        """What stands at an address, as it is in memory; what nobody writes is read once, before a loop."""
        type_ = vector(lanes, scalar)
        alias = self._places.aliases.get(buffer, "")
        text = f"load {type_}, ptr {at.parts[0]}, align {align or alignment(buffer.dtype)}{alias}"
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
        text = f"shufflevector {type_} {name}, {type_} poison, <{self._lanes.count} x i32> <{order}>"
        return self.writer.here(text)

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


PICKED = 4  # words of a register


def alignment(dtype: DType) -> int:
    """What the address of an element, or of a part of one, is surely a multiple of."""
    return dtype.itemsize // 2 if dtype in PARTS else dtype.itemsize


class Memory:
    """Access to buffers."""

    def __init__(self, places: Places, scalars: Scalars) -> None:
        self.writer = scalars.writer
        self._scalars = scalars
        self._registers = scalars.registers
        self._casts = scalars.casts
        self._places = places
        self._rows = Rows(places, scalars)
        self._indices = places.indices
        self._lanes = places.indices.lanes

    def prefetch(self, buffer: Buffer, index: Index) -> None:
        """Ask for the memory of all lanes, to be written soon."""
        self.writer.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        at = self._places.address(buffer, index).parts[0]
        for offset in range(0, self._lanes.count * buffer.dtype.itemsize, LINE):
            place = self.writer.here(f"getelementptr i8, ptr {at}, i64 {offset}")
            self.writer.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 1, i32 3, i32 1)")

    def _aligned(self, buffer: Buffer, first: Index) -> int:
        """What the address of lanes that begin at an index is surely a multiple of."""
        return max(self._places.row_alignment(buffer, first), alignment(buffer.dtype))

    # Loads

    def load(self, s: Load) -> Value:
        """The value of a load."""
        mask = self._places.access_mask(s.buffer, s.index, s.mask)
        if not self._is_varying(s):
            return self._load_one(s.buffer, s.index, mask)
        return self._load_lanes(s.buffer, s.index, mask)

    def load_picked(self, s: Load) -> Value | None:
        """A word that is the same in all lanes, picked from a register of its neighbours; None if not so.

        An instruction may take a lane of a register for all lanes; to spread one from memory takes longer.
        """
        index, size = s.index, s.buffer.size
        below = index.below()
        if self._is_varying(s) or s.mask is not None or not isinstance(index.offset, int):
            return None
        if not isinstance(below, int) or not isinstance(size, int) or below + PICKED > size:
            return None
        lane = index.offset % PICKED
        at = self._places.address(s.buffer, index - lane, safe=True)
        found = self._rows.fetch(s.buffer, at, element_type(s.buffer.dtype), PICKED)
        return self._scalars.registers.lane(found, str(lane))

    def _is_varying(self, s: Load | Store) -> bool:
        """Whether an access differs from lane to lane."""
        if not self._lanes.count or self._lanes.varying is None:
            return False
        return s in self._lanes.varying if isinstance(s, Load) else True

    def _load_one(self, buffer: Buffer, index: Index, mask: Value | None) -> Value:
        at = self._places.address(buffer, index, safe=mask is None)
        if mask is None or mask.number is True:
            return self._read(buffer, at)
        w = self.writer
        before, inside, after = w.block, w.label("load"), w.label("end")
        w.room()
        w.branch(mask.parts[0], inside, after)
        with w.scope(is_loop=False, surely=False):
            w.begin(inside)
            found = self._read(buffer, at)
            w.jump(after)
        w.begin(after)
        zero = constant(0, buffer.dtype)
        type_ = REGISTER[buffer.dtype]
        parts = tuple(
            w.here(f"phi {type_} [ {z}, %{before} ], [ {x}, %{inside} ]")
            for z, x in zip(zero.parts, found.parts, strict=True)
        )
        return Value(buffer.dtype, parts, 0, w.depth, None, True)

    def _read(self, buffer: Buffer, at: Value) -> Value:
        """The element at an address."""
        if buffer.dtype not in PARTS:
            return self._from_memory(self._rows.fetch(buffer, at, element_type(buffer.dtype)), buffer.dtype)
        type_ = REGISTER[buffer.dtype]
        re, im = (self._rows.fetch(buffer, place, type_) for place in (at, self._rows.second(at, type_)))
        return Value(buffer.dtype, re.parts + im.parts, 0, max(re.scope, im.scope))

    def _from_memory(self, x: Value, dtype: DType) -> Value:
        """What was loaded as a value of its dtype."""
        if dtype == bool_:
            return self._casts.truth(x)
        return self._casts.of_bits(x, dtype) if dtype in HALVES else x

    def _load_lanes(self, buffer: Buffer, index: Index, mask: Value | None) -> Value:
        """The elements in lanes."""
        stride, others = self._indices.across(index)
        near = others is None and not isinstance(stride, Size) and stride in (1, 2, -1)
        plain = mask is None or (stride == 1 and buffer.dtype not in PARTS)
        if not near or not plain or (stride == 2 and buffer.dtype in PARTS):
            return self._gather(buffer, index, mask)
        if buffer.dtype in PARTS:
            return self._load_pairs(buffer, index, int(stride))
        if stride == 2:
            return self._load_every_other(buffer, index)
        first = index if stride == 1 else index - (self._lanes.count - 1)
        at = self._places.address(buffer, first, safe=mask is None)
        scalar = element_type(buffer.dtype)
        found = (
            self._rows.fetch(buffer, at, scalar, self._lanes.count, self._aligned(buffer, first))
            if mask is None
            else self._rows.in_memory(buffer, self._rows.masked_load(buffer, at, scalar, mask))
        )
        if stride == -1:
            name = self._rows.reverse(found.parts[0], vector(self._lanes.count, scalar))
            found = self._rows.in_memory(buffer, name)
        return self._from_memory(found, buffer.dtype)

    def _load_every_other(self, buffer: Buffer, index: Index) -> Value:
        """Elements at every other place, of two rows, which overlap so that nothing else is touched."""
        n, scalar = self._lanes.count, element_type(buffer.dtype)
        places = [self._places.address(buffer, index + skip, safe=True) for skip in (0, n - 1)]
        rows = [self._rows.fetch(buffer, place, scalar, n) for place in places]
        type_, scope = vector(n, scalar), max(row.scope for row in rows)
        order = ", ".join([f"i32 {2 * i if 2 * i < n else 2 * i + 1}" for i in range(n)])
        both = ", ".join([f"{type_} {row.parts[0]}" for row in rows])
        name = self.writer.pure(f"shufflevector {both}, <{n} x i32> <{order}>", scope)
        found = Value(rows[0].dtype, (name,), n, self.writer.home(scope))
        return self._from_memory(found, buffer.dtype)

    def _load_pairs(self, buffer: Buffer, index: Index, stride: int) -> Value:
        """Complex numbers: real and imaginary parts, which alternate in memory, each in a register."""
        n, scalar = self._lanes.count, REGISTER[buffer.dtype]
        first = index if stride == 1 else index - (n - 1)
        at, align = self._places.address(buffer, first, safe=True), self._aligned(buffer, first)
        both, found = vector(2 * n, scalar), self._rows.fetch(buffer, at, scalar, 2 * n, align)
        parts = []
        for part in (0, 1):
            order = ", ".join([f"i32 {2 * i + part}" for i in range(n)[::stride]])
            text = f"shufflevector {both} {found.parts[0]}, {both} poison, <{n} x i32> <{order}>"
            parts.append(self.writer.pure(text, found.scope))
        return Value(buffer.dtype, tuple(parts), n, self.writer.home(found.scope))

    def _gather(self, buffer: Buffer, index: Index, mask: Value | None) -> Value:
        at = self._places.addresses(buffer, index)
        if mask is not None and self._rows.is_cheaper_unmasked(buffer):
            return self._gather_all(buffer, at, mask)
        return self._gather_at(buffer, at, mask)

    def _gather_all(self, buffer: Buffer, at: Value, mask: Value) -> Value:
        """A gather with a mask: lanes that it leaves out read the first element, and are 0."""
        n, w = self._lanes.count, self.writer
        active, first = self._registers.wide(mask, n)[0], self._places.base(buffer)
        elsewhere = self._registers.spread(first.parts[0], "ptr", n, first.scope)
        text = f"select <{n} x i1> {active}, <{n} x ptr> {at.parts[0]}, <{n} x ptr> {elsewhere}"
        safe = Value(int64, (w.here(text),), n, w.depth)
        return self._scalars.select(mask, self._gather_at(buffer, safe, None), 0)

    def _gather_at(self, buffer: Buffer, at: Value, mask: Value | None) -> Value:
        scalar = REGISTER[buffer.dtype] if buffer.dtype in PARTS else element_type(buffer.dtype)
        if buffer.dtype not in PARTS:
            name = self._rows.gather_part(buffer, at, scalar, mask)
            return self._from_memory(self._rows.in_memory(buffer, name), buffer.dtype)
        second = self._rows.second(at, scalar)
        parts = tuple([self._rows.gather_part(buffer, p, scalar, mask) for p in (at, second)])
        return Value(buffer.dtype, parts, self._lanes.count, self.writer.depth)

    # Stores

    def store(self, s: Store) -> None:
        """Write a value to its element."""
        mask = self._places.access_mask(s.buffer, s.index, s.mask)
        value = self._indices.value(s.value)
        if not self._lanes.count:
            self._store_one(s.buffer, s.index, value, mask)
        else:
            self._store_lanes(s.buffer, s.index, self._registers.in_lanes(value, self._lanes.count), mask)

    def _to_memory(self, x: Value) -> Value:
        """A value as it is stored."""
        if x.dtype == bool_:
            return self._casts.cast(x, uint8)
        return self._casts.to_bits(x) if x.dtype in HALVES else x

    def _store_one(self, buffer: Buffer, index: Index, value: Value, mask: Value | None) -> None:
        at = self._places.address(buffer, index, safe=mask is None)
        if mask is None or mask.number is True:
            self._write(buffer, at, value)
            return
        w = self.writer
        inside, after = w.label("store"), w.label("end")
        stored = self._to_memory(value)
        w.room()
        w.branch(mask.parts[0], inside, after)
        with w.scope(is_loop=False, surely=False):
            w.begin(inside)
            self._write(buffer, at, stored)
            w.jump(after)
        w.begin(after)

    def _write(self, buffer: Buffer, at: Value, value: Value) -> None:
        """Write a value to an address."""
        alias, size = self._places.aliases.get(buffer, ""), alignment(buffer.dtype)
        value = self._to_memory(value)
        type_ = REGISTER[value.dtype]
        places = [at, self._rows.second(at, type_)] if buffer.dtype in PARTS else [at]
        for place, part in zip(places, value.parts, strict=True):
            self.writer.line(f"store {type_} {part}, ptr {place.parts[0]}, align {size}{alias}")

    def _store_lanes(self, buffer: Buffer, index: Index, value: Value, mask: Value | None) -> None:
        stride, others = self._indices.across(index)
        near = others is None and not isinstance(stride, Size) and stride in (1, -1)
        if not near or (mask is not None and (stride == -1 or buffer.dtype in PARTS)):
            self._scatter(buffer, index, value, mask)
            return
        first = index if stride == 1 else index - (self._lanes.count - 1)
        at = self._places.address(buffer, first, safe=mask is None)
        value = self._to_memory(value)
        type_ = vector(self._lanes.count, REGISTER[value.dtype])
        parts = value.parts if stride == 1 else tuple([self._rows.reverse(p, type_) for p in value.parts])
        alias, size = self._places.aliases.get(buffer, ""), self._aligned(buffer, first)
        if len(parts) == 2:
            type_, text = self._rows.interleave(parts, REGISTER[value.dtype])
            self.writer.line(f"store {type_} {text}, ptr {at.parts[0]}, align {size}{alias}")
        elif mask is None:
            self.writer.line(f"store {type_} {parts[0]}, ptr {at.parts[0]}, align {size}{alias}")
        else:
            self._rows.masked_store(buffer, at, parts[0], REGISTER[value.dtype], mask)

    def _scatter(self, buffer: Buffer, index: Index, value: Value, mask: Value | None) -> None:
        at, value = self._places.addresses(buffer, index), self._to_memory(value)
        scalar = REGISTER[value.dtype]
        places = [at, self._rows.second(at, scalar)] if buffer.dtype in PARTS else [at]
        n = self._lanes.count
        type_, bits = vector(n, scalar), vector(n, "i1")
        name = f"@llvm.masked.scatter.{intrinsic_suffix(n, scalar)}.v{n}p0"
        self.writer.declare(f"void {name}({type_}, <{n} x ptr>, {bits})")
        active = self._registers.wide(constant(True, bool_) if mask is None else mask, n)[0]
        for place, part in zip(places, value.parts, strict=True):
            pointers = f"<{n} x ptr> align {alignment(buffer.dtype)} {place.parts[0]}"
            call = f"call void {name}({type_} {part}, {pointers}, {bits} {active})"
            self.writer.line(call + self._places.aliases.get(buffer, ""))
