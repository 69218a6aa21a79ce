"""Complex numbers on LLVM values, and all scalar instructions together: the emitter that code runs on."""

from __future__ import annotations

from typing import Any

from weft.backends.llvm.casts import Casts
from weft.backends.llvm.types import PARTS, WHOLES, Value, constant
from weft.base.dtypes import complex64, float64, kind

_HUGE, _TINY, _SCALE = 2.0**500, 2.0**-500, 2.0**600  # squares stay in range between the first two


class Scalars(Casts):
    """The scalar instruction set on LLVM values: a ``ScalarEmitter``."""

    # Arithmetic of reals and complex numbers

    def add(self, x: Any, y: Any) -> Value:
        """x + y."""
        return self._by_parts("add", *self.alike(x, y))

    def sub(self, x: Any, y: Any) -> Value:
        """x - y."""
        return self._by_parts("sub", *self.alike(x, y))

    def _by_parts(self, name: str, x: Value, y: Value) -> Value:
        if x.dtype not in PARTS:
            return self.arithmetic(name, x, y)
        a, b = self._split(x), self._split(y)
        return self._join(self.arithmetic(name, a[0], b[0]), self.arithmetic(name, a[1], b[1]))

    def mul(self, x: Any, y: Any) -> Value:
        """x * y."""
        x, y = self.alike(x, y)
        if x.dtype not in PARTS:
            return self.arithmetic("mul", x, y)
        (a, b), (c, d) = self._split(x), self._split(y)
        return self._join(self.sub(self.mul(a, c), self.mul(b, d)), self.add(self.mul(a, d), self.mul(b, c)))

    def div(self, x: Any, y: Any) -> Value:
        """x / y; of integers rounded towards zero, and 0 where y is 0."""
        x, y = self.alike(x, y)
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

    def rem(self, x: Any, y: Any) -> Value:
        """What is left of x / y rounded towards zero; of integers 0 where y is 0."""
        return self.remainder(*self.alike(x, y))

    def neg(self, x: Value) -> Value:
        """-x."""
        if x.dtype not in PARTS:
            return self.negative(x)
        return self._join(*[self.negative(part) for part in self._split(x)])

    def abs(self, x: Value) -> Value:
        """|x|; real for a complex x."""
        return self._modulus(x) if x.dtype in PARTS else self.size(x)

    def min(self, x: Any, y: Any) -> Value:
        """The smaller one; NaN if either is NaN."""
        return self.extreme("min", *self.alike(x, y))

    def max(self, x: Any, y: Any) -> Value:
        """The larger one; NaN if either is NaN."""
        return self.extreme("max", *self.alike(x, y))

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

    def floor(self, x: Value) -> Value:
        """The largest integer not above x."""
        return self.rounding("floor", x)

    def trunc(self, x: Value) -> Value:
        """x rounded towards zero."""
        return self.rounding("trunc", x)

    def round(self, x: Value) -> Value:
        """The nearest integer, the even one of two."""
        return self.rounding("round", x)

    def exp(self, x: Value) -> Value:
        """e to the power of x."""
        return self.function("exp", x)

    def log(self, x: Value) -> Value:
        """The natural logarithm."""
        return self.function("log", x)

    def sin(self, x: Value) -> Value:
        """The sine."""
        return self.function("sin", x)

    def cos(self, x: Value) -> Value:
        """The cosine."""
        return self.function("cos", x)

    def tanh(self, x: Value) -> Value:
        """The hyperbolic tangent."""
        return self.function("tanh", x)

    def atan2(self, y: Any, x: Any) -> Value:
        """The angle of the point (x, y), reals only."""
        return self.function("atan2", *self.alike(y, x))

    def pow(self, x: Any, y: Any) -> Value:
        """x to the power of y; integers only with y >= 0."""
        x, y = self.alike(x, y)
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

    # Comparison and bits

    def eq(self, x: Any, y: Any) -> Value:
        """x == y."""
        x, y = self.alike(x, y)
        if x.dtype not in PARTS:
            return self.compare("eq", x, y)
        a, b = self._split(x), self._split(y)
        return self.and_(self.compare("eq", a[0], b[0]), self.compare("eq", a[1], b[1]))

    def lt(self, x: Any, y: Any) -> Value:
        """x < y, reals only."""
        return self.compare("lt", *self.alike(x, y))

    def le(self, x: Any, y: Any) -> Value:
        """x <= y, reals only."""
        return self.compare("le", *self.alike(x, y))

    def and_(self, x: Any, y: Any) -> Value:
        """Bitwise and."""
        return self.arithmetic("and_", *self.alike(x, y))

    def or_(self, x: Any, y: Any) -> Value:
        """Bitwise or."""
        return self.arithmetic("or_", *self.alike(x, y))

    def xor(self, x: Any, y: Any) -> Value:
        """Bitwise exclusive or."""
        return self.arithmetic("xor", *self.alike(x, y))

    # Parts of complex numbers

    def real(self, x: Value) -> Value:
        """The real part of a complex number."""
        return self._split(x)[0] if x.dtype in PARTS else x

    def imag(self, x: Value) -> Value:
        """The imaginary part of a complex number."""
        return self._split(x)[1] if x.dtype in PARTS else constant(0, x.dtype)

    def complex(self, re: Any, im: Any) -> Value:
        """A complex number of its parts."""
        return self._join(*self.alike(re, im))

    def _split(self, x: Value) -> tuple[Value, Value]:
        dtype = PARTS[x.dtype]
        numbers = (None, None) if x.number is None else (x.number.real, x.number.imag)
        re, im = (Value(dtype, (p,), x.lanes, x.scope, n) for p, n in zip(x.parts, numbers, strict=True))
        return re, im

    def _join(self, re: Value, im: Value) -> Value:
        lanes = max(re.lanes, im.lanes)
        parts = self.wide(re, lanes) + self.wide(im, lanes)
        number = None if re.number is None or im.number is None else complex(re.number, im.number)
        return Value(WHOLES[re.dtype], parts, lanes, max(re.scope, im.scope), number)
