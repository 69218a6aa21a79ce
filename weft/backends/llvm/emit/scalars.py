"""The scalar instruction set (``weft.ops.scalar``) on LLVM values, complex numbers included.

Reals are in ``reals``, conversions in ``casts``, functions in ``weft.loop.math.functions``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from weft.backends.llvm.emit.casts import Casts
from weft.backends.llvm.emit.instructions import InstructionSet
from weft.backends.llvm.emit.reals import Reals
from weft.backends.llvm.emit.registers import Registers, pair
from weft.backends.llvm.emit.types import HALVES, PARTS, WHOLES, Operand, Value, constant
from weft.backends.llvm.emit.writer import Writer
from weft.base.dtypes import DType, bool_, complex64, float32, float64, kind
from weft.loop.dots import DOTS
from weft.loop.math.functions import EXPANSIONS

_HUGE, _TINY, _SCALE = 2.0**500, 2.0**-500, 2.0**600  # squares stay in range between the first two


One = Callable[["Scalars", Value], Value]
Two = Callable[["Scalars", Operand, Operand], Value]


def _one(way: Callable[..., Value], name: str) -> One:
    return lambda self, x: way(self, name, x)


def _two(way: Callable[..., Value], name: str) -> Two:
    return lambda self, x, y: way(self, name, *pair(x, y))


class Scalars(Reals):
    """The scalar instruction set on LLVM values: a ``ScalarEmitter``.

    Attributes:
        falling: registers that hold no positive number, see ``sign``.
    """

    def __init__(self, writer: Writer, machine: InstructionSet) -> None:
        super().__init__(Registers(writer), machine)
        self.writer = writer
        self.casts = Casts(self)
        self.cast, self.bitcast = self.casts.cast, self.casts.bitcast
        self.falling: set[str] = set()

    def apply(self, instruction: str, *operands: Value) -> Value:
        """An instruction by its name."""
        if instruction in DOTS:
            return self.machine.dot(self, instruction, *operands)
        out: Value = getattr(self, instruction)(*operands)
        return out

    def dtype(self, x: Value) -> DType:
        """The dtype of a value."""
        return x.dtype

    def constant(self, value: complex | np.generic, dtype: DType) -> Value:
        """A number."""
        return constant(value, dtype)

    # Arithmetic of reals and complex numbers

    def rem(self, x: Operand, y: Operand) -> Value:
        """What is left of x / y rounded towards zero; of integers 0 where y is 0."""
        return self.remainder(*pair(x, y))

    def shl(self, x: Operand, y: Operand) -> Value:
        """x shifted left."""
        return self.shift("shl", *pair(x, y))

    def shr(self, x: Operand, y: Operand) -> Value:
        """x shifted right, keeping the sign."""
        x, y = pair(x, y)
        return self.shift("ashr" if kind(x.dtype) == "i" else "lshr", x, y)

    def by_parts(self, name: str, x: Value, y: Value) -> Value:
        """An instruction on a real, or on both parts of a complex number."""
        if x.dtype not in PARTS:
            return self.arithmetic(name, x, y)
        a, b = self._split(x), self._split(y)
        return self._join(self.arithmetic(name, a[0], b[0]), self.arithmetic(name, a[1], b[1]))

    def mul(self, x: Operand, y: Operand) -> Value:
        """x * y."""
        x, y = pair(x, y)
        if x.dtype not in PARTS:
            return self.arithmetic("mul", x, y)
        (a, b), (c, d) = self._split(x), self._split(y)
        return self._join(self.sub(self.mul(a, c), self.mul(b, d)), self.add(self.mul(a, d), self.mul(b, c)))

    def div(self, x: Operand, y: Operand) -> Value:
        """x / y; of integers rounded towards zero, and 0 where y is 0."""
        x, y = pair(x, y)
        return self._complex_quotient(x, y) if x.dtype in PARTS else self.quotient(x, y)

    def _complex_quotient(self, x: Value, y: Value) -> Value:
        """By Smith's method (1962): the larger part of y is divided by first, so nothing overflows."""
        (a, b), (c, d) = self._split(x), self._split(y)
        wide = self.le(self.abs(d), self.abs(c))
        large, small = self.select(wide, c, d), self.select(wide, d, c)
        first, second = self.select(wide, a, b), self.select(wide, b, a)
        zero = self.eq(large, 0)
        ratio = self.select(zero, 0, self.div(small, large))  # 1 / 0 is infinite, not NaN
        below = self.add(large, self.mul(small, ratio))
        scale = self.div(1, self.select(zero, self.abs(below), below))
        re = self.add(first, self.mul(second, ratio))
        im = self.sub(second, self.mul(first, ratio))
        return self._join(self.mul(re, scale), self.mul(self.select(wide, im, self.neg(im)), scale))

    def neg(self, x: Value) -> Value:
        """-x."""
        if x.dtype not in PARTS:
            return self.negative(x)
        return self._join(*[self.negative(part) for part in self._split(x)])

    def abs(self, x: Value) -> Value:
        """|x|; real for a complex x."""
        return self._modulus(x) if x.dtype in PARTS else self.size(x)

    def _modulus(self, x: Value) -> Value:
        """The size of a complex number; in between nothing overflows or vanishes."""
        re, im = self._split(x)
        if x.dtype == complex64:
            a, b = self.cast(re, float64), self.cast(im, float64)
            out = self.cast(self.sqrt(self.add(self.mul(a, a), self.mul(b, b))), re.dtype)
        else:
            large = self.max(self.abs(re), self.abs(im))
            near = self.select(self.lt(large, _TINY), _SCALE, constant(1, float64))
            scale = self.select(self.lt(_HUGE, large), 1 / _SCALE, near)
            a, b = self.mul(re, scale), self.mul(im, scale)
            out = self.div(self.sqrt(self.add(self.mul(a, a), self.mul(b, b))), scale)
        infinite = self.or_(self.eq(self.abs(re), float("inf")), self.eq(self.abs(im), float("inf")))
        return self.select(infinite, float("inf"), out)

    # Functions

    def sqrt(self, x: Value) -> Value:
        """The square root, correctly rounded for reals."""
        return self.function("sqrt", x) if x.dtype in PARTS else self.rounding("sqrt", x)

    def atan2(self, y: Operand, x: Operand) -> Value:
        """The angle of the point (x, y), reals only."""
        return self.function("atan2", *pair(y, x))

    def pow(self, x: Operand, y: Operand) -> Value:
        """x to the power of y; integers only with y >= 0."""
        x, y = pair(x, y)
        return self.function("pow", x, y) if kind(x.dtype) in "fc" else self._integer_power(x, y)

    def _integer_power(self, x: Value, y: Value) -> Value:
        """By squaring, bit after bit of y: as many as its dtype has, but the sign."""
        out: Value = constant(1, x.dtype)
        bits = x.dtype.itemsize * 8 if y.number is None else int(y.number).bit_length()
        for bit in range(bits):
            is_set = self.eq(self.and_(self.shr(y, bit), 1), 1) if y.number is None else None
            if is_set is not None:
                out = self.select(is_set, self.mul(out, x), out)
            elif y.number >> bit & 1:
                out = self.mul(out, x)
            x = self.mul(x, x) if bit < bits - 1 else x
        return out

    def function(self, name: str, *operands: Value) -> Value:
        """A function that is expanded into basic instructions; half precision is computed in float."""
        dtype = operands[0].dtype
        code: Callable[..., Value] = EXPANSIONS[name]
        if dtype not in HALVES:
            return code(self, *operands)
        out = code(self, *[Value(float32, x.parts, x.lanes, x.scope, x.number) for x in operands])
        return Value(dtype, out.parts, out.lanes, out.scope)

    # What expansions may ask for: better code where something is known

    def sign(self, x: Value) -> int:
        """See ``weft.ops.elementary.known_sign``."""
        return -1 if x.parts[0] in self.falling else 0

    @property
    def underflows_freely(self) -> bool:
        """See ``weft.ops.exponent.exp``."""
        return self.machine.underflows_freely

    def scale(self, x: Value, n: Value, lowest: int) -> Value | None:
        """See ``weft.ops.exponent.scaled``: x 2**n, if there is an instruction for it."""
        if x.lanes != n.lanes or not self.machine.has_scale(x):
            return None
        keep = self.registers.instruction("fcmp uge", bool_, n, constant(lowest, n.dtype))
        return self.machine.scaled(self.registers, x, n, keep)

    def rarely(
        self, condition: Value, code: Callable[[Scalars, Value], Value], x: Value, usual: Value
    ) -> Value:
        """See ``weft.ops.elementary.rarely``: code that a branch leads around, unless some lane needs it."""
        w = self.writer
        usual = self.registers.in_lanes(usual, max(condition.lanes, x.lanes, usual.lanes))
        before, inside, end = w.block, w.label("rare"), w.label("end")
        w.room()
        w.branch(self.registers.any_lane(condition), inside, end, unlikely=True)
        with w.scope(is_loop=False, surely=False):
            w.begin(inside)
            rare = self.select(condition, code(self, x), usual)
            after = w.block
            w.jump(end)
        w.begin(end)
        return self.registers.joined(usual, before, rare, after)

    # Comparison, bits and choice

    def eq(self, x: Operand, y: Operand) -> Value:
        """x == y."""
        x, y = pair(x, y)
        if x.dtype not in PARTS:
            return self.compare("eq", x, y)
        a, b = self._split(x), self._split(y)
        return self.and_(self.compare("eq", a[0], b[0]), self.compare("eq", a[1], b[1]))

    def select(self, condition: Value, x: Operand, y: Operand) -> Value:
        """x where the condition holds, else y."""
        return self.registers.select(condition, *pair(x, y))

    # Parts of complex numbers

    def real(self, x: Value) -> Value:
        """The real part of a complex number."""
        return self._split(x)[0] if x.dtype in PARTS else x

    def imag(self, x: Value) -> Value:
        """The imaginary part of a complex number."""
        return self._split(x)[1] if x.dtype in PARTS else constant(0, x.dtype)

    def complex(self, re: Operand, im: Operand) -> Value:
        """A complex number of its parts."""
        return self._join(*pair(re, im))

    def _split(self, x: Value) -> tuple[Value, Value]:
        dtype = PARTS[x.dtype]
        numbers = (None, None) if x.number is None else (x.number.real, x.number.imag)
        re, im = (Value(dtype, (p,), x.lanes, x.scope, n) for p, n in zip(x.parts, numbers, strict=True))
        return re, im

    def _join(self, re: Value, im: Value) -> Value:
        lanes = max(re.lanes, im.lanes)
        parts = self.registers.wide(re, lanes) + self.registers.wide(im, lanes)
        number = None if re.number is None or im.number is None else complex(re.number, im.number)
        return Value(WHOLES[re.dtype], parts, lanes, max(re.scope, im.scope), number)

    # Instructions that their kind alone describes; ``weft.ops.scalar`` says what they do

    exp, log = map(partial(_one, function), ("exp", "log"))
    tanh, sigmoid = map(partial(_one, function), ("tanh", "sigmoid"))
    sin, cos, tan = map(partial(_one, function), ("sin", "cos", "tan"))
    floor, trunc, round = map(partial(_one, Reals.rounding), ("floor", "trunc", "round"))
    and_, or_, xor = map(partial(_two, Reals.arithmetic), ("and_", "or_", "xor"))
    lt, le = map(partial(_two, Reals.compare), ("lt", "le"))
    min, max = map(partial(_two, Reals.extreme), ("min", "max"))
    add, sub = map(partial(_two, by_parts), ("add", "sub"))
