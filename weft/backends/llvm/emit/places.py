"""Where elements are: addresses of buffers and their elements in registers, checks of indices, failures."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from weft.backends.llvm.emit.indices import Indices
from weft.backends.llvm.emit.registers import Registers
from weft.backends.llvm.emit.scalars import Scalars
from weft.backends.llvm.emit.types import HALVES, PARTS, REGISTER, Value, constant, vector
from weft.base.dtypes import DType, bool_, int64
from weft.base.sizes import Size
from weft.loop.index import Index
from weft.loop.ir import Buffer
from weft.loop.ir import Value as Expression

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


class Places:
    """Addresses of elements.

    Attributes:
        base: gives where a buffer begins.
        aliases: metadata of accesses to each buffer, which tells what they cannot overlap.
        numbers: of buffers, for the messages of checks.
        constants: buffers that nobody writes while the function runs.
        alignments: for buffers whose address is a multiple of more than an element, the bytes.
        debug: whether indices are checked.
    """

    def __init__(
        self, indices: Indices, scalars: Scalars, failures: Failures, base: Callable[[Buffer], Value], *,
        debug: bool,
    ) -> None:  # fmt: skip
        self.indices = indices
        self.base = base
        self.aliases: dict[Buffer, str] = {}
        self.numbers: dict[Buffer, int] = {}
        self.constants: frozenset[Buffer] = frozenset()
        self.alignments: dict[Buffer, int] = {}
        self.debug = debug
        self._scalars = scalars
        self._failures = failures
        self._pure = scalars.writer.pure

    def address(self, buffer: Buffer, index: Index, *, safe: bool = False) -> Value:
        """The address of the element at an index, in the first lane; terms are added scope by scope."""
        parts: dict[int, Value] = {}
        total = self.indices.sum
        for variable, stride in index.terms.items():
            value = self.indices.variable_value(variable)
            if not value.lanes:
                part = self.indices.product(value, self.indices.number(stride))
                parts[part.scope] = total(parts[part.scope], part) if part.scope in parts else part
        offset = self.indices.number(index.offset)
        if offset.number is None:
            parts[offset.scope] = total(parts[offset.scope], offset) if offset.scope in parts else offset
        inbounds = "inbounds " if safe and _rises(index) else ""
        at = self.base(buffer)
        for _, part in sorted(parts.items()):
            at = self.step(buffer, at, part, inbounds)
        return at if offset.number in (0, None) else self.step(buffer, at, offset, inbounds)

    def step(self, buffer: Buffer, at: Value, count: Value, inbounds: str = "") -> Value:
        """The address so many elements further."""
        scope = max(at.scope, count.scope)
        far = f"{vector(count.lanes, 'i64')} {count.parts[0]}"
        text = f"getelementptr {inbounds}{element_type(buffer.dtype)}, ptr {at.parts[0]}, {far}"
        return Value(int64, (self._pure(text, scope, cheap=True),), count.lanes, scope)

    def row_alignment(self, buffer: Buffer, index: Index) -> int:
        """What the address of lanes at an index is surely a multiple of, a power of two; 0 if unknown."""
        total = self.alignments.get(buffer, 0)
        if not total:
            return 0
        for variable, stride in (*index.terms.items(), (None, index.offset)):
            if variable is not None and variable is self.indices.lanes.walking:
                continue  # it counts whole vectors
            known = stride.factor() if isinstance(stride, Size) else stride
            total = gcd(total, known * buffer.dtype.itemsize)
        return total & -total

    def addresses(self, buffer: Buffer, index: Index) -> Value:
        """The address in each lane."""
        at = self.address(buffer, index)
        stride, others = self.indices.across(index)
        if others is None or not (isinstance(stride, int) and stride == 0):  # 0: one address, behind a mask
            distances = self.indices.product(self.indices.lane_numbers(), self.indices.number(stride))
            others = distances if others is None else self.indices.sum(others, distances)
        return self.step(buffer, at, others)

    def access_mask(self, buffer: Buffer, index: Index, mask: Expression | None) -> Value | None:
        """Where an access takes place: by its own mask and that of ifs around it, if checks hold."""
        out, around = None if mask is None else self.indices.value(mask), self.indices.lanes.mask
        if around is not None:
            out = around if out is None else self._scalars.and_(around, out)
        if not self.debug:
            return out
        at, e = self.indices.index_value(index), self._scalars
        inside = e.registers.instruction("icmp ult", bool_, at, self.indices.number(buffer.size))
        outside = e.not_(inside) if out is None else e.and_(out, e.not_(inside))
        self.fail_outside(outside, buffer, at)
        return inside if out is None else e.and_(out, inside)

    def lies_outside(self, buffer: Buffer, first: Value, last: Value) -> Value:
        """Whether elements from one to before another are not all in a buffer."""
        e = self._scalars
        return e.or_(e.lt(first, 0), e.lt(self.indices.number(buffer.size), last))

    def fail_outside(self, condition: Value, buffer: Buffer, at: Value) -> None:
        """Note an access out of bounds: which buffer, where, and how many elements there are."""
        values = constant(self.numbers[buffer], int64), at, self.indices.number(buffer.size)
        self._failures.fail(condition, OUT_OF_BOUNDS, values)


def element_type(dtype: DType) -> str:
    """The type of an element in memory."""
    if dtype == bool_:
        return "i8"
    if dtype in HALVES:
        return "i16"
    return f"[2 x {REGISTER[dtype]}]" if dtype in PARTS else REGISTER[dtype]


def _rises(index: Index) -> bool:
    """Whether no part of an index is negative, so that partial sums are in bounds where the index is."""
    if isinstance(index.offset, Size) or index.offset < 0:
        return False
    return all(v.stop is not None and not isinstance(s, Size) and s > 0 for v, s in index.terms.items())
