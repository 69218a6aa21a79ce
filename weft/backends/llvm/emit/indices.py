"""Indices and named sizes in registers: sums of products in i64, and how an index walks from lane to lane."""

from __future__ import annotations

from collections.abc import Callable

from weft.backends.llvm.emit.lanes import Lanes
from weft.backends.llvm.emit.scalars import Scalars
from weft.backends.llvm.emit.types import REGISTER, Value, constant, whole
from weft.base.dtypes import DType, int32, int64, uint32
from weft.base.sizes import Atom, Positive, Quotient, Size
from weft.loop.index import Extent, Index, Variable
from weft.loop.ir import Const, Get, Load, Measure, Scalar
from weft.loop.ir import Value as Expression
from weft.loop.known import bounds_of

_NARROW = 1 << 31
ZERO, ONE = whole(0), whole(1)


class Indices:
    """The values of indices and sizes.

    Attributes:
        lanes: the vector loop around, if there is one.
        values: of the scalars that have been computed, by the object that stands for them.
        variables: of loops; for the vector loop its value in the first lane.
        named_size: gives the value of a named size at this place.
    """

    def __init__(self, scalars: Scalars, lanes: Lanes, named_size: Callable[[str], Value]) -> None:
        self.lanes = lanes
        self.values: dict[Scalar | Load | Get | Measure, Value] = {}
        self.variables: dict[Variable, Value] = {}
        self.named_size = named_size
        self._scalars = scalars
        self._pure, self._wide = scalars.writer.pure, scalars.registers.wide

    def value(self, x: Expression) -> Value:
        """A scalar of the Loop IR in registers."""
        if isinstance(x, Index):
            return self.index_value(x)
        if isinstance(x, Const):
            return constant(x.value, x.dtype)
        if isinstance(x, Measure):
            return self.number(x.size)
        return self.values[x]

    # Arithmetic that does not overflow, and does no harm before a branch

    def _cheap(self, opcode: str, x: Value, y: Value) -> Value:
        if x.number is not None and y.number is not None:
            return whole(x.number + y.number if opcode == "add" else x.number * y.number)
        if opcode == "add" and (x.number == 0 or y.number == 0):
            return y if x.number == 0 else x
        if opcode == "mul" and (x.number == 1 or y.number == 1):
            return y if x.number == 1 else x
        lanes, scope = max(x.lanes, y.lanes), max(x.scope, y.scope)
        type_ = f"<{lanes} x i64>" if lanes else "i64"
        a, b = self._wide(x, lanes)[0], self._wide(y, lanes)[0]
        return Value(int64, (self._pure(f"{opcode} nsw {type_} {a}, {b}", scope, cheap=True),), lanes, scope)

    def sum(self, x: Value, y: Value) -> Value:
        """x + y."""
        return self._cheap("add", x, y)

    def product(self, x: Value, y: Value) -> Value:
        """x * y."""
        return self._cheap("mul", x, y)

    # Sizes

    def number(self, x: Extent) -> Value:
        """An int or a size."""
        if not isinstance(x, Size):
            return whole(int(x))
        total = ZERO
        for atoms, factor in x._terms.items():
            part = whole(factor)
            for atom in atoms:
                part = self.product(part, self._atom(atom))
            total = self.sum(total, part)
        return total

    def _atom(self, atom: Atom) -> Value:
        if isinstance(atom, str):
            return self.named_size(atom)
        if isinstance(atom, Quotient):
            return self._floor_quotient(*[self.number(part) for part in atom.parts])
        assert isinstance(atom, Positive), atom
        return self._scalars.max(self.number(atom.parts[0]), ZERO)

    def _floor_quotient(self, x: Value, y: Value) -> Value:
        """x // y, rounded down."""
        e = self._scalars
        out, rest = e.div(x, y), e.rem(x, y)
        below = e.and_(e.not_(e.eq(rest, 0)), e.lt(e.xor(rest, y), 0))
        return e.sub(out, e.cast(below, int64))

    # Indices

    def index_value(self, index: Index) -> Value:
        """The value of an index, in lanes where it varies."""
        if not index.terms:
            return self.number(index.offset)
        total, stride, others = self.walk(index)
        if not (isinstance(stride, int) and stride == 0):
            total = self.sum(total, self.product(self.lane_numbers(), self.number(stride)))
        return self.sum(total, others) if others is not None else total

    def narrow(self, x: Expression) -> Value | None:
        """An index or a constant in 32 bits, where it surely fits, unsigned where it is not negative."""
        if not isinstance(x, Const | Index):
            return None
        bounds = bounds_of(x)
        if bounds is None or not -_NARROW <= bounds[0] <= bounds[1] < _NARROW:
            return None
        dtype = int32 if bounds[0] < 0 else uint32
        if isinstance(x, Const):
            return constant(x.value, dtype)
        total, stride, others = self.walk(x)
        out = self._scalars.cast(total, dtype)
        if stride:
            assert isinstance(stride, int), "a range that is known has known strides"
            out = self._scalars.add(out, self._scalars.mul(self.lane_numbers(dtype), constant(stride, dtype)))
        return out if others is None else self._scalars.add(out, self._scalars.cast(others, dtype))

    def walk(self, index: Index) -> tuple[Value, Extent, Value | None]:
        """An index in parts: its value in the first lane, how far it is to the next, and what else varies."""
        total = ZERO
        for variable, stride in index.terms.items():
            value = self.variable_value(variable)
            if not value.lanes:
                total = self.sum(total, self.product(value, self.number(stride)))
        return self.sum(total, self.number(index.offset)), *self.across(index)

    def across(self, index: Index) -> tuple[Extent, Value | None]:
        """How an index goes on from lane to lane: how far, and what else varies."""
        others = None
        for variable, stride in index.terms.items():
            value = self.variable_value(variable)
            if value.lanes:
                part = self.product(value, self.number(stride))
                others = part if others is None else self.sum(others, part)
        return self.stride(index), others

    def variable_value(self, variable: Variable) -> Value:
        """The value of a term of an index; of the vector loop's variable, that in the first lane."""
        return self.variables[variable] if variable.value is None else self.value(variable.value)

    def stride(self, index: Index) -> Extent:
        """How far an index goes from lane to lane by the variable of the vector loop."""
        return index.stride(self.lanes.walking) if self.lanes.count and self.lanes.walking is not None else 0

    def lane_numbers(self, dtype: DType = int64) -> Value:
        """0, 1, 2, ... in lanes."""
        numbers = ", ".join([f"{REGISTER[dtype]} {n}" for n in range(self.lanes.count)])
        return Value(dtype, (f"<{numbers}>",), self.lanes.count, 0)
