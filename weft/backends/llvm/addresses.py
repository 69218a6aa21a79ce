"""Where elements are: addresses of buffers and of their elements, in registers, and checks of indices."""

from __future__ import annotations

from weft.backends.llvm.indices import Indices
from weft.backends.llvm.target import Target
from weft.backends.llvm.types import HALVES, PARTS, REGISTER, Value, constant, vector
from weft.backends.llvm.writer import Writer
from weft.base.dtypes import DType, bool_, int64
from weft.base.sizes import Size
from weft.loop.index import Index
from weft.loop.ir import Buffer

OUT_OF_BOUNDS = -2  # the number of the failure that an access out of bounds is, in code with checks


class Addresses(Indices):
    """Addresses of elements.

    Attributes:
        pointers: where each buffer begins.
        aliases: metadata of accesses to each buffer, which tells what they cannot overlap.
        numbers: of buffers, for the messages of checks.
        constants: buffers that nobody writes while the function runs.
        mask: inside an if that lanes part in, the lanes that are active.
        debug: whether indices are checked.
    """

    def __init__(self, writer: Writer, target: Target, *, debug: bool) -> None:
        super().__init__(writer, target)
        self.pointers: dict[Buffer, Value] = {}
        self.aliases: dict[Buffer, str] = {}
        self.numbers: dict[Buffer, int] = {}
        self.constants: frozenset[Buffer] = frozenset()
        self.mask: Value | None = None
        self.debug = debug

    def base(self, buffer: Buffer) -> Value:
        """Where a buffer begins."""
        return self.pointers[buffer]

    def element(self, dtype: DType) -> str:
        """The type of an element in memory."""
        if dtype == bool_:
            return "i8"
        if dtype in HALVES:
            return "i16"
        return f"[2 x {REGISTER[dtype]}]" if dtype in PARTS else REGISTER[dtype]

    def address(self, buffer: Buffer, index: Index, *, safe: bool = False) -> Value:
        """The address of the element at an index, in the first lane; terms are added scope by scope."""
        parts: dict[int, Value] = {}
        for variable, stride in index.terms.items():
            value = self.variable_value(variable)
            if not value.lanes:
                part = self.product(value, self.number(stride))
                parts[part.scope] = self.sum(parts[part.scope], part) if part.scope in parts else part
        offset = self.number(index.offset)
        if offset.number is None:
            parts[offset.scope] = self.sum(parts[offset.scope], offset) if offset.scope in parts else offset
        inbounds = "inbounds " if safe and _rises(index) else ""
        at = self.base(buffer)
        for _, part in sorted(parts.items()):
            at = self.step(buffer, at, part, inbounds)
        return at if offset.number in (0, None) else self.step(buffer, at, offset, inbounds)

    def step(self, buffer: Buffer, at: Value, count: Value, inbounds: str = "") -> Value:
        """The address so many elements further."""
        scope = max(at.scope, count.scope)
        far = f"{vector(count.lanes, 'i64')} {count.parts[0]}"
        text = f"getelementptr {inbounds}{self.element(buffer.dtype)}, ptr {at.parts[0]}, {far}"
        return Value(int64, (self.writer.pure(text, scope, cheap=True),), count.lanes, scope)

    def addresses(self, buffer: Buffer, index: Index) -> Value:
        """The address in each lane."""
        at = self.address(buffer, index)
        stride, others = self.across(index)
        if others is None or not (isinstance(stride, int) and stride == 0):  # 0: one address, behind a mask
            distances = self.product(self.lane_numbers(), self.number(stride))
            others = distances if others is None else self.sum(others, distances)
        return self.step(buffer, at, others)

    def access_mask(self, buffer: Buffer, index: Index, mask: object) -> Value | None:
        """Where an access takes place: by its own mask and that of ifs around it, if checks hold."""
        out = None if mask is None else self.value(mask)
        if self.mask is not None:
            out = self.mask if out is None else self.and_(self.mask, out)
        if not self.debug:
            return out
        at = self.index_value(index)
        inside = self.instruction("icmp ult", bool_, at, self.number(buffer.size))
        outside = self.not_(inside) if out is None else self.and_(out, self.not_(inside))
        self.fail_outside(outside, buffer, at)
        return inside if out is None else self.and_(out, inside)

    def fail_outside(self, condition: Value, buffer: Buffer, at: Value) -> None:
        """Note an access out of bounds: which buffer, where, and how many elements there are."""
        values = constant(self.numbers[buffer], int64), at, self.number(buffer.size)
        self.fail(condition, OUT_OF_BOUNDS, values)

    def fail(self, condition: Value, number: int, values: tuple[Value, ...]) -> None:
        """Note a failure; see ``weft.backends.llvm.control``."""
        raise NotImplementedError  # the writer of control flow says it


def _rises(index: Index) -> bool:
    """Whether no part of an index is negative, so that partial sums are in bounds where the index is."""
    if isinstance(index.offset, Size) or index.offset < 0:
        return False
    return all(v.stop is not None and not isinstance(s, Size) and s > 0 for v, s in index.terms.items())
